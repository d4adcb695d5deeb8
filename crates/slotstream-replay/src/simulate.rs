//! The engine's pool, driven by recorded requests.

use slotstream_cache::{CacheError, Clock, Entry, PhaseCounters, PoolCounters, SlotPool};
use slotstream_core::{CancelToken, EvictionPolicy, LayerIdx, Phase, Step};

use crate::calls::Calls;
use crate::{Pass, ReplayError, Requests};

/// How requests are replayed: the pool's size, and where counting begins.
///
/// ```
/// use slotstream_cache::Clock;
/// use slotstream_core::Geometry;
/// use slotstream_replay::{Phases, Simulation, Synthetic};
///
/// let requests = Synthetic::new(1.0, 1.0, 20.0)?.requests(Geometry::new(4, 32, 2)?);
/// let run = Simulation::new(40).warm_up(100).run(&requests, Clock::new())?;
/// println!("{}: {:?}", run.policy, run.count(Phases::Decode).hit_rate());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Simulation {
    slots: usize,
    floored: bool,
    warm_up: usize,
    cancel: CancelToken,
}

/// What a replay counted after its warm-up.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Run {
    /// The policy's name.
    pub policy: String,
    /// Slots of the pool.
    pub slots: usize,
    /// What the pool counted.
    pub counters: PoolCounters,
    /// Tokens of prefill passes.
    pub prefill_tokens: u64,
    /// Tokens of decode passes.
    pub decode_tokens: u64,
}

/// Which passes a figure is about. All passes use the pool, whichever are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phases {
    /// Decode passes, as in the published figures.
    #[default]
    Decode,
    /// Prefill and decode passes.
    All,
}

impl Phases {
    /// Whether passes of `phase` count.
    #[must_use]
    pub fn include(self, phase: Phase) -> bool {
        self == Self::All || phase == Phase::Decode
    }
}

/// The lookups of some passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Count {
    /// Hits and misses.
    pub lookups: PhaseCounters,
    /// Tokens of the passes.
    pub tokens: u64,
}

/// One call of the pool: a layer's records, or one wave of them.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Call<'a> {
    /// Number of the pass among the requests'.
    pub pass: usize,
    /// The pass.
    pub step: &'a Step<'a>,
    /// Number of the visit among those of all passes.
    pub visit: usize,
    /// The layer.
    pub layer: LayerIdx,
    /// One entry a record, in the order of the call.
    pub entries: &'a [Entry],
    /// Whether it is counted: the warm-up is over.
    pub counted: bool,
}

/// Looks on while requests are replayed. `()` does not look and costs nothing; a pair is two
/// that look.
pub trait Observer<P: EvictionPolicy> {
    /// Whether it looks at the pool while the call runs: its hits are pinned, its misses on their
    /// way. Otherwise it sees the pool when the call is over, and the replay is faster.
    const IN_FLIGHT: bool = false;

    /// A call was answered.
    fn on_call(&mut self, call: &Call<'_>, pool: &SlotPool<P>);
}

impl<P: EvictionPolicy> Observer<P> for () {
    #[inline]
    fn on_call(&mut self, _call: &Call<'_>, _pool: &SlotPool<P>) {}
}

impl<P: EvictionPolicy, A: Observer<P>, B: Observer<P>> Observer<P> for (A, B) {
    const IN_FLIGHT: bool = A::IN_FLIGHT || B::IN_FLIGHT;

    #[inline]
    fn on_call(&mut self, call: &Call<'_>, pool: &SlotPool<P>) {
        self.0.on_call(call, pool);
        self.1.on_call(call, pool);
    }
}

impl<P: EvictionPolicy, O: Observer<P>> Observer<P> for &mut O {
    const IN_FLIGHT: bool = O::IN_FLIGHT;

    #[inline]
    fn on_call(&mut self, call: &Call<'_>, pool: &SlotPool<P>) {
        (**self).on_call(call, pool);
    }
}

impl<P: EvictionPolicy, O: Observer<P>> Observer<P> for Option<O> {
    const IN_FLIGHT: bool = O::IN_FLIGHT;

    #[inline]
    fn on_call(&mut self, call: &Call<'_>, pool: &SlotPool<P>) {
        if let Some(observer) = self {
            observer.on_call(call, pool);
        }
    }
}

impl Simulation {
    /// A pool of `slots` slots, counted from the first pass on.
    #[must_use]
    pub fn new(slots: usize) -> Self {
        Self { slots, floored: true, warm_up: 0, cancel: CancelToken::new() }
    }

    /// Allows pools below an engine's floor, from one slot.
    #[must_use]
    pub fn unfloored(mut self) -> Self {
        self.floored = false;
        self
    }

    /// The first `passes` passes fill the pool and are not counted.
    #[must_use]
    pub fn warm_up(mut self, passes: usize) -> Self {
        self.warm_up = passes;
        self
    }

    /// The same with another number of slots.
    #[must_use]
    pub fn slots(mut self, slots: usize) -> Self {
        self.slots = slots;
        self
    }

    /// Ends with [`ReplayError::Cancelled`] before the next pass once `cancel` says so.
    #[must_use]
    pub fn cancel(mut self, cancel: CancelToken) -> Self {
        self.cancel = cancel;
        self
    }

    /// Replays `requests` under `policy` from an empty pool.
    ///
    /// # Errors
    /// [`ReplayError::Pool`] when the pool refuses its size or the policy, or the policy breaks
    /// its contract; it says in which pass and layer. [`ReplayError::Cancelled`].
    pub fn run<P: EvictionPolicy>(
        &self,
        requests: &Requests,
        policy: P,
    ) -> Result<Run, ReplayError> {
        self.run_with(requests, policy, &mut ())
    }

    /// [`run`](Self::run), watched by `observer`. The loop allocates nothing once its buffers
    /// have grown.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_with<P: EvictionPolicy>(
        &self,
        requests: &Requests,
        policy: P,
        observer: &mut impl Observer<P>,
    ) -> Result<Run, ReplayError> {
        let name = policy.name();
        let slots = self.slots;
        let fail = |(pass, layer, source)| {
            let policy = name.clone();
            ReplayError::Pool { policy, slots, pass, layer, source: Box::new(source) }
        };
        let mut pool = self.pool(requests, policy).map_err(|source| fail((0, None, source)))?;
        let mut calls = Calls::new(requests.geometry().experts());
        let mut tokens = Tokens::default();
        for pass in requests.passes() {
            if self.cancel.is_cancelled() {
                return Err(ReplayError::Cancelled);
            }
            if pass.index() == self.warm_up {
                pool.reset_counters();
                tokens = Tokens::default();
            }
            let counted = pass.index() >= self.warm_up;
            replay(&pass, counted, &mut pool, &mut calls, observer).map_err(fail)?;
            tokens.add(&pass.step());
        }
        if requests.passes().len() <= self.warm_up {
            pool.reset_counters();
            tokens = Tokens::default();
        }
        let (counters, slots) = (*pool.counters(), pool.slots());
        let Tokens { prefill: prefill_tokens, decode: decode_tokens } = tokens;
        Ok(Run { policy: name, slots, counters, prefill_tokens, decode_tokens })
    }

    /// What a pool of all records counts: first uses miss and nothing else does, so no pool of any
    /// size or policy hits more often. With a warm-up, first uses in it are not counted.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn ceiling(&self, requests: &Requests) -> Result<Run, ReplayError> {
        self.clone().slots(requests.geometry().records()).run(requests, Clock::new())
    }

    fn pool<P: EvictionPolicy>(
        &self,
        requests: &Requests,
        policy: P,
    ) -> Result<SlotPool<P>, CacheError> {
        let geometry = *requests.geometry();
        if self.floored {
            SlotPool::new(geometry, self.slots, policy)
        } else {
            SlotPool::unfloored(geometry, self.slots, policy)
        }
    }
}

/// Replays one pass. An error comes with the pass and the layer.
#[inline]
fn replay<P: EvictionPolicy, O: Observer<P>>(
    pass: &Pass<'_>,
    counted: bool,
    pool: &mut SlotPool<P>,
    calls: &mut Calls,
    observer: &mut O,
) -> Result<(), (usize, Option<LayerIdx>, CacheError)> {
    let (number, step) = (pass.index(), pass.step());
    pool.begin_step(&step).map_err(|source| (number, None, source))?;
    for visit in pass.visits() {
        let (layer, routing) = (visit.layer(), visit.routing(&step));
        let demand = (visit.experts(), visit.counts());
        let each = |pool: &SlotPool<P>, entries: &[Entry]| {
            let visit = visit.index();
            let call = Call { pass: number, step: &step, visit, layer, entries, counted };
            observer.on_call(&call, pool);
        };
        let done = if O::IN_FLIGHT {
            calls.visit::<true, P>(pool, &routing, demand, each)
        } else {
            calls.visit::<false, P>(pool, &routing, demand, each)
        };
        done.map_err(|source| (number, Some(layer), source))?;
    }
    Ok(())
}

impl Run {
    /// What was counted in these phases.
    #[must_use]
    pub fn count(&self, phases: Phases) -> Count {
        let tokens = Tokens { prefill: self.prefill_tokens, decode: self.decode_tokens };
        Count::of(&self.counters, tokens, phases)
    }
}

/// Tokens of the passes that are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tokens {
    pub(crate) prefill: u64,
    pub(crate) decode: u64,
}

impl Tokens {
    pub(crate) fn add(&mut self, step: &Step<'_>) {
        let phase = if step.phase == Phase::Decode { &mut self.decode } else { &mut self.prefill };
        *phase += step.tokens.len() as u64;
    }
}

impl Count {
    /// What was counted in these phases.
    pub(crate) fn of(counters: &PoolCounters, tokens: Tokens, phases: Phases) -> Self {
        let mut count = Self { lookups: counters.decode, tokens: tokens.decode };
        if phases == Phases::All {
            count.add(&Self { lookups: counters.prefill, tokens: tokens.prefill });
        }
        count
    }

    /// Adds the lookups of other passes.
    pub fn add(&mut self, other: &Self) {
        let (sum, more) = (&mut self.lookups, &other.lookups);
        sum.hits += more.hits;
        sum.misses += more.misses;
        sum.adopted += more.adopted;
        sum.pending += more.pending;
        sum.token_lookups += more.token_lookups;
        sum.token_hits += more.token_hits;
        self.tokens += other.tokens;
    }

    /// Hits and misses.
    #[must_use]
    pub const fn lookups(&self) -> u64 {
        self.lookups.hits + self.lookups.misses
    }

    /// Pass-level: hits of the distinct (layer, expert) of each pass. `None` without lookups.
    #[must_use]
    pub fn hit_rate(&self) -> Option<f64> {
        self.lookups.hit_rate()
    }

    /// Token-level: hits of the (position, rank) lookups. `None` without lookups.
    #[must_use]
    pub fn token_hit_rate(&self) -> Option<f64> {
        self.lookups.token_hit_rate()
    }

    /// Records read a token. `None` without tokens.
    #[must_use]
    pub fn misses_per_token(&self) -> Option<f64> {
        (self.tokens > 0).then(|| self.lookups.misses as f64 / self.tokens as f64)
    }

    /// Megabytes (10^6) read a token, for records of `record_bytes` bytes.
    #[must_use]
    pub fn mb_per_token(&self, record_bytes: u64) -> Option<f64> {
        self.misses_per_token().map(|misses| misses * record_bytes as f64 / 1e6)
    }
}
