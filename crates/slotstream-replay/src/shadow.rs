//! Policies that watch a live run and say what they would have hit.

use slotstream_cache::{CacheError, Demand, PoolCounters, SlotPool};
use slotstream_core::{
    Attached, EventSink, EvictionPolicy, ExpertKey, Geometry, Origin, Outcome, Phase, Routing, Step,
};

use crate::calls::Calls;
use crate::named::{OPT, parse_known};
use crate::trace::{RoutingEvent, StepEvent};
use crate::{Opt, PoolSize, ReplayError, Requests, Simulation};

/// Ghost pools: each is told the requests of a live run and keeps its own books, without a byte of
/// memory for records.
///
/// It is an [`EventSink`]: an engine tells it what it tells its own pool. The ghosts' sizes are
/// fixed when the engine attaches it. A ghost sees the requests alone, so it counts as if every
/// read succeeded and nothing was read ahead. What the engine swept goes by outside of the ghosts'
/// pools, too, and what it then admitted is offered to their policies, except to `opt`, which only
/// demands. `opt` cannot be counted before the end: for it the
/// requests are kept (about 6 bytes a lookup) and replayed when it is asked for.
///
/// ```
/// use slotstream_core::{Attached, EventSink, Geometry};
/// use slotstream_replay::{Shadows, Synthetic};
///
/// let mut shadows = Shadows::new();
/// shadows.add_named("lru@40")?;
/// shadows.add_named("opt")?; // as large as the engine's own pool
///
/// // A live engine does this:
/// let geometry = Geometry::new(4, 32, 2)?;
/// let pool = Attached { geometry, record_bytes: 0, slots: 60, floor: 4, policy: "clock" };
/// shadows.on_attach(&pool);
/// Synthetic::new(1.0, 1.0, 20.0)?.play(geometry, &mut shadows);
///
/// for shadow in shadows.reports()? {
///     println!("{} with {} slots: {:?}", shadow.name, shadow.slots, shadow.counters.hit_rate());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Shadows {
    waiting: Vec<Waiting>,
    ghosts: Vec<Ghost>,
    geometry: Option<Geometry>,
    /// For `opt`, and the pass at which counting began.
    requests: Option<Requests>,
    counted_from: usize,
    demand: Demand,
    /// The running prefill pass, and what was routed last in it: the next event says whether it
    /// was swept.
    step: Option<StepEvent>,
    pending: Option<(RoutingEvent, usize)>,
    rejected: u64,
}

/// Bytes that pool and policy keep for a record beside what the policy counts itself.
const BOOKS_A_RECORD: u64 = 128;
/// Bytes of a kept lookup: its id, itself among the distinct ones, how often, and its part of the
/// visit's row.
const REQUEST_BYTES: u64 = 12;
/// Bytes of what keeping requests takes besides.
const REQUEST_BUFFERS: u64 = 64 << 10;

/// A ghost without a pool yet.
#[derive(Debug)]
struct Waiting {
    name: String,
    size: Option<PoolSize>,
    /// `None` is `opt`.
    policy: Option<Box<dyn EvictionPolicy>>,
}

#[derive(Debug)]
struct Ghost {
    name: String,
    slots: usize,
    books: Books,
    /// Why it stopped.
    fault: Option<CacheError>,
}

#[derive(Debug)]
enum Books {
    Live(Box<(SlotPool, Calls)>),
    Opt,
    /// The pool refused its size or its policy.
    None,
}

/// What one shadow would have done.
#[derive(Debug)]
#[non_exhaustive]
pub struct ShadowReport<'a> {
    /// The name that it was added with.
    pub name: &'a str,
    /// Slots of its pool.
    pub slots: usize,
    /// Hits and misses, by phase.
    pub counters: PoolCounters,
    /// Why it stopped counting, or never began: its policy refused the size or broke the contract.
    pub fault: Option<&'a CacheError>,
}

impl Shadows {
    /// No shadows yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a ghost pool with this policy, of this size or of that of the pool that is watched.
    /// Sizes below an engine's floor are legal. Comes before the shadows are given to an engine.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        size: Option<PoolSize>,
        policy: Box<dyn EvictionPolicy>,
    ) {
        self.waiting.push(Waiting { name: name.into(), size, policy: Some(policy) });
    }

    /// Adds a ghost by name: `POLICY` or `POLICY@SIZE`, such as `lru@200`, `clock@30%` or `opt`;
    /// sizes as of [`PoolSize`].
    ///
    /// # Errors
    /// [`ReplayError::Policy`] and [`ReplayError::Size`] for texts that name nothing.
    pub fn add_named(&mut self, text: &str) -> Result<(), ReplayError> {
        let (name, size) = match text.rsplit_once('@') {
            None => (text, None),
            Some((name, size)) => {
                (name, Some(size.parse().map_err(|source| ReplayError::Size { source })?))
            }
        };
        let policy = if name == OPT { None } else { Some(parse_known(name)?) };
        self.waiting.push(Waiting { name: text.into(), size, policy });
        Ok(())
    }

    /// What each would have done, in the order in which they were added; nothing before they are
    /// attached.
    ///
    /// # Errors
    /// [`ReplayError::Pool`] when the requests cannot be replayed for `opt`.
    pub fn reports(&mut self) -> Result<Vec<ShadowReport<'_>>, ReplayError> {
        self.settle(false);
        let report = |ghost: &'_ Ghost| -> Result<PoolCounters, ReplayError> {
            Ok(match (&ghost.books, &self.requests) {
                (Books::Live(live), _) => *live.0.counters(),
                (Books::Opt, Some(requests)) => {
                    let replay = Simulation::new(ghost.slots).unfloored();
                    replay.warm_up(self.counted_from).run(requests, Opt::new(requests))?.counters
                }
                _ => PoolCounters::default(),
            })
        };
        self.ghosts
            .iter()
            .map(|ghost| {
                let (name, slots, fault) = (&*ghost.name, ghost.slots, ghost.fault.as_ref());
                Ok(ShadowReport { name, slots, counters: report(ghost)?, fault })
            })
            .collect()
    }

    /// Counts from zero again; what the ghosts hold stays.
    pub fn reset_counters(&mut self) {
        self.settle(false);
        self.counted_from = self.requests.as_ref().map_or(0, |requests| requests.passes().len());
        for ghost in &mut self.ghosts {
            if let Books::Live(live) = &mut ghost.books {
                live.0.reset_counters();
            }
        }
    }

    /// Counts what was routed last, now that it is known whether it was swept.
    fn settle(&mut self, swept: bool) {
        let Some((routing, top_k)) = self.pending.take() else { return };
        let Some(step) = self.step.take() else { return };
        if let Some(routing) = routing.routing(&step.step(), top_k) {
            self.route(&routing, swept);
        }
        self.step = Some(step);
    }

    fn route(&mut self, routing: &Routing<'_>, swept: bool) {
        if swept {
            self.ghosts.iter_mut().for_each(|ghost| ghost.attempt(|pool, _| pool.routing(routing)));
            return;
        }
        if let Some(requests) = &mut self.requests {
            requests.on_routing(routing);
        }
        self.demand.read(routing);
        let demand = (self.demand.experts(), self.demand.counts());
        for ghost in &mut self.ghosts {
            ghost.attempt(|pool, calls| calls.visit::<false, _>(pool, routing, demand, |_, _| {}));
        }
    }

    /// Requests that were not of the geometry, or came before any, and so were not counted.
    #[must_use]
    pub const fn rejected(&self) -> u64 {
        self.rejected
    }
}

impl Waiting {
    fn attach(self, pool: &Attached<'_>) -> Ghost {
        let Self { name, size, policy } = self;
        let records = pool.geometry.records();
        let slots = size.map_or(pool.slots, |size| size.slots(&pool.geometry)).min(records);
        let (books, fault) = match policy {
            None if slots == 0 => (Books::None, Some(CacheError::NoSlots)),
            None => (Books::Opt, None),
            Some(policy) => match SlotPool::unfloored(pool.geometry, slots, policy) {
                Ok(ghost) => {
                    let calls = Calls::new(pool.geometry.experts());
                    (Books::Live(Box::new((ghost, calls))), None)
                }
                Err(fault) => (Books::None, Some(fault)),
            },
        };
        Ghost { name, slots, books, fault }
    }
}

impl EventSink for Shadows {
    fn on_attach(&mut self, pool: &Attached<'_>) {
        self.ghosts.extend(self.waiting.drain(..).map(|waiting| waiting.attach(pool)));
        self.geometry = Some(pool.geometry);
        let opt = self.ghosts.iter().any(|ghost| matches!(ghost.books, Books::Opt));
        self.requests = opt.then(|| Requests::new(pool.geometry));
    }

    fn on_step(&mut self, step: &Step<'_>) {
        self.settle(false);
        self.step = (step.phase != Phase::Decode).then(|| step.into());
        if let Some(requests) = &mut self.requests {
            requests.on_step(step);
        }
        for ghost in &mut self.ghosts {
            ghost.attempt(|pool, _| pool.begin_step(step));
        }
    }

    fn on_routing(&mut self, routing: &Routing<'_>) {
        self.settle(false);
        let known = |geometry: &Geometry| {
            routing.ids().iter().all(|id| geometry.index(routing.key(*id)).is_some())
        };
        if !self.geometry.as_ref().is_some_and(known) {
            self.rejected += 1;
            return;
        }
        let same = |step: &StepEvent| step.tokens.len() == routing.rows();
        if self.step.as_ref().is_some_and(same) {
            let top_k = routing.ids().len() / routing.rows().max(1);
            self.pending = Some((routing.into(), top_k));
        } else {
            self.route(routing, false);
        }
    }

    fn on_outcome(&mut self, outcome: &Outcome) {
        self.settle(matches!(outcome, Outcome::Swept { .. }));
        if let Outcome::Admitted { key, origin, .. } | Outcome::NotAdmitted { key, origin } =
            *outcome
        {
            self.ghosts.iter_mut().for_each(|ghost| ghost.admit(key, origin));
        }
    }

    fn planned_bytes(&self, geometry: &Geometry, tokens: usize) -> u64 {
        self.waiting.iter().map(|waiting| waiting.planned_bytes(geometry, tokens)).sum()
    }
}

impl Waiting {
    /// Bytes of its books, whatever its size: those of a pool of all records, with what the policy
    /// says of itself; for `opt` the requests of `tokens` tokens, whose lists may have twice the
    /// room that they use.
    fn planned_bytes(&self, geometry: &Geometry, tokens: usize) -> u64 {
        let lookups = tokens.saturating_mul(geometry.layers() * geometry.top_k());
        match &self.policy {
            Some(policy) => {
                policy.planned_bytes(geometry) + geometry.records() as u64 * BOOKS_A_RECORD
            }
            None => (lookups as u64).saturating_mul(2 * REQUEST_BYTES) + REQUEST_BUFFERS,
        }
    }
}

impl Ghost {
    /// Offers a record that nobody demanded.
    fn admit(&mut self, key: ExpertKey, origin: Origin) {
        self.attempt(|pool, _| match pool.claim(key, origin) {
            Ok(claim) => pool.publish(claim),
            Err(
                CacheError::Resident { .. }
                | CacheError::Claimed { .. }
                | CacheError::NotAdmitted { .. }
                | CacheError::Exhausted { .. },
            ) => Ok(()),
            Err(error) => Err(error),
        });
    }

    /// Runs `f` unless the ghost has stopped; it stops at the first error.
    fn attempt(&mut self, f: impl FnOnce(&mut SlotPool, &mut Calls) -> Result<(), CacheError>) {
        if let (Books::Live(live), None) = (&mut self.books, &self.fault) {
            let (pool, calls) = &mut **live;
            self.fault = f(pool, calls).err();
        }
    }
}
