//! What a pool counts.

use slotstream_core::{Origin, Phase};

/// Lookups of one phase.
///
/// One *lookup* is one distinct (layer, expert) of one pass, as in the original's figures; a
/// *token lookup* is one (position, rank) of the route. Only calls that succeeded are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PhaseCounters {
    /// Records that owned a slot when they were demanded.
    pub hits: u64,
    /// Records that did not; adopted forecasts included.
    pub misses: u64,
    /// Misses that a forecast had already reserved a slot for.
    pub adopted: u64,
    /// Hits whose bytes were still being read on behalf of somebody else.
    pub pending: u64,
    /// (position, rank) lookups.
    pub token_lookups: u64,
    /// (position, rank) lookups whose record was resident when the pass reached the layer, even
    /// if an earlier wave of the layer evicted it.
    pub token_hits: u64,
}

impl PhaseCounters {
    /// `hits / (hits + misses)`; `None` before the first lookup.
    #[must_use]
    pub fn hit_rate(&self) -> Option<f64> {
        rate(self.hits, self.hits + self.misses)
    }

    /// `token_hits / token_lookups`; `None` before the first lookup.
    #[must_use]
    pub fn token_hit_rate(&self) -> Option<f64> {
        rate(self.token_hits, self.token_lookups)
    }
}

fn rate(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Claims by origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OriginCounters {
    /// [`Origin::Demand`].
    pub demand: u64,
    /// [`Origin::Prefetch`].
    pub prefetch: u64,
    /// [`Origin::PromptHot`].
    pub prompt_hot: u64,
    /// [`Origin::WarmStart`].
    pub warm_start: u64,
    /// Origins that this version does not know.
    pub other: u64,
}

impl OriginCounters {
    pub(crate) fn add(&mut self, origin: Origin) {
        *match origin {
            Origin::Demand => &mut self.demand,
            Origin::Prefetch => &mut self.prefetch,
            Origin::PromptHot => &mut self.prompt_hot,
            Origin::WarmStart => &mut self.warm_start,
            _ => &mut self.other,
        } += 1;
    }

    /// All claims.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.demand + self.prefetch + self.prompt_hot + self.warm_start + self.other
    }
}

/// Everything that a pool counts, since it was made or last reset.
///
/// Every claim ends as exactly one of `published`, `read_failed`, `withdrawn` and `discarded`;
/// every published record leaves as one of `evicted`, `shrunk` and `cleared`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolCounters {
    /// Lookups of prefill passes.
    pub prefill: PhaseCounters,
    /// Lookups of decode passes.
    pub decode: PhaseCounters,
    /// Claims made.
    pub claims: OriginCounters,
    /// Claims whose record arrived.
    pub published: u64,
    /// Claims whose read failed.
    pub read_failed: u64,
    /// Claims given up for another reason: a cancelled request, an expired forecast, a call
    /// that failed because of its policy.
    pub withdrawn: u64,
    /// Claims that were open when the pool was cleared.
    pub discarded: u64,
    /// Records that gave up their slot to another one.
    pub evicted: u64,
    /// Records whose slot was removed.
    pub shrunk: u64,
    /// Records that were there when the pool was cleared.
    pub cleared: u64,
}

impl PoolCounters {
    /// Decode only: distinct (layer, expert) per pass, adopted forecasts as misses.
    #[must_use]
    pub fn hit_rate(&self) -> Option<f64> {
        self.decode.hit_rate()
    }

    /// Decode only: (position, rank) lookups.
    #[must_use]
    pub fn token_hit_rate(&self) -> Option<f64> {
        self.decode.token_hit_rate()
    }

    /// The counters of `phase`. Phases that this version does not know count as prefill.
    #[must_use]
    pub const fn phase(&self, phase: Phase) -> &PhaseCounters {
        match phase {
            Phase::Decode => &self.decode,
            _ => &self.prefill,
        }
    }

    pub(crate) const fn phase_mut(&mut self, phase: Phase) -> &mut PhaseCounters {
        match phase {
            Phase::Decode => &mut self.decode,
            _ => &mut self.prefill,
        }
    }
}
