//! What several topics need: short names, a policy that writes down what it hears, plain key
//! traces.

use std::sync::{Arc, Mutex};

use slotstream_cache::{CacheError, Ensured, SlotPool};
use slotstream_core::*;

pub(crate) fn geometry(layers: u16, experts: u16, top_k: u16) -> Geometry {
    Geometry::new(layers, experts, top_k).unwrap()
}

pub(crate) fn key(layer: u16, expert: u16) -> ExpertKey {
    ExpertKey::new(LayerIdx::new(layer), ExpertIdx::new(expert))
}

pub(crate) fn layer(layer: u16) -> LayerIdx {
    LayerIdx::new(layer)
}

pub(crate) fn slot(slot: u32) -> SlotId {
    SlotId::new(slot)
}

pub(crate) fn experts(ids: &[u16]) -> Vec<ExpertIdx> {
    ids.iter().copied().map(ExpertIdx::new).collect()
}

pub(crate) fn step(pass: u64, tokens: &[u32]) -> Step<'_> {
    let (pass, session) = (PassId::new(pass), SessionId::new(0));
    Step { pass, phase: Phase::Decode, session, position: 0, tokens }
}

/// One decode call whose reads arrive at once; the slots in the order of the call.
pub(crate) fn call<P: EvictionPolicy>(
    pool: &mut SlotPool<P>,
    of: u16,
    ids: &[u16],
) -> Result<Vec<u32>, CacheError> {
    let mut out = Ensured::new();
    pool.ensure(layer(of), &experts(ids), Phase::Decode, &mut out)?;
    pool.publish_all(&mut out)?;
    pool.release();
    pool.validate()?;
    Ok(out.entries().iter().map(|entry| entry.slot.get()).collect())
}

/// What a [`Scribe`] heard.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Heard {
    Insert(u32, ExpertKey, Origin),
    Hit(u32, ExpertKey),
    Miss(ExpertKey),
    Choose(ExpertKey, Origin, u64),
    Remove(u32, ExpertKey, RemoveCause),
    Admit(ExpertKey, Origin),
    Resize(usize),
    Step(u64),
    Routing(u16),
    Forecast(usize),
    Reset,
}

/// The ears of a [`Scribe`], for the test that made it.
pub(crate) type Log = Arc<Mutex<Vec<Heard>>>;

/// Writes down what `inner` hears.
#[derive(Debug)]
pub(crate) struct Scribe<P> {
    pub(crate) inner: P,
    log: Log,
}

impl<P> Scribe<P> {
    pub(crate) fn new(inner: P) -> (Self, Log) {
        let log = Log::default();
        (Self { inner, log: Arc::clone(&log) }, log)
    }

    fn hear(&self, what: Heard) {
        self.log.lock().unwrap().push(what);
    }
}

/// Takes what was written so far.
pub(crate) fn take(log: &Log) -> Vec<Heard> {
    std::mem::take(&mut log.lock().unwrap())
}

impl<P: EvictionPolicy> EvictionPolicy for Scribe<P> {
    fn on_insert(&mut self, slot: SlotId, key: ExpertKey, origin: Origin) {
        self.hear(Heard::Insert(slot.get(), key, origin));
        self.inner.on_insert(slot, key, origin);
    }
    fn on_hit(&mut self, slot: SlotId, key: ExpertKey) {
        self.hear(Heard::Hit(slot.get(), key));
        self.inner.on_hit(slot, key);
    }
    fn choose_victim(&mut self, incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        self.hear(Heard::Choose(incoming.key, incoming.origin, incoming.pass.get()));
        self.inner.choose_victim(incoming, view)
    }
    fn bind(&mut self, geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        self.inner.bind(geometry, slots)
    }
    fn on_resize(&mut self, slots: usize) {
        self.hear(Heard::Resize(slots));
        self.inner.on_resize(slots);
    }
    fn on_miss(&mut self, key: ExpertKey) {
        self.hear(Heard::Miss(key));
        self.inner.on_miss(key);
    }
    fn on_remove(&mut self, slot: SlotId, key: ExpertKey, cause: RemoveCause) {
        self.hear(Heard::Remove(slot.get(), key, cause));
        self.inner.on_remove(slot, key, cause);
    }
    fn admit(&mut self, key: ExpertKey, origin: Origin) -> bool {
        self.hear(Heard::Admit(key, origin));
        self.inner.admit(key, origin)
    }
    fn on_forecast(&mut self, predictions: &[Prediction]) {
        self.hear(Heard::Forecast(predictions.len()));
        self.inner.on_forecast(predictions);
    }
    fn on_routing(&mut self, routing: &Routing<'_>) {
        self.hear(Heard::Routing(routing.layer().get()));
        self.inner.on_routing(routing);
    }
    fn on_step(&mut self, step: &Step<'_>) {
        self.hear(Heard::Step(step.pass.get()));
        self.inner.on_step(step);
    }
    fn name(&self) -> String {
        self.inner.name()
    }
    fn reset(&mut self) {
        self.hear(Heard::Reset);
        self.inner.reset();
    }
}

/// Misses of a plain key trace: each key is a pass of its own.
pub(crate) fn misses<P: EvictionPolicy>(keys: &[usize], slots: usize, policy: P) -> u64 {
    let experts = u16::try_from(keys.iter().max().unwrap() + 1).unwrap();
    let mut pool = SlotPool::unfloored(geometry(1, experts, 1), slots, policy).unwrap();
    let mut out = Ensured::new();
    for (pass, key) in keys.iter().enumerate() {
        pool.begin_step(&step(pass as u64, &[])).unwrap();
        let route = [ExpertIdx::new(u16::try_from(*key).unwrap())];
        pool.ensure(layer(0), &route, Phase::Decode, &mut out).unwrap();
        pool.publish_all(&mut out).unwrap();
        pool.release();
    }
    pool.validate().unwrap();
    let decode = pool.counters().decode;
    assert_eq!(decode.hits + decode.misses, keys.len() as u64);
    decode.misses
}

/// Misses of Belady's rule: give up the key whose next use is farthest.
pub(crate) fn optimum(keys: &[usize], slots: usize) -> u64 {
    let mut next = vec![usize::MAX; keys.len()];
    let mut seen = std::collections::HashMap::new();
    for at in (0..keys.len()).rev() {
        if let Some(later) = seen.insert(keys[at], at) {
            next[at] = later;
        }
    }
    let mut resident = std::collections::HashMap::new();
    let mut by_next = std::collections::BTreeSet::new();
    let mut misses = 0;
    for (at, key) in keys.iter().enumerate() {
        match resident.insert(*key, next[at]) {
            Some(old) => {
                by_next.remove(&(old, *key));
            }
            None => {
                misses += 1;
                if resident.len() > slots {
                    let (_, victim) = by_next.pop_last().unwrap();
                    resident.remove(&victim);
                }
            }
        }
        by_next.insert((next[at], *key));
    }
    misses
}
