//! Which experts a prompt used most.

use std::collections::HashMap;

use slotstream_core::{ExpertIdx, Geometry, LayerIdx, SessionId};

/// What the provider is told about a pass besides its tokens.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PassHints {
    /// Ends a pass early within a layer; looked at while reads are waited for and before every
    /// block of a sweep.
    pub cancel: slotstream_core::CancelToken,
    /// Set in passes over a prompt.
    pub prompt: Option<PromptPass>,
}

impl PassHints {
    /// Never cancelled, of no prompt.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets `token` end the pass within a layer.
    #[must_use]
    pub fn with_cancel(mut self, token: slotstream_core::CancelToken) -> Self {
        self.cancel = token;
        self
    }

    /// A pass over a prompt.
    #[must_use]
    pub const fn with_prompt(mut self, prompt: PromptPass) -> Self {
        self.prompt = Some(prompt);
        self
    }
}

/// Which part of a prompt a pass runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a part begins and ends")]
pub struct PromptPass {
    /// The prompt begins: what was counted for its session before is dropped.
    pub first: bool,
    /// The prompt ends: its most used experts are admitted to the pool, where the pass is swept.
    pub last: bool,
}

/// Lookups of the prompts that are being read, by session.
#[derive(Debug, Default)]
pub(crate) struct Prompts(HashMap<SessionId, Vec<u32>>);

impl Prompts {
    /// Bytes of the counts of one prompt.
    pub(crate) const fn bytes(geometry: &Geometry) -> u64 {
        (geometry.records() * size_of::<u32>()) as u64
    }

    pub(crate) fn forget(&mut self, session: SessionId) {
        self.0.remove(&session);
    }

    /// Counts a layer's lookups.
    pub(crate) fn count(
        &mut self,
        session: SessionId,
        geometry: &Geometry,
        layer: LayerIdx,
        lookups: impl Iterator<Item = (ExpertIdx, u32)>,
    ) {
        let counts = self.0.entry(session).or_insert_with(|| vec![0; geometry.records()]);
        let first = layer.index() * geometry.experts();
        for (expert, count) in lookups {
            if let Some(sum) = counts.get_mut(first + expert.index()) {
                *sum = sum.saturating_add(count);
            }
        }
    }

    /// The `most` experts of a layer that were looked up most, the lower number first among
    /// equals; ascending.
    pub(crate) fn hottest(
        &self,
        session: SessionId,
        geometry: &Geometry,
        layer: LayerIdx,
        most: usize,
    ) -> Vec<ExpertIdx> {
        let first = layer.index() * geometry.experts();
        let counts = self.0.get(&session).and_then(|c| c.get(first..first + geometry.experts()));
        let used = (0..=u16::MAX).zip(counts.unwrap_or_default()).filter(|(_, count)| **count > 0);
        let mut hottest: Vec<(u16, u32)> = used.map(|(expert, count)| (expert, *count)).collect();
        hottest.sort_unstable_by_key(|(expert, count)| (std::cmp::Reverse(*count), *expert));
        hottest.truncate(most);
        let mut hottest: Vec<_> = hottest.iter().map(|(e, _)| ExpertIdx::new(*e)).collect();
        hottest.sort_unstable();
        hottest
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn hottest_by_count_then_by_number() {
        let geometry = Geometry::new(2, 6, 2).expect("legal");
        let (mut prompts, one, layer) = (Prompts::default(), SessionId::new(1), LayerIdx::new(1));
        let count = |prompts: &mut Prompts, session, pairs: &[(u16, u32)]| {
            let lookups = pairs.iter().map(|(expert, count)| (ExpertIdx::new(*expert), *count));
            prompts.count(session, &geometry, layer, lookups);
        };
        count(&mut prompts, one, &[(5, 1), (3, 2)]);
        count(&mut prompts, SessionId::new(2), &[(4, 9)]);
        count(&mut prompts, one, &[(5, 3), (1, 2), (0, 1)]);
        let hottest = |prompts: &Prompts, most| prompts.hottest(one, &geometry, layer, most);
        assert_eq!(hottest(&prompts, 2), [1, 5].map(ExpertIdx::new));
        assert_eq!(hottest(&prompts, 9), [0, 1, 3, 5].map(ExpertIdx::new));
        assert!(prompts.hottest(one, &geometry, LayerIdx::new(0), 9).is_empty());
        prompts.forget(one);
        assert!(hottest(&prompts, 9).is_empty());
    }
}
