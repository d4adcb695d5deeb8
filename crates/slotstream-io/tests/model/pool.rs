//! Claims of a pool that is cleared while their records are being written.

use std::sync::Arc;

use loom::sync::Mutex;
use loom::thread;
use slotstream_cache::{Abort, CacheError, Claim, Lru, SlotPool};
use slotstream_core::{ExpertIdx, ExpertKey, Geometry, LayerIdx, Origin, SlotId};

use crate::explore::explore;
use crate::rig::{layout, mark, record_in};
use crate::{SlotArena, SlotLease};

/// A pool behind a lock, and the memory of its slots.
struct Shared {
    pool: Mutex<SlotPool<Lru>>,
    arena: SlotArena,
}

fn key(expert: u16) -> ExpertKey {
    ExpertKey::new(LayerIdx::new(0), ExpertIdx::new(expert))
}

impl Shared {
    fn new() -> Self {
        let geometry = Geometry::new(1, 4, 1).expect("legal");
        let pool = SlotPool::unfloored(geometry, 1, Lru::new()).expect("one slot");
        Self { pool: Mutex::new(pool), arena: SlotArena::new(layout(), 1).expect("one slot") }
    }

    fn pool(&self) -> loom::sync::MutexGuard<'_, SlotPool<Lru>> {
        self.pool.lock().expect("nobody panics while holding it")
    }

    /// Writes every piece of the claimed record, then publishes it. Whether it was still wanted.
    fn fill(&self, claim: Claim, lease: SlotLease) -> bool {
        let record = claim.key().expert().index();
        for (piece, mut lease) in lease.into_pieces().into_iter().enumerate() {
            lease.bytes().fill(mark(record, piece));
        }
        match self.pool().publish(claim) {
            Ok(()) => true,
            Err(CacheError::StaleClaim { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// What is visible is whole.
    fn look(&self) {
        let pool = self.pool();
        if let Some(key) = pool.key(SlotId::new(0)) {
            let reading = self.arena.read(&[SlotId::new(0)]).expect("nobody writes to it");
            let bytes = reading.record(SlotId::new(0)).expect("it was lent");
            assert_eq!(record_in(&layout(), bytes), key.expert().index());
        }
    }
}

/// Slot memory by itself lends a slot for writing or for reading, whatever a pool says.
#[test]
fn what_can_be_read_is_whole() {
    explore(5, 2, || {
        let arena = SlotArena::new(layout(), 1).expect("one slot");
        let slot = SlotId::new(0);
        let lease = arena.lease(slot, None).expect("nobody has it");
        let writer = thread::spawn(move || {
            // Dropped last to first: the slot is lent until all of them are.
            for (piece, mut lease) in lease.into_pieces().into_iter().enumerate().rev() {
                lease.bytes().fill(mark(2, piece));
            }
        });
        if let Ok(reading) = arena.read(&[slot]) {
            assert_eq!(record_in(&layout(), reading.record(slot).expect("it was lent")), 2);
            assert!(arena.lease(slot, None).is_err(), "it is being read");
        }
        writer.join().expect("it does not panic");
        let reading = arena.read(&[slot]).expect("it was written");
        assert_eq!(record_in(&layout(), reading.record(slot).expect("it was lent")), 2);
    });
}

/// A record is claimed, the pool is cleared, and the same slot is claimed for record `next`,
/// while the first is being written and published.
fn cleared_while_written(next: u16) {
    let shared = Arc::new(Shared::new());
    let claim = shared.pool().claim(key(0), Origin::Demand).expect("the slot is free");
    let lease = shared.arena.lease(claim.slot(), claim.after()).expect("nobody has it");
    let writer = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || shared.fill(claim, lease))
    };
    shared.look();
    shared.pool().clear();
    let claim = shared.pool().claim(key(next), Origin::Demand).expect("the slot is free");
    let filled = match shared.arena.lease(claim.slot(), claim.after()) {
        Ok(lease) => {
            assert!(!shared.pool().is_resident(key(next)), "its bytes are not there");
            shared.fill(claim, lease)
        }
        // The first record is still being written.
        Err(_) => {
            shared.pool().abort(claim, Abort::Withdrawn).expect("its own claim");
            false
        }
    };
    shared.look();
    let was_wanted = writer.join().expect("it does not panic");
    shared.look();
    let pool = shared.pool();
    assert_eq!(pool.is_resident(key(next)), filled, "nobody else may publish it");
    assert!(next == 0 || !pool.is_resident(key(0)), "cleared away, or too late: {was_wanted}");
    pool.validate().expect("the tables agree");
}

#[test]
fn a_claim_from_before_a_clear_publishes_nothing() {
    explore(5, 50, || cleared_while_written(1));
}

/// The generation tells two claims of one record in one slot apart.
#[test]
fn a_claim_from_before_a_clear_is_not_the_one_after() {
    explore(5, 50, || cleared_while_written(0));
}
