//! The misses of a layer are read together, and waiting for them is counted; n-gram rows are read
//! before their pass.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

use slotstream::Sizing;
use slotstream::core::{Extent, FileId, ReadError, ReaderMode, RecordReader};

use crate::rig::{builder, golden, greedy, reading_by, session};

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
    let crowd = |inner| Crowd { inner, now: AtomicUsize::new(0), most: AtomicUsize::new(0) };
    // Six misses of nine pieces each: 54 reads that 54 lanes can have in flight at once.
    let (engine, crowd) = reading_by(builder().sizing(Sizing::Slots(18)).lanes(54), crowd);
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

/// Counts the reads that are not of experts.
#[derive(Debug)]
struct Rows {
    inner: Arc<dyn RecordReader>,
    experts: OnceLock<HashSet<Extent>>,
    ended: Mutex<usize>,
    more: Condvar,
}

impl Rows {
    /// Waits until `count` rows' reads have ended.
    fn wait(&self, count: usize) {
        let ended = self.ended.lock().expect("not poisoned");
        // Only a failure lasts that long.
        let hang = Duration::from_secs(60);
        let (ended, _) = self
            .more
            .wait_timeout_while(ended, hang, |ended| *ended < count)
            .expect("not poisoned");
        assert_eq!(*ended, count, "reads of rows");
    }
}

impl RecordReader for Rows {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        let is_row = self.experts.get().is_some_and(|experts| !experts.contains(extent));
        if is_row {
            // Whoever waited for it would be caught waiting.
            std::thread::sleep(Duration::from_millis(2));
        }
        let result = self.inner.read_exact_at(extent, buffer);
        if is_row {
            *self.ended.lock().expect("not poisoned") += 1;
            self.more.notify_all();
        }
        result
    }

    fn effective(&self) -> ReaderMode {
        ReaderMode::new("rows", "a test")
    }

    fn path(&self, file: FileId) -> Option<&Path> {
        self.inner.path(file)
    }
}

#[test]
fn the_rows_of_a_token_are_read_before_its_pass() {
    let rows = |inner| {
        let (experts, ended, more) = (OnceLock::new(), Mutex::new(0), Condvar::new());
        Rows { inner, experts, ended, more }
    };
    // Without a cache each token reads its rows, three pieces each.
    let (engine, rows) = reading_by(builder().ngram_cache_rows(0), rows);
    let checkpoint = engine.checkpoint();
    let geometry = checkpoint.geometry();
    let keys = (0..geometry.records()).filter_map(|i| geometry.key(i));
    let experts = keys.filter_map(|key| checkpoint.expert_pieces(key)).flatten().collect();
    rows.experts.set(experts).expect("once");
    let ple = checkpoint.config().ple.as_ref().expect("a table");
    let a_token = 3 * ple.heads();
    let mut session = session(&engine);
    session.prefill(&golden("p1.input_ids")).expect("runs");
    let mut ended = *rows.ended.lock().expect("not poisoned");
    for token in &golden("p1.greedy_ids")[..8] {
        assert_eq!(session.next().expect("runs"), *token);
        // The pass has asked for nothing more, and the next one's rows arrive without it.
        ended += a_token;
        rows.wait(ended);
    }
}
