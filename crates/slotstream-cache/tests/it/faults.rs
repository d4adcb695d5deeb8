//! Policies that answer wrongly or panic, and claims that are too late.

use std::panic::{AssertUnwindSafe, catch_unwind};

use slotstream_cache::{Abort, CacheError, Ensured, Lru, SlotPool, Unlawful};
use slotstream_core::*;

use crate::support::{
    Heard::{Insert, Miss, Remove, Reset, Resize},
    Scribe, call, experts, geometry, key, layer, slot, step, take,
};

/// Answers what it is told to, or else as LRU does.
#[derive(Debug, Default)]
struct Puppet {
    lru: Lru,
    /// Number of lawful answers before the scripted one.
    lawful: usize,
    script: Option<Option<SlotId>>,
    /// The callback that panics.
    panics: &'static str,
}

impl Puppet {
    fn at(&self, callback: &str) {
        assert_ne!(self.panics, callback, "as told");
    }
}

impl EvictionPolicy for Puppet {
    fn on_insert(&mut self, slot: SlotId, key: ExpertKey, origin: Origin) {
        self.at("insert");
        self.lru.on_insert(slot, key, origin);
    }
    fn on_hit(&mut self, slot: SlotId, key: ExpertKey) {
        self.at("hit");
        self.lru.on_hit(slot, key);
    }
    fn choose_victim(&mut self, incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        self.at("choose");
        match self.script {
            Some(answer) if self.lawful == 0 => answer,
            _ => {
                self.lawful = self.lawful.saturating_sub(1);
                self.lru.choose_victim(incoming, view)
            }
        }
    }
    fn bind(&mut self, geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        self.lru.bind(geometry, slots)
    }
    fn on_resize(&mut self, slots: usize) {
        self.at("resize");
        self.lru.on_resize(slots);
    }
    fn on_miss(&mut self, key: ExpertKey) {
        self.at("miss");
        self.lru.on_miss(key);
    }
    fn on_remove(&mut self, slot: SlotId, key: ExpertKey, cause: RemoveCause) {
        self.at("remove");
        self.lru.on_remove(slot, key, cause);
    }
    fn admit(&mut self, _key: ExpertKey, _origin: Origin) -> bool {
        self.at("admit");
        true
    }
    fn on_step(&mut self, _step: &Step<'_>) {
        self.at("step");
    }
    fn on_routing(&mut self, _routing: &Routing<'_>) {
        self.at("routing");
    }
    fn on_forecast(&mut self, _predictions: &[Prediction]) {
        self.at("forecast");
    }
    fn reset(&mut self) {
        self.at("reset");
        self.lru.reset();
    }
}

#[test]
fn an_unlawful_answer_fails_the_call_and_nothing_else() {
    // Slot 0 is claimed for a forecast, 1 is pinned by the call, 2 gives way first.
    let cases = [
        (None, Unlawful::NoAnswer, "no victim although a slot was evictable"),
        (Some(0), Unlawful::Claimed, "its victim, slot 0, is claimed"),
        (Some(1), Unlawful::Pinned, "its victim, slot 1, is pinned by the running call"),
        (Some(2), Unlawful::Claimed, "its victim, slot 2, is claimed"),
        (Some(9), Unlawful::OutOfRange, "its victim, slot 9, is out of range"),
    ];
    for (answer, expected, text) in cases {
        let (scribe, log) = Scribe::new(Puppet::default());
        let mut pool = SlotPool::unfloored(geometry(1, 8, 2), 4, scribe).unwrap();
        let forecast = pool.claim(key(0, 0), Origin::Prefetch).unwrap();
        call(&mut pool, 0, &[1, 2, 3]).unwrap();
        let puppet = &mut pool.policy_mut().inner;
        (puppet.lawful, puppet.script) = (1, Some(answer.map(slot)));
        take(&log);
        let before = *pool.counters();
        let mut out = Ensured::new();
        let error =
            pool.ensure(layer(0), &experts(&[1, 5, 6]), Phase::Decode, &mut out).unwrap_err();
        let CacheError::PolicyViolation { slot: found, why, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!((*found, *why), (answer.map(slot), expected));
        assert_eq!(error.to_string(), format!("policy puppet broke its contract: {text}"));
        assert_eq!(error.kind(), ErrorKind::Bug);
        pool.validate().unwrap();
        assert_eq!((pool.running(), out.entries().len(), out.claims().len()), (None, 0, 0));
        let heard = take(&log);
        assert_eq!(heard[1], Miss(key(0, 5)));
        assert!(heard.contains(&Insert(2, key(0, 5), Origin::Demand)));
        assert_eq!(heard.last(), Some(&Remove(2, key(0, 5), RemoveCause::ReadFailed)));
        let counters = pool.counters();
        assert_eq!(counters.decode, before.decode, "a failed call is not counted");
        assert_eq!((counters.withdrawn, counters.evicted), (1, 1));

        pool.policy_mut().inner.script = None;
        assert_eq!(call(&mut pool, 0, &[1, 5, 6]).unwrap(), [1, 2, 3], "the next one works");
        pool.abort(forecast, Abort::Withdrawn).unwrap();
        pool.validate().unwrap();
    }
}

#[test]
fn a_free_slot_is_no_victim() {
    // The pool never asks while a slot is free, so a claim is given up between two answers.
    let mut pool = SlotPool::unfloored(geometry(1, 8, 2), 2, Puppet::default()).unwrap();
    call(&mut pool, 0, &[1, 2]).unwrap();
    pool.policy_mut().script = Some(Some(slot(0)));
    let claim = pool.claim(key(0, 3), Origin::WarmStart).unwrap();
    let error = pool.claim(key(0, 4), Origin::WarmStart).unwrap_err();
    assert!(matches!(error, CacheError::PolicyViolation { why: Unlawful::Claimed, .. }), "{error}");
    pool.validate().unwrap();
    pool.abort(claim, Abort::ReadFailed).unwrap();
    let again = pool.claim(key(0, 4), Origin::WarmStart).unwrap();
    assert_eq!(again.slot(), slot(0));
    pool.publish(again).unwrap();
    pool.validate().unwrap();
}

#[test]
fn an_unlawful_answer_to_speculation_leaves_the_running_call_alone() {
    let mut pool = SlotPool::unfloored(geometry(1, 8, 2), 3, Puppet::default()).unwrap();
    call(&mut pool, 0, &[1, 2, 3]).unwrap();
    let mut out = Ensured::new();
    pool.ensure(layer(0), &experts(&[1]), Phase::Decode, &mut out).unwrap();
    pool.policy_mut().script = Some(Some(slot(0)));
    let error = pool.claim(key(0, 7), Origin::Prefetch).unwrap_err();
    assert!(matches!(error, CacheError::PolicyViolation { why: Unlawful::Pinned, .. }), "{error}");
    assert_eq!((pool.running(), pool.resident_count()), (Some(layer(0)), 3));
    pool.validate().unwrap();
    pool.release();
    pool.validate().unwrap();
}

/// One request that reaches `callback`.
fn provoke(pool: &mut SlotPool<Scribe<Puppet>>, callback: &str) -> Result<(), CacheError> {
    let tokens = [1];
    let (at, ids) = (step(9, &tokens), experts(&[1, 2]));
    let needed_by = Deadline { passes_ahead: 0, layer: layer(0) };
    let guess = [Prediction { key: key(0, 1), confidence: 1.0, needed_by }];
    let mut out = Ensured::new();
    match callback {
        "step" => pool.begin_step(&at),
        "routing" => pool.routing(&Routing::new(&at, layer(0), 2, &ids, &[])),
        "forecast" => pool.forecast(&guess),
        "resize" => pool.resize(6),
        "admit" => pool.claim(key(0, 6), Origin::Prefetch).map(|_| ()),
        _ => pool.ensure(layer(0), &experts(&[1, 5, 6]), Phase::Decode, &mut out),
    }
}

#[test]
fn a_panic_poisons_the_pool_until_it_is_cleared() {
    let callbacks = [
        "insert", "hit", "choose", "miss", "remove", "admit", "step", "routing", "forecast",
        "resize",
    ];
    for callback in callbacks {
        let (scribe, log) = Scribe::new(Puppet::default());
        let mut pool = SlotPool::unfloored(geometry(1, 8, 2), 4, scribe).unwrap();
        call(&mut pool, 0, &[1, 2, 3]).unwrap();
        let old = pool.claim(key(0, 0), Origin::WarmStart).unwrap();
        pool.policy_mut().inner.panics = callback;
        let panicked = catch_unwind(AssertUnwindSafe(|| provoke(&mut pool, callback)));
        assert!(panicked.is_err(), "{callback} was not reached");

        for request in [callback, "step", "routing", "forecast", "resize", "admit", "hit"] {
            assert_eq!(provoke(&mut pool, request), Err(CacheError::Poisoned), "{callback}");
        }
        pool.release();
        assert_eq!(pool.validate(), Err(CacheError::Poisoned));
        assert_eq!(pool.publish(old), Err(CacheError::Poisoned));

        pool.policy_mut().inner.panics = "reset";
        assert!(catch_unwind(AssertUnwindSafe(|| pool.clear())).is_err());
        assert_eq!(pool.validate(), Err(CacheError::Poisoned), "still");

        pool.policy_mut().inner.panics = "";
        take(&log);
        pool.clear();
        assert_eq!(take(&log), [Reset, Resize(pool.slots())]);
        pool.validate().unwrap();
        assert_eq!((pool.resident_count(), pool.open_claims()), (0, 0));
        assert_eq!(call(&mut pool, 0, &[1, 5, 6]).unwrap(), [0, 1, 2]);
    }
}

#[test]
fn a_panic_while_clearing_poisons_too() {
    let (scribe, _log) = Scribe::new(Puppet::default());
    let mut pool = SlotPool::unfloored(geometry(1, 8, 2), 4, scribe).unwrap();
    call(&mut pool, 0, &[1, 2, 3]).unwrap();
    pool.policy_mut().inner.panics = "remove";
    assert!(catch_unwind(AssertUnwindSafe(|| pool.clear())).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| pool.resize(2))).is_ok_and(|r| r.is_err()));
    pool.policy_mut().inner.panics = "";
    pool.clear();
    pool.validate().unwrap();
    assert_eq!(pool.counters().cleared, 3);
}

#[test]
fn a_panic_while_a_failed_call_is_undone_poisons_too() {
    let (scribe, _log) = Scribe::new(Puppet::default());
    let mut pool = SlotPool::unfloored(geometry(1, 8, 2), 3, scribe).unwrap();
    call(&mut pool, 0, &[1, 2]).unwrap();
    // The free slot goes to 5; the answer for 6 is unlawful, and withdrawing 5 panics.
    let puppet = &mut pool.policy_mut().inner;
    (puppet.script, puppet.panics) = (Some(None), "remove");
    let mut out = Ensured::new();
    let ids = experts(&[5, 6]);
    let result =
        catch_unwind(AssertUnwindSafe(|| pool.ensure(layer(0), &ids, Phase::Decode, &mut out)));
    assert!(result.is_err());
    assert_eq!(pool.validate(), Err(CacheError::Poisoned));
    let puppet = &mut pool.policy_mut().inner;
    (puppet.script, puppet.panics) = (None, "");
    out.clear();
    pool.clear();
    pool.validate().unwrap();
    call(&mut pool, 0, &[5, 6]).unwrap();
}

#[test]
fn claims_from_before_a_clear_are_stale() {
    let mut pool = SlotPool::unfloored(geometry(1, 8, 2), 2, Lru::new()).unwrap();
    let mut out = Ensured::new();
    pool.ensure(layer(0), &experts(&[1, 2]), Phase::Decode, &mut out).unwrap();
    pool.clear();
    pool.validate().unwrap();
    assert_eq!((pool.running(), pool.counters().discarded), (None, 2));
    // The same records in the same slots again: only the generation tells the claims apart.
    let mut again = Ensured::new();
    pool.ensure(layer(0), &experts(&[1, 2]), Phase::Decode, &mut again).unwrap();
    assert_eq!(again.entries(), out.entries());
    let stale = |result| matches!(result, Err(CacheError::StaleClaim { .. }));
    let mut old = out.take_claims();
    assert!(stale(pool.publish(old.next().unwrap())));
    assert!(stale(pool.abort(old.next().unwrap(), Abort::ReadFailed)));
    drop(old);
    assert_eq!(pool.resident_count(), 0);
    pool.validate().unwrap();
    pool.publish_all(&mut again).unwrap();
    pool.release();
    assert_eq!(pool.resident_count(), 2);
    // A slot that went and came back in between.
    let mut out = Ensured::new();
    pool.ensure(layer(0), &experts(&[3, 4]), Phase::Decode, &mut out).unwrap();
    pool.clear();
    pool.resize(1).unwrap();
    assert!(stale(pool.publish_all(&mut out)));
    pool.resize(2).unwrap();
    assert!(stale(pool.publish_all(&mut out)));
    pool.validate().unwrap();
}
