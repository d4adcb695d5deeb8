//! A model with streaming experts, and goldens to compare it with.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use candle_core::Tensor;
use safetensors::SafeTensors;
use slotstream_candle::{HostOps, Ops};
use slotstream_checkpoint::Checkpoint;
use slotstream_core::{
    EventSink, ExpertKey, Extent, Forecaster, LayerIdx, NoForecast, PassId, Phase, ReadQueue,
    RecordReader, Routing, SessionId, Step, Tap,
};
use slotstream_experts::{RecordIndex, Speculation, StreamingExperts};
use slotstream_io::{LaneQueue, MemReader};
use slotstream_kernels::Kernels;
use slotstream_ngram::NgramStore;
use slotstream_qwen::{Logits, Observer, Pass, PassOutput, QwenModel, State};

pub(crate) fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(path)
}

pub(crate) fn random_model() -> PathBuf {
    fixture("random/checkpoint")
}

pub(crate) fn tiny_model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/models/tiny-moe")
}

/// A checkpoint as a record index.
#[derive(Debug)]
struct Index(Arc<Checkpoint>);

impl RecordIndex for Index {
    fn pieces(&self, key: ExpertKey) -> Option<[Extent; 9]> {
        self.0.expert_pieces(key)
    }
}

/// Everything that the router decided, `(layer, expert ids, weights)` in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder(Arc<Mutex<Vec<Routed>>>);

#[derive(Clone, Debug)]
pub(crate) struct Routed {
    pub(crate) layer: usize,
    pub(crate) ids: Vec<u32>,
    pub(crate) weights: Vec<f32>,
    pub(crate) logits: Vec<f32>,
}

impl EventSink for Recorder {
    fn on_step(&mut self, _step: &Step<'_>) {}
    fn on_routing(&mut self, routing: &Routing<'_>) {
        self.0.lock().expect("not poisoned").push(Routed {
            layer: routing.layer().index(),
            ids: routing.ids().iter().map(|id| u32::from(id.get())).collect(),
            weights: routing.weights().to_vec(),
            logits: routing.logits().expect("on the host they are always lent").to_vec(),
        });
    }
}

impl Recorder {
    /// What was recorded since the last call.
    pub(crate) fn take(&self) -> Vec<Routed> {
        std::mem::take(&mut self.0.lock().expect("not poisoned"))
    }
}

/// The n-gram layer, the tap of a probe, and what was added.
pub(crate) type Injection = (LayerIdx, Option<Tap>, Vec<f32>);

/// Streams after each layer and the indexers' choices.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub(crate) streams: Mutex<HashMap<usize, Vec<f32>>>,
    pub(crate) selections: Mutex<HashMap<usize, Option<Vec<u32>>>>,
    /// What the n-gram layer added, in the pass and for probes.
    pub(crate) injections: Mutex<Vec<Injection>>,
}

impl Observer for Watch {
    fn on_streams(&self, layer: LayerIdx, streams: &Tensor) {
        self.streams.lock().expect("not poisoned").insert(layer.index(), floats(streams));
    }
    fn on_injection(&self, layer: LayerIdx, at: Option<Tap>, added: &Tensor) {
        let added = (layer, at, floats(added));
        self.injections.lock().expect("not poisoned").push(added);
    }
    fn on_selection(&self, layer: LayerIdx, selection: Option<&Tensor>) {
        let ids =
            selection.map(|t| t.flatten_all().and_then(|t| t.to_vec1()).expect("on the host"));
        self.selections.lock().expect("not poisoned").insert(layer.index(), ids);
    }
}

pub(crate) fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().and_then(|t| t.to_vec1()).expect("f32 on the host")
}

/// A reader of the checkpoint's files.
pub(crate) fn files_in_memory(folder: &Path) -> Arc<dyn RecordReader> {
    let checkpoint = Checkpoint::open(folder).expect("a valid checkpoint");
    let reader = MemReader::from_files(checkpoint.files(), &mut |_| ControlFlow::Continue(()));
    Arc::new(reader.expect("small files"))
}

/// A model ready to run.
pub(crate) struct Rig {
    pub(crate) model: QwenModel,
    pub(crate) experts: StreamingExperts,
    pub(crate) ngram: Option<NgramStore>,
    pub(crate) recorder: Recorder,
    passes: u64,
}

impl Rig {
    /// The model in `folder`, all files in memory, with a pool of `share` of its records.
    pub(crate) fn new(folder: &Path, kernels: Arc<dyn Kernels>, share: f64) -> Self {
        Self::with_forecaster(folder, kernels, share, Box::new(NoForecast))
    }

    /// The forecaster is asked in every pass, and nothing is read ahead.
    pub(crate) fn with_forecaster(
        folder: &Path,
        kernels: Arc<dyn Kernels>,
        share: f64,
        forecaster: Box<dyn Forecaster>,
    ) -> Self {
        let reader = files_in_memory(folder);
        let queue = Arc::new(LaneQueue::new(Arc::clone(&reader), 2).expect("two lanes"));
        Self::build(folder, kernels, share, (forecaster, Speculation::off()), queue)
    }

    /// What the forecaster says is read ahead by `queue`.
    pub(crate) fn ahead(
        folder: &Path,
        kernels: Arc<dyn Kernels>,
        share: f64,
        forecaster: Box<dyn Forecaster>,
        queue: Arc<dyn ReadQueue>,
    ) -> Self {
        Self::build(folder, kernels, share, (forecaster, Speculation::always()), queue)
    }

    /// The same, with experts and n-gram rows read by `queue`.
    pub(crate) fn on_queue(
        folder: &Path,
        kernels: Arc<dyn Kernels>,
        share: f64,
        queue: Arc<dyn ReadQueue>,
    ) -> Self {
        let none = (Box::new(NoForecast) as _, Speculation::off());
        Self::build(folder, kernels, share, none, queue)
    }

    fn build(
        folder: &Path,
        kernels: Arc<dyn Kernels>,
        share: f64,
        ahead: (Box<dyn Forecaster>, Speculation),
        queue: Arc<dyn ReadQueue>,
    ) -> Self {
        Self::on_ops(folder, Arc::new(HostOps::new(kernels)), share, ahead, queue)
    }

    /// The same on any op set.
    pub(crate) fn on_ops(
        folder: &Path,
        ops: Arc<dyn Ops>,
        share: f64,
        (forecaster, speculation): (Box<dyn Forecaster>, Speculation),
        queue: Arc<dyn ReadQueue>,
    ) -> Self {
        let checkpoint = Arc::new(Checkpoint::open(folder).expect("a valid checkpoint"));
        let reader = files_in_memory(folder);
        let model = QwenModel::builder(&checkpoint, &*reader).load(ops.clone()).expect("loads");
        let geometry = checkpoint.geometry();
        let slots = ((geometry.records() as f64 * share) as usize).max(geometry.floor_slots());
        let recorder = Recorder::default();
        let layout = checkpoint.record_layout().clone();
        let experts = StreamingExperts::builder(geometry, layout, slots)
            .with_sink(Box::new(recorder.clone()))
            .with_forecaster(forecaster)
            .with_speculation(speculation)
            .build(Arc::new(Index(Arc::clone(&checkpoint))), Arc::clone(&queue), ops)
            .expect("builds");
        let ngram =
            checkpoint.ngram().map(|plan| NgramStore::new(plan, 64, queue).expect("builds"));
        Self { model, experts, ngram, recorder, passes: 0 }
    }

    pub(crate) fn state(&self) -> State {
        self.model.new_state(4096, 0).expect("small")
    }

    pub(crate) fn run(
        &mut self,
        state: &mut State,
        tokens: &[u32],
        logits: Logits,
        watch: Option<&Watch>,
    ) -> PassOutput {
        self.passes += 1;
        let phase = if tokens.len() == 1 { Phase::Decode } else { Phase::Prefill };
        let (pass, session, position) =
            (PassId::new(self.passes), SessionId::new(1), state.position());
        let step = Step { pass, phase, session, position, tokens };
        let mut pass = Pass::new(step).with_logits(logits);
        if let Some(watch) = watch {
            pass = pass.with_observer(watch);
        }
        self.model
            .forward(state, &pass, &mut self.experts, self.ngram.as_mut())
            .expect("the pass runs")
    }

    /// Logits of every token, run in chunks of the given size.
    pub(crate) fn all_logits(&mut self, tokens: &[u32], chunk: usize) -> Vec<f32> {
        let mut state = self.state();
        let run =
            |chunk| floats(&self.run(&mut state, chunk, Logits::All, None).logits.expect("all"));
        tokens.chunks(chunk).flat_map(run).collect()
    }

    /// `count` greedy tokens after `prompt`.
    pub(crate) fn greedy(&mut self, prompt: &[u32], chunk: usize, count: usize) -> Vec<u32> {
        let mut state = self.state();
        let mut last = Vec::new();
        for chunk in prompt.chunks(chunk) {
            last = floats(&self.run(&mut state, chunk, Logits::Last, None).logits.expect("last"));
        }
        let mut out = if count == 0 { Vec::new() } else { vec![argmax(&last)] };
        while out.len() < count {
            let next = [*out.last().expect("one at least")];
            last = floats(&self.run(&mut state, &next, Logits::Last, None).logits.expect("last"));
            out.push(argmax(&last));
        }
        out
    }
}

pub(crate) fn argmax(logits: &[f32]) -> u32 {
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
    best.expect("a vocabulary").0 as u32
}

/// Tensors of a golden file.
pub(crate) struct Goldens(Vec<u8>);

impl Goldens {
    pub(crate) fn open(path: &str) -> Self {
        Self(std::fs::read(fixture(path)).expect("a fixture"))
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        let file = SafeTensors::deserialize(&self.0).expect("safetensors");
        let view = file.tensor(name).unwrap_or_else(|_| panic!("no golden {name}"));
        view.data().to_vec()
    }

    pub(crate) fn f32s(&self, name: &str) -> Vec<f32> {
        let word = |b: &[u8]| f32::from_le_bytes(b.try_into().expect("4 bytes"));
        self.bytes(name).chunks_exact(4).map(word).collect()
    }

    pub(crate) fn i32s(&self, name: &str) -> Vec<i32> {
        let word = |b: &[u8]| i32::from_le_bytes(b.try_into().expect("4 bytes"));
        self.bytes(name).chunks_exact(4).map(word).collect()
    }

    pub(crate) fn u8s(&self, name: &str) -> Vec<u8> {
        self.bytes(name)
    }

    pub(crate) fn ids(&self, name: &str) -> Vec<u32> {
        self.i32s(name).iter().map(|id| u32::try_from(*id).expect("an id")).collect()
    }
}

/// Asserts `max |a - b| <= tolerance * rms(b)`; NaN on either side fails.
pub(crate) fn assert_close(what: &str, found: &[f32], golden: &[f32], tolerance: f32) -> f32 {
    assert_eq!(found.len(), golden.len(), "{what}: lengths");
    let square: f64 = golden.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
    let rms = (square / golden.len() as f64).sqrt() as f32;
    let mut worst = 0.0_f32;
    for (i, (a, b)) in found.iter().zip(golden).enumerate() {
        let difference = (a - b).abs();
        assert!(difference <= tolerance * rms, "{what}[{i}]: {a} against {b} (rms {rms})");
        worst = worst.max(difference / rms);
    }
    worst
}
