//! Each module alone against what transformers computed for the random-weight checkpoint.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use candle_core::{Device, Tensor};
use safetensors::SafeTensors;
use slotstream_candle::{ExpertProvider, HostOps};
use slotstream_checkpoint::Checkpoint;
use slotstream_core::{
    ExpertIdx, ExpertKey, Extent, LayerIdx, PassId, Phase, Routing, SessionId, Step,
};
use slotstream_experts::{RecordIndex, StreamingExperts};
use slotstream_io::{LaneQueue, MemReader};
use slotstream_kernels::{Cpu, Kernels, Reference};

use crate::QwenModel;
use crate::attention::AttentionState;
use crate::model::Block;
use crate::state::{LayerState, State};

struct Pieces(Vec<u8>);

impl Pieces {
    fn tensor(&self, name: &str) -> Tensor {
        let file = SafeTensors::deserialize(&self.0).expect("safetensors");
        let view = file.tensor(name).unwrap_or_else(|_| panic!("no piece {name}"));
        let word = |b: &[u8]| f32::from_le_bytes(b.try_into().expect("4 bytes"));
        let values: Vec<f32> = view.data().chunks_exact(4).map(word).collect();
        Tensor::from_vec(values, view.shape(), &Device::Cpu).expect("fits")
    }

    fn ids(&self, name: &str) -> Vec<u32> {
        let file = SafeTensors::deserialize(&self.0).expect("safetensors");
        let view = file.tensor(name).unwrap_or_else(|_| panic!("no piece {name}"));
        let word = |b: &[u8]| u32::from_le_bytes(b.try_into().expect("4 bytes"));
        view.data().chunks_exact(4).map(word).collect()
    }
}

fn fixture(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/random").join(path)
}

fn models() -> Vec<QwenModel> {
    let checkpoint = Checkpoint::open(&fixture("checkpoint")).expect("valid");
    let reader = MemReader::from_files(checkpoint.files(), &mut |_| ControlFlow::Continue(()))
        .expect("small");
    let sets: [Arc<dyn Kernels>; 2] = [Arc::new(Reference), Arc::new(Cpu::new(1).expect("one"))];
    let load = |kernels| {
        QwenModel::builder(&checkpoint, &reader)
            .load(Arc::new(HostOps::new(kernels)))
            .expect("loads")
    };
    sets.map(load).into()
}

fn pieces() -> Pieces {
    Pieces(std::fs::read(fixture("pieces.safetensors")).expect("a fixture"))
}

/// Asserts `max |a - b| <= 1e-5`: the modules' outputs are of order one.
fn assert_close(what: &str, found: &Tensor, golden: &Tensor) {
    let flat = |t: &Tensor| t.flatten_all().and_then(|t| t.to_vec1::<f32>()).expect("f32");
    let (found, golden) = (flat(found), flat(golden));
    assert_eq!(found.len(), golden.len(), "{what}");
    for (i, (a, b)) in found.iter().zip(&golden).enumerate() {
        assert!((a - b).abs() <= 1e-5, "{what}[{i}]: {a} against {b}");
    }
}

fn rows(t: Tensor) -> Tensor {
    let width = t.dims().last().copied().expect("a row");
    t.reshape(((), width)).expect("rows")
}

#[test]
fn mixers_match() {
    let pieces = pieces();
    for model in models() {
        let h = rows(pieces.tensor("hc.layer0_attn.in"));
        let (mixed, inject) = model.ops.hc_mix(&h, &model.layers[0].attn_mixer).expect("runs");
        assert_close("mixed", &mixed, &pieces.tensor("hc.layer0_attn.mixed"));
        assert_close("inject", &inject.expect("gates"), &pieces.tensor("hc.layer0_attn.inject"));
        let (out, none) =
            model.ops.hc_mix(&rows(pieces.tensor("mixer.in")), &model.mixer).expect("runs");
        assert_close("mixer", &out, &pieces.tensor("mixer.out"));
        assert!(none.is_none());
    }
}

#[test]
fn delta_net_matches() {
    let pieces = pieces();
    for model in models() {
        let mut state = model.new_state(64, 0).expect("small");
        let (Block::Delta(net), LayerState::Delta { conv, recurrent, .. }) =
            (&model.layers[0].block, &mut state.layers[0])
        else {
            panic!("layer 0 is a delta net")
        };
        let x = rows(pieces.tensor("gdn.layer0.in"));
        let y = net.forward(&*model.ops, &x, conv, recurrent, None).expect("runs");
        assert_close("gdn", &y, &pieces.tensor("gdn.layer0.out"));
    }
}

#[test]
fn ple_matches() {
    let pieces = pieces();
    for model in models() {
        let state: State = model.new_state(64, 0).expect("small");
        let window = state.ple.as_ref().expect("an n-gram layer");
        let (_, ple) = model.ple.as_ref().expect("an n-gram layer");
        let h = rows(pieces.tensor("ple.layer1.stream_in"));
        let embedding = rows(pieces.tensor("ple.layer1.embedding"));
        let (out, _) = ple.output(&*model.ops, &h, &embedding, window).expect("runs");
        assert_close("ple", &out, &pieces.tensor("ple.layer1.out"));
    }
}

#[test]
fn attention_matches_with_selection() {
    let pieces = pieces();
    for model in models() {
        let mut state = model.new_state(256, 0).expect("small");
        let (Block::Attention(net), LayerState::Attention { keys, values, blocks, raw }) =
            (&model.layers[3].block, &mut state.layers[3])
        else {
            panic!("layer 3 is indexed attention")
        };
        let x = rows(pieces.tensor("attn.layer3.in"));
        let state = AttentionState { keys, values, blocks, raw };
        let (y, selection) = net.forward(&*model.ops, &x, state, 0).expect("runs");
        assert_close("attention", &y, &pieces.tensor("attn.layer3.out"));
        assert!(selection.is_some(), "200 tokens exceed the budget");
    }
}

#[derive(Debug)]
struct Index(Checkpoint);

impl RecordIndex for Index {
    fn pieces(&self, key: ExpertKey) -> Option<[Extent; 9]> {
        self.0.expert_pieces(key)
    }
}

#[test]
fn experts_match() {
    let pieces = pieces();
    let checkpoint = Checkpoint::open(&fixture("checkpoint")).expect("valid");
    let reader = MemReader::from_files(checkpoint.files(), &mut |_| ControlFlow::Continue(()))
        .expect("small");
    let queue = Arc::new(LaneQueue::new(Arc::new(reader), 2).expect("two lanes"));
    for model in models() {
        let geometry = checkpoint.geometry();
        let layout = checkpoint.record_layout().clone();
        let mut experts = StreamingExperts::builder(geometry, layout, geometry.floor_slots())
            .build(Arc::new(Index(checkpoint.clone())), queue.clone(), Arc::clone(&model.ops))
            .expect("builds");
        let (ops, layer) = (&model.ops, &model.layers[0]);
        let x = rows(pieces.tensor("moe.layer0.in"));
        let logits = ops.bf16_matmul(&x, &layer.router).expect("runs");
        let (ids, weights) = ops.route(&logits, geometry.top_k()).expect("runs");
        let (ids, floats) = ops.read_back(&ids, &[&weights]).expect("reads");
        assert_eq!(ids, pieces.ids("moe.layer0.ids"));
        assert_close("weights", &weights, &pieces.tensor("moe.layer0.weights"));
        let ids: Vec<_> = ids.iter().map(|id| ExpertIdx::new(*id as u16)).collect();
        let step = Step {
            pass: PassId::new(1),
            phase: Phase::Prefill,
            session: SessionId::new(1),
            position: 0,
            tokens: &[0; 17],
        };
        let routing = Routing::new(&step, LayerIdx::new(0), geometry.top_k(), &ids, &floats[0]);
        experts.begin_pass(&step).expect("begins");
        experts.demand(&routing).expect("queues");
        let routed = experts.compute(&x, &weights).expect("computes");
        experts.end_pass();
        assert_close("routed sum", &routed, &pieces.tensor("moe.layer0.routed_sum"));
        let shared = ops.shared_expert(&x, &layer.shared, &layer.shared_gate).expect("runs");
        let out = (routed + shared).expect("same shape");
        assert_close("moe", &out, &pieces.tensor("moe.layer0.out"));
    }
}
