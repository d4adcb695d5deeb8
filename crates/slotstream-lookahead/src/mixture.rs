//! Several forecasters, each trusted as far as it has been right.

use slotstream_core::{
    Deadline, ExpertIdx, Forecaster, Geometry, LayerIdx, PassId, Prediction, Probe, ProbeResults,
    Routing, SessionId, Step, Tap,
};

use crate::options::{MIXTURE_KEYS, spelled};
use crate::sessions::{Sessions, likeliest};
use crate::{AttentionTap, Boundary, ForecastOptions, Turn};

/// How slowly the past fades: the weight of all before one more pass.
const FADE: f32 = 0.98;

/// Where a member counts as surer: what it says with confidences between two of these is judged
/// together. Probes are never below one half, and half of what they name lies below 0.6.
const SURER: [f32; 10] = [0.2, 0.35, 0.505, 0.512, 0.525, 0.537, 0.562, 0.6, 0.65, 0.73];

/// Of what is said before its layer has begun, so much of the trust counts against the threshold:
/// the layer's own forecast comes later and knows better, and is early enough for most reads.
const EARLY: f32 = 0.85;

/// Asks several forecasters and passes on what those say that have been right about the layer in
/// this session when they were about as sure: an expert is as likely as the most trusted one that
/// names it is usually right.
///
/// Trust begins with the confidence that a member has itself. What is said before anybody has told
/// whose pass it is, is never judged.
#[derive(Debug)]
pub struct Mixture {
    geometry: Geometry,
    options: ForecastOptions,
    members: Vec<Box<dyn Forecaster>>,
    turn: Turn,
    sessions: Sessions<Judged>,
    /// Scratch: what a member says, and how likely each expert of a layer is.
    said: Vec<Prediction>,
    likely: Vec<(Deadline, ExpertIdx, f32)>,
    scored: Vec<(ExpertIdx, f32)>,
}

/// What one session's routes have made of the members.
#[derive(Clone, Debug)]
struct Judged {
    pass: PassId,
    /// By layer; of each member as many as there are classes of sureness.
    trust: Vec<Vec<Trust>>,
    /// What was said and has not been judged.
    said: Vec<Said>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Trust {
    named: f32,
    right: f32,
}

#[derive(Clone, Debug)]
struct Said {
    /// Member and sureness.
    class: usize,
    layer: LayerIdx,
    /// `None`: the session's next pass.
    pass: Option<PassId>,
    experts: Vec<ExpertIdx>,
}

impl Trust {
    /// The share that was right; of what was hardly ever said, as sure as it was said.
    fn share(self, confidence: f32) -> f32 {
        (self.right + 2.0 * confidence) / (self.named + 2.0)
    }
}

/// Classes of a member.
const CLASSES: usize = SURER.len() + 1;

fn class(member: usize, confidence: f32) -> usize {
    CLASSES * member + SURER.iter().filter(|edge| **edge <= confidence).count()
}

impl Mixture {
    pub(crate) const NAME: &'static str = "mixture";

    /// Of `attention-tap` and `boundary-1`. What learns from routes alone adds nothing to them that
    /// is worth its time.
    #[must_use]
    pub fn new(geometry: &Geometry, options: ForecastOptions) -> Self {
        let probe = ForecastOptions { top: options.top, ..ForecastOptions::probe() };
        let probe = probe.with_ple(options.ple);
        let members: Vec<Box<dyn Forecaster>> = vec![
            Box::new(Boundary::new(geometry, 1, probe)),
            Box::new(AttentionTap::new(geometry, probe)),
        ];
        Self::of(geometry, members, options)
    }

    /// Of these.
    #[must_use]
    pub fn of(
        geometry: &Geometry,
        members: Vec<Box<dyn Forecaster>>,
        options: ForecastOptions,
    ) -> Self {
        Self {
            geometry: *geometry,
            options,
            members,
            turn: Turn::default(),
            sessions: Sessions::default(),
            said: Vec::new(),
            likely: Vec::new(),
            scored: Vec::new(),
        }
    }

    /// Notes what a member says: how likely it makes each expert, and what is to be judged.
    fn note(&mut self, member: usize, at: Tap) {
        let session = self.turn.session();
        let judged = session.and_then(|session| self.sessions.get_mut(session));
        let (trust, mut said) = match judged {
            Some(judged) => (Some(&judged.trust), Some(&mut judged.said)),
            None => (None, None),
        };
        for Prediction { key, needed_by, confidence } in &self.said {
            let class = class(member, *confidence);
            let trust = trust.and_then(|trust| trust.get(key.layer().index()));
            let share = trust.map_or(Trust::default(), |of| of[class]).share(*confidence);
            let counts = if key.layer() == at.layer() { share } else { EARLY * share };
            let same = |(due, expert, _): &&mut (Deadline, ExpertIdx, f32)| {
                due == needed_by && *expert == key.expert()
            };
            match self.likely.iter_mut().find(same) {
                Some((_, _, best)) => *best = best.max(share),
                None if counts < self.options.threshold => {}
                None => self.likely.push((*needed_by, key.expert(), share)),
            }
            let Some(said) = &mut said else { continue };
            let pass = self.turn.pass().filter(|_| needed_by.passes_ahead == 0);
            let open = |s: &&mut Said| s.class == class && s.layer == key.layer() && s.pass == pass;
            match said.iter_mut().find(open) {
                Some(said) if said.experts.contains(&key.expert()) => {}
                Some(said) => said.experts.push(key.expert()),
                None => {
                    let (layer, experts) = (key.layer(), vec![key.expert()]);
                    said.push(Said { class, layer, pass, experts });
                }
            }
        }
    }
}

impl Forecaster for Mixture {
    fn on_step(&mut self, step: &Step<'_>) {
        self.turn.step(step);
        self.members.iter_mut().for_each(|member| member.on_step(step));
    }

    fn probes(&mut self, at: Tap, want: &mut Vec<Probe>) {
        self.turn.probes(at);
        let first = want.len();
        for member in &mut self.members {
            let own = want.len();
            member.probes(at, want);
            // Each once.
            let mut new = own;
            while new < want.len() {
                if want[first..new].contains(&want[new]) {
                    want.remove(new);
                } else {
                    new += 1;
                }
            }
        }
    }

    fn predict(&mut self, at: Tap, results: &ProbeResults<'_>, out: &mut Vec<Prediction>) {
        self.likely.clear();
        for member in 0..self.members.len() {
            self.said.clear();
            self.members[member].predict(at, results, &mut self.said);
            self.note(member, at);
        }
        self.likely.sort_unstable_by_key(|(due, expert, _)| (*due, *expert));
        let most = self.geometry.top_k() * results.rows.max(1);
        for of_layer in self.likely.chunk_by(|a, b| a.0 == b.0) {
            let needed_by = of_layer[0].0;
            self.scored.clear();
            self.scored.extend(of_layer.iter().map(|(_, expert, share)| (*expert, *share)));
            likeliest(&mut self.scored, needed_by, most, &self.options, out);
        }
    }

    fn observe(&mut self, routing: &Routing<'_>) {
        self.turn.observe(routing);
        let (layers, members) = (self.geometry.layers(), self.members.len());
        let judged = self.sessions.of(routing.session(), || Judged {
            pass: routing.pass(),
            trust: vec![vec![Trust::default(); CLASSES * members]; layers],
            said: Vec::new(),
        });
        judged.observe(routing);
        self.members.iter_mut().for_each(|member| member.observe(routing));
    }

    fn reset(&mut self, session: SessionId) {
        self.sessions.forget(session);
        self.members.iter_mut().for_each(|member| member.reset(session));
    }

    fn planned_bytes(&self, geometry: &Geometry) -> u64 {
        self.members.iter().map(|member| member.planned_bytes(geometry)).sum()
    }

    fn name(&self) -> String {
        spelled(Self::NAME, MIXTURE_KEYS, &ForecastOptions::learnt(), &self.options)
    }
}

impl Judged {
    fn observe(&mut self, routing: &Routing<'_>) {
        let pass = routing.pass();
        if self.pass != pass {
            self.pass = pass;
            self.said.retain(|said| said.pass.is_none_or(|due| due == pass));
            self.said.iter_mut().for_each(|said| said.pass = Some(pass));
        }
        let Some(trust) = self.trust.get_mut(routing.layer().index()) else { return };
        self.said.retain(|said| {
            if said.layer != routing.layer() || said.pass != Some(pass) {
                return true;
            }
            let trust = &mut trust[said.class];
            let right = said.experts.iter().filter(|e| routing.ids().contains(e)).count();
            trust.named = FADE * trust.named + said.experts.len() as f32;
            trust.right = FADE * trust.right + right as f32;
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use slotstream_core::{ExpertKey, Phase, Step};

    use super::*;

    /// Always names one expert of the next layer.
    #[derive(Debug)]
    struct Stubborn(u16);

    impl Forecaster for Stubborn {
        fn probes(&mut self, _at: Tap, _want: &mut Vec<Probe>) {}
        fn predict(&mut self, at: Tap, _results: &ProbeResults<'_>, out: &mut Vec<Prediction>) {
            if at == Tap::AfterAttention(LayerIdx::new(0)) {
                let layer = LayerIdx::new(1);
                let key = ExpertKey::new(layer, ExpertIdx::new(self.0));
                let needed_by = Deadline { passes_ahead: 0, layer };
                out.push(Prediction { key, confidence: 1.0, needed_by });
            }
        }
        fn observe(&mut self, _routing: &Routing<'_>) {}
    }

    #[test]
    fn who_is_right_is_trusted_and_who_is_wrong_is_not_heard() {
        let geometry = Geometry::new(2, 8, 2).expect("legal");
        let members: Vec<Box<dyn Forecaster>> = vec![Box::new(Stubborn(3)), Box::new(Stubborn(5))];
        let mut mixture = Mixture::of(&geometry, members, ForecastOptions::learnt());
        let none = ProbeResults { rows: 1, results: &[] };
        let mut run = |number: u64, session: u64, used: u16| {
            let (pass, session) = (PassId::new(number), SessionId::new(session));
            let (phase, position) = (Phase::Decode, number);
            let step = Step { pass, phase, session, position, tokens: &[0] };
            let (mut want, mut out) = (Vec::new(), Vec::new());
            for layer in 0..2 {
                let layer = LayerIdx::new(layer);
                mixture.probes(Tap::BeforeLayer(layer), &mut want);
                mixture.predict(Tap::BeforeLayer(layer), &none, &mut out);
                mixture.probes(Tap::AfterAttention(layer), &mut want);
                mixture.observe(&Routing::new(&step, layer, 1, &[ExpertIdx::new(used)], &[]));
                mixture.predict(Tap::AfterAttention(layer), &none, &mut out);
            }
            out.iter().map(|p| (p.key.expert().get(), p.confidence)).collect::<Vec<_>>()
        };
        assert_eq!(run(1, 1, 3), [(3, 1.0), (5, 1.0)], "nobody is known");
        for number in 2..40 {
            run(number, 1, 3);
        }
        let said = run(40, 1, 3);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].0 == 3 && said[0].1 > 0.9, "{said:?}");
        assert_eq!(run(41, 2, 3).len(), 2, "another session begins anew");
        // The layer turns to the other one.
        for number in 42..200 {
            run(number, 1, 5);
        }
        assert_eq!(run(200, 1, 5)[0].0, 5);
    }
}
