//! Writes a trace while the run goes on.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use slotstream_core::{Attached, EventSink, Outcome, Prediction, Routing, Step, Tap};

use super::cursor::Put;
use super::{
    KIND_END, KIND_EVENTS, MAGIC, MAX_BLOCK, PoolEnd, TraceEnd, TraceError, TraceHeader,
    TraceTotals, VERSION, codec, outcomes,
};

/// A block is written once it has this many bytes: what a killed process loses.
const BLOCK: usize = 16 << 10;

/// What a recording says and keeps beside the events.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TraceOptions {
    /// Name of the model.
    pub model: String,
    /// Whatever else is worth knowing.
    pub note: String,
    /// The policy as the user named it; `None`: as it names itself.
    pub policy: Option<String>,
    /// Keep the weights of routings, and the logits of the top k + 8 where they are lent.
    pub detail: bool,
}

/// Logits that are kept beyond the top k.
const MORE_LOGITS: usize = 8;

impl TraceOptions {
    /// Experts only, nothing said.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Names the model.
    #[must_use]
    pub fn with_model(mut self, model: impl Into<String>) -> Self {
        self.model = model.into();
        self
    }

    /// Says something else.
    #[must_use]
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Names the policy as the user did.
    #[must_use]
    pub fn with_policy(mut self, policy: impl Into<String>) -> Self {
        self.policy = Some(policy.into());
        self
    }

    /// Keeps weights and the highest logits.
    #[must_use]
    pub const fn with_detail(mut self, detail: bool) -> Self {
        self.detail = detail;
        self
    }
}

/// Writes what it is told as an [`EventSink`] to `W`.
///
/// It never fails whoever tells it: the first error is kept, later events are dropped, and
/// [`finish`](Self::finish) returns it. The header is written when the sink is
/// [attached](EventSink::on_attach), blocks whenever one is full; without `finish` the file has
/// no end mark, and its whole blocks can still be read leniently.
pub struct TraceWriter<W: Write> {
    out: W,
    path: PathBuf,
    options: TraceOptions,
    header: Option<TraceHeader>,
    /// Payload of the running block.
    block: Vec<u8>,
    blocks: u32,
    /// Bytes written.
    offset: u64,
    totals: TraceTotals,
    /// Rows of the running pass; 0 before the first.
    rows: usize,
    ranked: Vec<u16>,
    state: State,
}

enum State {
    Open,
    Failed(Option<TraceError>),
    Finished,
}

impl TraceWriter<File> {
    /// Records into a new file at `path`, in place of one that is there.
    ///
    /// # Errors
    /// [`TraceError::Io`].
    pub fn create(path: impl AsRef<Path>, options: TraceOptions) -> Result<Self, TraceError> {
        let path = path.as_ref();
        let file = File::create(path).map_err(|e| TraceError::io(path, "creating", 0, e))?;
        Ok(Self::new(file, path, options))
    }
}

impl<W: Write> TraceWriter<W> {
    /// Records into `out`; `name` is what errors call it. `out` needs no buffer of its own.
    pub fn new(out: W, name: impl Into<PathBuf>, options: TraceOptions) -> Self {
        Self {
            out,
            path: name.into(),
            options,
            header: None,
            block: Vec::new(),
            blocks: 0,
            offset: 0,
            totals: TraceTotals::default(),
            rows: 0,
            ranked: Vec::new(),
            state: State::Open,
        }
    }

    /// What was recorded so far.
    #[must_use]
    pub const fn totals(&self) -> &TraceTotals {
        &self.totals
    }

    /// Where it is recorded.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the end mark, with the pool at the end where an exact replay is wanted; nothing is
    /// recorded from then on.
    ///
    /// # Errors
    /// The first error of the recording: [`TraceError::Io`], [`TraceError::Unwritable`] when
    /// something was told that the format has no bytes for, or when the sink was never attached;
    /// [`TraceError::Finished`] the second time.
    pub fn finish(&mut self, pool: Option<&PoolEnd>) -> Result<TraceTotals, TraceError> {
        if self.header.is_none() {
            self.refuse("no pool was attached", "on_attach before the end");
        }
        let end = TraceEnd { totals: self.totals, pool: pool.copied() };
        self.attempt(|writer| {
            writer.flush_block()?;
            writer.open_block(KIND_END);
            end.encode(&mut writer.block);
            writer.flush_block()?;
            writer
                .out
                .flush()
                .map_err(|e| TraceError::io(&writer.path, "writing", writer.offset, e))
        });
        match std::mem::replace(&mut self.state, State::Finished) {
            State::Open => Ok(self.totals),
            State::Failed(Some(error)) => Err(error),
            State::Failed(None) | State::Finished => {
                Err(TraceError::Finished { path: self.path.clone() })
            }
        }
    }

    /// Runs `f` unless something has failed before.
    fn attempt(&mut self, f: impl FnOnce(&mut Self) -> Result<(), TraceError>) {
        if matches!(self.state, State::Open)
            && let Err(error) = f(self)
        {
            self.state = State::Failed(Some(error));
        }
    }

    fn unwritable(&self, what: &'static str, expected: impl Into<String>) -> TraceError {
        let event = self.totals.events();
        TraceError::Unwritable { path: self.path.clone(), event, what, expected: expected.into() }
    }

    fn refuse(&mut self, what: &'static str, expected: &str) {
        self.attempt(|writer| Err(writer.unwritable(what, expected)));
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), TraceError> {
        let written = self.out.write_all(bytes);
        written.map_err(|e| TraceError::io(&self.path, "writing", self.offset, e))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    fn write_header(&mut self, header: &TraceHeader) -> Result<(), TraceError> {
        let payload = header.encode();
        let mut bytes = MAGIC.to_vec();
        bytes.put_u16(VERSION);
        bytes.put_u16(header.flags());
        bytes.put_u32(u32::try_from(payload.len()).unwrap_or(u32::MAX));
        // The checksum covers version, flags and length, too.
        let mut sum = crc32fast::Hasher::new();
        sum.update(&bytes);
        sum.update(&payload);
        bytes.put_u32(sum.finalize());
        bytes.put(&payload);
        self.write(&bytes)
    }

    /// Begins a block, unless one is running.
    fn open_block(&mut self, kind: u8) {
        if self.block.is_empty() {
            self.block.put_u8(kind);
            self.block.put_u32(self.blocks);
        }
    }

    /// Writes the running block.
    fn flush_block(&mut self) -> Result<(), TraceError> {
        if self.block.is_empty() {
            return Ok(());
        }
        let mut payload = std::mem::take(&mut self.block);
        let mut prefix = Vec::with_capacity(8);
        prefix.put_u32(u32::try_from(payload.len()).unwrap_or(u32::MAX));
        prefix.put_u32(crc32fast::hash(&payload));
        self.write(&prefix)?;
        self.write(&payload)?;
        self.blocks += 1;
        payload.clear();
        self.block = payload;
        Ok(())
    }

    /// Appends one event to the running block. An event that does not fit begins a new one.
    fn event(
        &mut self,
        count: impl FnOnce(&mut TraceTotals),
        put: impl FnOnce(&mut Self, &TraceHeader) -> Result<(), TraceError>,
    ) {
        self.attempt(|writer| {
            let Some(header) = writer.header.take() else {
                return Err(writer.unwritable("an event", "on_attach before it"));
            };
            writer.open_block(KIND_EVENTS);
            let before = writer.block.len();
            let result = put(writer, &header);
            writer.header = Some(header);
            result?;
            let len = writer.block.len() - before;
            if len > MAX_BLOCK - 5 {
                let most = format!("at most {} bytes", MAX_BLOCK - 5);
                return Err(writer.unwritable("an event", most));
            }
            if writer.block.len() > MAX_BLOCK {
                let event = writer.block.split_off(before);
                writer.flush_block()?;
                writer.open_block(KIND_EVENTS);
                writer.block.extend(event);
            }
            count(&mut writer.totals);
            Ok(())
        });
    }
}

impl<W: Write + Send> EventSink for TraceWriter<W> {
    fn on_attach(&mut self, pool: &Attached<'_>) {
        if self.header.is_some() {
            return self.refuse("a second pool", "one recording of one pool");
        }
        let (detail, top_k) = (self.options.detail, pool.geometry.top_k());
        let header = TraceHeader {
            record_bytes: pool.record_bytes,
            slots: pool.slots,
            floor: pool.floor,
            policy: self.options.policy.take().unwrap_or_else(|| pool.policy.to_owned()),
            model: std::mem::take(&mut self.options.model),
            note: std::mem::take(&mut self.options.note),
            weights: detail,
            logits: if detail { (top_k + MORE_LOGITS).min(pool.geometry.experts()) } else { 0 },
            ..TraceHeader::requests(pool.geometry)
        };
        self.attempt(|writer| writer.write_header(&header));
        self.header = Some(header);
    }

    fn on_step(&mut self, step: &Step<'_>) {
        // Blocks begin with a pass where they can: what is readable are then whole passes.
        if self.block.len() >= BLOCK {
            self.attempt(Self::flush_block);
        }
        self.rows = step.tokens.len();
        self.event(
            |totals| totals.passes += 1,
            |writer, _| {
                if codec::put_step(&mut writer.block, step) {
                    return Ok(());
                }
                Err(writer.unwritable("a phase", "prefill or decode"))
            },
        );
    }

    fn on_routing(&mut self, routing: &Routing<'_>) {
        let rows = self.rows;
        self.event(
            |totals| totals.routings += 1,
            |writer, header| {
                let geometry = &header.geometry;
                let ids = routing.ids().iter();
                let lawful = routing.rows() == rows
                    && rows > 0
                    && routing.top_k() == geometry.top_k()
                    && ids.into_iter().all(|id| geometry.index(routing.key(*id)).is_some());
                if !lawful {
                    let expected = format!("experts of {geometry:?}, a route a row of the pass");
                    return Err(writer.unwritable("a routing", expected));
                }
                let Self { block, ranked, .. } = writer;
                codec::put_routing(block, routing, header, ranked);
                Ok(())
            },
        );
        if self.block.len() >= 4 * BLOCK {
            self.attempt(Self::flush_block);
        }
    }

    fn on_forecast(&mut self, at: Tap, predictions: &[Prediction]) {
        self.event(
            |totals| totals.forecasts += 1,
            |writer, header| {
                let geometry = &header.geometry;
                let lawful = |p: &Prediction| {
                    geometry.index(p.key).is_some()
                        && p.needed_by.layer.index() < geometry.layers()
                        && (0.0..=1.0).contains(&p.confidence)
                };
                if at.layer().index() < geometry.layers()
                    && predictions.iter().all(lawful)
                    && codec::put_forecast(&mut writer.block, at, predictions)
                {
                    return Ok(());
                }
                let expected = format!("probabilities of records of {geometry:?}");
                Err(writer.unwritable("a forecast", expected))
            },
        );
    }

    fn on_outcome(&mut self, outcome: &Outcome) {
        self.event(
            |totals| totals.outcomes += 1,
            |writer, _| {
                if outcomes::encode(&mut writer.block, outcome) {
                    return Ok(());
                }
                Err(writer.unwritable("an outcome", "one of format version 1"))
            },
        );
    }
}

/// Without [`TraceWriter::finish`] the last events are written, but no end mark.
impl<W: Write> Drop for TraceWriter<W> {
    fn drop(&mut self) {
        if self.block.len() > 5 {
            self.attempt(|writer| {
                writer.flush_block()?;
                let flushed = writer.out.flush();
                flushed.map_err(|e| TraceError::io(&writer.path, "writing", writer.offset, e))
            });
        }
    }
}

impl<W: Write> fmt::Debug for TraceWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceWriter")
            .field("path", &self.path)
            .field("header", &self.header)
            .field("totals", &self.totals)
            .finish_non_exhaustive()
    }
}
