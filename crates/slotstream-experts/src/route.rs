//! The rows of a pass grouped by expert.

use slotstream_cache::Demand;
use slotstream_core::{ExpertIdx, Routing};

/// Which rows chose which expert: the distinct experts of a routing in the order of their calls,
/// each with its rows and its places `row * top_k + rank`. Buffers are reused from call to call.
#[derive(Debug, Default)]
pub(crate) struct Grouped {
    demand: Demand,
    starts: Vec<usize>,
    rows: Vec<u32>,
    places: Vec<u32>,
}

impl Grouped {
    /// Groups `routing` for a pool with room for `capacity` records a call.
    pub(crate) fn group(&mut self, routing: &Routing<'_>, capacity: usize) {
        let (ids, top_k) = (routing.ids(), routing.top_k());
        self.demand.read(routing);
        self.demand.split(capacity);
        let mut total = 0;
        self.starts.clear();
        self.starts.extend(self.demand.counts().iter().map(|count| {
            total += *count as usize;
            total - *count as usize
        }));
        self.rows.resize(ids.len(), 0);
        self.places.resize(ids.len(), 0);
        let mut next = self.starts.clone();
        for (place, id) in ids.iter().enumerate() {
            let Some(number) = self.demand.number_of(*id) else { continue };
            let at = &mut next[number];
            self.rows[*at] = (place / top_k) as u32;
            self.places[*at] = place as u32;
            *at += 1;
        }
    }

    /// The distinct experts in the order of their calls.
    pub(crate) fn experts(&self) -> &[ExpertIdx] {
        self.demand.experts()
    }

    /// How many lookups chose `expert`.
    pub(crate) fn count(&self, expert: ExpertIdx) -> u32 {
        self.demand.number_of(expert).map_or(0, |n| self.demand.counts()[n])
    }

    /// Rows and places of `expert`.
    pub(crate) fn members(&self, expert: ExpertIdx) -> (&[u32], &[u32]) {
        let Some(n) = self.demand.number_of(expert) else { return (&[], &[]) };
        let range = self.starts[n]..self.starts[n] + self.demand.counts()[n] as usize;
        (&self.rows[range.clone()], &self.places[range])
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use slotstream_core::{LayerIdx, PassId, Phase, SessionId, Step};

    #[test]
    fn groups_in_the_order_of_calls() {
        let step = Step {
            pass: PassId::new(0),
            phase: Phase::Prefill,
            session: SessionId::new(0),
            position: 0,
            tokens: &[0, 0, 0],
        };
        let ids = [5, 1, 1, 7, 5, 1].map(ExpertIdx::new);
        let routing = Routing::new(&step, LayerIdx::new(0), 2, &ids, &[]);
        let mut grouped = Grouped::default();
        for _ in 0..2 {
            grouped.group(&routing, 2);
            assert_eq!(grouped.experts(), [1, 5, 7].map(ExpertIdx::new));
            assert_eq!(grouped.members(ExpertIdx::new(5)), (&[0, 2][..], &[0, 4][..]));
            grouped.group(&routing, 3);
            assert_eq!(grouped.experts(), [5, 1, 7].map(ExpertIdx::new));
            assert_eq!(grouped.members(ExpertIdx::new(1)), (&[0, 1, 2][..], &[1, 2, 5][..]));
            assert_eq!(grouped.members(ExpertIdx::new(5)), (&[0, 2][..], &[0, 4][..]));
            assert_eq!(grouped.count(ExpertIdx::new(7)), 1);
            assert_eq!(grouped.count(ExpertIdx::new(0)), 0);
        }
    }
}
