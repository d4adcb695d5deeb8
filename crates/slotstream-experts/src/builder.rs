//! Joins the parts of a provider.

use std::sync::Arc;

use slotstream_cache::{Ensured, SlotPool};
use slotstream_candle::{Ops, SlotArena};
use slotstream_core::{
    Attached, EventSink, EvictionPolicy, Forecaster, Geometry, NoForecast, ReadQueue, RecordLayout,
};

use crate::landing::Spare;
use crate::prompt::{PassHints, Prompts};
use crate::provider::StreamingExperts;
use crate::route::Grouped;
use crate::sinks::Sinks;
use crate::speculation::Ahead;
use crate::sweep::{PrefillSweep, Staging};
use crate::sync::channel;
use crate::tickets::Speculation;
use crate::{ExpertMetrics, ExpertsError, RecordIndex};

/// Builds a [`StreamingExperts`].
#[derive(Debug)]
pub struct StreamingBuilder {
    geometry: Geometry,
    layout: RecordLayout,
    slots: usize,
    policy: Box<dyn EvictionPolicy>,
    forecaster: Box<dyn Forecaster>,
    sinks: Sinks,
    sweep: PrefillSweep,
    speculation: Speculation,
}

impl StreamingBuilder {
    pub(crate) fn new(geometry: Geometry, layout: RecordLayout, slots: usize) -> Self {
        Self {
            geometry,
            layout,
            slots,
            policy: slotstream_cache::default_policy(),
            forecaster: Box::new(NoForecast),
            sinks: Sinks::default(),
            sweep: PrefillSweep::default(),
            speculation: Speculation::default(),
        }
    }

    /// Chooses from how many rows on a prefill pass is swept.
    #[must_use]
    pub const fn with_sweep(mut self, sweep: PrefillSweep) -> Self {
        self.sweep = sweep;
        self
    }

    /// Replaces the policy; the default is [`slotstream_cache::default_policy`].
    #[must_use]
    pub fn with_policy(mut self, policy: Box<dyn EvictionPolicy>) -> Self {
        self.policy = policy;
        self
    }

    /// Bounds what is read before it is demanded.
    #[must_use]
    pub const fn with_speculation(mut self, speculation: Speculation) -> Self {
        self.speculation = speculation;
        self
    }

    /// Replaces the forecaster; the default expects nothing. Its predictions are counted, told to
    /// the policy and to the sinks, and read ahead as far as
    /// [`with_speculation`](Self::with_speculation) allows. It is asked in passes that may read
    /// ahead; where nothing ever does ([`Speculation::off`]), in all of them.
    #[must_use]
    pub fn with_forecaster(mut self, forecaster: Box<dyn Forecaster>) -> Self {
        self.forecaster = forecaster;
        self
    }

    /// Tells everything that happens to `sink`, too. May be called again: sinks are told in the
    /// order in which they were added.
    #[must_use]
    pub fn with_sink(mut self, sink: Box<dyn EventSink>) -> Self {
        self.sinks.add(sink);
        self
    }

    /// Reserves slot memory and joins the parts: `index` says where records lie in the files of
    /// `queue`'s reader.
    ///
    /// # Errors
    /// [`ExpertsError::Cache`] when the pool or the policy refuses the number of slots,
    /// [`ExpertsError::Compute`] when the system refuses the memory.
    pub fn build(
        mut self,
        index: Arc<dyn RecordIndex>,
        queue: Arc<dyn ReadQueue>,
        ops: Arc<dyn Ops>,
    ) -> Result<StreamingExperts, ExpertsError> {
        let pool = SlotPool::new(self.geometry, self.slots, self.policy)?;
        let record_bytes = self.layout.payload_len() as u64;
        let device = ops.slot_device();
        let staging = Staging::new(self.sweep, &self.layout, &self.geometry, device.clone())?;
        let arena = SlotArena::on(device, self.layout, pool.slots())?;
        self.sinks.on_attach(&Attached {
            geometry: self.geometry,
            record_bytes,
            slots: pool.slots(),
            floor: self.geometry.floor_slots(),
            policy: &pool.policy().name(),
        });
        Ok(StreamingExperts {
            ensured: Ensured::with_capacity(self.geometry.experts()),
            pool,
            arena,
            spare: Spare::new(),
            staging,
            queue,
            index,
            ops,
            forecaster: self.forecaster,
            sinks: self.sinks,
            metrics: ExpertMetrics::default(),
            landed: channel(),
            grouped: Grouped::default(),
            predictions: Vec::new(),
            ahead: Ahead::new(self.speculation, &self.geometry),
            prompts: Prompts::default(),
            hints: PassHints::new(),
            call: None,
            outstanding: 0,
        })
    }
}
