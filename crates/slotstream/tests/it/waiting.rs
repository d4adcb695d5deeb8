//! The misses of a layer are read together, and waiting for them is counted.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use slotstream::Sizing;
use slotstream::core::{Extent, FileId, ReadError, ReaderMode, RecordReader};
use slotstream::io::{ReaderKind, open_reader};

use crate::rig::{builder, golden, greedy, session};

/// Takes its time, and remembers how many reads were ever in flight at once.
#[derive(Debug)]
struct Crowd {
    inner: Arc<dyn RecordReader>,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl RecordReader for Crowd {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(4));
        let result = self.inner.read_exact_at(extent, buffer);
        self.now.fetch_sub(1, Ordering::SeqCst);
        result
    }

    fn effective(&self) -> ReaderMode {
        ReaderMode::new("crowd", "a test")
    }

    fn path(&self, file: FileId) -> Option<&Path> {
        self.inner.path(file)
    }
}

#[test]
fn the_misses_of_a_layer_are_read_together() {
    let (tell, hear) = std::sync::mpsc::channel();
    let open = move |paths: &[std::path::PathBuf]| {
        let inner = open_reader(ReaderKind::Buffered, paths)?;
        let crowd = Arc::new(Crowd { inner, now: AtomicUsize::new(0), most: AtomicUsize::new(0) });
        tell.send(Arc::clone(&crowd))?;
        Ok(crowd as Arc<dyn RecordReader>)
    };
    // Six misses of nine pieces each: 54 reads that 54 lanes can have in flight at once.
    let engine = builder()
        .sizing(Sizing::Slots(18))
        .lanes(54)
        .open_reader(Box::new(open))
        .build()
        .expect("builds");
    let crowd: Arc<Crowd> = hear.recv().expect("opened");
    assert_eq!(engine.reader_mode().name, "crowd");
    let mut session = session(&engine);
    greedy(&mut session, &golden("p1.input_ids")[..1], 3);
    let decode = session.metrics().decode;
    assert_eq!(decode.passes, 2);
    assert!(decode.misses > 100, "{} misses", decode.misses);
    let most = crowd.most.load(Ordering::SeqCst);
    assert!(most > 9, "at most {most} reads at once: records were read one after another");
    assert!(decode.io_wait > Duration::ZERO && decode.io_wait <= decode.time);
    assert!(decode.read_time > Duration::ZERO);
}
