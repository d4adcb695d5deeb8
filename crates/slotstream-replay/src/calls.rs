//! A layer as the engine asks its pool for it: one call, or waves.

use slotstream_cache::{CacheError, Demand, Ensured, Entry, SlotPool};
use slotstream_core::{EvictionPolicy, Routing};

/// Makes the calls of a layer; its buffers are reused from layer to layer.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    ensured: Ensured,
    /// For layers that do not fit into one call.
    waves: Demand,
}

impl Calls {
    /// Buffers for layers of up to `experts` experts.
    pub(crate) fn new(experts: usize) -> Self {
        Self { ensured: Ensured::with_capacity(experts), waves: Demand::new() }
    }

    /// Asks `pool` for the layer that `routing` is of: tells the policy what was routed, demands
    /// `experts` (the distinct ones in route order, with their counts), and has every record
    /// arrive at once. `each` sees every call: with `IN_FLIGHT` while its records are pinned and
    /// its misses are on their way, otherwise when it is over, which takes less time.
    #[inline(always)]
    pub(crate) fn visit<const IN_FLIGHT: bool, P: EvictionPolicy>(
        &mut self,
        pool: &mut SlotPool<P>,
        routing: &Routing<'_>,
        (experts, counts): (&[slotstream_core::ExpertIdx], &[u32]),
        mut each: impl FnMut(&SlotPool<P>, &[Entry]),
    ) -> Result<(), CacheError> {
        pool.routing(routing)?;
        let capacity = pool.capacity();
        // Every lookup has an expert of its own: the pool counts that faster without a list.
        let counts = if experts.len() == routing.ids().len() { &[] } else { counts };
        if experts.len() <= capacity {
            return call::<IN_FLIGHT, P>(
                pool,
                routing,
                (experts, counts),
                &mut self.ensured,
                &mut each,
            );
        }
        self.waves.read(routing);
        self.waves.split(capacity);
        let waves = self.waves.experts().chunks(capacity).zip(self.waves.counts().chunks(capacity));
        for wave in waves {
            call::<IN_FLIGHT, P>(pool, routing, wave, &mut self.ensured, &mut each)?;
        }
        Ok(())
    }
}

#[inline(always)]
fn call<const IN_FLIGHT: bool, P: EvictionPolicy>(
    pool: &mut SlotPool<P>,
    routing: &Routing<'_>,
    (experts, counts): (&[slotstream_core::ExpertIdx], &[u32]),
    ensured: &mut Ensured,
    each: &mut impl FnMut(&SlotPool<P>, &[Entry]),
) -> Result<(), CacheError> {
    if !IN_FLIGHT {
        pool.ensure_arrived(routing.layer(), experts, counts, routing.phase(), ensured)?;
        each(pool, ensured.entries());
        return Ok(());
    }
    pool.ensure_counted(routing.layer(), experts, counts, routing.phase(), ensured)?;
    each(pool, ensured.entries());
    pool.publish_all(ensured)?;
    pool.release();
    Ok(())
}
