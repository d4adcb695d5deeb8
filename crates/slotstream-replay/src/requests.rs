//! What a run asked of its pool, kept in memory to be replayed many times.

use slotstream_cache::Demand;
use slotstream_core::{
    EventSink, ExpertIdx, Geometry, LayerIdx, PassId, Phase, Routing, SessionId, Step,
};

/// The requests of a run: its passes, the layers that each of them visited, and what their
/// routers decided. They do not depend on the policy or the pool.
///
/// It is an [`EventSink`]: give it to an engine, or play a trace into it. A request that is not of
/// the geometry is left out and counted ([`rejected`](Self::rejected)).
#[derive(Clone, Debug)]
pub struct Requests {
    geometry: Geometry,
    passes: Vec<PassRow>,
    visits: Vec<VisitRow>,
    tokens: Vec<u32>,
    ids: Vec<ExpertIdx>,
    weights: Vec<f32>,
    distinct: Vec<ExpertIdx>,
    counts: Vec<u32>,
    demand: Demand,
    rejected: u64,
}

#[derive(Clone, Copy, Debug)]
struct PassRow {
    pass: PassId,
    phase: Phase,
    session: SessionId,
    position: u64,
    /// Where its tokens and its visits begin.
    tokens: usize,
    visits: usize,
}

#[derive(Clone, Copy, Debug)]
struct VisitRow {
    layer: LayerIdx,
    /// Where its ids, its weights (none when they begin where the next visit's do) and its
    /// distinct experts begin.
    ids: usize,
    weights: usize,
    distinct: usize,
}

/// The row after the last one says where that one ends.
const NO_PASS: PassRow = PassRow {
    pass: PassId::new(0),
    phase: Phase::Decode,
    session: SessionId::new(0),
    position: 0,
    tokens: 0,
    visits: 0,
};
const NO_VISIT: VisitRow = VisitRow { layer: LayerIdx::new(0), ids: 0, weights: 0, distinct: 0 };

/// One pass of the graph.
#[derive(Clone, Copy, Debug)]
pub struct Pass<'a> {
    requests: &'a Requests,
    at: usize,
    step: Step<'a>,
    /// Its visits, of all.
    visits: (usize, usize),
}

/// One layer of a pass.
#[derive(Clone, Copy, Debug)]
pub struct Visit<'a> {
    at: usize,
    layer: LayerIdx,
    ids: &'a [ExpertIdx],
    weights: &'a [f32],
    experts: &'a [ExpertIdx],
    counts: &'a [u32],
}

impl Requests {
    /// No requests yet, of a model of this geometry.
    #[must_use]
    pub fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            passes: vec![NO_PASS],
            visits: vec![NO_VISIT],
            tokens: Vec::new(),
            ids: Vec::new(),
            weights: Vec::new(),
            distinct: Vec::new(),
            counts: Vec::new(),
            demand: Demand::new(),
            rejected: 0,
        }
    }

    /// The geometry.
    #[must_use]
    #[inline]
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The passes in order.
    #[inline]
    pub fn passes(&self) -> impl ExactSizeIterator<Item = Pass<'_>> {
        (0..self.passes.len() - 1).map(|at| self.pass_at(at))
    }

    /// The `at`th pass.
    #[must_use]
    pub fn pass(&self, at: usize) -> Option<Pass<'_>> {
        (at + 1 < self.passes.len()).then(|| self.pass_at(at))
    }

    #[inline]
    fn pass_at(&self, at: usize) -> Pass<'_> {
        let [row, next] = &self.passes[at..at + 2] else { unreachable!("a row and the next") };
        let PassRow { pass, phase, session, position, tokens, visits } = *row;
        let tokens = &self.tokens[tokens..next.tokens];
        let step = Step { pass, phase, session, position, tokens };
        Pass { requests: self, at, step, visits: (visits, next.visits) }
    }

    #[inline]
    fn visit_at(&self, at: usize) -> Visit<'_> {
        let [row, next] = &self.visits[at..at + 2] else { unreachable!("a row and the next") };
        Visit {
            at,
            layer: row.layer,
            ids: &self.ids[row.ids..next.ids],
            weights: &self.weights[row.weights..next.weights],
            experts: &self.distinct[row.distinct..next.distinct],
            counts: &self.counts[row.distinct..next.distinct],
        }
    }

    /// Lookups: the distinct (layer, expert) of each pass.
    #[must_use]
    pub fn lookups(&self) -> u64 {
        self.distinct.len() as u64
    }

    /// By dense record number ([`Geometry::index`]): the passes that used the record.
    #[must_use]
    pub fn uses(&self) -> Vec<u64> {
        let mut uses = vec![0; self.geometry.records()];
        for visit in self.passes().flat_map(|pass| pass.visits()) {
            let first = visit.layer().index() * self.geometry.experts();
            for expert in visit.experts() {
                uses[first + expert.index()] += 1;
            }
        }
        uses
    }

    /// Requests that were left out because they were not of the geometry, or not of the pass
    /// that was running.
    #[must_use]
    pub const fn rejected(&self) -> u64 {
        self.rejected
    }
}

impl EventSink for Requests {
    fn on_step(&mut self, step: &Step<'_>) {
        let Step { pass, phase, session, position, .. } = *step;
        if let Some(row) = self.passes.last_mut() {
            *row = PassRow { pass, phase, session, position, ..*row };
        }
        self.tokens.extend_from_slice(step.tokens);
        let (tokens, visits) = (self.tokens.len(), self.visits.len() - 1);
        self.passes.push(PassRow { tokens, visits, ..NO_PASS });
    }

    fn on_routing(&mut self, routing: &Routing<'_>) {
        let running = self.passes.len().checked_sub(2).map(|at| self.pass_at(at).step);
        let rows = running.map(|step| (step.pass, step.tokens.len()));
        let lawful = rows == Some((routing.pass(), routing.rows()))
            && routing.rows() > 0
            && routing.ids().iter().all(|id| self.geometry.index(routing.key(*id)).is_some());
        if !lawful {
            self.rejected += 1;
            return;
        }
        if let Some(row) = self.visits.last_mut() {
            row.layer = routing.layer();
        }
        self.ids.extend_from_slice(routing.ids());
        self.weights.extend_from_slice(routing.weights());
        self.demand.read(routing);
        self.distinct.extend_from_slice(self.demand.experts());
        self.counts.extend_from_slice(self.demand.counts());
        let (ids, weights, distinct) = (self.ids.len(), self.weights.len(), self.distinct.len());
        self.visits.push(VisitRow { ids, weights, distinct, ..NO_VISIT });
        if let Some(end) = self.passes.last_mut() {
            end.visits += 1;
        }
    }
}

impl<'a> Pass<'a> {
    /// The pass as it was opened.
    #[inline]
    #[must_use]
    pub const fn step(&self) -> Step<'a> {
        self.step
    }

    /// Its number among the passes.
    #[inline]
    #[must_use]
    pub const fn index(&self) -> usize {
        self.at
    }

    /// The layers that it visited, in order.
    #[inline]
    pub fn visits(&self) -> impl ExactSizeIterator<Item = Visit<'a>> + use<'a> {
        let requests = self.requests;
        (self.visits.0..self.visits.1).map(move |at| requests.visit_at(at))
    }
}

impl<'a> Visit<'a> {
    /// The layer.
    #[inline]
    #[must_use]
    pub const fn layer(&self) -> LayerIdx {
        self.layer
    }

    /// Its number among the visits of all passes.
    #[inline]
    #[must_use]
    pub const fn index(&self) -> usize {
        self.at
    }

    /// Experts, `[rows, top_k]`, in descending weight.
    #[inline]
    #[must_use]
    pub const fn ids(&self) -> &'a [ExpertIdx] {
        self.ids
    }

    /// Weights, `[rows, top_k]`; empty when they were not recorded.
    #[inline]
    #[must_use]
    pub const fn weights(&self) -> &'a [f32] {
        self.weights
    }

    /// The distinct experts in route order.
    #[inline]
    #[must_use]
    pub const fn experts(&self) -> &'a [ExpertIdx] {
        self.experts
    }

    /// How many (position, rank) lookups chose each of [`experts`](Self::experts).
    #[inline]
    #[must_use]
    pub const fn counts(&self) -> &'a [u32] {
        self.counts
    }

    /// The routing as the pass's layer decided it.
    #[inline]
    #[must_use]
    pub fn routing(&self, step: &Step<'_>) -> Routing<'a> {
        // A division takes longer than the rest.
        let rows = step.tokens.len();
        let top_k = if rows == 1 { self.ids.len() } else { self.ids.len() / rows.max(1) };
        Routing::new(step, self.layer, top_k, self.ids, self.weights)
    }
}
