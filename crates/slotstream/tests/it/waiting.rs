//! The misses of a layer are read together, and what is read is what was missed.

use std::sync::Arc;
use std::time::Duration;

use slotstream::Sizing;
use slotstream::core::RecordReader;
use slotstream::io::{ReaderKind, open_reader};
use slotstream_testkit::reader::SlowReader;

use crate::rig::{builder, golden, greedy, session};

#[test]
fn waiting_is_counted_and_misses_overlap() {
    let delay = Duration::from_millis(4);
    let open = move |paths: &[std::path::PathBuf]| {
        let inner = open_reader(ReaderKind::Buffered, paths)?;
        Ok(Arc::new(SlowReader::new(inner, delay)) as Arc<dyn RecordReader>)
    };
    // Six misses of nine pieces each: with 54 lanes they cost about one delay, not fifty-four.
    let engine = builder()
        .sizing(Sizing::Slots(18))
        .lanes(54)
        .open_reader(Box::new(open))
        .build()
        .expect("builds");
    let mut session = session(&engine);
    greedy(&mut session, &golden("p1.input_ids")[..1], 3);
    let decode = session.metrics().decode;
    assert_eq!(decode.passes, 2);
    assert!(decode.misses > 100, "{} misses", decode.misses);
    let serial = delay * u32::try_from(decode.misses * 9).expect("small");
    assert!(decode.io_wait >= delay, "waits are counted");
    assert!(decode.io_wait < serial / 4, "{:?} of {serial:?}", decode.io_wait);
    assert!(decode.io_wait <= decode.time && decode.read_time <= decode.time);
}
