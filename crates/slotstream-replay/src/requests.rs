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

/// One pass of the graph.
#[derive(Clone, Copy, Debug)]
pub struct Pass<'a> {
    requests: &'a Requests,
    at: usize,
}

/// One layer of a pass.
#[derive(Clone, Copy, Debug)]
pub struct Visit<'a> {
    requests: &'a Requests,
    at: usize,
}

impl Requests {
    /// No requests yet, of a model of this geometry.
    #[must_use]
    pub fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            passes: Vec::new(),
            visits: Vec::new(),
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
        (0..self.passes.len()).map(|at| Pass { requests: self, at })
    }

    /// The `at`th pass.
    #[must_use]
    pub fn pass(&self, at: usize) -> Option<Pass<'_>> {
        (at < self.passes.len()).then_some(Pass { requests: self, at })
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
        self.passes.push(PassRow {
            pass: step.pass,
            phase: step.phase,
            session: step.session,
            position: step.position,
            tokens: self.tokens.len(),
            visits: self.visits.len(),
        });
        self.tokens.extend_from_slice(step.tokens);
    }

    fn on_routing(&mut self, routing: &Routing<'_>) {
        let rows = self.passes.last().map(|pass| (pass.pass, self.tokens.len() - pass.tokens));
        let lawful = rows == Some((routing.pass(), routing.rows()))
            && routing.rows() > 0
            && routing.ids().iter().all(|id| self.geometry.index(routing.key(*id)).is_some());
        if !lawful {
            self.rejected += 1;
            return;
        }
        self.visits.push(VisitRow {
            layer: routing.layer(),
            ids: self.ids.len(),
            weights: self.weights.len(),
            distinct: self.distinct.len(),
        });
        self.ids.extend_from_slice(routing.ids());
        self.weights.extend_from_slice(routing.weights());
        self.demand.read(routing);
        self.distinct.extend_from_slice(self.demand.experts());
        self.counts.extend_from_slice(self.demand.counts());
    }
}

impl<'a> Pass<'a> {
    #[inline]
    fn row(&self) -> &'a PassRow {
        &self.requests.passes[self.at]
    }

    #[inline]
    fn next(&self) -> Option<&'a PassRow> {
        self.requests.passes.get(self.at + 1)
    }

    /// The pass as it was opened.
    #[inline]
    #[must_use]
    pub fn step(&self) -> Step<'a> {
        let PassRow { pass, phase, session, position, tokens, .. } = *self.row();
        let end = self.next().map_or(self.requests.tokens.len(), |next| next.tokens);
        let tokens = &self.requests.tokens[tokens..end];
        Step { pass, phase, session, position, tokens }
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
        let end = self.next().map_or(self.requests.visits.len(), |next| next.visits);
        let requests = self.requests;
        (self.row().visits..end).map(move |at| Visit { requests, at })
    }
}

impl<'a> Visit<'a> {
    #[inline]
    fn row(&self) -> &'a VisitRow {
        &self.requests.visits[self.at]
    }

    #[inline]
    fn next(&self) -> Option<&'a VisitRow> {
        self.requests.visits.get(self.at + 1)
    }

    /// The layer.
    #[inline]
    #[must_use]
    pub fn layer(&self) -> LayerIdx {
        self.row().layer
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
    pub fn ids(&self) -> &'a [ExpertIdx] {
        let end = self.next().map_or(self.requests.ids.len(), |next| next.ids);
        &self.requests.ids[self.row().ids..end]
    }

    /// Weights, `[rows, top_k]`; empty when they were not recorded.
    #[inline]
    #[must_use]
    pub fn weights(&self) -> &'a [f32] {
        let end = self.next().map_or(self.requests.weights.len(), |next| next.weights);
        &self.requests.weights[self.row().weights..end]
    }

    /// The distinct experts in route order.
    #[inline]
    #[must_use]
    pub fn experts(&self) -> &'a [ExpertIdx] {
        &self.requests.distinct[self.distinct()]
    }

    /// How many (position, rank) lookups chose each of [`experts`](Self::experts).
    #[inline]
    #[must_use]
    pub fn counts(&self) -> &'a [u32] {
        &self.requests.counts[self.distinct()]
    }

    #[inline]
    fn distinct(&self) -> std::ops::Range<usize> {
        let end = self.next().map_or(self.requests.distinct.len(), |next| next.distinct);
        self.row().distinct..end
    }

    /// The routing as the pass's layer decided it.
    #[inline]
    #[must_use]
    pub fn routing(&self, step: &Step<'_>) -> Routing<'a> {
        // A division takes longer than the rest.
        let rows = step.tokens.len();
        let top_k = if rows == 1 { self.ids().len() } else { self.ids().len() / rows.max(1) };
        Routing::new(step, self.layer(), top_k, self.ids(), self.weights())
    }
}
