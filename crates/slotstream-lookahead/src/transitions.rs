//! How often one expert was followed by another.

use slotstream_core::{Deadline, ExpertIdx, LayerIdx, Prediction};

use crate::ForecastOptions;
use crate::sessions::likeliest;

/// Followers of an expert that are counted, at most.
const FOLLOWERS: usize = 32;
/// Where counts are halved, so that the past fades.
const HALVED_AT: u16 = 256;

/// Of one expert: how often it came, and how often others came with it.
#[derive(Clone, Debug, Default)]
struct Followers {
    seen: u16,
    counts: Vec<(ExpertIdx, u16)>,
}

impl Followers {
    fn add(&mut self, next: &[ExpertIdx]) {
        self.seen += 1;
        for expert in next {
            let at = self.counts.iter().position(|(known, _)| known == expert);
            match at {
                Some(at) => self.counts[at].1 += 1,
                None if self.counts.len() < FOLLOWERS => self.counts.push((*expert, 1)),
                None => self.replace(*expert),
            }
        }
        if self.seen >= HALVED_AT {
            self.seen /= 2;
            self.counts.iter_mut().for_each(|(_, count)| *count /= 2);
            self.counts.retain(|(_, count)| *count > 0);
        }
    }

    /// The rarest follower gives its place to a new one.
    fn replace(&mut self, expert: ExpertIdx) {
        let rarest = self.counts.iter_mut().min_by_key(|(known, count)| (*count, *known));
        if let Some(rarest) = rarest {
            *rarest = (expert, 1);
        }
    }
}

/// By target layer and expert, which experts of that layer came with it. Of bounded size: 32
/// followers of each expert.
#[derive(Clone, Debug)]
pub(crate) struct Transitions {
    experts: usize,
    top_k: usize,
    followers: Vec<Followers>,
    scored: Vec<(ExpertIdx, f32)>,
}

impl Transitions {
    pub(crate) fn new(geometry: &slotstream_core::Geometry) -> Self {
        Self {
            experts: geometry.experts(),
            top_k: geometry.top_k(),
            followers: vec![Followers::default(); geometry.records()],
            scored: Vec::new(),
        }
    }

    /// Bytes that it holds at most.
    pub(crate) const fn planned_bytes(geometry: &slotstream_core::Geometry) -> u64 {
        // A list that doubles when it is full has room for as many.
        let each = size_of::<Followers>() + FOLLOWERS * size_of::<(ExpertIdx, u16)>();
        (geometry.records() * each) as u64
    }

    /// The experts `next` of `target` came with `given`, of another layer or token.
    pub(crate) fn learn(&mut self, target: LayerIdx, given: &[ExpertIdx], next: &[ExpertIdx]) {
        for expert in given {
            let at = target.index() * self.experts + expert.index();
            if let Some(followers) = self.followers.get_mut(at) {
                followers.add(next);
            }
        }
    }

    /// Adds what comes with `given`: each expert as sure as the best of those that it followed.
    pub(crate) fn predict(
        &mut self,
        needed_by: Deadline,
        given: &[ExpertIdx],
        options: &ForecastOptions,
        out: &mut Vec<Prediction>,
    ) {
        self.scored.clear();
        for expert in given {
            let at = needed_by.layer.index() * self.experts + expert.index();
            let Some(followers) = self.followers.get(at) else { continue };
            // One more than was seen: what came once of once is no certainty.
            let whole = f32::from(followers.seen) + 1.0;
            for (expert, count) in &followers.counts {
                let share = f32::from(*count) / whole;
                match self.scored.iter_mut().find(|(known, _)| known == expert) {
                    Some((_, best)) => *best = best.max(share),
                    None => self.scored.push((*expert, share)),
                }
            }
        }
        likeliest(&mut self.scored, needed_by, self.top_k, options, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_often_is_likely_and_memory_is_bounded() {
        let geometry = slotstream_core::Geometry::new(2, 100, 2).expect("legal");
        let mut transitions = Transitions::new(&geometry);
        let (target, given) = (LayerIdx::new(1), [ExpertIdx::new(5)]);
        for n in 0..1000_u16 {
            let next = [7, 10 + n % 90].map(ExpertIdx::new);
            transitions.learn(target, &given, &next);
        }
        let followers = &transitions.followers[105];
        assert!(followers.counts.len() <= FOLLOWERS && followers.seen < HALVED_AT);
        let needed_by = Deadline { passes_ahead: 0, layer: target };
        let mut out = Vec::new();
        transitions.predict(needed_by, &given, &ForecastOptions::learnt(), &mut out);
        assert_eq!(out.len(), 1, "{out:?}");
        assert_eq!(out[0].key.expert(), ExpertIdx::new(7));
        assert!(out[0].confidence > 0.9);
        out.clear();
        transitions.predict(needed_by, &[ExpertIdx::new(6)], &ForecastOptions::learnt(), &mut out);
        assert!(out.is_empty(), "never seen");
    }
}
