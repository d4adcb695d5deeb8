//! The least of each layer's resident records, kept by tournament.

/// What an absent record counts as.
const ABSENT: Rank = Rank(i64::MAX, u64::MAX);

/// How much a record is worth: its value, then the time of its last use. Less goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank(pub(super) i64, pub(super) u64);

/// A tournament tree a layer: a change takes time in the logarithm of the experts, and so does
/// each record that a search has to pass over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Minima {
    experts: usize,
    /// `2 * experts` nodes a layer: node 1 is the root, expert `e` is at `experts + e`, the
    /// children of `n` are `2n` and `2n + 1`.
    nodes: Vec<Rank>,
}

impl Minima {
    pub(super) fn new(layers: usize, experts: usize) -> Self {
        Self { experts, nodes: vec![ABSENT; 2 * layers * experts] }
    }

    /// `expert` of `layer` is resident and worth `rank`.
    pub(super) fn set(&mut self, layer: usize, expert: usize, rank: Rank) {
        let tree = 2 * self.experts * layer;
        let mut at = self.experts + expert;
        if expert >= self.experts || tree + at >= self.nodes.len() {
            return;
        }
        self.nodes[tree + at] = rank;
        while at > 1 {
            at /= 2;
            let least = self.nodes[tree + 2 * at].min(self.nodes[tree + 2 * at + 1]);
            if std::mem::replace(&mut self.nodes[tree + at], least) == least {
                break;
            }
        }
    }

    /// `expert` of `layer` is not resident.
    pub(super) fn remove(&mut self, layer: usize, expert: usize) {
        self.set(layer, expert, ABSENT);
    }

    /// Whether `expert` of `layer` is resident.
    pub(super) fn contains(&self, layer: usize, expert: usize) -> bool {
        let leaf = self.nodes.get(2 * self.experts * layer + self.experts + expert);
        expert < self.experts && leaf.is_some_and(|rank| *rank != ABSENT)
    }

    /// No record is resident.
    pub(super) fn clear(&mut self) {
        self.nodes.fill(ABSENT);
    }

    /// The least of `layer`, whether it can be had or not.
    pub(super) fn least(&self, layer: usize) -> Option<Rank> {
        let root = self.nodes.get(2 * self.experts * layer + 1)?;
        Some(*root).filter(|rank| *rank != ABSENT)
    }

    /// The least expert of `layer` that `is` right.
    pub(super) fn find(&self, layer: usize, is: impl Fn(usize) -> bool) -> Option<(Rank, usize)> {
        let tree = self.nodes.get(2 * self.experts * layer..)?;
        let mut best = (ABSENT, 0);
        self.search(tree, 1, &is, &mut best);
        Some(best).filter(|(rank, _)| *rank != ABSENT)
    }

    /// Looks below node `at` for something less than `best`.
    fn search(
        &self,
        tree: &[Rank],
        at: usize,
        is: &impl Fn(usize) -> bool,
        best: &mut (Rank, usize),
    ) {
        if tree.get(at).is_none_or(|rank| *rank >= best.0) {
            return;
        }
        if at >= self.experts {
            if is(at - self.experts) {
                *best = (tree[at], at - self.experts);
            }
            return;
        }
        let (left, right) = (2 * at, 2 * at + 1);
        let (first, second) = if tree[left] <= tree[right] { (left, right) } else { (right, left) };
        self.search(tree, first, is, best);
        self.search(tree, second, is, best);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_is_that_of_a_sweep() {
        let mut state = 9_u32;
        let mut dice = |below: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize % below
        };
        for experts in [1, 2, 3, 7, 8, 13] {
            let mut minima = Minima::new(3, experts);
            let mut plain = vec![ABSENT; 3 * experts];
            for round in 0..300 {
                let (layer, expert) = (dice(3), dice(experts));
                let rank = Rank(dice(5) as i64 - 2, round);
                let rank = if dice(3) == 0 { ABSENT } else { rank };
                minima.set(layer, expert, rank);
                plain[layer * experts + expert] = rank;
                let blocked = dice(experts);
                for layer in 0..3 {
                    let own = &plain[layer * experts..][..experts];
                    let least = |is: &dyn Fn(usize) -> bool| {
                        let all = own.iter().copied().zip(0..experts);
                        all.filter(|(rank, expert)| *rank != ABSENT && is(*expert)).min()
                    };
                    assert_eq!(minima.least(layer), least(&|_| true).map(|(rank, _)| rank));
                    assert_eq!(minima.find(layer, |_| true), least(&|_| true));
                    let free = |expert: usize| expert != blocked && expert % 3 != 1;
                    assert_eq!(minima.find(layer, free), least(&free));
                    assert_eq!(minima.find(layer, |_| false), None);
                }
            }
            minima.set(3, 0, Rank(0, 0));
            minima.set(0, experts, Rank(0, 0));
            assert_eq!(minima.find(3, |_| true), None);
            minima.clear();
            assert_eq!(minima.least(0), None);
        }
    }
}
