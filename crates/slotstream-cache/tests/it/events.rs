//! What the policy hears, in which order.

use slotstream_cache::{CacheError, Clock, Ensured, Found, Lru, SlotPool};
use slotstream_core::*;

use crate::support::{
    Heard::{
        Choose, Forecast, Hit, Insert, Miss, Remove, Resize, Routing as Routed, Step as Stepped,
    },
    Scribe, call, experts, geometry, key, layer, slot, step, take,
};

#[test]
fn hits_come_first_then_each_miss_in_route_order() {
    let (scribe, log) = Scribe::new(Lru::new());
    let mut pool = SlotPool::unfloored(geometry(2, 8, 3), 4, scribe).unwrap();
    call(&mut pool, 0, &[5, 1, 2]).unwrap();
    let demand = |slot, key| [Miss(key), Insert(slot, key, Origin::Demand)];
    let first: Vec<_> = [demand(0, key(0, 5)), demand(1, key(0, 1)), demand(2, key(0, 2))].concat();
    assert_eq!(take(&log), first, "free slots go in order, nothing is chosen");

    let ids = experts(&[7, 2, 4, 5, 6, 1]);
    let tokens = [3, 9];
    let at = step(12, &tokens);
    pool.begin_step(&at).unwrap();
    pool.routing(&Routing::new(&at, layer(0), 3, &ids, &[])).unwrap();
    assert_eq!(call(&mut pool, 0, &[7, 2, 4, 5]).unwrap(), [3, 2, 1, 0]);
    let evict = Remove(1, key(0, 1), RemoveCause::Evicted);
    let expected = vec![
        Stepped(12),
        Routed(0),
        Hit(2, key(0, 2)),
        Hit(0, key(0, 5)),
        Miss(key(0, 7)),
        Insert(3, key(0, 7), Origin::Demand),
        Miss(key(0, 4)),
        Choose(key(0, 4), Origin::Demand, 12),
        evict,
        Insert(1, key(0, 4), Origin::Demand),
    ];
    assert_eq!(take(&log), expected);
}

#[test]
fn arrival_tells_nothing_and_a_failed_read_tells_the_cause() {
    let (scribe, log) = Scribe::new(Clock::new());
    let mut pool = SlotPool::unfloored(geometry(1, 8, 2), 4, scribe).unwrap();
    let mut out = Ensured::new();
    pool.ensure(layer(0), &experts(&[3, 4]), Phase::Decode, &mut out).unwrap();
    take(&log);
    let mut claims = out.take_claims();
    let (lands, fails) = (claims.next().unwrap(), claims.next().unwrap());
    drop(claims);
    assert_eq!((lands.key(), fails.slot(), fails.origin()), (key(0, 3), slot(1), Origin::Demand));
    pool.publish(lands).unwrap();
    assert_eq!(take(&log), []);
    pool.abort(fails, slotstream_cache::Abort::ReadFailed).unwrap();
    assert_eq!(take(&log), [Remove(1, key(0, 4), RemoveCause::ReadFailed)]);
    pool.validate().unwrap();
    pool.release();
    assert_eq!(take(&log), []);
    assert!(pool.is_resident(key(0, 3)) && !pool.is_resident(key(0, 4)));
    assert_eq!(call(&mut pool, 0, &[4]).unwrap(), [1], "the slot that failed is free again");
}

#[test]
fn resize_and_clear_name_every_record() {
    let (scribe, log) = Scribe::new(Lru::new());
    let mut pool = SlotPool::unfloored(geometry(1, 8, 2), 4, scribe).unwrap();
    call(&mut pool, 0, &[1, 2, 3, 4]).unwrap();
    take(&log);
    pool.resize(2).unwrap();
    let shrunk = |slot, expert| Remove(slot, key(0, expert), RemoveCause::Shrunk);
    assert_eq!(take(&log), [shrunk(2, 3), shrunk(3, 4), Resize(2)]);
    pool.validate().unwrap();
    pool.resize(2).unwrap();
    assert_eq!(take(&log), []);
    pool.resize(100).unwrap();
    assert_eq!((take(&log), pool.slots()), (vec![Resize(8)], 8), "a slot a record at most");
    assert_eq!(call(&mut pool, 0, &[5, 6]).unwrap(), [2, 3], "new slots go in order");
    take(&log);
    pool.clear();
    let cleared = |slot, expert| Remove(slot, key(0, expert), RemoveCause::Cleared);
    assert_eq!(take(&log), [cleared(0, 1), cleared(1, 2), cleared(2, 5), cleared(3, 6)]);
    pool.validate().unwrap();
    assert_eq!(pool.resident_count(), 0);
    assert_eq!(call(&mut pool, 0, &[7]).unwrap(), [0]);
}

#[test]
fn what_is_not_of_the_geometry_never_reaches_the_policy() {
    let (scribe, log) = Scribe::new(Lru::new());
    let mut pool = SlotPool::unfloored(geometry(2, 4, 1), 4, scribe).unwrap();
    let tokens = [0];
    let at = step(1, &tokens);
    let beyond = experts(&[4]);
    let unknown = |error| matches!(error, Err(CacheError::UnknownExpert { experts: 4, .. }));
    assert!(unknown(pool.routing(&Routing::new(&at, layer(1), 1, &beyond, &[]))));
    let below = experts(&[3]);
    let error = pool.routing(&Routing::new(&at, layer(2), 1, &below, &[]));
    assert!(matches!(error, Err(CacheError::UnknownLayer { layers: 2, .. })), "{error:?}");
    let guess = |expert| Prediction {
        key: key(0, expert),
        confidence: 1.0,
        needed_by: Deadline { passes_ahead: 0, layer: layer(0) },
    };
    assert!(unknown(pool.forecast(&[guess(0), guess(9)])));
    assert_eq!(take(&log), []);
    pool.forecast(&[guess(0), guess(3)]).unwrap();
    pool.routing(&Routing::new(&at, layer(1), 1, &below, &[])).unwrap();
    assert_eq!(take(&log), [Forecast(2), Routed(1)]);
}

/// The order law: whether bytes have arrived cannot be told from what the policy hears.
#[test]
fn arrival_times_do_not_change_the_policys_story() {
    let story = |late: bool| {
        let (scribe, log) = Scribe::new(Lru::new());
        let mut pool = SlotPool::unfloored(geometry(2, 8, 2), 6, scribe).unwrap();
        let mut out = Ensured::new();
        let hot = pool.claim(key(0, 1), Origin::PromptHot).unwrap();
        let forecast = pool.claim(key(0, 2), Origin::Prefetch).unwrap();
        let mut hot = Some(hot);
        if !late {
            pool.publish(hot.take().unwrap()).unwrap();
        }
        pool.ensure(layer(0), &experts(&[3, 2, 1]), Phase::Decode, &mut out).unwrap();
        let found: Vec<Found> = out.entries().iter().map(|entry| entry.found).collect();
        let first = if late { Found::Pending } else { Found::Hit };
        assert_eq!(found, [Found::Miss, Found::Adopted, first]);
        hot.into_iter().for_each(|claim| pool.publish(claim).unwrap());
        pool.publish(forecast).unwrap();
        pool.publish_all(&mut out).unwrap();
        pool.release();
        pool.validate().unwrap();
        let decode = pool.counters().decode;
        (take(&log), decode.hits, decode.misses, decode.adopted, decode.token_hits)
    };
    assert_eq!(story(false), story(true));
}
