//! Order, completion and counters of the queue.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slotstream_core::ReadClass::{Demand, Speculative};
use slotstream_core::{
    CancelToken, Extent, FileId, ReadError, ReadQueue, ReaderMode, RecordReader,
};
use slotstream_io::{IoError, LaneQueue, MemReader};
use slotstream_testkit::reader::{CountingReader, Fault, FaultyReader, Schedule, SlowReader};

use crate::landings::{FILE_LEN, Gated, Landed, Landings, extent, memory};

#[test]
fn demand_overtakes_speculation() {
    let gate = Gated::new();
    let queue = LaneQueue::new(gate.clone(), 1).unwrap();
    let landings = Landings::new();
    queue.submit(Speculative, vec![landings.job(extent(10, 1))]);
    gate.wait_for(1);
    queue.submit(Speculative, [11, 12].map(|at| landings.job(extent(at, 1))).into());
    queue.submit(Demand, [1, 2].map(|at| landings.job(extent(at, 1))).into());
    assert_eq!((queue.queued(Demand), queue.queued(Speculative), queue.in_flight()), (2, 2, 1));
    queue.submit(Demand, vec![landings.job(extent(3, 1))]);
    gate.open();
    assert!(landings.take(6).iter().all(Landed::right));
    assert_eq!(gate.order(), [10, 1, 2, 3, 11, 12]);
    assert_eq!((queue.queued(Demand), queue.queued(Speculative), queue.in_flight()), (0, 0, 0));
}

#[test]
fn jobs_land_one_by_one() {
    let gate = Gated::new();
    let queue = LaneQueue::new(gate.clone(), 2).unwrap();
    let landings = Landings::new();
    (1..5).for_each(|at| gate.let_pass(at));
    queue.submit(Demand, (0..5).map(|at| landings.job(extent(at, 1))).collect());
    // The first of the batch hangs, the others land.
    let mut early: Vec<u64> = landings.take(4).iter().map(|l| l.extent.offset()).collect();
    early.sort_unstable();
    assert_eq!(early, [1, 2, 3, 4]);
    landings.assert_empty();
    gate.open();
    assert_eq!(landings.next().extent.offset(), 0);
}

/// As many lanes wake up as there are jobs: here each job needs a lane of its own.
#[test]
fn a_batch_wakes_a_lane_for_each_job() {
    const LANES: u64 = 8;
    let gate = Gated::new();
    let queue = LaneQueue::new(gate.clone(), LANES as usize).unwrap();
    let landings = Landings::new();
    for round in 1..=3 {
        // Time to fall asleep. Too little of it makes the test easier, never wrong.
        std::thread::sleep(Duration::from_millis(30));
        let first = round * 100;
        queue
            .submit(Demand, (first..first + LANES).map(|at| landings.job(extent(at, 1))).collect());
        gate.wait_for((round * LANES) as usize);
        assert_eq!((queue.in_flight(), queue.queued(Demand)), (LANES as usize, 0));
        (first..first + LANES).for_each(|at| gate.let_pass(at));
        assert!(landings.take(LANES as usize).iter().all(Landed::right));
    }
}

#[test]
fn a_cancelled_job_is_not_read() {
    let gate = Gated::new();
    let counting = Arc::new(CountingReader::new(gate.clone()));
    let queue = LaneQueue::new(counting.clone(), 1).unwrap();
    let landings = Landings::new();
    let (running, waiting, other) = (CancelToken::new(), CancelToken::new(), CancelToken::new());
    queue.submit(Demand, vec![landings.job(extent(0, 7)).with_cancel(running.clone())]);
    gate.wait_for(1);
    queue.submit(
        Demand,
        vec![
            landings.job(extent(10, 5)).with_cancel(waiting.clone()),
            landings.job(extent(20, 5)).with_cancel(other),
        ],
    );
    running.cancel();
    waiting.cancel();
    gate.open();
    let [first, second, third] = landings.take(3).try_into().unwrap();
    assert!(first.right(), "its read had begun: {first:?}");
    match second.result {
        Err(ReadError::Cancelled { offset: 10, wanted: 5, .. }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(second.bytes, [0xEE; 5]);
    assert!(third.right());
    assert_eq!(counting.log(), [extent(0, 7), extent(20, 5)]);
    let counters = queue.counters();
    assert_eq!((counters.reads, counters.failures, counters.bytes_read), (2, 1, 12));
}

#[test]
fn a_thousand_jobs_each_land_once_with_exact_counters() {
    for lanes in [1, 2, 8] {
        let start = Instant::now();
        let faulty = FaultyReader::new(memory(), Schedule::Every(7), Fault::Errno(5));
        let queue = LaneQueue::new(Arc::new(faulty), lanes).unwrap();
        assert_eq!(queue.lanes(), lanes);
        let landings = Landings::new();
        let place = |i: u64| extent(i * 61, i % 500);
        let jobs = |range: std::ops::Range<u64>| range.map(|i| landings.job(place(i))).collect();
        queue.submit(Speculative, jobs(0..300));
        queue.submit(Demand, jobs(300..301));
        queue.submit(Demand, Vec::new());
        queue.submit(Demand, jobs(301..1000));
        let landed = landings.take(1000);
        landings.assert_empty();

        let mut seen: Vec<Extent> = landed.iter().map(|l| l.extent).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..1000).map(place).collect::<Vec<_>>());
        let failed = landed.iter().filter(|l| l.result.is_err()).count();
        assert_eq!(failed, 1000 / 7);
        assert!(landed.iter().all(|l| l.right() || l.result.is_err()));
        assert!(landed.iter().all(|l| l.thread.starts_with("read-lane-")));

        // The last landing comes after its read was counted.
        let counters = queue.counters();
        let bytes: u64 = landed.iter().filter(|l| l.right()).map(|l| l.extent.len()).sum();
        assert_eq!((counters.reads, counters.failures), (1000 - 142, 142));
        assert_eq!((counters.bytes_read, counters.bytes_issued), (bytes, bytes));
        assert!(counters.busy > Duration::ZERO && counters.busy <= start.elapsed());
        assert_eq!((queue.landing_panics(), queue.queued(Demand), queue.in_flight()), (0, 0, 0));
    }
}

#[test]
fn many_submitters_lose_no_wakeup() {
    let queue = LaneQueue::new(Arc::new(memory()), 3).unwrap();
    std::thread::scope(|scope| {
        for id in 0..6u64 {
            let queue = &queue;
            scope.spawn(move || {
                let landings = Landings::new();
                let class = if id % 2 == 0 { Demand } else { Speculative };
                for i in 0..500 {
                    let jobs = (0..=id % 3).map(|k| landings.job(extent(i * 7 + k, 3)));
                    queue.submit(class, jobs.collect());
                    // Waits each time, so lanes fall asleep in between.
                    assert!(landings.take(id as usize % 3 + 1).iter().all(Landed::right));
                }
            });
        }
    });
    assert_eq!(queue.counters().reads, 500 * (1 + 2 + 3) * 2);
}

#[test]
fn busy_time_counts_overlapping_reads_once_and_idle_time_never() {
    let delay = Duration::from_millis(20);
    let start = Instant::now();
    let queue = LaneQueue::new(Arc::new(SlowReader::new(memory(), delay)), 4).unwrap();
    let landings = Landings::new();
    let round = || {
        queue.submit(Demand, (0..4).map(|i| landings.job(extent(i, 10))).collect());
        assert!(landings.take(4).iter().all(Landed::right));
    };
    round();
    let between = queue.counters();
    let idle = Duration::from_millis(100);
    std::thread::sleep(idle);
    assert_eq!(queue.counters(), between, "nothing runs");
    round();
    let busy = queue.counters().busy;
    assert!(busy >= 2 * delay, "{busy:?}");
    assert!(busy <= start.elapsed() - idle, "{busy:?} of {:?}", start.elapsed());
}

#[test]
fn counters_grow_while_a_read_runs() {
    let gate = Gated::new();
    let queue = LaneQueue::new(gate.clone(), 1).unwrap();
    let landings = Landings::new();
    queue.submit(Demand, vec![landings.job(extent(0, 1))]);
    gate.wait_for(1);
    let early = queue.counters();
    std::thread::sleep(Duration::from_millis(5));
    let late = queue.counters();
    assert!(late.since(&early).busy >= Duration::from_millis(5));
    assert_eq!(late.reads, 0);
    gate.open();
    assert!(landings.next().right());
}

/// Moves whole blocks of 512 bytes.
#[derive(Debug)]
struct Blocks(MemReader);

impl RecordReader for Blocks {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.0.read_exact_at(extent, buffer)
    }
    fn effective(&self) -> ReaderMode {
        ReaderMode::new("blocks", "a test")
    }
    fn issued_len(&self, extent: &Extent) -> u64 {
        extent.end().next_multiple_of(512) - extent.offset() / 512 * 512
    }
    fn path(&self, file: FileId) -> Option<&Path> {
        self.0.path(file)
    }
}

#[test]
fn issued_bytes_are_the_readers_word_and_only_of_reads_that_succeeded() {
    let queue = LaneQueue::new(Arc::new(Blocks(memory())), 2).unwrap();
    let landings = Landings::new();
    let places = [(511, 2), (512, 512), (FILE_LEN - 1, 2)];
    queue.submit(Demand, places.map(|(at, len)| landings.job(extent(at, len))).into());
    assert_eq!(landings.take(3).iter().filter(|l| l.right()).count(), 2);
    let counters = queue.counters();
    assert_eq!((counters.bytes_read, counters.bytes_issued), (514, 1536));
    assert_eq!((counters.reads, counters.failures), (2, 1));
    assert_eq!(queue.reader().effective().name, "blocks");
}

#[test]
fn impossible_lane_counts_are_refused() {
    for lanes in [0, LaneQueue::MAX_LANES + 1, usize::MAX] {
        match LaneQueue::new(Arc::new(memory()), lanes) {
            Err(IoError::Lanes { requested, limit: 1024, .. }) => assert_eq!(requested, lanes),
            other => panic!("{other:?}"),
        }
    }
}
