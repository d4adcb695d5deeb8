//! What is known of each session.

use std::collections::HashMap;

use slotstream_core::{Deadline, ExpertIdx, ExpertKey, LayerIdx, Prediction, SessionId, Tap};

use crate::ForecastOptions;

/// Something of each session that has not ended.
#[derive(Clone, Debug)]
pub(crate) struct Sessions<T>(HashMap<SessionId, T>);

impl<T> Default for Sessions<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T> Sessions<T> {
    pub(crate) fn get(&self, session: Option<SessionId>) -> Option<&T> {
        self.0.get(&session?)
    }

    pub(crate) fn of(&mut self, session: SessionId, new: impl FnOnce() -> T) -> &mut T {
        self.0.entry(session).or_insert_with(new)
    }

    pub(crate) fn get_mut(&mut self, session: SessionId) -> Option<&mut T> {
        self.0.get_mut(&session)
    }

    pub(crate) fn forget(&mut self, session: SessionId) {
        self.0.remove(&session);
    }
}

/// The deadlines of the `ahead` layers after `layer`; beyond the last one they are those of the
/// next pass. None comes twice.
fn deadlines(layer: LayerIdx, layers: usize, ahead: usize) -> impl Iterator<Item = Deadline> {
    (1..=ahead.min(layers)).map(move |step| {
        let target = layer.index() + step;
        let passes_ahead = u32::from(target >= layers);
        // A geometry counts its layers with 16 bits.
        let target = u16::try_from(target % layers).unwrap_or(u16::MAX);
        Deadline { passes_ahead, layer: LayerIdx::new(target) }
    })
}

/// The deadlines of what is named at a tap from what was observed so far: of the `ahead` layers
/// after a layer, and at the very beginning of a pass of the first ones. None at other taps.
pub(crate) fn due_at(tap: Tap, layers: usize, ahead: usize) -> impl Iterator<Item = Deadline> {
    let after = match tap {
        Tap::AfterAttention(layer) => Some((layer, 0)),
        // As after the last layer, but the pass is this one.
        Tap::BeforeLayer(layer) if layer.index() == 0 => {
            Some((LayerIdx::new(u16::try_from(layers - 1).unwrap_or(u16::MAX)), 1))
        }
        _ => None,
    };
    after.into_iter().flat_map(move |(layer, passed)| {
        deadlines(layer, layers, ahead).map(move |due| Deadline {
            passes_ahead: due.passes_ahead.saturating_sub(passed),
            ..due
        })
    })
}

/// Adds the likeliest of `scored` as far as the options go, the likeliest first.
pub(crate) fn likeliest(
    scored: &mut Vec<(ExpertIdx, f32)>,
    needed_by: Deadline,
    top_k: usize,
    options: &ForecastOptions,
    out: &mut Vec<Prediction>,
) {
    scored.retain(|(_, confidence)| *confidence >= options.threshold);
    scored.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    scored.truncate(options.top.unwrap_or(top_k));
    out.extend(scored.iter().map(|(expert, confidence)| Prediction {
        key: ExpertKey::new(needed_by.layer, *expert),
        confidence: confidence.clamp(0.0, 1.0),
        needed_by,
    }));
}
