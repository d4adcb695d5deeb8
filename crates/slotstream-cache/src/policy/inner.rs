//! What one part of a policy does for the whole.

/// Methods of [`EvictionPolicy`](slotstream_core::EvictionPolicy) that only hand on to
/// `self.inner`.
macro_rules! hand_on {
    (on_insert) => {
        fn on_insert(
            &mut self,
            slot: slotstream_core::SlotId,
            key: slotstream_core::ExpertKey,
            origin: slotstream_core::Origin,
        ) {
            self.inner.on_insert(slot, key, origin);
        }
    };
    (on_hit) => {
        fn on_hit(&mut self, slot: slotstream_core::SlotId, key: slotstream_core::ExpertKey) {
            self.inner.on_hit(slot, key);
        }
    };
    (on_resize) => {
        fn on_resize(&mut self, slots: usize) {
            self.inner.on_resize(slots);
        }
    };
    (on_miss) => {
        fn on_miss(&mut self, key: slotstream_core::ExpertKey) {
            self.inner.on_miss(key);
        }
    };
    (on_remove) => {
        fn on_remove(
            &mut self,
            slot: slotstream_core::SlotId,
            key: slotstream_core::ExpertKey,
            cause: slotstream_core::RemoveCause,
        ) {
            self.inner.on_remove(slot, key, cause);
        }
    };
    (admit) => {
        fn admit(
            &mut self,
            key: slotstream_core::ExpertKey,
            origin: slotstream_core::Origin,
        ) -> bool {
            self.inner.admit(key, origin)
        }
    };
    (on_forecast) => {
        fn on_forecast(&mut self, predictions: &[slotstream_core::Prediction]) {
            self.inner.on_forecast(predictions);
        }
    };
    (on_routing) => {
        fn on_routing(&mut self, routing: &slotstream_core::Routing<'_>) {
            self.inner.on_routing(routing);
        }
    };
    (on_step) => {
        fn on_step(&mut self, step: &slotstream_core::Step<'_>) {
            self.inner.on_step(step);
        }
    };
    (export) => {
        fn export(&self) -> Option<Vec<u8>> {
            self.inner.export()
        }
    };
    (import) => {
        fn import(&mut self, state: &[u8]) -> Result<(), slotstream_core::BindError> {
            self.inner.import(state)
        }
    };
    (planned_bytes) => {
        fn planned_bytes(&self, geometry: &slotstream_core::Geometry) -> u64 {
            self.inner.planned_bytes(geometry)
        }
    };
    (reset) => {
        fn reset(&mut self) {
            self.inner.reset();
        }
    };
    ($($method:ident),+ $(,)?) => {
        $($crate::policy::inner::hand_on!($method);)+
    };
}

pub(super) use hand_on;
