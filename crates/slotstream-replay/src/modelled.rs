//! The requests of a run under another policy or in a pool of another size.

use std::fmt;

use slotstream_cache::{Abort, CacheError, Claim, Demand, Ensured, Found, PoolCounters, SlotPool};
use slotstream_core::{
    EventSink, EvictionPolicy, ExpertKey, LayerIdx, Origin, Outcome, Prediction, Routing, Step, Tap,
};

use crate::simulate::Tokens;
use crate::trace::{PoolEnd, TraceError, TraceHeader};
use crate::{Count, Phases};

/// How a replay's figures came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayMode {
    /// Requests and outcomes as recorded: the figures are those of the run.
    Exact,
    /// Requests as recorded, arrivals made up.
    #[non_exhaustive]
    Modelled {
        /// Visits of layers until a forecast record arrives.
        latency: u64,
    },
}

impl fmt::Display for ReplayMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact => f.write_str("exact"),
            Self::Modelled { latency } => write!(
                f,
                "modelled: no read fails, and a forecast record arrives {latency} layer visits \
                 after its forecast"
            ),
        }
    }
}

/// What became of forecast records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForecastCounts {
    /// Slots reserved.
    pub reserved: u64,
    /// Demanded after they had arrived.
    pub adopted: u64,
    /// Demanded before.
    pub late: u64,
    /// Given up so that a demand had room.
    pub cancelled: u64,
    /// Not demanded in time.
    pub expired: u64,
}

/// The result of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replayed {
    /// How the figures came about.
    pub mode: ReplayMode,
    /// The pool at the end.
    pub pool: PoolEnd,
    /// What became of forecast records.
    pub forecasts: ForecastCounts,
    tokens: Tokens,
}

impl Replayed {
    /// What was counted in these phases.
    #[must_use]
    pub fn count(&self, phases: Phases) -> Count {
        Count::of(self.counters(), self.tokens, phases)
    }

    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> &PoolCounters {
        &self.pool.counters
    }
}

/// Drives a pool of any policy and size through a recording's requests. Recorded outcomes are
/// ignored, except that the pool changes its size in proportion: what was swept goes through the
/// pool, and nothing is admitted at the end of a prompt. Recorded forecasts reserve slots, and their
/// records arrive a stated number of layer visits later.
#[derive(Debug)]
pub struct Modelled<P: EvictionPolicy = Box<dyn EvictionPolicy>> {
    pool: SlotPool<P>,
    demand: Demand,
    ensured: Ensured,
    latency: u64,
    /// Passes and visits so far.
    passes: u64,
    visits: u64,
    /// Reservations, the oldest first.
    reserved: Vec<Reservation>,
    forecasts: ForecastCounts,
    tokens: Tokens,
    /// Passes that are not counted.
    warm_up: u64,
    /// Slots of the recorded pool and of this one, at first.
    sizes: (usize, usize),
    event: u64,
    error: Option<TraceError>,
}

#[derive(Debug)]
struct Reservation {
    claim: Claim,
    /// The visit at which its record is there.
    arrives: u64,
    /// The pass and layer after which nobody waits for it.
    due: (u64, LayerIdx),
}

impl<P: EvictionPolicy> Modelled<P> {
    /// A replay of a trace with this header in a pool of `slots` slots, where a forecast record
    /// arrives `latency` layer visits after its forecast. Any number of slots from one is taken.
    ///
    /// # Errors
    /// [`TraceError::Pool`] when the pool refuses its size or the policy.
    pub fn new(
        header: &TraceHeader,
        slots: usize,
        policy: P,
        latency: u64,
    ) -> Result<Self, TraceError> {
        let pool = SlotPool::unfloored(header.geometry, slots, policy);
        let pool = pool.map_err(|source| TraceError::pool(0, source))?;
        Ok(Self {
            sizes: (header.slots, pool.slots()),
            pool,
            demand: Demand::new(),
            ensured: Ensured::with_capacity(header.geometry.experts()),
            latency,
            passes: 0,
            visits: 0,
            reserved: Vec::new(),
            forecasts: ForecastCounts::default(),
            tokens: Tokens::default(),
            warm_up: 0,
            event: 0,
            error: None,
        })
    }

    /// The first `passes` passes fill the pool and are not counted.
    #[must_use]
    pub const fn warm_up(mut self, passes: u64) -> Self {
        self.warm_up = passes;
        self
    }

    /// The pool as it is now.
    #[must_use]
    pub const fn pool(&self) -> &SlotPool<P> {
        &self.pool
    }

    /// The result.
    ///
    /// # Errors
    /// [`TraceError::Pool`] when the pool or the policy refused something.
    pub fn finish(mut self) -> Result<Replayed, TraceError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        if self.warm_up > 0 && self.passes <= self.warm_up {
            self.begin_counting();
        }
        Ok(Replayed {
            mode: ReplayMode::Modelled { latency: self.latency },
            pool: PoolEnd::of(&self.pool),
            forecasts: self.forecasts,
            tokens: self.tokens,
        })
    }

    /// The warm-up is over.
    fn begin_counting(&mut self) {
        self.pool.reset_counters();
        self.forecasts = ForecastCounts::default();
        self.tokens = Tokens::default();
    }

    fn attempt(&mut self, take: impl FnOnce(&mut Self) -> Result<(), CacheError>) {
        if self.error.is_none() {
            let event = self.event;
            self.event += 1;
            self.error = take(self).err().map(|source| TraceError::pool(event, source));
        }
    }

    /// Gives up the reservations for which `over` is true; says how many.
    fn give_up(&mut self, over: impl Fn(&Reservation) -> bool) -> Result<u64, CacheError> {
        let mut count = 0;
        for gone in self.reserved.extract_if(.., |reservation| over(reservation)) {
            self.pool.abort(gone.claim, Abort::Withdrawn)?;
            count += 1;
        }
        Ok(count)
    }

    fn step(&mut self, step: &Step<'_>) -> Result<(), CacheError> {
        if self.warm_up > 0 && self.passes == self.warm_up {
            self.begin_counting();
        }
        self.passes += 1;
        self.tokens.add(step);
        let now = self.passes;
        self.forecasts.expired += self.give_up(|reservation| reservation.due.0 < now)?;
        self.pool.begin_step(step)
    }

    fn visit(&mut self, routing: &Routing<'_>) -> Result<(), CacheError> {
        self.visits += 1;
        self.pool.routing(routing)?;
        self.demand.read(routing);
        // A demand goes before what was only forecast: the latest forecasts go first, but not
        // those of this layer.
        let wanted = self.demand.experts().len().min(self.pool.slots());
        while self.pool.capacity() + self.of(routing.layer()) < wanted {
            let other = |r: &Reservation| r.claim.key().layer() != routing.layer();
            let Some(at) = self.reserved.iter().rposition(other) else { break };
            let gone = self.reserved.remove(at);
            self.pool.abort(gone.claim, Abort::Withdrawn)?;
            self.forecasts.cancelled += 1;
        }
        self.run(routing)?;
        let (now, layer) = (self.passes, routing.layer());
        self.forecasts.expired += self.give_up(|r| r.due.0 <= now && r.due.1 == layer)?;
        Ok(())
    }

    /// Reservations of a layer.
    fn of(&self, layer: LayerIdx) -> usize {
        self.reserved.iter().filter(|r| r.claim.key().layer() == layer).count()
    }

    /// The layer's call, in waves where it has to be.
    fn run(&mut self, routing: &Routing<'_>) -> Result<(), CacheError> {
        let mut begun = 0;
        while begun < self.demand.experts().len() {
            // Reservations of this layer are in the way of its first wave until it adopts them.
            let mut room = self.pool.capacity();
            if room == 0 {
                self.forecasts.cancelled += self.give_up(|_| true)?;
                room = self.pool.capacity();
            }
            if begun == 0 {
                self.demand.split(room);
            }
            let end = (begun + room).min(self.demand.experts().len());
            let (experts, counts) = (self.demand.experts(), self.demand.counts());
            let (experts, counts) = (&experts[begun..end], &counts[begun..end]);
            let (layer, phase) = (routing.layer(), routing.phase());
            self.pool.ensure_counted(layer, experts, counts, phase, &mut self.ensured)?;
            self.adopt(layer)?;
            self.pool.publish_all(&mut self.ensured)?;
            self.pool.release();
            begun = end;
        }
        Ok(())
    }

    /// Publishes what the running wave adopted.
    fn adopt(&mut self, layer: LayerIdx) -> Result<(), CacheError> {
        for entry in self.ensured.entries().iter().filter(|e| e.found == Found::Adopted) {
            let key = ExpertKey::new(layer, entry.expert);
            let Some(at) = self.reserved.iter().position(|r| r.claim.key() == key) else {
                continue;
            };
            let reservation = self.reserved.remove(at);
            if reservation.arrives <= self.visits {
                self.forecasts.adopted += 1;
            } else {
                self.forecasts.late += 1;
            }
            self.pool.publish(reservation.claim)?;
        }
        Ok(())
    }

    fn forecast(&mut self, predictions: &[Prediction]) -> Result<(), CacheError> {
        self.pool.forecast(predictions)?;
        for Prediction { key, needed_by, .. } in predictions {
            match self.pool.claim(*key, Origin::Prefetch) {
                Ok(claim) => {
                    let due = (self.passes + u64::from(needed_by.passes_ahead), needed_by.layer);
                    let arrives = self.visits.saturating_add(self.latency);
                    self.reserved.push(Reservation { claim, arrives, due });
                    self.forecasts.reserved += 1;
                }
                // Ordinary answers.
                Err(
                    CacheError::Resident { .. }
                    | CacheError::Claimed { .. }
                    | CacheError::NotAdmitted { .. }
                    | CacheError::Exhausted { .. },
                ) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The recorded pool has another size: this one, too, in proportion.
    fn resize(&mut self, slots: usize) -> Result<(), CacheError> {
        let (recorded, own) = self.sizes;
        if recorded == 0 {
            return Ok(());
        }
        self.forecasts.cancelled += self.give_up(|_| true)?;
        let exact = slots as u128 * own as u128 / recorded as u128;
        self.pool.resize(usize::try_from(exact).unwrap_or(usize::MAX).max(1))
    }
}

impl<P: EvictionPolicy> EventSink for Modelled<P> {
    fn on_step(&mut self, step: &Step<'_>) {
        self.attempt(|replay| replay.step(step));
    }

    fn on_routing(&mut self, routing: &Routing<'_>) {
        self.attempt(|replay| replay.visit(routing));
    }

    fn on_forecast(&mut self, _at: Tap, predictions: &[Prediction]) {
        self.attempt(|replay| replay.forecast(predictions));
    }

    fn on_outcome(&mut self, outcome: &Outcome) {
        if let Outcome::Resized { slots } = *outcome {
            self.attempt(|replay| replay.resize(slots));
        }
    }
}
