//! Expects of every layer what it wanted for the token before.

use std::collections::HashMap;

use slotstream_core::{
    Deadline, ExpertIdx, ExpertKey, Forecaster, LayerIdx, Prediction, Probe, ProbeResults, Routing,
    SessionId, Tap,
};

/// Predicts, one layer ahead, the experts of the session's last token.
#[derive(Debug, Default)]
pub struct PreviousToken {
    sessions: HashMap<SessionId, Memory>,
    /// Whose pass is running: known from its first layer's routing on.
    running: Option<SessionId>,
    at: Option<LayerIdx>,
}

/// What a session remembers.
#[derive(Debug, Default)]
struct Memory {
    experts: HashMap<LayerIdx, Vec<ExpertIdx>>,
    guessed: u64,
    right: u64,
}

impl Memory {
    /// Share of the guesses that came true, (right + 1) / (guessed + 2) as Laplace has it.
    fn confidence(&self) -> f32 {
        (self.right + 1) as f32 / (self.guessed + 2) as f32
    }
}

impl PreviousToken {
    /// One that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Forecaster for PreviousToken {
    fn probes(&mut self, at: Tap, _want: &mut Vec<Probe>) {
        if let Tap::BeforeLayer(layer) = at {
            if self.at.is_some_and(|before| layer <= before) {
                self.running = None; // another pass
            }
            self.at = Some(layer);
        }
    }

    fn predict(&mut self, at: Tap, _results: &ProbeResults<'_>, out: &mut Vec<Prediction>) {
        let Tap::AfterAttention(here) = at else { return };
        let Some(memory) = self.running.and_then(|session| self.sessions.get(&session)) else {
            return;
        };
        let Some(layer) = here.get().checked_add(1).map(LayerIdx::new) else { return };
        let confidence = memory.confidence();
        let needed_by = Deadline { passes_ahead: 0, layer };
        let experts = memory.experts.get(&layer).into_iter().flatten();
        out.extend(experts.map(|expert| {
            let key = ExpertKey::new(layer, *expert);
            Prediction { key, confidence, needed_by }
        }));
    }

    fn observe(&mut self, routing: &Routing<'_>) {
        self.running = Some(routing.session());
        let memory = self.sessions.entry(routing.session()).or_default();
        let rows = routing.ids().chunks_exact(routing.top_k());
        let Some(last) = rows.last() else { return };
        let before = memory.experts.insert(routing.layer(), last.to_vec()).unwrap_or_default();
        memory.guessed += before.len() as u64;
        memory.right +=
            before.iter().filter(|expert| routing.ids().contains(expert)).count() as u64;
    }

    fn reset(&mut self, session: SessionId) {
        self.sessions.remove(&session);
        self.running = self.running.filter(|running| *running != session);
    }

    fn name(&self) -> String {
        "previous-token".into()
    }
}
