//! Reads that fail, and foreign code that panics.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;

use slotstream_core::ReadClass::Demand;
use slotstream_core::{
    ErrorKind, Extent, FileId, Job, ReadError, ReadQueue, ReaderMode, RecordReader,
};
use slotstream_io::{LaneQueue, MemReader};
use slotstream_testkit::reader::{Fault, FaultyReader, Schedule, ShortReader, TornReader};

use crate::landings::{Acting, FILE_LEN, Landings, PATIENCE, acting, extent, memory};

/// Read 1 of 3 fails in every way that a device can fail; its neighbours and all later reads do
/// not notice.
#[test]
fn one_fault_hits_one_job() {
    type Named = fn(&ReadError) -> bool;
    let once = Schedule::Nth(1);
    let faulty = |fault| Arc::new(FaultyReader::new(memory(), once, fault));
    let io_error: Named = |e| matches!(e, ReadError::Io { offset: 10, wanted: 5, got: 0, .. });
    let matrix: [(Arc<dyn RecordReader>, Named, ErrorKind); 6] = [
        (faulty(Fault::Errno(5)), io_error, ErrorKind::Transient),
        (faulty(Fault::Kind(io::ErrorKind::TimedOut)), io_error, ErrorKind::Transient),
        (faulty(Fault::Kind(io::ErrorKind::PermissionDenied)), io_error, ErrorKind::User),
        (faulty(Fault::Kind(io::ErrorKind::Interrupted)), io_error, ErrorKind::Transient),
        (
            Arc::new(ShortReader::new(memory(), once)),
            |e| matches!(e, ReadError::EndOfFile { wanted: 5, got: 2, .. }),
            ErrorKind::Corrupt,
        ),
        (
            Arc::new(TornReader::new(memory(), once)),
            |e| matches!(e, ReadError::Io { wanted: 5, got: 2, .. }),
            ErrorKind::Transient,
        ),
    ];
    for (reader, named, kind) in matrix {
        let queue = LaneQueue::new(reader, 1).unwrap();
        let landings = Landings::new();
        queue.submit(Demand, [0, 10, 20].map(|at| landings.job(extent(at, 5))).into());
        let [before, hit, after] = landings.take(3).try_into().unwrap();
        assert!(before.right() && after.right());
        let error = hit.result.unwrap_err();
        assert!(named(&error), "{error:?}");
        assert_eq!(error.kind(), kind);
        queue.submit(Demand, vec![landings.job(extent(10, 5))]);
        assert!(landings.next().right());
        let counters = queue.counters();
        assert_eq!((counters.reads, counters.failures, counters.bytes_read), (3, 1, 15));
    }
}

#[test]
fn errors_of_the_request_come_back_through_the_queue() {
    let queue = LaneQueue::new(Arc::new(memory()), 2).unwrap();
    let landings = Landings::new();
    let unknown = Extent::new(FileId::new(9), 0, 4).unwrap();
    queue.submit(Demand, vec![landings.job(unknown)]);
    assert!(matches!(landings.next().result, Err(ReadError::UnknownFile { files: 1, .. })));
    queue.submit(Demand, vec![landings.job(extent(FILE_LEN - 3, 4))]);
    assert!(matches!(landings.next().result, Err(ReadError::EndOfFile { got: 3, .. })));
    for held in [0, 3, 5] {
        queue.submit(Demand, vec![landings.job_with_buffer(extent(7, 4), held)]);
        let landed = landings.next();
        match landed.result {
            Err(ReadError::BufferLength { offset: 7, wanted: 4, got, .. }) => {
                assert_eq!(got, held as u64);
            }
            other => panic!("{other:?}"),
        }
        assert!(landed.bytes.iter().all(|byte| *byte == 0xEE), "nothing was read");
    }
}

/// Panics in a way of its own at each of the first offsets.
#[derive(Debug)]
struct Panicking(MemReader);

/// A panic's value whose drop panics too.
struct Nasty;

impl Drop for Nasty {
    fn drop(&mut self) {
        panic!("again");
    }
}

impl RecordReader for Panicking {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        match extent.offset() {
            0 => panic!("plain"),
            1 => panic!("with {} words", "formatted"),
            2 => std::panic::panic_any(17),
            3 => std::panic::panic_any(Nasty),
            _ => self.0.read_exact_at(extent, buffer),
        }
    }
    fn effective(&self) -> ReaderMode {
        ReaderMode::new("panicking", "a test")
    }
    fn issued_len(&self, extent: &Extent) -> u64 {
        assert!(extent.offset() != 4, "no length");
        extent.len()
    }
    fn path(&self, file: FileId) -> Option<&Path> {
        self.0.path(file)
    }
}

#[test]
fn a_panicking_reader_fails_its_job_and_kills_no_lane() {
    let queue = LaneQueue::new(Arc::new(Panicking(memory())), 1).unwrap();
    let landings = Landings::new();
    for round in 1..=3 {
        queue.submit(Demand, (0..6).map(|at| landings.job(extent(at, 9))).collect());
        let landed = landings.take(6);
        let words = ["plain", "with formatted words", "a value", "a value", "no length"];
        for (landed, words) in landed.iter().zip(words) {
            match &landed.result {
                Err(error @ ReadError::Other { wanted: 9, source, .. }) => {
                    assert!(source.to_string().contains(words), "{source}");
                    assert_eq!(error.kind(), ErrorKind::Transient);
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(landed[5].right());
        let counters = queue.counters();
        assert_eq!((counters.reads, counters.failures), (round, 5 * round));
        assert_eq!(queue.in_flight(), 0);
    }
    let busy = queue.counters().busy;
    std::thread::sleep(std::time::Duration::from_millis(2));
    assert_eq!(queue.counters().busy, busy, "no read is left running");
}

#[test]
fn a_panicking_landing_kills_no_lane() {
    let queue = LaneQueue::new(Arc::new(memory()), 1).unwrap();
    let landings = Landings::new();
    let (sender, receiver) = channel();
    let in_buffer = Acting {
        buffer: || panic!("no buffer"),
        landed: move |result| sender.send(result).unwrap(),
        bytes: Vec::new(),
    };
    queue.submit(
        Demand,
        vec![
            acting(3, |_| panic!("no landing")),
            acting(3, |_| std::panic::panic_any(Nasty)),
            Job::new(extent(0, 3), Box::new(in_buffer)),
            landings.job(extent(40, 3)),
        ],
    );
    assert!(landings.next().right());
    match receiver.recv_timeout(PATIENCE).unwrap() {
        Err(ReadError::Other { source, .. }) => assert!(source.to_string().contains("no buffer")),
        other => panic!("{other:?}"),
    }
    assert_eq!(queue.landing_panics(), 2);
    let counters = queue.counters();
    assert_eq!((counters.reads, counters.failures), (3, 1));
}
