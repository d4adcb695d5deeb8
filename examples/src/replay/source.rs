//! The requests to replay.

use std::path::{Path, PathBuf};

use slotstream_replay::{PoolSize, Recording, Requests, TraceFormat, shuffled};

use super::Arguments;
use crate::Failure;

/// The trace that is replayed when none is given.
const DEFAULT: &str = "prose-austen.txt.gz";

/// Sizes of a replay of a trace for which none was given, in token routes, and of keys, in shares.
const ROUTES: [f64; 5] = [1.0, 1.5, 2.0, 3.0, 4.5];
const SHARES: [f64; 4] = [0.1, 0.2, 0.3, 0.5];

/// Requests, and what they are called.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) label: String,
    pub(super) requests: Requests,
    /// Bytes of a record, where the trace says.
    pub(super) record_bytes: Option<u64>,
    /// The file; none of a shuffled trace.
    pub(super) recording: Option<Recording>,
    pub(super) keys: bool,
}

impl Source {
    /// Everything that the command line names.
    pub(super) fn all(arguments: &Arguments) -> Result<Vec<Self>, Failure> {
        let mut sources = Vec::new();
        for path in &arguments.trace {
            sources.push(Self::new(Recording::open(path)?, false)?);
        }
        for path in &arguments.keys {
            sources.push(Self::new(Recording::open_as(path, TraceFormat::Keys)?, true)?);
        }
        if sources.is_empty() {
            sources.push(Self::new(Recording::open(bundled_trace())?, false)?);
        }
        tell_apart(&mut sources);
        if arguments.shuffle {
            let mixed: Vec<Self> =
                sources.iter().map(|source| source.shuffled(arguments.seed)).collect();
            sources.extend(mixed);
        }
        Ok(sources)
    }

    fn new(recording: Recording, keys: bool) -> Result<Self, Failure> {
        let requests = recording.requests()?;
        let label = label(recording.path());
        let record_bytes = Some(recording.header().record_bytes).filter(|bytes| *bytes > 0);
        Ok(Self { label, requests, record_bytes, recording: Some(recording), keys })
    }

    fn shuffled(&self, seed: u64) -> Self {
        Self {
            label: format!("{} shuffled", self.label),
            requests: shuffled(&self.requests, seed),
            record_bytes: self.record_bytes,
            recording: None,
            keys: self.keys,
        }
    }

    /// The sizes to replay it at: as asked for, as recorded, or a few. In slots, each once.
    pub(super) fn slots(&self, arguments: &Arguments) -> Vec<usize> {
        let geometry = self.requests.geometry();
        let mut sizes: Vec<PoolSize> = arguments.sizes().collect();
        let recorded = self.recording.as_ref().map_or(0, |recording| recording.header().slots);
        if sizes.is_empty() && recorded > 0 {
            sizes.push(PoolSize::Slots(recorded));
        } else if sizes.is_empty() && self.keys {
            sizes.extend(SHARES.map(PoolSize::Fraction));
        } else if sizes.is_empty() {
            sizes.extend(ROUTES.map(PoolSize::Routes));
        }
        let mut slots: Vec<usize> = Vec::new();
        for size in sizes {
            let size = size.slots(geometry);
            if !slots.contains(&size) {
                slots.push(size);
            }
        }
        slots
    }

    /// One line about it.
    pub(super) fn describe(&self) -> String {
        let (geometry, requests) = (self.requests.geometry(), &self.requests);
        format!(
            "{}: {} passes, {} lookups; {} layers of {} experts, top-{}",
            self.label,
            requests.passes().len(),
            requests.lookups(),
            geometry.layers(),
            geometry.experts(),
            geometry.top_k()
        )
    }
}

/// The bundled trace that is replayed when none is given, in the repository that this was built
/// from or below the current folder.
pub(crate) fn bundled_trace() -> PathBuf {
    let folder = Path::new("models/tiny-moe/traces").join(DEFAULT);
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join(&folder);
    if built.is_file() { built } else { Path::new("examples").join(folder) }
}

/// Traces of equal names get their numbers, so that no figure of one is taken for the other's.
fn tell_apart(sources: &mut [Source]) {
    let labels: Vec<String> = sources.iter().map(|source| source.label.clone()).collect();
    for (number, source) in (1..).zip(sources) {
        if labels.iter().filter(|label| **label == source.label).count() > 1 {
            source.label = format!("{} ({number})", source.label);
        }
    }
}

/// A file's name without its endings.
pub(super) fn label(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_owned()
}
