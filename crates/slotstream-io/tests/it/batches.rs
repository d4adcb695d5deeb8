//! Lanes that hand a reader several jobs at once, and readers that break the contract of it.

use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use slotstream_core::ReadClass::{Demand, Speculative};
use slotstream_core::{
    CancelToken, Extent, FileId, Job, ReadError, ReadQueue, ReaderMode, RecordReader,
};
use slotstream_io::{LaneQueue, ReaderKind, UringOptions, UringReader, open_reader};

use crate::landings::{Acting, FILE_LEN, Gated, Landed, Landings, PATIENCE, byte, extent};

/// What a reader does with the jobs it is handed.
type Behaviour = fn(&Several, Vec<Job>);

/// Takes several jobs at once, does as it is told, and writes down how many came together.
#[derive(Debug)]
struct Several {
    inner: Arc<Gated>,
    depth: usize,
    behaviour: Behaviour,
    calls: Mutex<Vec<usize>>,
    kept: Mutex<Vec<Job>>,
}

impl Several {
    fn new(depth: usize, behaviour: Behaviour) -> Arc<Self> {
        let (calls, kept) = Default::default();
        Arc::new(Self { inner: Gated::new(), depth, behaviour, calls, kept })
    }

    fn calls(&self) -> Vec<usize> {
        self.calls.lock().unwrap().clone()
    }

    fn end(&self, mut job: Job) {
        let extent = *job.extent();
        let result = self.inner.read_exact_at(&extent, job.buffer());
        job.complete(result);
    }
}

fn lawful(reader: &Several, jobs: Vec<Job>) {
    jobs.into_iter().for_each(|job| reader.end(job));
}

impl RecordReader for Several {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.inner.read_exact_at(extent, buffer)
    }
    fn batch_depth(&self) -> usize {
        self.depth
    }
    fn read_jobs(&self, jobs: Vec<Job>) {
        self.calls.lock().unwrap().push(jobs.len());
        (self.behaviour)(self, jobs);
    }
    fn effective(&self) -> ReaderMode {
        ReaderMode::new("several", "a test")
    }
    fn path(&self, file: FileId) -> Option<&Path> {
        self.inner.path(file)
    }
}

fn jobs(landings: &Landings, range: std::ops::Range<u64>) -> Vec<Job> {
    range.map(|at| landings.job(extent(at, 3))).collect()
}

/// A lane that is kept busy until the gate opens: what is queued meanwhile waits.
fn hold(queue: &LaneQueue, reader: &Several, landings: &Landings) {
    queue.submit(Demand, jobs(landings, 0..1));
    reader.inner.wait_for(1);
}

#[test]
fn a_lane_takes_its_share_of_one_class() {
    let reader = Several::new(16, lawful);
    let queue = LaneQueue::new(reader.clone(), 1).unwrap();
    let landings = Landings::new();
    hold(&queue, &reader, &landings);
    queue.submit(Speculative, jobs(&landings, 100..120));
    queue.submit(Demand, jobs(&landings, 1..21));
    reader.inner.open();
    assert!(landings.take(41).iter().all(Landed::right));
    let order: Vec<u64> = (0..21).chain(100..120).collect();
    assert_eq!(reader.inner.order(), order, "demand first, each class in order");
    assert_eq!(reader.calls(), [16, 4, 9, 9, 2], "a lone job is read alone");
    assert_eq!((queue.in_flight(), queue.counters().reads), (0, 41));
    assert_eq!(queue.counters().bytes_read, 41 * 3);
}

#[test]
fn lanes_share_fairly_and_one_at_a_time_stays_so() {
    for (depth, lanes, most) in [(64, 4, 8), (64, 1, 32), (1, 2, 0), (0, 2, 0), (usize::MAX, 2, 16)]
    {
        let reader = Several::new(depth, lawful);
        let queue = LaneQueue::new(reader.clone(), lanes).unwrap();
        let landings = Landings::new();
        reader.inner.open();
        queue.submit(Demand, jobs(&landings, 0..32));
        assert!(landings.take(32).iter().all(Landed::right));
        drop(queue);
        let calls = reader.calls();
        assert_eq!(calls.iter().max().copied().unwrap_or(0), most, "{depth} {lanes}: {calls:?}");
    }
}

#[test]
fn all_of_a_batch_are_in_flight_and_each_lands_by_itself() {
    let reader = Several::new(8, lawful);
    let queue = LaneQueue::new(reader.clone(), 1).unwrap();
    let landings = Landings::new();
    (1..4).for_each(|at| reader.inner.let_pass(at));
    hold(&queue, &reader, &landings);
    queue.submit(Demand, jobs(&landings, 1..5));
    reader.inner.let_pass(0);
    assert!(landings.next().right());
    // Those before the one that hangs have landed.
    assert!(landings.take(3).iter().all(Landed::right));
    landings.assert_empty();
    assert_eq!((queue.in_flight(), queue.counters().reads), (1, 4));
    reader.inner.open();
    assert!(landings.next().right());
    assert_eq!(reader.calls(), [4]);
}

#[test]
fn what_is_cancelled_or_closed_is_no_part_of_a_batch() {
    let reader = Several::new(8, lawful);
    let queue = LaneQueue::new(reader.clone(), 1).unwrap();
    let landings = Landings::new();
    hold(&queue, &reader, &landings);
    let token = CancelToken::new();
    let job = |at| landings.job(extent(at, 3));
    let doomed = |at| job(at).with_cancel(token.clone());
    queue.submit(Demand, vec![job(1), job(2), doomed(3), job(4), doomed(5), doomed(6), job(7)]);
    token.cancel();
    reader.inner.open();
    let landed = landings.take(8);
    let failed = |l: &&Landed| matches!(l.result, Err(ReadError::Cancelled { .. }));
    let cancelled: Vec<u64> =
        landed.iter().filter(failed).map(|landed| landed.extent.offset()).collect();
    assert_eq!(cancelled, [3, 5, 6]);
    assert_eq!(reader.inner.order(), [0, 1, 2, 4, 7]);
    assert_eq!((queue.counters().reads, queue.counters().failures), (5, 3));

    let reader = Several::new(8, lawful);
    let queue = LaneQueue::new(reader.clone(), 1).unwrap();
    hold(&queue, &reader, &landings);
    queue.submit(Demand, jobs(&landings, 1..6));
    queue.shutdown();
    reader.inner.open();
    let closed = |l: &Landed| matches!(l.result, Err(ReadError::Closed { .. }));
    assert_eq!(landings.take(6).iter().filter(|l| closed(l)).count(), 5);
    assert_eq!(reader.inner.order(), [0]);
}

/// Whatever a reader does with its jobs, each ends once, the counters agree, and the lane lives.
#[test]
fn hostile_readers_lose_no_job() {
    let drops: Behaviour = |reader, mut jobs| {
        jobs.truncate(2);
        lawful(reader, jobs);
    };
    let panics: Behaviour = |reader, mut jobs| {
        let rest = jobs.split_off(1);
        lawful(reader, jobs);
        assert!(rest.is_empty(), "the reader panics with jobs in its hands");
    };
    let keeps: Behaviour = |reader, jobs| {
        // Ended by the next call, or by the drop of the reader.
        let late = std::mem::replace(&mut *reader.kept.lock().unwrap(), jobs);
        lawful(reader, late);
    };
    let backwards: Behaviour = |reader, jobs| jobs.into_iter().rev().for_each(|j| reader.end(j));
    let forgets_buffers: Behaviour =
        |_, jobs| jobs.into_iter().for_each(|job| job.complete(Ok(())));
    for (name, behaviour, lost) in [
        ("drops", drops, Some(6)),
        ("panics", panics, Some(7)),
        ("keeps", keeps, None),
        ("backwards", backwards, Some(0)),
        ("forgets", forgets_buffers, Some(0)),
    ] {
        let reader = Several::new(8, behaviour);
        reader.inner.let_pass(1000);
        let queue = LaneQueue::new(reader.clone(), 1).unwrap();
        let landings = Landings::new();
        hold(&queue, &reader, &landings);
        queue.submit(Demand, jobs(&landings, 1..9));
        reader.inner.open();
        assert!(landings.next().right(), "{name}");
        if lost.is_none() {
            // Nobody has ended them yet.
            queue.submit(Demand, jobs(&landings, 20..22));
            queue.submit(Demand, jobs(&landings, 22..24));
            drop(queue);
            reader.kept.lock().unwrap().drain(..).for_each(drop);
            assert_eq!(landings.take(12).len(), 12, "{name}");
            landings.assert_empty();
            continue;
        }
        let landed = landings.take(8);
        let failed: Vec<_> = landed.iter().filter_map(|l| l.result.as_ref().err()).collect();
        assert_eq!(Some(failed.len()), lost, "{name}: {failed:?}");
        for error in failed {
            assert!(matches!(error, ReadError::Other { .. }), "{name}: {error:?}");
            let source = std::error::Error::source(error).expect("the reason").to_string();
            assert!(source.contains("did not end a read"), "{name}: {source}");
        }
        // The lane is there for more, and nothing is left in flight.
        queue.submit(Demand, vec![landings.job(extent(1000, 1))]);
        assert!(landings.next().right(), "{name}");
        landings.assert_empty();
        let counters = queue.counters();
        assert_eq!(Some(counters.failures as usize), lost, "{name}");
        assert_eq!((counters.reads + counters.failures, queue.in_flight()), (10, 0), "{name}");
    }
}

#[test]
fn panics_of_landings_and_buffers_hurt_no_neighbour() {
    for reader in [Several::new(8, lawful), Several::new(8, |_, jobs| drop(jobs))] {
        let drops = reader.behaviour as usize != lawful as Behaviour as usize;
        let queue = LaneQueue::new(reader.clone(), 1).unwrap();
        let landings = Landings::new();
        hold(&queue, &reader, &landings);
        let (tell, hear) = channel();
        let landed = move |result: Result<(), ReadError>| tell.send(result).unwrap();
        let buffer = || panic!("the buffer's panic");
        let bad = Job::new(extent(2, 1), Box::new(Acting { buffer, landed, bytes: vec![0] }));
        let falls = crate::landings::acting(1, |_| panic!("the landing's panic"));
        queue.submit(Demand, vec![landings.job(extent(1, 3)), bad, falls]);
        queue.submit(Demand, vec![landings.job_with_buffer(extent(4, 3), 2)]);
        reader.inner.open();
        assert!(landings.next().right());
        let [first, last] = landings.take(2).try_into().unwrap();
        assert_eq!(first.right(), !drops);
        assert!(last.result.is_err());
        let error = hear.recv_timeout(PATIENCE).unwrap().unwrap_err();
        assert!(matches!(error, ReadError::Other { .. }), "{error:?}");
        queue.submit(Demand, vec![landings.job(extent(50, 1))]);
        assert!(landings.next().right(), "the lane lives on");
        assert_eq!((queue.landing_panics(), queue.in_flight()), (1, 0));
    }
}

fn crate_file() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, (0..FILE_LEN).map(byte).collect::<Vec<_>>()).unwrap();
    (folder, path)
}

/// The real thing, with requests of all kinds: many, empty, wrong, beyond the end.
#[test]
fn rings_under_lanes_bring_what_single_reads_bring() {
    let (_folder, path) = crate_file();
    for lanes in [1, 2, 5] {
        let reader =
            Arc::new(UringReader::open(std::slice::from_ref(&path), UringOptions::new()).unwrap());
        let in_rings = reader.effective().name == "uring";
        assert_eq!(reader.batch_depth(), if in_rings { 64 } else { 1 });
        let queue = LaneQueue::new(reader, lanes).unwrap();
        let landings = Landings::new();
        for class in [Demand, Speculative] {
            let mut list: Vec<Job> =
                (0..200).map(|i| landings.job(extent(i * 487, i * 7 % 3000))).collect();
            list.push(landings.job(extent(FILE_LEN - 10, 11)));
            list.push(landings.job_with_buffer(extent(5, 5), 4));
            list.push(landings.job(Extent::new(FileId::new(7), 0, 1).unwrap()));
            list.insert(40, landings.job(extent(0, FILE_LEN)));
            queue.submit(class, list);
            let landed = landings.take(204);
            landings.assert_empty();
            assert_eq!(landed.iter().filter(|l| l.right()).count(), 201);
            for bad in landed.iter().filter(|l| !l.right()) {
                match bad.result.as_ref().unwrap_err() {
                    ReadError::EndOfFile { .. } | ReadError::Changed { .. } => {
                        assert_eq!(bad.extent.len(), 11);
                    }
                    ReadError::BufferLength { .. } => assert_eq!(bad.extent.len(), 5),
                    ReadError::UnknownFile { .. } => assert_eq!(bad.extent.len(), 1),
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!((queue.counters().reads, queue.counters().failures), (402, 6));
        assert_eq!((queue.in_flight(), queue.landing_panics()), (0, 0));
    }
}

#[test]
fn every_kind_of_reader_reads_owned_jobs_even_where_it_gains_nothing() {
    let (_folder, path) = crate_file();
    for kind in ReaderKind::ALL {
        let reader = open_reader(*kind, std::slice::from_ref(&path)).unwrap();
        let landings = Landings::new();
        let mut list = jobs(&landings, 0..20);
        list.push(landings.job_with_buffer(extent(1, 2), 9));
        reader.read_jobs(list);
        assert_eq!(landings.take(21).iter().filter(|l| l.right()).count(), 20, "{kind}");
        if *kind != ReaderKind::Uring {
            assert_eq!(reader.batch_depth(), 1, "{kind}");
        }
    }
}
