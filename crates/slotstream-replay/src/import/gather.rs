//! Visits of layers become passes.

use slotstream_core::{EventSink, ExpertIdx, LayerIdx, Phase, Routing};

use super::lines::Place;
use crate::trace::{TraceError, step_of};

/// The pass that a visit is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) pass: u64,
    pub(super) phase: Phase,
    pub(super) session: u64,
    pub(super) position: u64,
}

/// The phase of this name.
pub(super) fn phase(place: &Place, text: &str) -> Result<Phase, TraceError> {
    match text {
        "prefill" => Ok(Phase::Prefill),
        "decode" => Ok(Phase::Decode),
        _ => place.bad("phase", "prefill or decode", text),
    }
}

/// Tells a sink each pass when its first layer comes.
pub(super) struct Gather<'s> {
    sink: &'s mut dyn EventSink,
    running: Option<Head>,
    tokens: Vec<u32>,
    top_k: usize,
}

/// One layer of a pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visit<'a> {
    pub(super) tokens: &'a [u32],
    pub(super) layer: u16,
    pub(super) top_k: usize,
    pub(super) ids: &'a [ExpertIdx],
    pub(super) weights: &'a [f32],
}

impl<'s> Gather<'s> {
    pub(super) fn new(sink: &'s mut dyn EventSink) -> Self {
        Self { sink, running: None, tokens: Vec::new(), top_k: 0 }
    }

    /// A visit; `ids` are rows x top-k, in whole rows.
    pub(super) fn visit(
        &mut self,
        place: &Place,
        head: Head,
        visit: &Visit<'_>,
    ) -> Result<(), TraceError> {
        let Visit { tokens, layer, top_k, ids, weights } = *visit;
        if self.top_k == 0 {
            self.top_k = top_k;
        }
        if top_k == 0 || top_k != self.top_k {
            let expected = format!("{} experts a row, as before", self.top_k.max(1));
            return place.bad("experts", expected, &top_k.to_string());
        }
        if tokens.len() * top_k != ids.len() || tokens.is_empty() {
            let expected = format!("{} rows of {top_k} experts", tokens.len().max(1));
            return place.bad("rows", expected, &format!("{} experts", ids.len()));
        }
        if !weights.is_empty() && weights.len() != ids.len() {
            let expected = format!("{} of them, or none", ids.len());
            return place.bad("weights", expected, &weights.len().to_string());
        }
        let Head { pass, phase, session, position } = head;
        if self.running.is_none_or(|running| running.pass != pass) {
            self.running = Some(head);
            self.tokens.clear();
            self.tokens.extend_from_slice(tokens);
            self.sink.on_step(&step_of((pass, phase, session, position), tokens));
        } else if self.running != Some(head) || self.tokens != tokens {
            let found = format!("other rows, tokens, phase, session or position in pass {pass}");
            return place.bad("pass", "one pass to stay the same from layer to layer", &found);
        }
        let step = step_of((pass, phase, session, position), &self.tokens);
        let layer = LayerIdx::new(layer);
        self.sink.on_routing(&Routing::new(&step, layer, top_k, ids, weights));
        Ok(())
    }
}
