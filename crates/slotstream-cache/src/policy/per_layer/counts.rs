//! Shares of the slots that follow the routing.

use slotstream_core::{
    BindError, EvictionPolicy, ExpertKey, Geometry, Incoming, Origin, RemoveCause, Routing, SlotId,
    SlotView, Step,
};

use super::shares::Shares;
use crate::policy::inner::hand_on;
use crate::policy::options::{Options, Setting, check, spelled};
use crate::policy::visits::Visits;

/// [`PerLayer`](super::PerLayer) with shares from routing counts, in the manner of Project Maya.
///
/// Every layer routes to the same number of experts a token, so the sum of its counts says
/// nothing. What differs is how many records carry them: a layer whose tokens keep choosing the
/// same few experts needs fewer slots than one that chooses among many. So every layer gets a
/// slot for each of its `top_k` records of the highest counts, and each further slot goes to the
/// record with the highest count that has none yet, whatever its layer. These are the shares that
/// would serve the most of the counted uses if each slot stayed with its record.
///
/// Shares are equal until the [warm-up](Self::with) is over, are computed then, and again every so
/// many passes, after which all counts are halved, so that old routing fades. Counts are those of
/// tokens where the routing is told, else of hits and misses. A pool that is resized goes on with
/// equal shares until the next time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerLayerCounts<P> {
    inner: P,
    schedule: Schedule,
    shares: Shares,
    geometry: Option<Geometry>,
    visits: Visits,
    passes: u64,
    /// By record.
    counts: Vec<u32>,
    /// Scratch: the records of each layer by falling count.
    order: Vec<u32>,
    /// Scratch: the records that compete for the further slots.
    further: Vec<u32>,
}

/// When shares are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy) struct Schedule {
    warm_up: u64,
    every: u64,
}

impl Default for Schedule {
    fn default() -> Self {
        Self { warm_up: 16, every: 64 }
    }
}

const PASSES: ((u64, u64), &str) = ((1, 1_000_000), "a whole number from 1 to 1000000");

impl Options for Schedule {
    const SETTINGS: &'static [Setting<Self>] = &[
        Setting::count(
            ("warm-up", "passes before the first shares from counts"),
            PASSES,
            |schedule| schedule.warm_up,
            |schedule, warm_up| schedule.warm_up = warm_up,
        ),
        Setting::count(
            ("every", "passes after which shares are computed anew"),
            PASSES,
            |schedule| schedule.every,
            |schedule, every| schedule.every = every,
        ),
    ];
}

impl<P: EvictionPolicy> PerLayerCounts<P> {
    /// `per-layer-counts:P`: a warm-up of 16 passes, new shares every 64.
    #[must_use]
    pub fn new(inner: P) -> Self {
        Self::scheduled(inner, Schedule::default())
    }

    /// `per-layer-counts:warm-up=...+every=...:P`; `bind` accepts 1 to 1,000,000 passes.
    #[must_use]
    pub fn with(inner: P, warm_up: u64, every: u64) -> Self {
        Self::scheduled(inner, Schedule { warm_up, every })
    }

    pub(in crate::policy) fn scheduled(inner: P, schedule: Schedule) -> Self {
        Self {
            inner,
            schedule,
            shares: Shares::default(),
            geometry: None,
            visits: Visits::default(),
            passes: 0,
            counts: Vec::new(),
            order: Vec::new(),
            further: Vec::new(),
        }
    }

    /// The policy inside.
    #[must_use]
    pub const fn inner(&self) -> &P {
        &self.inner
    }

    /// Slots that `layer` may hold now; `None` before `bind` and outside its geometry.
    #[must_use]
    pub fn share(&self, layer: usize) -> Option<usize> {
        self.shares.due(layer)
    }

    fn count(&mut self, key: ExpertKey) {
        if let Some(index) = self.geometry.and_then(|geometry| geometry.index(key)) {
            self.counts[index] = self.counts[index].saturating_add(1);
        }
    }

    fn lookup(&mut self, key: ExpertKey) {
        if self.visits.lookup(key.layer()).counts {
            self.count(key);
        }
    }

    /// Computes the shares, unless the pool is too small for a route.
    fn share_out(&mut self) {
        let Some(geometry) = self.geometry else { return };
        let (layers, experts, top_k) = (geometry.layers(), geometry.experts(), geometry.top_k());
        let Some(left) = self.shares.slots().checked_sub(layers * top_k) else { return };
        let counts = &self.counts;
        let falling = |record: &u32| std::cmp::Reverse(counts[*record as usize]);
        self.further.clear();
        for layer in self.order.chunks_mut(experts) {
            layer.sort_unstable_by_key(|record| (falling(record), *record));
            self.further.extend_from_slice(&layer[top_k..]);
        }
        // Of equal counts first the lower expert, so that no layer is favoured.
        let rank = |record: &u32| (falling(record), *record as usize % experts, *record);
        let left = left.min(self.further.len());
        if left > 0 {
            self.further.select_nth_unstable_by_key(left - 1, rank);
        }
        for layer in 0..layers {
            self.shares.set(layer, top_k);
        }
        for record in &self.further[..left] {
            let layer = *record as usize / experts;
            self.shares.set(layer, self.shares.due(layer).unwrap_or(0) + 1);
        }
        self.counts.iter_mut().for_each(|count| *count /= 2);
    }
}

impl<P: EvictionPolicy> EvictionPolicy for PerLayerCounts<P> {
    fn on_insert(&mut self, slot: SlotId, key: ExpertKey, origin: Origin) {
        self.shares.gain(key.layer());
        self.inner.on_insert(slot, key, origin);
    }

    fn on_hit(&mut self, slot: SlotId, key: ExpertKey) {
        self.lookup(key);
        self.inner.on_hit(slot, key);
    }

    fn choose_victim(&mut self, incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        self.inner.choose_victim(incoming, &self.shares.narrowed(incoming.key.layer(), view))
    }

    fn bind(&mut self, geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        check(&self.schedule)?;
        self.shares = Shares::equal(geometry, slots)?;
        self.geometry = Some(*geometry);
        self.visits = Visits::new(geometry.layers());
        self.counts = vec![0; geometry.records()];
        self.order = (0..).take(geometry.records()).collect();
        self.further = Vec::with_capacity(geometry.records());
        self.inner.bind(geometry, slots)
    }

    fn on_resize(&mut self, slots: usize) {
        self.shares.split_evenly(slots);
        self.inner.on_resize(slots);
    }

    fn on_miss(&mut self, key: ExpertKey) {
        self.lookup(key);
        self.inner.on_miss(key);
    }

    fn on_remove(&mut self, slot: SlotId, key: ExpertKey, cause: RemoveCause) {
        self.shares.lose(key.layer());
        self.inner.on_remove(slot, key, cause);
    }

    fn on_routing(&mut self, routing: &Routing<'_>) {
        self.visits.routing(routing);
        for expert in routing.ids() {
            self.count(routing.key(*expert));
        }
        self.inner.on_routing(routing);
    }

    fn on_step(&mut self, step: &Step<'_>) {
        self.visits.step();
        let Schedule { warm_up, every } = self.schedule;
        if self.passes >= warm_up && (self.passes - warm_up).is_multiple_of(every) {
            self.share_out();
        }
        self.passes += 1;
        self.inner.on_step(step);
    }

    fn name(&self) -> String {
        format!("{}:{}", spelled("per-layer-counts", &self.schedule), self.inner.name())
    }

    fn reset(&mut self) {
        self.shares.reset();
        self.visits.reset();
        self.passes = 0;
        self.counts.fill(0);
        self.inner.reset();
    }

    hand_on!(admit, on_forecast, planned_bytes, export, import);
}
