//! Reads a trace, a block at a time.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use slotstream_core::EventSink;

use super::codec::{Frame, Kind};
use super::cursor::Cursor;
use super::event::{Event, Owned};
use super::{
    FLAG_LOGITS, FLAG_WEIGHTS, HEADER_PREFIX, KIND_END, KIND_EVENTS, MAGIC, MAX_BLOCK, MAX_HEADER,
    TraceEnd, TraceError, TraceHeader, TraceTotals, VERSION,
};

/// Reads a trace from begin to end, in memory of one block.
#[derive(Debug)]
pub struct TraceReader<R> {
    read: R,
    path: PathBuf,
    header: TraceHeader,
    lenient: bool,
    /// Bytes read.
    offset: u64,
    /// Payload of the running block, where it begins in the file, and what was read of it.
    payload: Vec<u8>,
    begin: u64,
    at: usize,
    /// Blocks read.
    blocks: u64,
    frame: Frame,
    totals: TraceTotals,
    end: Option<TraceEnd>,
    done: bool,
}

/// How far a trace could be played.
#[derive(Debug)]
#[non_exhaustive]
pub struct Played {
    /// Events that were played.
    pub totals: TraceTotals,
    /// Passes that were played from begin to end.
    pub whole_passes: u64,
    /// The end mark.
    pub end: Option<TraceEnd>,
    /// What ended a lenient reading before the end mark.
    pub fault: Option<TraceError>,
}

impl TraceReader<BufReader<File>> {
    /// Opens the trace at `path` and reads its header.
    ///
    /// # Errors
    /// [`TraceError::Io`], and those of [`new`](Self::new).
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|e| TraceError::io(path, "opening", 0, e))?;
        Self::new(BufReader::new(file), path)
    }
}

/// Reads at most `len` bytes into `out`, which grows with what there is.
fn fill<R: Read>(read: &mut R, len: usize, out: &mut Vec<u8>) -> std::io::Result<usize> {
    out.clear();
    read.by_ref().take(len as u64).read_to_end(out)
}

impl<R: Read> TraceReader<R> {
    /// Reads the header of a trace; `name` is what errors call it.
    ///
    /// # Errors
    /// [`TraceError::NotRecorded`], [`TraceError::Version`], [`TraceError::Field`],
    /// [`TraceError::Checksum`], [`TraceError::Truncated`], [`TraceError::Io`].
    pub fn new(mut read: R, name: impl Into<PathBuf>) -> Result<Self, TraceError> {
        let path = name.into();
        let (header, offset) = read_header(&mut read, &path)?;
        Ok(Self {
            read,
            path,
            header,
            lenient: false,
            offset,
            payload: Vec::new(),
            begin: offset,
            at: 0,
            blocks: 0,
            frame: Frame::default(),
            totals: TraceTotals::default(),
            end: None,
            done: false,
        })
    }

    /// Takes what lies in whole blocks before a fault: the fault then ends the reading without an
    /// error, and [`Played::fault`] tells it.
    #[must_use]
    pub const fn lenient(mut self, lenient: bool) -> Self {
        self.lenient = lenient;
        self
    }

    /// What the trace is of.
    #[must_use]
    pub const fn header(&self) -> &TraceHeader {
        &self.header
    }

    /// Tells `sink` everything, as the engine did, beginning with
    /// [`on_attach`](EventSink::on_attach).
    ///
    /// # Errors
    /// [`TraceError::Truncated`] without an end mark, [`TraceError::Checksum`],
    /// [`TraceError::Field`], [`TraceError::Io`]; unless reading leniently.
    pub fn play(mut self, sink: &mut dyn EventSink) -> Result<Played, TraceError> {
        sink.on_attach(&self.header.attached());
        let mut fault = None;
        loop {
            match self.advance(sink) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if self.lenient => {
                    fault = Some(error);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        let whole_passes = self.whole_passes();
        Ok(Played { totals: self.totals, whole_passes, end: self.end, fault })
    }

    /// The events as values, one after another.
    #[must_use]
    pub const fn events(self) -> Events<R> {
        Events(self)
    }

    /// The end mark, once it was read.
    #[must_use]
    pub const fn end(&self) -> Option<&TraceEnd> {
        self.end.as_ref()
    }

    /// Passes that are certainly complete: all but the last, and all once the end was read.
    const fn whole_passes(&self) -> u64 {
        let running = if self.end.is_some() { 0 } else { 1 };
        self.totals.passes.saturating_sub(running)
    }

    /// Reads the next event and tells it to `sink`; `false` at the end mark.
    fn advance(&mut self, sink: &mut dyn EventSink) -> Result<bool, TraceError> {
        while !self.done && self.at == self.payload.len() {
            if let Err(error) = self.next_block() {
                self.done = true;
                return Err(error);
            }
        }
        if self.done {
            return Ok(false);
        }
        let mut cursor = Cursor::new(&self.payload, self.at);
        match self.frame.read(&mut cursor, &self.header) {
            Ok(kind) => {
                self.at = cursor.at();
                let total = match kind {
                    Kind::Step => &mut self.totals.passes,
                    Kind::Routing => &mut self.totals.routings,
                    Kind::Forecast => &mut self.totals.forecasts,
                    Kind::Outcome(_) => &mut self.totals.outcomes,
                };
                *total += 1;
                self.frame.lend(kind, &self.header, sink);
                Ok(true)
            }
            Err(bad) => {
                self.done = true;
                Err(bad.within(&self.path, self.begin, Some(self.blocks - 1)))
            }
        }
    }

    fn truncated(&self) -> TraceError {
        TraceError::Truncated {
            path: self.path.clone(),
            offset: self.offset,
            block: Some(self.blocks),
            passes: self.whole_passes(),
        }
    }

    fn field(&self, field: &'static str, expected: String, found: String) -> TraceError {
        let (path, offset) = (self.path.clone(), self.offset);
        TraceError::Field { path, offset, block: Some(self.blocks), field, expected, found }
    }

    /// Reads `len` bytes into the payload.
    fn fill(&mut self, len: usize) -> Result<(), TraceError> {
        let got = fill(&mut self.read, len, &mut self.payload)
            .map_err(|e| TraceError::io(&self.path, "reading", self.offset, e))?;
        if got < len {
            self.offset += got as u64;
            self.payload.clear();
            return Err(self.truncated());
        }
        Ok(())
    }

    fn next_block(&mut self) -> Result<(), TraceError> {
        self.at = 0;
        self.fill(8)?;
        let word = |at: usize| {
            self.payload[at..].first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes))
        };
        let (len, expected) = (word(0) as usize, word(4));
        self.payload.clear();
        if !(6..=MAX_BLOCK).contains(&len) {
            let legal = format!("6 to {MAX_BLOCK} bytes");
            return Err(self.field("block length", legal, len.to_string()));
        }
        let begin = self.offset;
        self.offset += 8;
        self.begin = self.offset;
        self.fill(len)?;
        let found = crc32fast::hash(&self.payload);
        if found != expected {
            self.payload.clear();
            let (path, block) = (self.path.clone(), Some(self.blocks));
            return Err(TraceError::Checksum { path, offset: begin, block, expected, found });
        }
        self.open_block(len)
    }

    /// Looks at kind and number of the block that was read.
    fn open_block(&mut self, len: usize) -> Result<(), TraceError> {
        let mut cursor = Cursor::new(&self.payload, 0);
        let opened = (|| {
            let kind = cursor.u8("block kind")?;
            let number = u64::from(cursor.u32("block number")?);
            if number != self.blocks {
                let expected = self.blocks.to_string();
                return Cursor::bad(1, "block number", expected, number.to_string());
            }
            match kind {
                KIND_EVENTS => Ok(None),
                KIND_END => TraceEnd::decode(&mut cursor).map(Some),
                _ => Cursor::bad(0, "block kind", "1 or 2", kind.to_string()),
            }
        })();
        let at = cursor.at();
        let end = opened.map_err(|bad| bad.within(&self.path, self.begin, Some(self.blocks)))?;
        self.at = at;
        self.offset += len as u64;
        self.blocks += 1;
        end.map_or(Ok(()), |end| self.finish(end))
    }

    fn finish(&mut self, end: TraceEnd) -> Result<(), TraceError> {
        if end.totals != self.totals {
            let (expected, found) = (format!("{:?}", self.totals), format!("{:?}", end.totals));
            return Err(self.field("totals", expected, found));
        }
        let mut rest = Vec::new();
        let more = fill(&mut self.read, 1, &mut rest)
            .map_err(|e| TraceError::io(&self.path, "reading", self.offset, e))?;
        self.end = Some(end);
        self.done = true;
        if more > 0 {
            let (expected, found) = ("the end of the file".to_owned(), "more bytes".to_owned());
            return Err(self.field("end mark", expected, found));
        }
        Ok(())
    }
}

fn read_header<R: Read>(read: &mut R, path: &Path) -> Result<(TraceHeader, u64), TraceError> {
    let mut prefix = Vec::new();
    let io = |e| TraceError::io(path, "reading", 0, e);
    let got = fill(read, HEADER_PREFIX, &mut prefix).map_err(io)?;
    let same = prefix.iter().zip(&MAGIC).take_while(|(a, b)| a == b).count();
    if same < got.min(MAGIC.len()) || got == 0 {
        let found = shown(&prefix);
        return Err(TraceError::NotRecorded { path: path.into(), found });
    }
    let truncated = |offset: usize| TraceError::Truncated {
        path: path.into(),
        offset: offset as u64,
        block: None,
        passes: 0,
    };
    if got < HEADER_PREFIX {
        return Err(truncated(got));
    }
    let mut cursor = Cursor::new(&prefix, MAGIC.len());
    let (Ok(version), Ok(flags), Ok(len), Ok(expected)) = (
        cursor.u16("version"),
        cursor.u16("flags"),
        cursor.u32("header length"),
        cursor.u32("header checksum"),
    ) else {
        return Err(truncated(got));
    };
    if version != VERSION {
        return Err(TraceError::Version { path: path.into(), found: version, known: VERSION });
    }
    let bad = |at: usize, field, expected: String, found: String| {
        super::cursor::Bad { at, field, expected, found }.within(path, 0, None)
    };
    let known = FLAG_WEIGHTS | FLAG_LOGITS;
    if flags & !known != 0 {
        return Err(bad(10, "flags", format!("of {known:#04b}"), format!("{flags:#04b}")));
    }
    let len = len as usize;
    if len > MAX_HEADER {
        let expected = format!("at most {MAX_HEADER} bytes");
        return Err(bad(12, "header length", expected, len.to_string()));
    }
    let mut payload = Vec::new();
    let got = fill(read, len, &mut payload).map_err(io)?;
    if got < len {
        return Err(truncated(HEADER_PREFIX + got));
    }
    let mut sum = crc32fast::Hasher::new();
    sum.update(&prefix[..HEADER_PREFIX - 4]);
    sum.update(&payload);
    let found = sum.finalize();
    if found != expected {
        let (path, block) = (path.into(), None);
        return Err(TraceError::Checksum { path, offset: 0, block, expected, found });
    }
    let header = TraceHeader::decode(&payload, flags)
        .map_err(|bad| bad.within(path, HEADER_PREFIX as u64, None))?;
    Ok((header, (HEADER_PREFIX + len) as u64))
}

/// The first bytes of something, as text.
pub(crate) fn shown(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "nothing".to_owned();
    }
    bytes[..bytes.len().min(16)].escape_ascii().to_string()
}

/// The events of a trace as values. Ends after the first error; see [`TraceReader::lenient`].
#[derive(Debug)]
pub struct Events<R>(TraceReader<R>);

impl<R> Events<R> {
    /// The end mark, once the iterator has ended.
    #[must_use]
    pub const fn end(&self) -> Option<&TraceEnd> {
        self.0.end.as_ref()
    }
}

impl<R: Read> Iterator for Events<R> {
    type Item = Result<Event, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut event = None;
        let advanced = self.0.advance(&mut Owned(|next| event = Some(next)));
        match advanced {
            Ok(_) => event.map(Ok),
            Err(_) if self.0.lenient => None,
            Err(error) => Some(Err(error)),
        }
    }
}
