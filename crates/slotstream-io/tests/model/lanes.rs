//! The lane queue: every job ends exactly once, nobody sleeps through work, demand goes first.

use std::panic::resume_unwind;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use loom::thread;
use slotstream_core::{
    CancelToken, Extent, FileId, Job, Landing, ReadClass, ReadError, ReadQueue, ReaderMode,
    RecordReader,
};
use slotstream_io::LaneQueue;

use crate::explore::{Tally, explore};

/// A byte of the only file tells its position.
#[derive(Debug, Default)]
struct Reader {
    /// The read of this position panics.
    panics_at: Option<u64>,
    /// Jobs that it takes at once; they are read one after the other.
    depth: usize,
    /// Positions of the reads, in the order in which they began.
    begun: Mutex<Vec<u64>>,
}

impl RecordReader for Reader {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        lock(&self.begun).push(extent.offset());
        if self.panics_at == Some(extent.offset()) {
            // Without the hook, which would write a report in each of thousands of runs.
            resume_unwind(Box::new("the reader's panic"));
        }
        buffer.fill(extent.offset() as u8);
        Ok(())
    }

    fn batch_depth(&self) -> usize {
        self.depth
    }

    fn effective(&self) -> ReaderMode {
        ReaderMode::new("model", "a model check")
    }

    fn path(&self, _file: FileId) -> Option<&Path> {
        None
    }
}

/// Only one thread runs at a time, so the checker need not know of what the test itself keeps.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// With the right byte.
    Read,
    WrongByte,
    Cancelled,
    Closed,
    Failed,
    /// It was dropped without landing.
    Dropped,
}

/// What became of the jobs of a run, by their position.
#[derive(Clone)]
struct Book(Arc<Entries>);

struct Entries {
    ends: Mutex<Vec<(u64, End)>>,
    tally: Tally,
}

impl Book {
    fn new() -> Self {
        Self(Arc::new(Entries { ends: Mutex::default(), tally: Tally::new() }))
    }

    /// A job that reads one byte at `at`; what `then` does comes after the end was noted.
    fn job_then(&self, at: u64, then: impl FnOnce() + Send + 'static) -> Job {
        let extent = Extent::new(FileId::new(0), at, 1).expect("small");
        let then = Some(Box::new(then) as Box<dyn FnOnce() + Send>);
        let note = Note { at, byte: [0xFF], book: Some(self.clone()), then };
        Job::new(extent, Box::new(note))
    }

    fn job(&self, at: u64) -> Job {
        self.job_then(at, || ())
    }

    fn wait_for(&self, ends: usize) {
        self.0.tally.wait_for(ends);
    }

    /// How the jobs 0, 1, ... `jobs` - 1 ended: each exactly once.
    fn ends(&self, jobs: u64) -> Vec<End> {
        let mut ends = lock(&self.0.ends).clone();
        ends.sort_by_key(|(at, _)| *at);
        let positions: Vec<u64> = ends.iter().map(|(at, _)| *at).collect();
        assert_eq!(positions, (0..jobs).collect::<Vec<_>>(), "each job ends once: {ends:?}");
        ends.into_iter().map(|(_, end)| end).collect()
    }
}

struct Note {
    at: u64,
    byte: [u8; 1],
    /// Taken when the job lands.
    book: Option<Book>,
    then: Option<Box<dyn FnOnce() + Send>>,
}

impl Note {
    fn end(&mut self, end: End) {
        if let Some(book) = self.book.take() {
            lock(&book.0.ends).push((self.at, end));
            book.0.tally.add();
        }
    }
}

impl Landing for Note {
    fn buffer(&mut self) -> &mut [u8] {
        &mut self.byte
    }

    fn landed(mut self: Box<Self>, result: Result<(), ReadError>) {
        let end = match result {
            Ok(()) if self.byte == [self.at as u8] => End::Read,
            Ok(()) => End::WrongByte,
            Err(ReadError::Cancelled { .. }) => End::Cancelled,
            Err(ReadError::Closed { .. }) => End::Closed,
            Err(_) => End::Failed,
        };
        self.end(end);
        if let Some(then) = self.then.take() {
            then();
        }
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        self.end(End::Dropped);
    }
}

fn queue(lanes: usize) -> LaneQueue {
    LaneQueue::new(Arc::new(Reader::default()), lanes).expect("a few lanes")
}

/// Nobody closes the queue before the jobs have ended: a lost wake-up is a deadlock.
#[test]
fn jobs_of_both_classes_are_read_without_a_push() {
    explore(3, 1000, || {
        let (queue, book) = (queue(2), Book::new());
        queue.submit(ReadClass::Demand, vec![book.job(0)]);
        queue.submit(ReadClass::Speculative, vec![book.job(1)]);
        book.wait_for(2);
        let counters = queue.counters();
        assert_eq!((counters.reads, counters.failures, queue.in_flight()), (2, 0, 0));
        drop(queue);
        assert_eq!(book.ends(2), [End::Read; 2]);
    });
}

#[test]
fn a_batch_wakes_enough_lanes() {
    explore(2, 1000, || {
        let (queue, book) = (queue(2), Book::new());
        // The first job's landing waits for the end of the second: one lane alone cannot do it.
        let both = book.clone();
        let first = book.job_then(0, move || both.wait_for(2));
        queue.submit(ReadClass::Demand, vec![first, book.job(1)]);
        book.wait_for(2);
        drop(queue);
        assert_eq!(book.ends(2), [End::Read; 2]);
    });
}

#[test]
fn two_threads_submit() {
    explore(2, 1000, || {
        let (queue, book) = (Arc::new(queue(2)), Book::new());
        let other = {
            let (queue, book) = (Arc::clone(&queue), book.clone());
            thread::spawn(move || queue.submit(ReadClass::Demand, vec![book.job(1)]))
        };
        queue.submit(ReadClass::Demand, vec![book.job(0)]);
        book.wait_for(2);
        other.join().expect("it does not panic");
        drop(queue);
        assert_eq!(book.ends(2), [End::Read; 2]);
    });
}

#[test]
fn dropped_while_busy() {
    explore(3, 1000, || {
        let (queue, book) = (queue(2), Book::new());
        queue.submit(ReadClass::Speculative, vec![book.job(2)]);
        queue.submit(ReadClass::Demand, vec![book.job(0), book.job(1)]);
        drop(queue);
        // The drop has joined the lanes: everything has ended by now.
        let ends = book.ends(3);
        assert!(ends.iter().all(|end| matches!(end, End::Read | End::Closed)), "{ends:?}");
    });
}

#[test]
fn shut_down_while_jobs_come() {
    explore(3, 500, || {
        let (queue, book) = (Arc::new(queue(1)), Book::new());
        let closer = {
            let (queue, book) = (Arc::clone(&queue), book.clone());
            thread::spawn(move || {
                queue.shutdown();
                queue.submit(ReadClass::Demand, vec![book.job(1)]);
            })
        };
        queue.submit(ReadClass::Demand, vec![book.job(0)]);
        // Lanes end what comes after a shutdown, too: no drop is needed for it.
        book.wait_for(2);
        closer.join().expect("it does not panic");
        let ends = book.ends(2);
        assert!(matches!(ends[0], End::Read | End::Closed), "{ends:?}");
        assert_eq!(ends[1], End::Closed);
        let counters = queue.counters();
        assert_eq!(counters.reads + counters.failures, 2);
    });
}

#[test]
fn cancelled_while_queued_or_read() {
    explore(3, 500, || {
        let (reader, book) = (Arc::new(Reader::default()), Book::new());
        let queue = Arc::new(LaneQueue::new(reader.clone(), 1).expect("one lane"));
        let (token, set) = (CancelToken::new(), CancelToken::new());
        set.cancel();
        let canceller = {
            let (queue, token) = (Arc::clone(&queue), token.clone());
            thread::spawn(move || {
                // A step that the checker can put anywhere among the lane's.
                let _ = queue.in_flight();
                token.cancel();
                let _ = queue.in_flight();
            })
        };
        let job = |at, token: &CancelToken| book.job(at).with_cancel(token.clone());
        let jobs = vec![job(0, &token), job(1, &token), job(2, &set), book.job(3)];
        queue.submit(ReadClass::Demand, jobs);
        book.wait_for(4);
        canceller.join().expect("it does not panic");
        let ends = book.ends(4);
        assert_eq!(ends[2..], [End::Cancelled, End::Read]);
        let lawful =
            [[End::Read, End::Read], [End::Read, End::Cancelled], [End::Cancelled, End::Cancelled]];
        assert!(lawful.iter().any(|lawful| ends[..2] == *lawful), "{ends:?}");
        let reads: Vec<u64> = (0..4).filter(|at| ends[*at as usize] == End::Read).collect();
        assert_eq!(*lock(&reader.begun), reads, "what was cancelled was not read");
    });
}

#[test]
fn panics_of_landing_and_reader_lose_no_job() {
    explore(2, 1000, || {
        let reader = Reader { panics_at: Some(1), ..Reader::default() };
        let queue = LaneQueue::new(Arc::new(reader), 2).expect("two lanes");
        let book = Book::new();
        let panics = book.job_then(0, || resume_unwind(Box::new("the landing's panic")));
        queue.submit(ReadClass::Demand, vec![panics, book.job(1), book.job(2)]);
        book.wait_for(3);
        // Both lanes are still there for more.
        queue.submit(ReadClass::Demand, vec![book.job(3)]);
        book.wait_for(4);
        drop(queue);
        assert_eq!(book.ends(4), [End::Read, End::Failed, End::Read, End::Read]);
    });
}

/// Once a demand is queued, each lane may begin the one guess that it had already taken, and no
/// other.
#[test]
fn demand_goes_before_speculation() {
    explore(3, 500, || {
        let (reader, book) = (Arc::new(Reader::default()), Book::new());
        let queue = LaneQueue::new(reader.clone(), 1).expect("one lane");
        let guesses = (1..4).map(|at| book.job(at)).collect();
        queue.submit(ReadClass::Speculative, guesses);
        queue.submit(ReadClass::Demand, vec![book.job(0)]);
        let before = lock(&reader.begun).len();
        book.wait_for(4);
        drop(queue);
        assert_eq!(book.ends(4), [End::Read; 4]);
        let begun = lock(&reader.begun).clone();
        let demand = begun.iter().position(|at| *at == 0).expect("it was read");
        assert!(demand <= before + 1, "{before} had begun, then {begun:?}");
        let guesses: Vec<u64> = begun.into_iter().filter(|at| *at > 0).collect();
        assert_eq!(guesses, [1, 2, 3], "first in, first out");
    });
}

/// A landing may own the queue: its lane then leaves by itself.
#[test]
fn the_last_handle_is_dropped_by_a_landing() {
    explore(3, 100, || {
        let (queue, book) = (Arc::new(queue(2)), Book::new());
        let handle = Arc::clone(&queue);
        queue.submit(ReadClass::Demand, vec![book.job_then(0, move || drop(handle)), book.job(1)]);
        drop(queue);
        book.wait_for(2);
        let ends = book.ends(2);
        assert!(ends.iter().all(|end| matches!(end, End::Read | End::Closed)), "{ends:?}");
    });
}

/// A reader that takes several jobs at once.
fn deep(lanes: usize, panics_at: Option<u64>) -> (Arc<Reader>, LaneQueue) {
    let reader = Arc::new(Reader { panics_at, depth: 3, ..Reader::default() });
    let queue = LaneQueue::new(reader.clone(), lanes).expect("a few lanes");
    (reader, queue)
}

#[test]
fn batches_of_two_lanes_end_every_job_in_order() {
    explore(2, 1000, || {
        let ((reader, queue), book) = (deep(2, None), Book::new());
        queue.submit(ReadClass::Speculative, vec![book.job(4)]);
        queue.submit(ReadClass::Demand, (0..4).map(|at| book.job(at)).collect());
        book.wait_for(5);
        let counters = queue.counters();
        assert_eq!((counters.reads, counters.failures, queue.in_flight()), (5, 0, 0));
        drop(queue);
        assert_eq!(book.ends(5), [End::Read; 5]);
        assert_eq!(lock(&reader.begun).len(), 5);
    });
}

/// A token that is set while a lane takes its share: what was taken is read, the rest is not.
#[test]
fn batches_closed_and_cancelled_while_they_are_taken() {
    explore(2, 500, || {
        let ((reader, queue), book) = (deep(1, None), Book::new());
        let (queue, token) = (Arc::new(queue), CancelToken::new());
        let other = {
            let (queue, token) = (Arc::clone(&queue), token.clone());
            thread::spawn(move || {
                let _ = queue.in_flight();
                token.cancel();
                queue.shutdown();
            })
        };
        let jobs = (0..4).map(|at| book.job(at).with_cancel(token.clone())).collect();
        queue.submit(ReadClass::Demand, jobs);
        book.wait_for(4);
        other.join().expect("it does not panic");
        let ends = book.ends(4);
        let read = ends.iter().take_while(|end| **end == End::Read).count();
        let rest = |end: &End| matches!(end, End::Cancelled | End::Closed);
        assert!(ends[read..].iter().all(rest), "{ends:?}");
        assert_eq!(lock(&reader.begun).len(), read);
        assert_eq!((queue.counters().reads, queue.in_flight()), (read as u64, 0));
    });
}

#[test]
fn a_panic_in_a_batch_ends_the_jobs_in_the_readers_hands() {
    explore(2, 100, || {
        let ((_, queue), book) = (deep(1, Some(1)), Book::new());
        queue.submit(ReadClass::Demand, (0..3).map(|at| book.job(at)).collect());
        book.wait_for(3);
        // The lane is still there for more.
        queue.submit(ReadClass::Demand, vec![book.job(3)]);
        book.wait_for(4);
        drop(queue);
        let ends = book.ends(4);
        assert_eq!(ends, [End::Read, End::Failed, End::Failed, End::Read]);
    });
}
