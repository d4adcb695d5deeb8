//! Engines whose reads go wrong on demand.

use std::error::Error as StdError;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use slotstream::core::RecordReader;
use slotstream::io::{MirrorReader, MmapReader, ReaderKind, open_reader};
use slotstream::{ContainerChoice, Engine, EngineBuilder, Error};
use slotstream_testkit::reader::{
    FaultyReader, FlippingReader, Schedule, ShortReader, SlowReader, TornReader,
};

type Inner = Arc<dyn RecordReader>;
type Opened = Result<Inner, Box<dyn StdError + Send + Sync>>;

/// A way in which a read goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The system refuses.
    Faulty,
    /// The file ends early.
    Short,
    /// Half the bytes are garbage.
    Torn,
    /// It comes late.
    Slow,
    /// It succeeds with a wrong bit.
    Flipped,
}

/// The ways that end in an error.
pub(crate) const WAYS: [Way; 3] = [Way::Faulty, Way::Short, Way::Torn];

/// What really reads, under the faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Under {
    /// A built-in reader.
    Kind(ReaderKind),
    /// A map.
    Mapped,
    /// [`COPIES`] copies, whose reads are counted together.
    Mirror,
}

/// Where records and rows are read from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    /// The shards.
    Shards,
    /// The container in this folder.
    Container(&'a Path),
}

impl Source<'_> {
    pub(crate) fn choice(self) -> ContainerChoice {
        match self {
            Self::Shards => ContainerChoice::Shards,
            Self::Container(folder) => ContainerChoice::Folder(folder.into()),
        }
    }
}

/// A reader whose reads go wrong on demand.
pub(crate) trait Armed: RecordReader {
    fn arm(&self, schedule: Schedule);
    fn reads(&self) -> u64;
    fn faults(&self) -> u64;
}

macro_rules! armed {
    ($($reader:ident),+) => {$(
        impl Armed for $reader<Inner> {
            fn arm(&self, schedule: Schedule) {
                self.arm(schedule);
            }
            fn reads(&self) -> u64 {
                self.reads()
            }
            fn faults(&self) -> u64 {
                self.faults()
            }
        }
    )+};
}

armed!(FaultyReader, FlippingReader, ShortReader, SlowReader, TornReader);

/// Long beside a read of a few KiB from the page cache, short enough for hundreds of them.
const LATE: Duration = Duration::from_millis(2);

fn open(under: Under, paths: &[PathBuf]) -> Opened {
    match under {
        Under::Kind(kind) => Ok(open_reader(kind, paths)?),
        #[expect(unsafe_code, reason = "the files are fixtures")]
        // SAFETY: no test that opens a map cuts a fixture or writes to it.
        Under::Mapped => Ok(Arc::new(unsafe { MmapReader::open(paths) }?)),
        Under::Mirror => Ok(open_reader(ReaderKind::Buffered, paths)?),
    }
}

/// Copies of a mirror: one fewer can fail before a mirror has to be made anew.
pub(crate) const COPIES: usize = 8;

/// Opens the reader with faults around it, around each of the copies of a mirror.
fn spoilt<R: Armed + 'static>(
    under: Under,
    paths: &[PathBuf],
    make: impl Fn(Inner) -> R,
    together: impl Fn(R, &R) -> R,
) -> Result<(Inner, Arc<dyn Armed>), Box<dyn StdError + Send + Sync>> {
    let first = make(open(under, paths)?);
    if under != Under::Mirror {
        let reader = Arc::new(first);
        return Ok((Arc::clone(&reader) as Inner, reader));
    }
    let mut copies: Vec<Inner> = Vec::new();
    for _ in 1..COPIES {
        copies.push(Arc::new(together(make(open(under, paths)?), &first)));
    }
    let first = Arc::new(first);
    copies.push(Arc::clone(&first) as Inner);
    Ok((Arc::new(MirrorReader::new(copies)?), first))
}

/// Builds an engine whose reads go wrong by `schedule` from the first on.
pub(crate) fn build_with(
    builder: EngineBuilder,
    (under, way): (Under, Way),
    schedule: Schedule,
) -> (Result<Engine, Error>, Arc<dyn Armed>) {
    let (tell, hear) = std::sync::mpsc::channel();
    let open = move |paths: &[PathBuf]| {
        macro_rules! spoilt {
            ($reader:ident, $make:expr) => {
                spoilt(under, paths, $make, $reader::counted_with)?
            };
        }
        let (reader, armed) = match way {
            Way::Faulty => spoilt!(FaultyReader, |inner| {
                FaultyReader::new(inner, schedule, io::ErrorKind::InvalidData)
            }),
            Way::Short => spoilt!(ShortReader, |inner| ShortReader::new(inner, schedule)),
            Way::Torn => spoilt!(TornReader, |inner| TornReader::new(inner, schedule)),
            Way::Flipped => spoilt!(FlippingReader, |inner| FlippingReader::new(inner, schedule)),
            Way::Slow => spoilt!(SlowReader, |inner| {
                let reader = SlowReader::new(inner, LATE);
                reader.arm(schedule);
                reader
            }),
        };
        tell.send(armed)?;
        Ok(reader)
    };
    let engine = builder.lanes(2).open_reader(Box::new(open)).build();
    (engine, hear.recv().expect("opened"))
}

/// An engine that loaded without a fault. Without an n-gram cache every generation reads the same
/// number of rows.
pub(crate) fn armed_engine(builder: EngineBuilder, what: (Under, Way)) -> (Engine, Arc<dyn Armed>) {
    let (engine, reader) = build_with(builder.ngram_cache_rows(0), what, Schedule::Never);
    (engine.expect("builds"), reader)
}

/// The pool holds no half-finished thing and has all of its slots.
pub(crate) fn assert_sound(engine: &Engine) {
    engine.inspect(|experts| {
        experts.pool().validate().expect("consistent");
        assert_eq!(experts.pool().open_claims(), 0);
        assert_eq!(experts.pool().slots(), engine.plan().slots);
    });
}
