//! Recordings of every format that is read here.
//!
//! `docs/formats.md` describes the texts and their columns.

mod csv;
mod gather;
mod jsonl;
mod keys;
mod lines;
mod oracle;
mod sniff;
mod source;
mod survey;
mod text;

use std::path::{Path, PathBuf};

use slotstream_core::EventSink;

use crate::Requests;
use crate::trace::{Played, TraceError, TraceHeader, TraceReader};
use lines::Lines;
use source::Source;
use survey::{Declared, Survey};

pub(crate) use text::TOKEN_IDS;

/// What a file of requests can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TraceFormat {
    /// The trace format of this crate: requests and outcomes.
    Native,
    /// A table with a header line, one lookup a line.
    Csv,
    /// One JSON object a line, each a visit of a layer.
    Jsonl,
    /// A text with one token and layer a line.
    Text,
    /// One key a line, each a pass of its own.
    Keys,
    /// libCacheSim's binary records, each a pass of its own.
    OracleGeneral,
}

impl TraceFormat {
    /// All formats.
    pub const ALL: &[Self] =
        &[Self::Native, Self::Csv, Self::Jsonl, Self::Text, Self::Keys, Self::OracleGeneral];

    /// Its name on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "trace",
            Self::Csv => "csv",
            Self::Jsonl => "jsonl",
            Self::Text => "text",
            Self::Keys => "keys",
            Self::OracleGeneral => "oracle-general",
        }
    }

    /// The format of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|format| format.name() == name)
    }
}

/// A file of requests that was looked through once: its format and geometry are known, and its
/// numbers are legal. Any format may be compressed with gzip.
///
/// ```
/// use slotstream_replay::Recording;
///
/// let keys = Recording::from_bytes("example", &b"a\nb\na\n"[..])?.requests()?;
/// assert_eq!((keys.passes().len(), keys.geometry().records()), (3, 2));
/// # Ok::<(), slotstream_replay::TraceError>(())
/// ```
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    source: Source,
    format: TraceFormat,
    header: TraceHeader,
    lenient: bool,
}

impl Recording {
    /// Looks through the file at `path`; its content tells the format.
    ///
    /// # Errors
    /// [`TraceError::UnknownFormat`], [`TraceError::Io`], and what is wrong with the text or the
    /// trace's header.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let path = path.as_ref();
        Self::new(path.into(), Source::File(path.into()), None)
    }

    /// [`open`](Self::open) for a file whose format is known.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_as(path: impl AsRef<Path>, format: TraceFormat) -> Result<Self, TraceError> {
        let path = path.as_ref();
        Self::new(path.into(), Source::File(path.into()), Some(format))
    }

    /// Looks through bytes in memory; `name` is what errors call them.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_bytes(
        name: impl Into<PathBuf>,
        bytes: impl Into<std::sync::Arc<[u8]>>,
    ) -> Result<Self, TraceError> {
        Self::new(name.into(), Source::Bytes(bytes.into()), None)
    }

    /// [`from_bytes`](Self::from_bytes) of a known format.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_bytes_as(
        name: impl Into<PathBuf>,
        bytes: impl Into<std::sync::Arc<[u8]>>,
        format: TraceFormat,
    ) -> Result<Self, TraceError> {
        Self::new(name.into(), Source::Bytes(bytes.into()), Some(format))
    }

    fn new(path: PathBuf, source: Source, format: Option<TraceFormat>) -> Result<Self, TraceError> {
        let format = match format {
            Some(format) => format,
            None => sniff::format_of(&source, &path)?,
        };
        let header = if format == TraceFormat::Native {
            TraceReader::new(source.open(&path)?, &path)?.header().clone()
        } else {
            let mut survey = Survey::default();
            let declared = read(&source, &path, format, &mut survey)?;
            survey.header(declared, &path)?
        };
        Ok(Self { path, source, format, header, lenient: false })
    }

    /// Takes what lies before a fault of a [native](TraceFormat::Native) trace; see
    /// [`TraceReader::lenient`].
    #[must_use]
    pub const fn lenient(mut self, lenient: bool) -> Self {
        self.lenient = lenient;
        self
    }

    /// The format.
    #[must_use]
    pub const fn format(&self) -> TraceFormat {
        self.format
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it is of. Slots, policy and record bytes are known of native traces only.
    #[must_use]
    pub const fn header(&self) -> &TraceHeader {
        &self.header
    }

    /// Tells `sink` everything, beginning with [`on_attach`](EventSink::on_attach).
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn play(&self, sink: &mut dyn EventSink) -> Result<Played, TraceError> {
        if self.format == TraceFormat::Native {
            let read = self.source.open(&self.path)?;
            return TraceReader::new(read, &self.path)?.lenient(self.lenient).play(sink);
        }
        sink.on_attach(&self.header.attached());
        let mut counted = survey::Counted::new(sink);
        read(&self.source, &self.path, self.format, &mut counted)?;
        let totals = counted.totals;
        Ok(Played { totals, whole_passes: totals.passes, end: None, fault: None })
    }

    /// The requests, in memory.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn requests(&self) -> Result<Requests, TraceError> {
        let mut requests = Requests::new(self.header.geometry);
        self.play(&mut requests)?;
        Ok(requests)
    }
}

/// Reads a file that is no native trace.
fn read(
    source: &Source,
    path: &Path,
    format: TraceFormat,
    sink: &mut dyn EventSink,
) -> Result<Declared, TraceError> {
    let read = source.open(path)?;
    match format {
        TraceFormat::Csv => csv::read(Lines::new(read, path), sink),
        TraceFormat::Jsonl => jsonl::read(Lines::new(read, path), sink),
        TraceFormat::Text => text::read(Lines::new(read, path), sink),
        TraceFormat::Keys => keys::read(Lines::new(read, path), sink),
        TraceFormat::OracleGeneral | TraceFormat::Native => oracle::read(read, path, sink),
    }
}
