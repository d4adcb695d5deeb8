//! A forecaster that only looks: what a correction is trained from.

use std::sync::{Arc, Mutex, PoisonError};

use slotstream_core::{
    Forecaster, Geometry, LayerIdx, Prediction, Probe, ProbeResults, Routing, SessionId, Tap,
};

use crate::attention_tap::next_probe;
use crate::{BoxedSource, Turn};

/// One row at one target layer: what the probe saw and said, and what the router said in the end.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sample<'a> {
    /// Whose pass it was; a trainer gives each document a session of its own.
    pub session: SessionId,
    /// The layer that was asked about.
    pub target: LayerIdx,
    /// The mixed router input at the tap, `[hidden]`.
    pub mixed: &'a [f32],
    /// The router's logits on it, `[experts]`.
    pub tap: &'a [f32],
    /// The logits of the layer's own routing, `[experts]`.
    pub truth: &'a [f32],
}

impl<'a> Sample<'a> {
    /// Of these.
    #[must_use]
    pub const fn new(
        session: SessionId,
        target: LayerIdx,
        mixed: &'a [f32],
        tap: &'a [f32],
        truth: &'a [f32],
    ) -> Self {
        Self { session, target, mixed, tap, truth }
    }
}

/// Takes samples. It decides how many it keeps.
pub trait SampleSink: Send {
    /// One more.
    fn push(&mut self, sample: &Sample<'_>);
}

/// Gives back what a sink took.
pub trait SampleSource {
    /// Calls `visit` with every sample of a target layer, in the order in which they came, each
    /// time the same.
    ///
    /// # Errors
    /// Where they cannot be read.
    fn samples(
        &self,
        target: LayerIdx,
        visit: &mut dyn FnMut(&Sample<'_>),
    ) -> Result<(), BoxedSource>;
}

/// Hands every row that [`AttentionTap`](crate::AttentionTap) would ask about to a sink, with what
/// the router then said. Routing that comes without logits gives no samples; it predicts nothing.
#[derive(Clone)]
pub struct Recorder<S> {
    layers: usize,
    turn: Turn,
    /// What waits for the truth: of the layer after the tap. Its buffers are used again.
    open: Option<LayerIdx>,
    rows: usize,
    mixed: Vec<f32>,
    tap: Vec<f32>,
    sink: Arc<Mutex<S>>,
}

impl<S> std::fmt::Debug for Recorder<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("open", &self.open).finish_non_exhaustive()
    }
}

impl<S: SampleSink> Recorder<S> {
    /// For a model of this shape. The caller keeps a handle of the sink.
    #[must_use]
    pub fn new(geometry: &Geometry, sink: Arc<Mutex<S>>) -> Self {
        Self {
            layers: geometry.layers(),
            turn: Turn::default(),
            open: None,
            rows: 0,
            mixed: Vec::new(),
            tap: Vec::new(),
            sink,
        }
    }
}

impl<S: SampleSink> Forecaster for Recorder<S> {
    fn probes(&mut self, at: Tap, want: &mut Vec<Probe>) {
        if self.turn.probes(at) {
            self.open = None;
        }
        want.extend(next_probe(at, self.layers, true, true));
    }

    fn predict(&mut self, at: Tap, results: &ProbeResults<'_>, _out: &mut Vec<Prediction>) {
        let Some(asked) = next_probe(at, self.layers, true, true) else { return };
        self.open = None;
        let Some(result) = results.results.iter().find(|result| result.probe == asked) else {
            return;
        };
        let Some(mixed) = result.mixed else { return };
        self.mixed.clear();
        self.mixed.extend_from_slice(mixed);
        self.tap.clear();
        self.tap.extend_from_slice(result.logits);
        self.rows = results.rows;
        self.open = Some(asked.target);
    }

    fn observe(&mut self, routing: &Routing<'_>) {
        self.turn.observe(routing);
        if self.open != Some(routing.layer()) {
            return;
        }
        self.open = None;
        let Some(truth) = routing.logits() else { return };
        let rows = routing.rows();
        let whole = |values: &[f32]| !values.is_empty() && values.len().is_multiple_of(rows);
        if rows == 0 || rows != self.rows || self.tap.len() != truth.len() || !whole(truth) {
            return;
        }
        if !whole(&self.mixed) {
            return;
        }
        let (experts, wide) = (truth.len() / rows, self.mixed.len() / rows);
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        let inputs = self.mixed.chunks_exact(wide).zip(self.tap.chunks_exact(experts));
        for ((mixed, tap), truth) in inputs.zip(truth.chunks_exact(experts)) {
            let target = routing.layer();
            sink.push(&Sample { session: routing.session(), target, mixed, tap, truth });
        }
    }

    fn name(&self) -> String {
        "recorder".into()
    }
}

/// Samples in memory: at most so many rows a target layer, the first ones.
#[derive(Clone, Debug)]
pub struct MemorySamples {
    most: usize,
    /// By layer.
    targets: Vec<Vec<Row>>,
}

#[derive(Clone, Debug)]
struct Row {
    session: SessionId,
    mixed: Box<[f32]>,
    tap: Box<[f32]>,
    truth: Box<[f32]>,
}

impl MemorySamples {
    /// Keeps `most` rows of each target layer.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self { most, targets: Vec::new() }
    }

    /// Rows kept for a target layer.
    #[must_use]
    pub fn rows(&self, target: LayerIdx) -> usize {
        self.targets.get(target.index()).map_or(0, Vec::len)
    }
}

impl SampleSink for MemorySamples {
    fn push(&mut self, sample: &Sample<'_>) {
        let at = sample.target.index();
        if self.targets.len() <= at {
            self.targets.resize(at + 1, Vec::new());
        }
        let rows = &mut self.targets[at];
        if rows.len() < self.most {
            rows.push(Row {
                session: sample.session,
                mixed: sample.mixed.into(),
                tap: sample.tap.into(),
                truth: sample.truth.into(),
            });
        }
    }
}

impl SampleSource for MemorySamples {
    fn samples(
        &self,
        target: LayerIdx,
        visit: &mut dyn FnMut(&Sample<'_>),
    ) -> Result<(), BoxedSource> {
        for row in self.targets.get(target.index()).into_iter().flatten() {
            let Row { session, mixed, tap, truth } = row;
            visit(&Sample { session: *session, target, mixed, tap, truth });
        }
        Ok(())
    }
}
