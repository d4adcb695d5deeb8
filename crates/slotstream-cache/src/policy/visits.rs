//! Which layer is being visited, and how often each was.

use slotstream_core::{LayerIdx, Routing};

/// Follows the calls of a policy from layer to layer.
///
/// A visit of a layer begins with its routing, or, where no routing is told, with the first hit
/// or miss of another layer than before or of a new pass; all waves of a layer are one visit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Visits {
    /// By layer.
    count: Vec<u64>,
    layer: Option<LayerIdx>,
    /// The visit goes on: neither a pass nor another layer has begun since.
    open: bool,
    /// Its routing was told.
    routed: bool,
}

/// What a hit or a miss means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lookup {
    /// It begins a visit.
    pub(super) begins: bool,
    /// It is news: no routing said before that the record is used.
    pub(super) counts: bool,
}

impl Visits {
    pub(super) fn new(layers: usize) -> Self {
        Self { count: vec![0; layers], ..Self::default() }
    }

    /// Visits of `layer` so far, the running one included.
    pub(super) fn of(&self, layer: LayerIdx) -> u64 {
        self.count.get(layer.index()).copied().unwrap_or(0)
    }

    /// The layer visited last.
    pub(super) const fn layer(&self) -> Option<LayerIdx> {
        self.layer
    }

    /// A pass begins.
    pub(super) const fn step(&mut self) {
        self.open = false;
    }

    /// A layer was routed.
    pub(super) fn routing(&mut self, routing: &Routing<'_>) {
        self.begin(routing.layer(), true);
    }

    /// A record of `layer` was hit or missed.
    pub(super) fn lookup(&mut self, layer: LayerIdx) -> Lookup {
        let begins = !self.open || self.layer != Some(layer);
        if begins {
            self.begin(layer, false);
        }
        Lookup { begins, counts: !self.routed }
    }

    fn begin(&mut self, layer: LayerIdx, routed: bool) {
        if let Some(count) = self.count.get_mut(layer.index()) {
            *count += 1;
        }
        self.layer = Some(layer);
        (self.open, self.routed) = (true, routed);
    }

    pub(super) fn reset(&mut self) {
        self.count.fill(0);
        (self.layer, self.open, self.routed) = (None, false, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotstream_core::{ExpertIdx, PassId, Phase, SessionId, Step};

    #[test]
    fn visits_begin_where_a_pass_reaches_a_layer() {
        let at = LayerIdx::new;
        let mut visits = Visits::new(3);
        let heard = |visits: &mut Visits, layer| {
            let Lookup { begins, counts } = visits.lookup(at(layer));
            (begins, counts)
        };
        assert_eq!(heard(&mut visits, 1), (true, true));
        assert_eq!(heard(&mut visits, 1), (false, true));
        assert_eq!(heard(&mut visits, 2), (true, true));
        assert_eq!(visits.layer(), Some(at(2)));
        // The same layer, in the next pass.
        visits.step();
        assert_eq!(heard(&mut visits, 2), (true, true));
        let (pass, session) = (PassId::new(1), SessionId::new(0));
        let step = Step { pass, phase: Phase::Decode, session, position: 0, tokens: &[7] };
        let ids = [ExpertIdx::new(0)];
        visits.step();
        visits.routing(&Routing::new(&step, at(0), 1, &ids, &[]));
        assert_eq!(heard(&mut visits, 0), (false, false));
        assert_eq!(heard(&mut visits, 1), (true, true));
        assert_eq!([0, 1, 2].map(|layer| visits.of(at(layer))), [1, 2, 2]);
        visits.reset();
        assert_eq!(visits, Visits::new(3));
    }
}
