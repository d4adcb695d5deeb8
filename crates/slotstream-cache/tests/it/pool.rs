//! Capacity, waves, counters, construction.

use slotstream_cache::{
    CacheError, Clock, Ensured, LayerLocal, Lru, MAX_RECORDS, SlotPool, SlotState,
};
use slotstream_core::*;

use crate::support::{Scribe, call, experts, geometry, key, layer, slot, step, take};

#[test]
fn a_pool_below_the_floor_is_refused_with_the_arithmetic() {
    let real = geometry(48, 512, 10);
    let error = SlotPool::new(real, 639, Clock::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::User);
    let text = error.to_string();
    let sum = "640 = max(2 x top-10, ceil(24576 records x 640 / 24576))";
    assert!(text.contains("639 slots") && text.contains(sum), "{text}");
    let mut pool = SlotPool::new(real, 640, Clock::new()).unwrap();
    assert!(matches!(pool.resize(100), Err(CacheError::BelowFloor { floor: 640, .. })));
    assert_eq!(pool.slots(), 640);
    assert_eq!(SlotPool::new(real, 1 << 40, Clock::new()).unwrap().slots(), 24_576);
    assert_eq!(SlotPool::unfloored(real, 0, Clock::new()).unwrap_err(), CacheError::NoSlots);
    let huge = geometry(u16::MAX, u16::MAX, 1);
    let error = SlotPool::unfloored(huge, 4, Clock::new()).unwrap_err();
    assert!(matches!(error, CacheError::TooManyRecords { most: MAX_RECORDS, .. }));
}

#[test]
fn a_policy_may_refuse_the_pool() {
    #[derive(Debug)]
    struct Picky;
    impl EvictionPolicy for Picky {
        fn on_insert(&mut self, _: SlotId, _: ExpertKey, _: Origin) {}
        fn on_hit(&mut self, _: SlotId, _: ExpertKey) {}
        fn choose_victim(&mut self, _: &Incoming, _: &SlotView<'_>) -> Option<SlotId> {
            None
        }
        fn bind(&mut self, _: &Geometry, slots: usize) -> Result<(), BindError> {
            Err(BindError::too_few_slots(slots, 99))
        }
        fn reset(&mut self) {}
    }
    let error = SlotPool::unfloored(geometry(1, 8, 2), 4, Picky).unwrap_err();
    assert_eq!(error.to_string(), "policy picky refuses a pool of 4 slots");
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "the policy needs 99 slots, the pool has 4");
}

#[test]
fn a_call_that_does_not_fit_changes_nothing() {
    let (scribe, log) = Scribe::new(Lru::new());
    let mut pool = SlotPool::unfloored(geometry(2, 8, 2), 4, scribe).unwrap();
    call(&mut pool, 0, &[1, 2, 3]).unwrap();
    let ticket = pool.claim(key(1, 1), Origin::Prefetch).unwrap();
    take(&log);
    let (counters, states) = (*pool.counters(), pool.states().collect::<Vec<_>>());
    let mut out = Ensured::new();
    let mut refused = |ids: &[u16]| {
        let ids = experts(ids);
        let error = pool.ensure(layer(0), &ids, Phase::Decode, &mut out).unwrap_err();
        pool.validate().unwrap();
        assert!(out.entries().is_empty() && out.claims().is_empty());
        assert_eq!(pool.running(), None);
        assert_eq!(pool.states().collect::<Vec<_>>(), states);
        assert_eq!(*pool.counters(), counters);
        error
    };
    let error = refused(&[4, 2, 5, 6]);
    assert!(matches!(error, CacheError::Exhausted { needed: 3, available: 2, slots: 4, .. }));
    for twice in [[2, 5, 2], [5, 2, 5]] {
        assert!(matches!(refused(&twice), CacheError::Duplicate { .. }));
    }
    assert!(matches!(refused(&[2, 5, 8]), CacheError::UnknownExpert { experts: 8, .. }));
    assert_eq!(take(&log), []);
    let ids = experts(&[1, 2]);
    let error = pool.ensure(layer(2), &ids, Phase::Decode, &mut out).unwrap_err();
    assert!(matches!(error, CacheError::UnknownLayer { layers: 2, .. }));
    let error = pool.ensure_counted(layer(0), &ids, &[1], Phase::Decode, &mut out).unwrap_err();
    assert!(matches!(error, CacheError::CountMismatch { experts: 2, counts: 1, .. }));
    let twice = experts(&[1, 1]);
    let error = pool.ensure(layer(1), &twice, Phase::Decode, &mut out).unwrap_err();
    assert_eq!(
        error.to_string(),
        "layer 1, expert 1 is named twice in one call: a call takes distinct experts"
    );
    pool.validate().unwrap();
    pool.abort(ticket, slotstream_cache::Abort::Withdrawn).unwrap();
}

#[test]
fn one_call_runs_at_a_time_and_buffers_keep_their_claims() {
    let mut pool = SlotPool::unfloored(geometry(2, 8, 2), 6, Lru::new()).unwrap();
    let (mut out, mut other) = (Ensured::new(), Ensured::with_capacity(2));
    pool.ensure(layer(1), &experts(&[1, 2]), Phase::Decode, &mut out).unwrap();
    assert_eq!(pool.running(), Some(layer(1)));
    let error = pool.ensure(layer(0), &experts(&[1]), Phase::Decode, &mut other).unwrap_err();
    assert!(matches!(error, CacheError::CallRunning { .. }), "{error}");
    assert!(matches!(pool.resize(8), Err(CacheError::CallRunning { .. })));
    pool.release();
    let error = pool.ensure(layer(0), &experts(&[1]), Phase::Decode, &mut out).unwrap_err();
    assert!(matches!(error, CacheError::BufferInUse { claims: 2, .. }), "{error}");
    // The cancelled call's reads are still under way: their slots stay blocked.
    assert!(matches!(pool.resize(1), Err(CacheError::SlotClaimed { .. })));
    assert_eq!(pool.capacity(), 4);
    pool.ensure(layer(1), &experts(&[2]), Phase::Decode, &mut other).unwrap();
    assert_eq!(other.entries()[0].found, slotstream_cache::Found::Pending);
    pool.publish_all(&mut out).unwrap();
    pool.validate().unwrap();
    let pinned = SlotState::Resident { key: key(1, 2), pinned: true };
    assert_eq!(pool.state(slot(1)), Some(pinned));
    pool.release();
    pool.resize(1).unwrap();
    pool.validate().unwrap();
}

#[test]
fn waves_ascend_and_read_each_record_once() {
    let (scribe, _log) = Scribe::new(Lru::new());
    let mut pool = SlotPool::unfloored(geometry(2, 16, 4), 6, scribe).unwrap();
    call(&mut pool, 0, &[12, 3, 13]).unwrap();
    pool.reset_counters();
    pool.begin_step(&step(1, &[])).unwrap();
    let wanted = experts(&[0, 1, 2, 3, 4, 5, 6, 12, 13]);
    let counts = |wave: &[ExpertIdx]| vec![2_u32; wave.len()];
    let mut out = Ensured::new();
    let waves: Vec<Vec<ExpertIdx>> = pool.waves(&wanted).unwrap().map(<[_]>::to_vec).collect();
    assert_eq!(waves.iter().map(Vec::len).collect::<Vec<_>>(), [6, 3]);
    for wave in &waves {
        pool.ensure_counted(layer(0), wave, &counts(wave), Phase::Decode, &mut out).unwrap();
        pool.publish_all(&mut out).unwrap();
        pool.release();
        pool.validate().unwrap();
    }
    let decode = pool.counters().decode;
    // 12 and 13 were there when the pass reached the layer, but the first wave evicted them.
    assert_eq!((decode.hits, decode.misses), (1, 8));
    assert_eq!((decode.token_lookups, decode.token_hits), (18, 6));
    assert_eq!(pool.counters().token_hit_rate(), Some(6.0 / 18.0));
    // In the next pass they are as absent as any other.
    pool.begin_step(&step(2, &[])).unwrap();
    call(&mut pool, 0, &[0, 1]).unwrap();
    assert_eq!(pool.counters().decode.token_hits, 6);

    assert!(matches!(pool.waves(&experts(&[1, 1])), Err(CacheError::NotAscending { at: 1, .. })));
    let tickets: Vec<_> =
        (0..6).map(|i| pool.claim(key(1, i), Origin::Prefetch).unwrap()).collect();
    assert!(matches!(pool.waves(&wanted), Err(CacheError::Exhausted { available: 0, .. })));
    assert_eq!(tickets.len(), 6);
}

#[test]
fn counts_of_one_are_the_same_as_none() {
    let run = |counted: bool| {
        let mut pool = SlotPool::unfloored(geometry(2, 16, 4), 12, Clock::new()).unwrap();
        let mut out = Ensured::new();
        for pass in 0..60 {
            pool.begin_step(&step(pass, &[])).unwrap();
            let wanted: Vec<u16> = (0..16).filter(|id| pass % 5 > 0 || id % 3 > 0).collect();
            let wanted = experts(&wanted);
            let waves: Vec<_> = pool.waves(&wanted).unwrap().collect();
            for wave in waves {
                let counts = vec![1; if counted { wave.len() } else { 0 }];
                pool.ensure_counted(layer(0), wave, &counts, Phase::Decode, &mut out).unwrap();
                pool.publish_all(&mut out).unwrap();
                pool.release();
            }
        }
        *pool.counters()
    };
    let counters = run(true);
    assert_eq!(counters, run(false));
    assert!(counters.decode.token_hits > counters.decode.hits, "waves brought some back");
}

#[test]
fn phases_are_counted_apart() {
    let mut pool = SlotPool::unfloored(geometry(1, 8, 2), 4, Lru::new()).unwrap();
    assert_eq!((pool.counters().hit_rate(), pool.counters().token_hit_rate()), (None, None));
    let mut out = Ensured::new();
    let ids = experts(&[1, 2]);
    pool.ensure_counted(layer(0), &ids, &[5, 1], Phase::Prefill, &mut out).unwrap();
    pool.publish_all(&mut out).unwrap();
    pool.release();
    assert_eq!(pool.counters().hit_rate(), None, "decode only");
    call(&mut pool, 0, &[2, 3]).unwrap();
    let counters = pool.counters();
    assert_eq!(counters.hit_rate(), Some(0.5));
    let prefill = counters.phase(Phase::Prefill);
    assert_eq!((prefill.hits, prefill.misses, prefill.token_lookups), (0, 2, 6));
    assert_eq!((counters.published, counters.claims.demand, counters.evicted), (3, 3, 0));
    pool.reset_counters();
    assert_eq!(*pool.counters(), Default::default());
    pool.validate().unwrap();
    call(&mut pool, 0, &[4, 5]).unwrap();
    assert_eq!(pool.counters().evicted, 1);
}

#[test]
fn layer_local_takes_from_its_own_layer_only_at_the_floor() {
    let model = geometry(2, 8, 2);
    let mut pool = SlotPool::new(model, model.floor_slots(), LayerLocal::new(Lru::new())).unwrap();
    assert_eq!(pool.slots(), 4);
    call(&mut pool, 0, &[0, 1]).unwrap();
    call(&mut pool, 1, &[0, 1]).unwrap();
    assert_eq!(call(&mut pool, 1, &[2]).unwrap(), [2], "layer 1's own oldest");
    assert_eq!(call(&mut pool, 1, &[3, 4, 5]).unwrap(), [3, 2, 0], "then the oldest of all");
    // A forecast is not a demand of the running layer.
    call(&mut pool, 0, &[6]).unwrap();
    let oldest = pool.claim(key(0, 7), Origin::Prefetch).unwrap();
    assert_eq!(pool.policy().name(), "layer-local:lru");
    assert_eq!(oldest.slot(), slot(3));
    pool.abort(oldest, slotstream_cache::Abort::Withdrawn).unwrap();

    pool.resize(5).unwrap();
    pool.clear();
    call(&mut pool, 0, &[0, 1, 2]).unwrap();
    call(&mut pool, 1, &[0, 1]).unwrap();
    assert_eq!(call(&mut pool, 1, &[2]).unwrap(), [0], "above the floor the oldest of all");
}

#[test]
fn a_pool_can_be_shared_behind_a_lock() {
    fn crosses_threads<T: Send + 'static>() {}
    crosses_threads::<SlotPool>();
    crosses_threads::<SlotPool<LayerLocal<Clock>>>();
    crosses_threads::<Ensured>();
}

#[test]
fn the_pool_can_be_looked_at() {
    let mut pool: SlotPool =
        SlotPool::unfloored(geometry(1, 8, 2), 3, slotstream_cache::parse_policy("clock").unwrap())
            .unwrap();
    call(&mut pool, 0, &[4]).unwrap();
    let claim = pool.claim(key(0, 6), Origin::PromptHot).unwrap();
    let states: Vec<_> = pool.states().map(|(_, state)| state).collect();
    let hot = SlotState::Claimed { key: key(0, 6), origin: Origin::PromptHot };
    assert_eq!(
        states,
        [SlotState::Resident { key: key(0, 4), pinned: false }, hot, SlotState::Free]
    );
    assert_eq!(
        (pool.key(slot(0)), pool.key(slot(1)), pool.key(slot(9))),
        (Some(key(0, 4)), None, None)
    );
    assert_eq!((pool.slot_of(key(0, 4)), pool.slot_of(key(5, 5))), (Some(slot(0)), None));
    assert_eq!((pool.resident_count(), pool.open_claims(), pool.available()), (1, 1, 2));
    assert_eq!((pool.geometry().records(), pool.policy_mut().export()), (8, None));
    assert!(format!("{pool:?}").contains("slots: 3, resident: 1, open_claims: 1"));
    pool.publish(claim).unwrap();
}
