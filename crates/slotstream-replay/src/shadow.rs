//! Policies that watch a live run and say what they would have hit.

use slotstream_cache::{CacheError, Demand, PoolCounters, SlotPool};
use slotstream_core::{EventSink, EvictionPolicy, Geometry, Routing, Step};

use crate::calls::Calls;

/// Ghost pools: each is told the requests of a live run and keeps its own books, without a byte of
/// memory for records. Sizes are fixed when a ghost is attached.
///
/// It is an [`EventSink`]: an engine tells it what it tells its own pool. A ghost sees the
/// requests alone, so it counts as if every read succeeded and nothing was read ahead.
///
/// ```
/// use slotstream_cache::{Clock, Lru};
/// use slotstream_core::{EventSink, Geometry};
/// use slotstream_replay::{Shadows, Synthetic};
///
/// let geometry = Geometry::new(4, 32, 2)?;
/// let mut shadows = Shadows::new(geometry);
/// shadows.attach("lru", 40, Box::new(Lru::new()))?;
/// shadows.attach("clock", 60, Box::new(Clock::new()))?;
/// Synthetic::new(1.0, 1.0, 20.0)?.play(geometry, &mut shadows); // or a live engine
/// for shadow in shadows.reports() {
///     println!("{} with {} slots: {:?}", shadow.name, shadow.slots, shadow.counters.hit_rate());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Shadows {
    geometry: Geometry,
    ghosts: Vec<Ghost>,
    demand: Demand,
    rejected: u64,
}

#[derive(Debug)]
struct Ghost {
    name: String,
    pool: SlotPool,
    calls: Calls,
    /// Why it stopped.
    fault: Option<CacheError>,
}

/// What one shadow would have done.
#[derive(Debug)]
#[non_exhaustive]
pub struct ShadowReport<'a> {
    /// The name that it was attached with.
    pub name: &'a str,
    /// Slots of its pool.
    pub slots: usize,
    /// Hits and misses, by phase.
    pub counters: PoolCounters,
    /// Why it stopped counting: its policy broke the contract.
    pub fault: Option<&'a CacheError>,
}

impl Shadows {
    /// No shadows yet, of a model of this geometry.
    #[must_use]
    pub fn new(geometry: Geometry) -> Self {
        Self { geometry, ghosts: Vec::new(), demand: Demand::new(), rejected: 0 }
    }

    /// Adds a ghost pool of `slots` slots with this policy, empty from here on. Sizes below an
    /// engine's floor are legal.
    ///
    /// # Errors
    /// As [`SlotPool::unfloored`]: no slots, or a policy that cannot work with so few.
    pub fn attach(
        &mut self,
        name: impl Into<String>,
        slots: usize,
        policy: Box<dyn EvictionPolicy>,
    ) -> Result<(), CacheError> {
        self.ghosts.push(Ghost {
            name: name.into(),
            pool: SlotPool::unfloored(self.geometry, slots, policy)?,
            calls: Calls::new(self.geometry.experts()),
            fault: None,
        });
        Ok(())
    }

    /// What each would have done, in the order in which they were attached.
    pub fn reports(&self) -> impl ExactSizeIterator<Item = ShadowReport<'_>> {
        self.ghosts.iter().map(|ghost| ShadowReport {
            name: &ghost.name,
            slots: ghost.pool.slots(),
            counters: *ghost.pool.counters(),
            fault: ghost.fault.as_ref(),
        })
    }

    /// Counts from zero again; what the ghosts hold stays.
    pub fn reset_counters(&mut self) {
        self.ghosts.iter_mut().for_each(|ghost| ghost.pool.reset_counters());
    }

    /// Requests that were not of the geometry and so were not counted.
    #[must_use]
    pub const fn rejected(&self) -> u64 {
        self.rejected
    }
}

impl EventSink for Shadows {
    fn on_step(&mut self, step: &Step<'_>) {
        for ghost in &mut self.ghosts {
            ghost.attempt(|ghost| ghost.pool.begin_step(step));
        }
    }

    fn on_routing(&mut self, routing: &Routing<'_>) {
        if !routing.ids().iter().all(|id| self.geometry.index(routing.key(*id)).is_some()) {
            self.rejected += 1;
            return;
        }
        self.demand.read(routing);
        for ghost in &mut self.ghosts {
            ghost.attempt(|ghost| {
                let demand = (self.demand.experts(), self.demand.counts());
                ghost.calls.visit::<false, _>(&mut ghost.pool, routing, demand, |_, _| {})
            });
        }
    }
}

impl Ghost {
    /// Runs `f` unless the ghost has stopped; it stops at the first error.
    fn attempt(&mut self, f: impl FnOnce(&mut Self) -> Result<(), CacheError>) {
        if self.fault.is_none() {
            self.fault = f(self).err();
        }
    }
}
