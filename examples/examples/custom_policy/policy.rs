//! A policy in a crate that depends on `slotstream-core` alone.

use slotstream_core::{
    BindError, EvictionPolicy, ExpertKey, Geometry, Incoming, Origin, SlotId, SlotView, Step,
};

/// Gives up the record that was used least, lately: every use counts one, and every pass takes a
/// twenty-fifth off all counts. Counts outlive evictions.
#[derive(Debug, Default)]
pub(crate) struct Fading {
    geometry: Option<Geometry>,
    counts: Vec<f32>,
}

impl Fading {
    fn count(&mut self, key: ExpertKey) {
        if let Some(at) = self.geometry.and_then(|geometry| geometry.index(key)) {
            self.counts[at] += 1.0;
        }
    }
}

impl EvictionPolicy for Fading {
    fn bind(&mut self, geometry: &Geometry, _slots: usize) -> Result<(), BindError> {
        self.geometry = Some(*geometry);
        self.counts = vec![0.0; geometry.records()];
        Ok(())
    }

    fn on_step(&mut self, _step: &Step<'_>) {
        self.counts.iter_mut().for_each(|count| *count *= 0.96);
    }

    fn on_insert(&mut self, _slot: SlotId, key: ExpertKey, _origin: Origin) {
        self.count(key);
    }

    fn on_hit(&mut self, _slot: SlotId, key: ExpertKey) {
        self.count(key);
    }

    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        let count = |slot: &SlotId| {
            let record = view.key(*slot).and_then(|key| self.geometry?.index(key));
            record.map_or(0.0, |at| self.counts[at])
        };
        (0..view.len() as u32)
            .map(SlotId::new)
            .filter(|slot| view.is_evictable(*slot))
            .min_by(|a, b| count(a).total_cmp(&count(b)))
    }

    fn reset(&mut self) {
        self.counts.fill(0.0);
    }
}
