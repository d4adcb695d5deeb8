//! What a layer needs of a pool, call by call.

use slotstream_core::{ExpertIdx, Routing};

const ABSENT: u32 = u32::MAX;

/// The distinct experts of one layer's routing, with the number of (position, rank) lookups that
/// chose each: what [`ensure_counted`](crate::SlotPool::ensure_counted) takes. Buffers are reused
/// from routing to routing.
///
/// The engine and every simulator split a layer into calls here, so they agree about it.
#[derive(Clone, Debug, Default)]
pub struct Demand {
    experts: Vec<ExpertIdx>,
    counts: Vec<u32>,
    /// By expert: its number among `experts`.
    number: Vec<u32>,
    /// Scratch of [`split`](Self::split).
    ascending: Vec<(ExpertIdx, u32)>,
}

impl Demand {
    /// An empty demand.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a routing. Experts are numbered in route order: by their first appearance.
    pub fn read(&mut self, routing: &Routing<'_>) {
        for expert in self.experts.drain(..) {
            self.number[expert.index()] = ABSENT;
        }
        self.counts.clear();
        for id in routing.ids() {
            if id.index() >= self.number.len() {
                self.number.resize(id.index() + 1, ABSENT);
            }
            let number = &mut self.number[id.index()];
            if *number == ABSENT {
                *number = self.experts.len() as u32;
                self.experts.push(*id);
                self.counts.push(0);
            }
            self.counts[*number as usize] += 1;
        }
    }

    /// The distinct experts.
    #[must_use]
    pub fn experts(&self) -> &[ExpertIdx] {
        &self.experts
    }

    /// How many lookups chose each of [`experts`](Self::experts).
    #[must_use]
    pub fn counts(&self) -> &[u32] {
        &self.counts
    }

    /// The number of `expert` among [`experts`](Self::experts).
    #[must_use]
    pub fn number_of(&self, expert: ExpertIdx) -> Option<usize> {
        self.number.get(expert.index()).filter(|n| **n != ABSENT).map(|n| *n as usize)
    }

    /// Orders the experts for a pool with room for `capacity` records a call
    /// ([`capacity`](crate::SlotPool::capacity)): in route order where all fit into one call,
    /// ascending by id where they do not. The calls are then the chunks of `capacity` experts.
    pub fn split(&mut self, capacity: usize) {
        if self.experts.len() <= capacity || self.experts.is_sorted() {
            return;
        }
        let pairs = self.experts.iter().copied().zip(self.counts.iter().copied());
        self.ascending.clear();
        self.ascending.extend(pairs);
        self.ascending.sort_unstable();
        for (at, &(expert, count)) in self.ascending.iter().enumerate() {
            self.experts[at] = expert;
            self.counts[at] = count;
            self.number[expert.index()] = at as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotstream_core::{LayerIdx, PassId, Phase, SessionId, Step};

    #[test]
    fn route_order_or_waves() {
        let step = Step {
            pass: PassId::new(0),
            phase: Phase::Prefill,
            session: SessionId::new(0),
            position: 0,
            tokens: &[0, 0, 0],
        };
        let ids = [5, 1, 1, 7, 5, 1].map(ExpertIdx::new);
        let routing = Routing::new(&step, LayerIdx::new(0), 2, &ids, &[]);
        let mut demand = Demand::new();
        for _ in 0..2 {
            demand.read(&routing);
            demand.split(3);
            assert_eq!(demand.experts(), [5, 1, 7].map(ExpertIdx::new));
            assert_eq!(demand.counts(), [2, 3, 1]);
            demand.split(2);
            assert_eq!(demand.experts(), [1, 5, 7].map(ExpertIdx::new));
            assert_eq!(demand.counts(), [3, 2, 1]);
            assert_eq!(demand.number_of(ExpertIdx::new(5)), Some(1));
            assert_eq!(demand.number_of(ExpertIdx::new(9)), None);
        }
    }
}
