//! The contract of a forecaster: guesses which records later layers will want.

use std::fmt;

use crate::{Geometry, LayerIdx, Prediction, Routing, SessionId, Step};

/// A place in the graph where the residual streams can be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Tap {
    /// Before anything of the layer is computed, its n-gram injection included.
    BeforeLayer(LayerIdx),
    /// After the layer's attention (or delta net) was added, before its experts.
    AfterAttention(LayerIdx),
}

impl Tap {
    /// The layer at which the tap sits.
    #[must_use]
    pub const fn layer(self) -> LayerIdx {
        match self {
            Self::BeforeLayer(layer) | Self::AfterAttention(layer) => layer,
        }
    }
}

/// Asks for the router of `target` on the streams at a tap: the target layer's own MLP
/// hyper-connection mix and router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "made by forecasters outside this workspace")]
pub struct Probe {
    /// The layer whose router is asked: the tap's own or a later one of the model. What lies
    /// outside of that has no answer.
    pub target: LayerIdx,
    /// First add, on a copy, the output of each n-gram (PLE) layer between tap and target.
    pub with_ple: bool,
    /// Also return the mixed router input, `[rows, hidden]`.
    pub keep_mixed: bool,
}

/// What one probe gave.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "made by graphs outside this workspace")]
pub struct ProbeResult<'a> {
    /// The probe.
    pub probe: Probe,
    /// Router logits, `[rows, experts]`.
    pub logits: &'a [f32],
    /// The mixed router input, `[rows, hidden]`, when the probe asked for it.
    pub mixed: Option<&'a [f32]>,
}

/// What the probes of one tap gave, in the order in which they were asked. A graph may leave
/// some or all out.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "made by graphs outside this workspace")]
pub struct ProbeResults<'a> {
    /// Rows of the pass.
    pub rows: usize,
    /// One entry an answered probe.
    pub results: &'a [ProbeResult<'a>],
}

/// Guesses which records later layers will want, so that reads can start early. It cannot fail
/// and cannot change the output.
///
/// Two phases, so that a guess never costs a device wait of its own: [`probes`](Self::probes)
/// runs before the layer is encoded, the results come back with the layer's one routing
/// readback, and [`predict`](Self::predict) runs after the layer's demand reads were queued.
///
/// # Order of calls
/// [`on_step`](Self::on_step) opens a pass, which goes through the layers in ascending order. Per
/// layer:
/// [`probes`](Self::probes) at [`Tap::BeforeLayer`], then at [`Tap::AfterAttention`];
/// [`observe`](Self::observe) when the router has decided; `predict` at `AfterAttention`. The
/// `predict` of `BeforeLayer` follows its `probes` at once on the host; where a readback costs a
/// wait it follows `observe`. A pass may end anywhere, after a failure or when it is cancelled,
/// and a session that went back runs the same positions again. Passes of sessions interleave. A
/// graph without taps only observes.
///
/// A provider that does not call `on_step` is lawful: `BeforeLayer` of a layer that is not later
/// than that of the tap before then begins a pass, and whose it is becomes known with its first
/// `observe`. A provider calls it in every pass or in none.
///
/// # Law
/// What it says depends on nothing but what it was made with and the calls of the same session
/// since the session began or was [reset](Self::reset); as long as nothing has said whose pass it
/// is, on the results of its probes alone. It returns on any numbers in results and routing (logits
/// may be NaN or infinite, weights zero or absent), and it does not panic.
pub trait Forecaster: Send + fmt::Debug {
    /// A pass begins: whose it is, and its tokens. So what is remembered of a session can be used
    /// before the first layer.
    fn on_step(&mut self, step: &Step<'_>) {
        let _ = step;
    }

    /// Adds to `want` the probes to compute at this tap, each once. What `want` holds already
    /// stays.
    fn probes(&mut self, at: Tap, want: &mut Vec<Probe>);

    /// Adds to `out` what it expects, given the results of its probes at this tap (none when it
    /// asked for none). What `out` holds already stays. Each record comes at most once, with its
    /// earliest deadline, and none is needed by a layer whose demand is behind the tap: at
    /// [`Tap::AfterAttention`] that is the layer itself, too.
    fn predict(&mut self, at: Tap, results: &ProbeResults<'_>, out: &mut Vec<Prediction>);

    /// The truth, lent for the call.
    fn observe(&mut self, routing: &Routing<'_>);

    /// Forgets what belongs to one session, which has ended or gone back to an earlier position:
    /// it will be as one that never ran. Others are not touched. The session may be unknown.
    /// Comes between two passes.
    fn reset(&mut self, session: SessionId) {
        let _ = session;
    }

    /// Bytes that the forecaster holds for a session of a model of this geometry, for a memory
    /// plan: an upper bound, 0 where it is a few bytes a record.
    fn planned_bytes(&self, geometry: &Geometry) -> u64 {
        let _ = geometry;
        0
    }

    /// The name under which figures are reported: not empty, no white space.
    fn name(&self) -> String {
        std::any::type_name::<Self>().rsplit("::").next().unwrap_or("forecaster").to_lowercase()
    }
}

/// The forecaster that expects nothing.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "there is nothing in it")]
pub struct NoForecast;

impl Forecaster for NoForecast {
    fn probes(&mut self, _at: Tap, _want: &mut Vec<Probe>) {}
    fn predict(&mut self, _at: Tap, _results: &ProbeResults<'_>, _out: &mut Vec<Prediction>) {}
    fn observe(&mut self, _routing: &Routing<'_>) {}
    fn name(&self) -> String {
        "none".into()
    }
}
