//! A call whose records arrive at once is a call of claims that are published: the policy hears
//! the same, and the pool is left the same.

use proptest::prelude::*;
use slotstream_cache::{CacheError, Clock, Ensured, LayerLocal, Lru, SlotPool};
use slotstream_core::*;

use crate::support::{Heard, Log, Scribe, experts, geometry, key, layer, slot, take};

/// A layer, the experts that it asks for, how often, and the phase.
type Call = (u16, Vec<u16>, Vec<u32>, bool);

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let experts = prop::sample::subsequence((0..9).collect::<Vec<u16>>(), 0..=7).prop_shuffle();
    let call = experts.prop_flat_map(|experts| {
        let counts = prop::collection::vec(1_u32..4, experts.len());
        let counts = prop_oneof![Just(Vec::new()), counts];
        (0_u16..3, Just(experts), counts, any::<bool>())
    });
    prop::collection::vec(call, 1..60)
}

struct Side<P: EvictionPolicy> {
    pool: SlotPool<Scribe<P>>,
    log: Log,
    out: Ensured,
}

impl<P: EvictionPolicy> Side<P> {
    fn new(slots: usize, policy: P) -> Self {
        let (scribe, log) = Scribe::new(policy);
        let pool = SlotPool::unfloored(geometry(3, 9, 2), slots, scribe).unwrap();
        Self { pool, log, out: Ensured::new() }
    }

    fn claimed(&mut self, (of, ids, counts, decode): &Call) -> Result<(), CacheError> {
        let phase = if *decode { Phase::Decode } else { Phase::Prefill };
        self.pool.ensure_counted(layer(*of), &experts(ids), counts, phase, &mut self.out)?;
        self.pool.publish_all(&mut self.out)?;
        self.pool.release();
        Ok(())
    }

    fn arrived(&mut self, (of, ids, counts, decode): &Call) -> Result<(), CacheError> {
        let phase = if *decode { Phase::Decode } else { Phase::Prefill };
        self.pool.ensure_arrived(layer(*of), &experts(ids), counts, phase, &mut self.out)
    }

    /// Everything that can be seen from outside.
    fn seen(&self) -> (Vec<Heard>, String) {
        self.pool.validate().unwrap();
        let pool = &self.pool;
        let states: Vec<_> = pool.states().collect();
        let text = format!("{states:?} {:?} {:?}", pool.counters(), self.out.entries());
        (take(&self.log), text)
    }
}

/// Every answer is right but each fifth, which is a slot that nobody may give up.
#[derive(Debug, Default)]
struct Fifth {
    inner: Lru,
    asked: u32,
}

impl EvictionPolicy for Fifth {
    fn on_insert(&mut self, slot: SlotId, key: ExpertKey, origin: Origin) {
        self.inner.on_insert(slot, key, origin);
    }
    fn on_hit(&mut self, slot: SlotId, key: ExpertKey) {
        self.inner.on_hit(slot, key);
    }
    fn choose_victim(&mut self, incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        self.asked += 1;
        if self.asked.is_multiple_of(5) {
            return (0..=view.len() as u32).map(slot).find(|slot| !view.is_evictable(*slot));
        }
        self.inner.choose_victim(incoming, view)
    }
    fn bind(&mut self, geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        self.inner.bind(geometry, slots)
    }
    fn on_remove(&mut self, slot: SlotId, key: ExpertKey, cause: RemoveCause) {
        self.inner.on_remove(slot, key, cause);
    }
    fn reset(&mut self) {
        self.inner.reset();
        self.asked = 0;
    }
}

fn compare<P: EvictionPolicy>(
    calls: &[Call],
    slots: usize,
    make: impl Fn() -> P,
) -> Result<usize, TestCaseError> {
    let (mut claimed, mut arrived) = (Side::new(slots, make()), Side::new(slots, make()));
    let mut refused = 0;
    for call in calls {
        let results = (claimed.claimed(call), arrived.arrived(call));
        prop_assert_eq!(&results.0, &results.1);
        prop_assert_eq!(claimed.seen(), arrived.seen());
        refused += usize::from(results.0.is_err());
    }
    Ok(refused)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn calls_of_claims_and_calls_that_arrive_are_one(calls in calls(), slots in 1_usize..20) {
        compare(&calls, slots, Clock::new)?;
        compare(&calls, slots, || LayerLocal::new(Lru::new()))?;
        compare(&calls, slots, Fifth::default)?;
    }
}

/// The broken policy is caught in both ways of calling, and the next calls work.
#[test]
fn violations_are_the_same() {
    let calls: Vec<Call> =
        (0..40).map(|n| (n % 3, vec![n % 9, (n + 4) % 9], Vec::new(), true)).collect();
    let refused = compare(&calls, 4, Fifth::default).unwrap();
    assert!((3..20).contains(&refused), "{refused}");
}

/// Mistakes of the caller change nothing in either.
#[test]
fn mistakes_are_the_same() {
    let wrong: [Call; 4] = [
        (7, vec![0], Vec::new(), true),
        (0, vec![1, 9], Vec::new(), true),
        (0, vec![1, 1], Vec::new(), true),
        (0, vec![1], vec![1, 1], true),
    ];
    assert_eq!(compare(&wrong, 4, Lru::new).unwrap(), wrong.len());
}

/// While somebody reads, it is a call like any other: a forecast is adopted.
#[test]
fn forecasts_are_adopted() {
    let mut side = Side::new(4, Lru::new());
    let forecast = side.pool.claim(key(0, 1), Origin::Prefetch).unwrap();
    side.arrived(&(0, vec![1, 2], Vec::new(), true)).unwrap();
    assert_eq!(side.pool.counters().decode.adopted, 1);
    side.pool.publish(forecast).unwrap();
    side.arrived(&(0, vec![1, 2], Vec::new(), true)).unwrap();
    assert_eq!((side.pool.counters().decode.hits, side.pool.open_claims()), (2, 0));
    side.pool.validate().unwrap();
}
