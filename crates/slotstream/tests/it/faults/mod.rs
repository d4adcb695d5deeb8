//! What goes wrong from outside: reads, files, cancellation, parts that panic. A typed error, a
//! consistent pool, and right tokens afterwards.

mod cancel;
mod changed;

mod foreign;
mod reads;

use std::sync::Arc;

use slotstream::core::RecordReader;
use slotstream::io::{ReaderKind, open_reader};
use slotstream::{Engine, EngineBuilder, Error};
use slotstream_testkit::reader::{FaultyReader, Schedule, ShortReader, TornReader};

type Inner = Arc<dyn RecordReader>;

/// A way in which a read goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The system refuses.
    Faulty,
    /// The file ends early.
    Short,
    /// Half the bytes are garbage.
    Torn,
}

const WAYS: [Way; 3] = [Way::Faulty, Way::Short, Way::Torn];

/// A reader whose reads fail on demand.
trait Armed: RecordReader {
    fn arm(&self, schedule: Schedule);
    fn reads(&self) -> u64;
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
        }
    )+};
}

armed!(FaultyReader, ShortReader, TornReader);

/// Builds an engine whose reads go wrong by `schedule` from the first on.
fn build_with(
    builder: EngineBuilder,
    way: Way,
    schedule: Schedule,
) -> (Result<Engine, Error>, Arc<dyn Armed>) {
    let (tell, hear) = std::sync::mpsc::channel();
    let open = move |paths: &[std::path::PathBuf]| {
        let inner = open_reader(ReaderKind::Buffered, paths)?;
        macro_rules! reader {
            ($reader:expr) => {{
                let reader = Arc::new($reader);
                tell.send(Arc::clone(&reader) as Arc<dyn Armed>)?;
                reader as Inner
            }};
        }
        Ok(match way {
            Way::Faulty => {
                reader!(FaultyReader::new(inner, schedule, std::io::ErrorKind::InvalidData))
            }
            Way::Short => reader!(ShortReader::new(inner, schedule)),
            Way::Torn => reader!(TornReader::new(inner, schedule)),
        })
    };
    // No n-gram cache: every generation reads the same number of rows.
    let engine = builder.ngram_cache_rows(0).lanes(2).open_reader(Box::new(open)).build();
    (engine, hear.recv().expect("opened"))
}

/// An engine that loaded without a fault.
fn armed_engine(builder: EngineBuilder, way: Way) -> (Engine, Arc<dyn Armed>) {
    let (engine, reader) = build_with(builder, way, Schedule::Never);
    (engine.expect("builds"), reader)
}

/// The pool holds no half-finished thing.
fn assert_sound(engine: &Engine) {
    engine.inspect(|experts| {
        experts.pool().validate().expect("consistent");
        assert_eq!(experts.pool().open_claims(), 0);
    });
}
