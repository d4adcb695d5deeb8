//! Spares what a forecast has named.

use slotstream_core::{
    BindError, EvictionPolicy, ExpertIdx, ExpertKey, Geometry, Incoming, Prediction, Routing,
    SlotId, SlotView, Step,
};

use super::inner::hand_on;

/// No record is given up that a forecast has named and whose layer has not come, as long as there
/// is another one. Which of the others, and everything else, is up to the policy inside.
///
/// A forecast of a layer takes the place of an earlier one of the same layer, and is over when the
/// layer was routed or the pass has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForecastAware<P> {
    inner: P,
    /// By layer: what is expected, and whether of the next pass.
    expected: Vec<(bool, Vec<ExpertIdx>)>,
    /// Experts in `expected`.
    count: usize,
    /// What the policy inside sees; used again.
    seen: Seen,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    keys: Vec<Option<ExpertKey>>,
    blocked: Vec<bool>,
    evictable: Vec<u32>,
}

impl Seen {
    /// Makes room for so many slots.
    fn reserve(&mut self, slots: usize) {
        self.keys.clear();
        self.blocked.clear();
        self.keys.reserve(slots);
        self.blocked.reserve(slots);
    }
}

impl<P: EvictionPolicy> ForecastAware<P> {
    /// `forecast-aware:P`.
    #[must_use]
    pub const fn new(inner: P) -> Self {
        let seen = Seen { keys: Vec::new(), blocked: Vec::new(), evictable: Vec::new() };
        Self { inner, expected: Vec::new(), count: 0, seen }
    }

    /// The policy inside.
    #[must_use]
    pub const fn inner(&self) -> &P {
        &self.inner
    }

    /// Takes over the slots that are not expected; whether one of them can be given up.
    fn look(&mut self, view: &SlotView<'_>) -> bool {
        let Self { expected, seen, .. } = self;
        seen.keys.clear();
        seen.blocked.clear();
        seen.evictable.clear();
        seen.evictable.resize(expected.len(), 0);
        let mut any = false;
        for slot in (0..view.len()).map(|slot| SlotId::new(u32::try_from(slot).unwrap_or(u32::MAX)))
        {
            let key = view.key(slot);
            let of_layer = key.and_then(|key| Some((key, expected.get(key.layer().index())?)));
            let spared = of_layer.is_some_and(|(key, (_, of))| of.contains(&key.expert()));
            let free_to_go = view.is_evictable(slot) && !spared;
            if let (true, Some((key, _))) = (free_to_go, of_layer) {
                seen.evictable[key.layer().index()] += 1;
                any = true;
            }
            seen.keys.push(key);
            seen.blocked.push(!free_to_go);
        }
        any
    }

    fn forget(&mut self, is_over: impl Fn(usize, bool) -> bool) {
        for (layer, (later, experts)) in self.expected.iter_mut().enumerate() {
            if is_over(layer, *later) {
                self.count -= experts.len();
                experts.clear();
            }
        }
    }
}

impl<P: EvictionPolicy> EvictionPolicy for ForecastAware<P> {
    fn choose_victim(&mut self, incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        if self.count == 0 || !self.look(view) {
            return self.inner.choose_victim(incoming, view);
        }
        let Self { inner, seen: Seen { keys, blocked, evictable }, .. } = self;
        inner.choose_victim(incoming, &SlotView::new(keys, blocked, evictable, view.free()))
    }

    fn bind(&mut self, geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        let experts = || (false, Vec::with_capacity(geometry.experts()));
        self.expected = (0..geometry.layers()).map(|_| experts()).collect();
        self.count = 0;
        self.seen = Seen::default();
        self.seen.evictable.reserve(geometry.layers());
        self.seen.reserve(slots);
        self.inner.bind(geometry, slots)
    }

    fn on_resize(&mut self, slots: usize) {
        self.seen.reserve(slots);
        self.inner.on_resize(slots);
    }

    fn on_forecast(&mut self, predictions: &[Prediction]) {
        for prediction in predictions {
            let layer = prediction.key.layer().index();
            self.forget(|known, _| known == layer);
        }
        for prediction in predictions {
            let layer = prediction.key.layer().index();
            let Some((later, experts)) = self.expected.get_mut(layer) else { continue };
            *later = prediction.needed_by.passes_ahead > 0;
            if !experts.contains(&prediction.key.expert()) {
                experts.push(prediction.key.expert());
                self.count += 1;
            }
        }
        self.inner.on_forecast(predictions);
    }

    fn on_routing(&mut self, routing: &Routing<'_>) {
        let now = routing.layer().index();
        self.forget(|layer, later| layer <= now && !later);
        self.inner.on_routing(routing);
    }

    fn on_step(&mut self, step: &Step<'_>) {
        self.forget(|_, later| !later);
        self.expected.iter_mut().for_each(|(later, _)| *later = false);
        self.inner.on_step(step);
    }

    fn name(&self) -> String {
        format!("forecast-aware:{}", self.inner.name())
    }

    fn reset(&mut self) {
        self.forget(|_, _| true);
        self.inner.reset();
    }

    hand_on!(planned_bytes, on_insert, on_hit, on_miss, on_remove, admit, export, import);
}

#[cfg(test)]
mod tests {
    use slotstream_core::{Deadline, LayerIdx, Origin, PassId, Phase, SessionId};

    use super::*;
    use crate::policy::Lru;

    fn key(layer: u16, expert: u16) -> ExpertKey {
        ExpertKey::new(LayerIdx::new(layer), ExpertIdx::new(expert))
    }

    fn said(layer: u16, expert: u16, passes_ahead: u32) -> Prediction {
        let key = key(layer, expert);
        let needed_by = Deadline { passes_ahead, layer: key.layer() };
        Prediction { key, confidence: 0.5, needed_by }
    }

    /// Two layers of four experts; slots 0 to 2 hold (0, 0), (1, 1) and (1, 2), the oldest first.
    fn policy() -> ForecastAware<Lru> {
        let mut policy = ForecastAware::new(Lru::new());
        policy.bind(&Geometry::new(2, 4, 1).expect("legal"), 3).expect("legal");
        for (slot, key) in [key(0, 0), key(1, 1), key(1, 2)].into_iter().enumerate() {
            policy.on_insert(SlotId::new(slot as u32), key, Origin::Demand);
        }
        policy
    }

    fn victim(policy: &mut ForecastAware<Lru>) -> Option<u32> {
        let keys = [key(0, 0), key(1, 1), key(1, 2)].map(Some);
        let (key, origin, pass) = (key(0, 3), Origin::Demand, PassId::new(1));
        let view = SlotView::new(&keys, &[false; 3], &[1, 2], 0);
        policy.choose_victim(&Incoming { key, origin, pass }, &view).map(|slot| slot.index() as u32)
    }

    fn step(pass: u64) -> Step<'static> {
        let (pass, session, phase) = (PassId::new(pass), SessionId::new(0), Phase::Decode);
        Step { pass, phase, session, position: 0, tokens: &[0] }
    }

    #[test]
    fn what_is_expected_is_spared_until_its_layer_has_come() {
        let mut policy = policy();
        assert_eq!(victim(&mut policy), Some(0), "nothing is expected");
        policy.on_forecast(&[said(0, 0, 0), said(1, 1, 0)]);
        assert_eq!(victim(&mut policy), Some(2));
        policy.on_routing(&Routing::new(&step(1), LayerIdx::new(0), 1, &[ExpertIdx::new(3)], &[]));
        assert_eq!(victim(&mut policy), Some(0));
        policy.on_forecast(&[said(1, 2, 0)]);
        policy.on_forecast(&[said(0, 0, 1)]);
        assert_eq!(victim(&mut policy), Some(1), "the earlier forecast of layer 1 was replaced");
        policy.on_step(&step(2));
        assert_eq!(victim(&mut policy), Some(1), "that of the next pass is still awaited");
        policy.on_step(&step(3));
        assert_eq!(victim(&mut policy), Some(0));
    }

    #[test]
    fn where_all_is_expected_something_goes() {
        let mut policy = policy();
        policy.on_forecast(&[said(0, 0, 0), said(1, 1, 0), said(1, 2, 0), said(9, 9, 0)]);
        assert_eq!(victim(&mut policy), Some(0));
        policy.reset();
        assert_eq!((policy.count, policy.name().as_str()), (0, "forecast-aware:lru"));
    }
}
