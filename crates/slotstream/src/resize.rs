//! A pool of another size, by hand or by the memory of the machine.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::elastic::{Control, ElasticFigures, Resized, Watch};
use crate::{Engine, Error, MemoryPlan};

/// What an engine keeps for a pool that changes its size.
#[derive(Debug)]
pub(crate) struct Elastic {
    /// Slots of the pool, for whoever does not want to wait for a turn.
    slots: AtomicUsize,
    control: Option<Mutex<Control>>,
    begun: Instant,
    pub(crate) watch: OnceLock<Watch>,
}

impl Elastic {
    pub(crate) fn new(slots: usize, control: Option<Control>) -> Self {
        let control = control.map(Mutex::new);
        Self { slots: slots.into(), control, begun: Instant::now(), watch: OnceLock::new() }
    }
}

impl Engine {
    /// Makes the pool `slots` slots large, or as large as there are records where that is fewer, and
    /// returns how many it has. Waits for its turn as a pass does, so it falls between two passes; no
    /// token depends on it.
    ///
    /// The records in the slots that stay are kept and not read again. Shrinking gives up the slots with
    /// the highest numbers and returns their memory to the system; growing appends empty ones.
    ///
    /// # Errors
    /// No change after [`Error::Resize`], where the engine has a memory budget and `slots` are more than
    /// were planned within it; [`Error::Experts`] below the floor, or when the system refuses the memory.
    pub fn resize(&self, slots: usize) -> Result<usize, Error> {
        let plan = self.plan();
        let wanted = slots.min(plan.records);
        if let Some(budget) = &plan.budget
            && wanted > plan.slots
        {
            return Err(Error::Resize { slots, most: plan.slots, budget: budget.bytes });
        }
        let mut runtime = self.runtime()?;
        let resized = runtime.experts.resize(wanted);
        let slots = runtime.experts.pool().slots();
        self.0.elastic.slots.store(slots, Ordering::Relaxed);
        drop(runtime);
        resized?;
        tracing::info!(slots, "the pool was resized");
        Ok(slots)
    }

    /// Slots that the pool has now; the plan says how many it began with.
    #[must_use]
    pub fn pool_slots(&self) -> usize {
        self.0.elastic.slots.load(Ordering::Relaxed)
    }

    /// The plan with the slots that the pool has now: what the process may have resident until the next
    /// resize.
    #[must_use]
    pub fn current_plan(&self) -> MemoryPlan {
        self.plan().with_slots(self.pool_slots())
    }

    /// Looks once at the memory, as an elastic engine does by itself every
    /// [`interval`](crate::elastic::ElasticOptions::interval), and gives up or takes slots. `None`: the
    /// pool stays as it is, or the engine is not elastic.
    ///
    /// # Errors
    /// As [`resize`](Self::resize); the pool is then as it was.
    pub fn adapt(&self) -> Result<Option<Resized>, Error> {
        let Some(control) = &self.0.elastic.control else { return Ok(None) };
        let mut control = control.lock();
        let pressure = control.look();
        let (now, from) = (self.0.elastic.begun.elapsed(), self.pool_slots());
        let Some((to, cause)) = control.decide(now, &pressure, from) else { return Ok(None) };
        let to = self.resize(to).inspect_err(|_| control.figures.refused += 1)?;
        let resized = Resized { from, to, cause };
        control.note(resized);
        tracing::info!(from, to, cause = cause.why(), "the pool followed the memory");
        Ok(Some(resized))
    }

    /// What an elastic pool did so far; `None` where it is not elastic.
    #[must_use]
    pub fn elastic(&self) -> Option<ElasticFigures> {
        self.0.elastic.control.as_ref().map(|control| control.lock().figures.clone())
    }
}
