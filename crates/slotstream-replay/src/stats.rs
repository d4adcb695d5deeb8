//! What requests are like, whatever the policy: reuse, skew, likeness of neighbours.

use slotstream_core::{EventSink, ExpertIdx, PassId, Rng, Step};

use crate::{Histogram, Phases, Requests};

/// Statistics of requests.
///
/// A *reuse* is a lookup of a record that was looked up before. Its distance is the number of
/// distinct other records between the two (lookups of one visit in route order), its time the
/// number of passes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// Lookups.
    pub lookups: u64,
    /// Lookups of records that were not looked up before: the compulsory misses.
    pub first_uses: u64,
    /// Distinct records between two lookups of one.
    pub reuse_distance: Histogram,
    /// Passes between two lookups of a record.
    pub reuse_passes: Histogram,
    /// By layer.
    pub layers: Vec<LayerStats>,
    /// By record: lookups.
    uses: Vec<u64>,
}

/// Statistics of one layer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct LayerStats {
    /// Lookups.
    pub lookups: u64,
    /// Records that were looked up at least once.
    pub records_used: usize,
    /// Share of the lookups that the busiest tenth of the layer's records serves.
    pub top_tenth: f64,
    /// Of a token's experts, the share that the sequence's token before chose as well; `None`
    /// when no token has one before it.
    pub same_as_previous: Option<f64>,
}

impl Stats {
    /// Looks through `requests`; only lookups of `phases` are counted, but all are uses. Takes
    /// O(n log n) for n lookups.
    #[must_use]
    pub fn of(requests: &Requests, phases: Phases) -> Self {
        let geometry = requests.geometry();
        let experts = geometry.experts();
        let (mut reuse_distance, mut reuse_passes) = (Histogram::new(), Histogram::new());
        let mut uses = vec![0; geometry.records()];
        let mut recency = Recency::new(geometry.records(), requests.lookups() as usize);
        let mut last_pass = vec![0; geometry.records()];
        let mut first_uses = 0;
        for pass in requests.passes() {
            let counted = phases.include(pass.step().phase);
            for visit in pass.visits() {
                for expert in visit.experts() {
                    let record = visit.layer().index() * experts + expert.index();
                    let distance = recency.touch(record);
                    let before = std::mem::replace(&mut last_pass[record], pass.index());
                    if !counted {
                        continue;
                    }
                    uses[record] += 1;
                    if let Some(distance) = distance {
                        reuse_distance.add(distance);
                        reuse_passes.add(pass.index() - before);
                    } else {
                        first_uses += 1;
                    }
                }
            }
        }
        let layers = layers(requests, phases, &uses);
        let lookups = uses.iter().sum();
        Self { lookups, first_uses, reuse_distance, reuse_passes, layers, uses }
    }

    /// By dense record number: lookups.
    #[must_use]
    pub fn uses(&self) -> &[u64] {
        &self.uses
    }

    /// Records that were looked up at least once.
    #[must_use]
    pub fn records_used(&self) -> usize {
        used(&self.uses)
    }

    /// Share of the lookups that the busiest `share` of all records serves (as many records as
    /// make up at least that share).
    #[must_use]
    pub fn top_share(&self, share: f64) -> f64 {
        top_share(&self.uses, share)
    }

    /// Hits of LRU with `slots` slots by the stack distances: exact where every call asks for
    /// one record, near where records of one call are used in another order than the route's.
    #[must_use]
    pub fn lru_hits(&self, slots: usize) -> u64 {
        self.reuse_distance.below(slots)
    }

    /// The best hit rate of any pool: every first use misses. `None` without lookups.
    #[must_use]
    pub fn ceiling(&self) -> Option<f64> {
        (self.lookups > 0).then(|| 1.0 - self.first_uses as f64 / self.lookups as f64)
    }
}

fn used(uses: &[u64]) -> usize {
    uses.iter().filter(|uses| **uses > 0).count()
}

/// Share of all uses that the busiest `share` of the records has.
pub(crate) fn top_share(uses: &[u64], share: f64) -> f64 {
    let mut descending = uses.to_vec();
    descending.sort_unstable_by(|a, b| b.cmp(a));
    let records = (share.clamp(0.0, 1.0) * uses.len() as f64 - 1e-9).ceil() as usize;
    let top: u64 = descending[..records.min(uses.len())].iter().sum();
    top as f64 / uses.iter().sum::<u64>().max(1) as f64
}

fn layers(requests: &Requests, phases: Phases, uses: &[u64]) -> Vec<LayerStats> {
    let same = same_as_previous(requests, phases);
    uses.chunks(requests.geometry().experts())
        .zip(same)
        .map(|(uses, same_as_previous)| LayerStats {
            lookups: uses.iter().sum(),
            records_used: used(uses),
            top_tenth: top_share(uses, 0.1),
            same_as_previous,
        })
        .collect()
}

/// By layer, see [`LayerStats::same_as_previous`].
fn same_as_previous(requests: &Requests, phases: Phases) -> Vec<Option<f64>> {
    let layers = requests.geometry().layers();
    let mut sums = vec![(0_u64, 0_u64); layers];
    // By layer: whose the last token was, and its experts.
    let mut before = vec![(None, Vec::<ExpertIdx>::new()); layers];
    for pass in requests.passes() {
        let step = pass.step();
        for visit in pass.visits() {
            let (of, last) = &mut before[visit.layer().index()];
            if *of != Some(step.session) {
                last.clear();
            }
            *of = Some(step.session);
            let (same, all) = &mut sums[visit.layer().index()];
            let top_k = visit.ids().len() / step.tokens.len().max(1);
            for row in visit.ids().chunks(top_k.max(1)) {
                if phases.include(step.phase) && !last.is_empty() {
                    *same += row.iter().filter(|id| last.contains(id)).count() as u64;
                    *all += row.len() as u64;
                }
                last.clear();
                last.extend_from_slice(row);
            }
        }
    }
    sums.into_iter().map(|(same, all)| (all > 0).then(|| same as f64 / all as f64)).collect()
}

/// The order of last uses: a Fenwick tree over the lookups that are some record's last one.
struct Recency {
    tree: Vec<u32>,
    /// By record: one more than the number of its last lookup; 0 for none.
    last: Vec<usize>,
    now: usize,
}

impl Recency {
    fn new(records: usize, lookups: usize) -> Self {
        Self { tree: vec![0; lookups + 1], last: vec![0; records], now: 0 }
    }

    /// `record` is used; how many other records were since its last use?
    fn touch(&mut self, record: usize) -> Option<usize> {
        self.now += 1;
        let last = std::mem::replace(&mut self.last[record], self.now);
        let distance = (last > 0).then(|| {
            let distance = self.up_to(self.now - 1) - self.up_to(last);
            self.add(last, u32::MAX); // -1, wrapping
            distance as usize
        });
        self.add(self.now, 1);
        distance
    }

    fn add(&mut self, mut at: usize, change: u32) {
        while let Some(node) = self.tree.get_mut(at) {
            *node = node.wrapping_add(change);
            at += at & at.wrapping_neg();
        }
    }

    fn up_to(&self, mut at: usize) -> u32 {
        let mut sum = 0_u32;
        while at > 0 {
            sum = sum.wrapping_add(self.tree[at]);
            at &= at - 1;
        }
        sum
    }
}

/// The same passes in random order, numbered anew: popularity is kept, locality in time is gone.
/// What a policy gains on `requests` over these, it gains from locality.
#[must_use]
pub fn shuffled(requests: &Requests, seed: u64) -> Requests {
    let mut order: Vec<usize> = (0..requests.passes().len()).collect();
    let mut rng = Rng::new(seed);
    for at in (1..order.len()).rev() {
        order.swap(at, rng.below(at as u64 + 1) as usize);
    }
    let mut mixed = Requests::new(*requests.geometry());
    for (number, pass) in order.into_iter().filter_map(|at| requests.pass(at)).enumerate() {
        let step = Step { pass: PassId::new(number as u64), ..pass.step() };
        mixed.on_step(&step);
        for visit in pass.visits() {
            mixed.on_routing(&visit.routing(&step));
        }
    }
    mixed
}
