//! The end of a queue.

use std::sync::mpsc::channel;
use std::sync::{Arc, Weak};

use slotstream_core::ReadClass::{Demand, Speculative};
use slotstream_core::{CancelToken, ErrorKind, ReadError, ReadQueue, RecordReader};
use slotstream_io::LaneQueue;

use crate::landings::{Gated, Landed, Landings, PATIENCE, acting, extent, memory};

fn closed(landed: &Landed) -> bool {
    assert!(landed.thread.starts_with("read-lane-"), "{landed:?}");
    match &landed.result {
        Err(error @ ReadError::Closed { wanted: 1, offset, .. }) => {
            assert_eq!((*offset, error.kind()), (landed.extent.offset(), ErrorKind::Cancelled));
            true
        }
        _ => false,
    }
}

#[test]
fn shutdown_ends_what_is_queued_and_what_comes_later() {
    let gate = Gated::new();
    let queue = LaneQueue::new(gate.clone(), 2).unwrap();
    let landings = Landings::new();
    let jobs = |range: std::ops::Range<u64>| range.map(|at| landings.job(extent(at, 1))).collect();
    queue.submit(Demand, jobs(0..2));
    gate.wait_for(2);
    queue.submit(Demand, jobs(2..6));
    queue.submit(Speculative, jobs(6..10));
    queue.shutdown();
    queue.submit(Demand, jobs(10..12));
    gate.open();
    let landed = landings.take(12);
    assert_eq!(landed.iter().filter(|l| l.right()).count(), 2);
    assert_eq!(landed.iter().filter(|l| closed(l)).count(), 10);
    assert_eq!(gate.order().len(), 2);
    // All lanes sleep by now or soon; they still wake up for this.
    queue.submit(Speculative, jobs(20..21));
    assert!(closed(&landings.next()));
    assert_eq!(queue.counters().failures, 11);
    drop(queue);
    landings.assert_empty();
}

#[test]
fn the_drop_ends_every_job_and_joins_every_lane() {
    let gate = Gated::new();
    let reader: Weak<Gated> = Arc::downgrade(&gate);
    let queue = LaneQueue::new(gate.clone(), 3).unwrap();
    let landings = Landings::new();
    let token = CancelToken::new();
    let jobs = (0..50).map(|at| landings.job(extent(at, 1)).with_cancel(token.clone()));
    queue.submit(Demand, jobs.collect());
    gate.wait_for(3);
    let opener = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        gate.open();
    });
    drop(queue);
    // Everything has landed before the drop returned.
    let landed = landings.take(50);
    assert_eq!(landed.iter().filter(|l| l.right()).count(), 3);
    assert_eq!(landed.iter().filter(|l| closed(l)).count(), 47);
    opener.join().unwrap();
    assert!(reader.upgrade().is_none(), "a lane still holds the reader");
}

#[test]
fn an_idle_queue_drops_at_once() {
    for lanes in [1, 8] {
        let reader: Arc<dyn RecordReader> = Arc::new(memory());
        drop(LaneQueue::new(Arc::clone(&reader), lanes).unwrap());
        assert_eq!(Arc::strong_count(&reader), 1);
    }
}

#[test]
fn a_landing_may_submit_and_may_drop_the_last_handle() {
    let queue = Arc::new(LaneQueue::new(Arc::new(memory()), 2).unwrap());
    let (sender, receiver) = channel();
    let inner = Arc::clone(&queue);
    let follow_up = acting(5, move |result| {
        assert!(result.is_ok());
        let again = sender.clone();
        inner.submit(Demand, vec![acting(6, move |result| again.send(result.is_ok()).unwrap())]);
        // The test's own handle is gone by now, or goes later: either way nothing hangs.
        drop(inner);
        sender.send(true).unwrap();
    });
    queue.submit(Demand, vec![follow_up]);
    drop(queue);
    // The second job was read, or closed by the drop; both have landed.
    assert!(receiver.recv_timeout(PATIENCE).is_ok());
    assert!(receiver.recv_timeout(PATIENCE).is_ok());
    assert!(receiver.recv_timeout(PATIENCE).is_err(), "both senders are gone");
}

/// The last handle surely goes on a lane: the test gives its own away before the landing runs.
#[test]
fn a_lane_that_drops_its_queue_does_not_wait_for_itself() {
    for lanes in [1, 4] {
        let gate = Gated::new();
        let reader: Weak<Gated> = Arc::downgrade(&gate);
        let queue = Arc::new(LaneQueue::new(gate.clone(), lanes).unwrap());
        let landings = Landings::new();
        let (sender, receiver) = channel();
        let handle = Arc::clone(&queue);
        queue.submit(
            Demand,
            vec![acting(1, move |_| {
                assert_eq!(Arc::strong_count(&handle), 1);
                drop(handle);
                sender.send(()).unwrap();
            })],
        );
        gate.wait_for(1);
        // With one lane this job still waits when the queue goes.
        queue.submit(Demand, vec![landings.job(extent(9, 1))]);
        drop(queue);
        gate.open();
        receiver.recv_timeout(PATIENCE).expect("the drop hangs");
        let landed = landings.next();
        assert!(landed.right() || closed(&landed), "{landed:?}");
        drop(gate);
        let start = std::time::Instant::now();
        while reader.upgrade().is_some() {
            assert!(start.elapsed() < PATIENCE, "the lane never left");
            std::thread::yield_now();
        }
    }
}
