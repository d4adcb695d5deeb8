//! What is demanded: passes over the layers, and what the router says of them.

use slotstream_core::{ExpertIdx, LayerIdx, PassId, Phase, Routing, SessionId, Step};

use super::{Broken, Play, Scenario};

impl Play {
    /// One pass over some of the layers.
    pub(super) fn pass(&mut self, scenario: &Scenario) -> Result<(), Broken> {
        self.pass += 1;
        let rows = 1 + self.dice.below(scenario.mix.rows as usize);
        let tokens: Vec<u32> = (0..rows).map(|_| self.any_token()).collect();
        let phase = if rows > 2 { Phase::Prefill } else { Phase::Decode };
        let (pass, session) = (PassId::new(self.pass), SessionId::new(self.pass % 3));
        let step = Step { pass, phase, session, position: self.pass, tokens: &tokens };
        self.each(|policy| policy.on_step(&step));
        let is_told = !self.dice.percent(scenario.mix.silent);
        for layer in 0..self.geometry.layers() {
            if self.dice.percent(70) {
                self.layer(scenario, &step, LayerIdx::new(layer as u16), is_told)?;
            }
        }
        Ok(())
    }

    /// A token id: mostly one of few, sometimes any at all.
    fn any_token(&mut self) -> u32 {
        if self.dice.percent(5) { u32::MAX } else { self.dice.below(50) as u32 }
    }

    pub(super) fn any_layer(&mut self) -> LayerIdx {
        LayerIdx::new(self.dice.below(self.geometry.layers()) as u16)
    }

    /// An expert; the first ones are the most popular.
    pub(super) fn any_expert(&mut self) -> ExpertIdx {
        let experts = self.geometry.experts();
        ExpertIdx::new(self.dice.below(experts).min(self.dice.below(experts)) as u16)
    }

    /// A layer is routed, and what it chose demanded: in waves where it does not fit, not at all
    /// where the pass reads outside the pool.
    fn layer(
        &mut self,
        scenario: &Scenario,
        step: &Step<'_>,
        layer: LayerIdx,
        is_told: bool,
    ) -> Result<(), Broken> {
        let ids = self.route(step.tokens.len());
        if is_told {
            self.tell(step, layer, &ids);
            if self.dice.percent(scenario.mix.sweep) {
                return Ok(());
            }
        }
        let mut wanted: Vec<ExpertIdx> = Vec::new();
        for id in &ids {
            if !wanted.contains(id) {
                wanted.push(*id);
            }
        }
        // A forecast is dropped before a demand lacks room.
        while self.reserved() > 0 && self.claimed() + wanted.len() > self.slots.len() {
            self.expire();
        }
        let capacity = self.slots.len() - self.claimed();
        if wanted.len() > capacity {
            wanted.sort_unstable();
        }
        for wave in wanted.chunks(capacity) {
            self.call(scenario, layer, wave)?;
        }
        Ok(())
    }

    /// Experts for `rows` rows.
    fn route(&mut self, rows: usize) -> Vec<ExpertIdx> {
        let top_k = self.geometry.top_k();
        let mut ids: Vec<ExpertIdx> = Vec::new();
        for row in 0..rows {
            while ids.len() < (row + 1) * top_k {
                let expert = self.any_expert();
                if !ids[row * top_k..].contains(&expert) {
                    ids.push(expert);
                }
            }
        }
        ids
    }

    /// Tells the route: bare, with weights, with logits, or with both. Logits may be any numbers,
    /// and none at all: a damaged checkpoint gives such.
    fn tell(&mut self, step: &Step<'_>, layer: LayerIdx, ids: &[ExpertIdx]) {
        let (top_k, experts) = (self.geometry.top_k(), self.geometry.experts());
        let weights = vec![1.0 / top_k as f32; ids.len()];
        let mut logits: Vec<f32> =
            (0..step.tokens.len() * experts).map(|_| self.dice.below(100) as f32 / -10.0).collect();
        for (at, expert) in ids.iter().enumerate() {
            logits[at / top_k * experts + expert.index()] = (top_k - at % top_k) as f32;
        }
        if self.dice.percent(10) {
            let at = self.dice.below(logits.len());
            logits[at] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][self.dice.below(3)];
        }
        let given: &[f32] = if self.dice.percent(50) { &weights } else { &[] };
        let mut routing = Routing::new(step, layer, top_k, ids, given);
        if self.dice.percent(50) {
            routing = routing.with_logits(&logits);
        }
        self.each(|policy| policy.on_routing(&routing));
    }
}
