//! From router logits to experts.

use slotstream_core::{
    Deadline, ExpertIdx, ExpertKey, LayerIdx, Prediction, Probe, ProbeResult, ProbeResults,
};

use crate::ForecastOptions;

/// The `most` experts of one row of logits, `[experts]`, as a router ranks them: the highest
/// first, the lower number among equals. What is no number is never chosen.
pub fn top_experts(logits: &[f32], most: usize, out: &mut Vec<ExpertIdx>) {
    out.clear();
    out.extend((0..=u16::MAX).take(logits.len()).map(ExpertIdx::new));
    out.retain(|expert| !logits[expert.index()].is_nan());
    let rank = |a: &ExpertIdx, b: &ExpertIdx| {
        logits[b.index()].total_cmp(&logits[a.index()]).then(a.cmp(b))
    };
    if most < out.len() {
        if most > 0 {
            out.select_nth_unstable_by(most - 1, rank);
        }
        out.truncate(most);
    }
    out.sort_unstable_by(rank);
}

/// What probes of one target say over the rows of a pass: buffers are used again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
    ranked: Vec<ExpertIdx>,
    /// By expert: the largest margin of any row.
    margins: Vec<f32>,
}

impl Choice {
    /// Adds the predictions for the target of `probe`, the surest first.
    pub(crate) fn predict(
        &mut self,
        probe: Probe,
        top_k: usize,
        options: &ForecastOptions,
        results: &ProbeResults<'_>,
        out: &mut Vec<Prediction>,
    ) {
        let same = |result: &&ProbeResult<'_>| {
            result.probe.target == probe.target && result.probe.with_ple == probe.with_ple
        };
        let Some(result) = results.results.iter().find(same) else { return };
        if results.rows == 0 || !result.logits.len().is_multiple_of(results.rows) {
            return;
        }
        let experts = result.logits.len() / results.rows;
        self.margins.clear();
        self.margins.resize(experts, f32::NEG_INFINITY);
        for row in result.logits.chunks_exact(experts.max(1)) {
            self.row(row, top_k, options);
        }
        self.emit(probe.target, out);
    }

    /// How sure a router is of an expert that it would choose says the distance to the first one
    /// that it would not: the last one chosen can be as sure as the first. Of others it is the
    /// distance to the last one chosen.
    fn row(&mut self, logits: &[f32], top_k: usize, options: &ForecastOptions) {
        let most = options.top.unwrap_or(top_k);
        top_experts(logits, most.max(top_k + 1), &mut self.ranked);
        let at = |rank: usize| self.ranked.get(rank).map(|expert| logits[expert.index()]);
        let Some(last) = at(top_k.min(self.ranked.len()).wrapping_sub(1)) else { return };
        let next = at(top_k).unwrap_or(f32::NEG_INFINITY);
        for (rank, expert) in self.ranked.iter().take(most).enumerate() {
            let margin = logits[expert.index()] - if rank < top_k { next } else { last };
            let best = &mut self.margins[expert.index()];
            // A difference of infinities is no number, and no reason.
            if margin >= options.threshold && margin > *best {
                *best = margin;
            }
        }
    }

    fn emit(&mut self, target: LayerIdx, out: &mut Vec<Prediction>) {
        self.ranked.clear();
        let named = (0..=u16::MAX).zip(&self.margins).filter(|(_, m)| **m > f32::NEG_INFINITY);
        self.ranked.extend(named.map(|(expert, _)| ExpertIdx::new(expert)));
        let margins = &self.margins;
        self.ranked.sort_unstable_by(|a, b| {
            margins[b.index()].total_cmp(&margins[a.index()]).then(a.cmp(b))
        });
        out.extend(self.ranked.iter().map(|expert| Prediction {
            key: ExpertKey::new(target, *expert),
            confidence: 1.0 / (1.0 + (-margins[expert.index()]).exp()),
            needed_by: Deadline { passes_ahead: 0, layer: target },
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAN: f32 = f32::NAN;

    fn said(logits: &[f32], rows: usize, options: ForecastOptions) -> Vec<(u16, f32)> {
        let target = LayerIdx::new(3);
        let probe = Probe { target, with_ple: options.ple, keep_mixed: false };
        // Another forecaster may have asked for the same and more.
        let asked = Probe { keep_mixed: true, ..probe };
        let other = Probe { with_ple: !options.ple, ..probe };
        let nothing = vec![9.0; logits.len()];
        let results = [
            ProbeResult { probe: other, logits: &nothing, mixed: None },
            ProbeResult { probe: asked, logits, mixed: None },
        ];
        let results = ProbeResults { rows, results: &results };
        let mut out = Vec::new();
        Choice::default().predict(probe, 2, &options, &results, &mut out);
        assert!(out.iter().all(|prediction| prediction.needed_by.layer == target));
        out.iter().map(|p| (p.key.expert().get(), p.confidence)).collect()
    }

    #[test]
    fn the_routers_own_choice() {
        let chosen = said(&[1.0, 3.0, 3.0, 3.0, NAN], 1, ForecastOptions::probe());
        assert_eq!(chosen, [(1, 0.5), (2, 0.5)]);
        // There is nobody else: it is sure.
        assert_eq!(said(&[1.0, 3.0], 1, ForecastOptions::probe()), [(0, 1.0), (1, 1.0)]);
    }

    #[test]
    fn more_or_fewer_by_margin_and_number() {
        let logits = [1.0, 3.0, 4.0, 2.5];
        let of = |options| said(&logits, 1, options).iter().map(|(e, _)| *e).collect::<Vec<_>>();
        let probe = ForecastOptions::probe;
        assert_eq!(of(probe().with_threshold(0.5)), [2, 1]);
        assert_eq!(of(probe().with_threshold(0.6)), [2]);
        assert_eq!(of(probe().with_top(4).with_threshold(-0.5)), [2, 1, 3]);
        assert_eq!(of(probe().with_top(1)), [2]);
        assert_eq!(of(probe().with_top(9).with_threshold(-9.0)), [2, 1, 3, 0]);
    }

    #[test]
    fn rows_are_joined_by_their_largest_margin() {
        let rows = [1.0, 3.0, 2.0, 0.0, 5.0, 0.0, 2.0, 1.0];
        let chosen = said(&rows, 2, ForecastOptions::probe());
        let experts: Vec<u16> = chosen.iter().map(|(expert, _)| *expert).collect();
        assert_eq!(experts, [0, 1, 2]);
        assert!(chosen.windows(2).all(|pair| pair[0].1 >= pair[1].1));
    }

    #[test]
    fn anything_is_survived() {
        for row in [&[NAN; 4][..], &[f32::INFINITY; 4], &[f32::NEG_INFINITY; 4], &[0.0, NAN]] {
            for (expert, confidence) in said(row, 1, ForecastOptions::probe()) {
                assert!((0.0..=1.0).contains(&confidence), "{expert} {confidence}");
            }
        }
        assert_eq!(said(&[], 0, ForecastOptions::probe()), []);
        assert_eq!(said(&[1.0, 2.0, 3.0], 2, ForecastOptions::probe()), []);
    }

    #[test]
    fn ranks_like_a_router() {
        let mut out = Vec::new();
        top_experts(&[0.5, 2.0, NAN, 2.0, -1.0], 3, &mut out);
        assert_eq!(out, [1, 3, 0].map(ExpertIdx::new));
        top_experts(&[0.5], 0, &mut out);
        assert!(out.is_empty());
    }
}
