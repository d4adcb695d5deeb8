//! The provider alone: a made-up model of two layers over files in memory.

mod ahead;
mod cancel;
mod overlap;
mod sweep;

use std::sync::Arc;

use candle_core::{Device, Tensor};
use slotstream_cache::Clock;
use slotstream_candle::{Error, ExpertProvider, HostOps};
use slotstream_core::{
    AffineFormat, ErrorKind, EventSink, ExpertIdx, ExpertKey, ExpertShape, Extent, FileId,
    Geometry, LayerIdx, PIECE_ORDER, PassId, Phase, ReadQueue, RecordLayout, RecordReader, Routing,
    SessionId, Step,
};
use slotstream_experts::{ExpertsError, RecordIndex, StreamingExperts};
use slotstream_io::{LaneQueue, MemReader};
use slotstream_kernels::{AffineMatrix, Kernels, MlpWeights, Reference};
use slotstream_replay::{ExactReplay, PoolEnd, Shared, TraceHeader};
use slotstream_testkit::reader::{FaultyReader, Schedule};

const HIDDEN: usize = 64;
const EXPERTS: usize = 8;
const TOP_K: usize = 3;

fn geometry() -> Geometry {
    Geometry::new(2, EXPERTS as u16, TOP_K as u16).expect("legal")
}

fn layout() -> RecordLayout {
    RecordLayout::new(ExpertShape::new(HIDDEN, HIDDEN, AffineFormat::Q4_G64).expect("legal"))
}

/// One file: records one after another, pieces without padding.
#[derive(Clone, Debug)]
struct File {
    bytes: Vec<u8>,
    wrong_length: Option<ExpertKey>,
}

impl File {
    fn new() -> Self {
        let layout = layout();
        let mut bytes = Vec::new();
        for record in 0..geometry().records() {
            for piece in layout.pieces() {
                let bf16 = piece.len == 2 * HIDDEN;
                bytes.extend((0..piece.len).map(|i| {
                    let noise = (record * 31 + i * 17) as u8;
                    // Scales and biases are small bf16 numbers, words are anything.
                    match (bf16, i % 2) {
                        (false, _) => noise,
                        (true, 0) => noise & 0x7f,
                        (true, _) => 0x3c,
                    }
                }));
            }
        }
        Self { bytes, wrong_length: None }
    }
}

impl RecordIndex for File {
    fn pieces(&self, key: ExpertKey) -> Option<[Extent; 9]> {
        let layout = layout();
        let mut at = geometry().index(key)? * layout.payload_len();
        let cut = u64::from(self.wrong_length == Some(key));
        Some(std::array::from_fn(|i| {
            let len = layout.pieces()[i].len;
            at += len;
            Extent::new(FileId::new(0), (at - len) as u64, len as u64 - cut).expect("in range")
        }))
    }

    fn tensor(&self, extent: &Extent) -> Option<String> {
        Some(format!("tensor at {}", extent.offset()))
    }
}

type Faulty = Arc<FaultyReader<MemReader>>;

fn provider(file: &File, slots: usize) -> (StreamingExperts, Faulty) {
    watched_provider(file, slots, None)
}

fn watched_provider(
    file: &File,
    slots: usize,
    sink: Option<Box<dyn EventSink>>,
) -> (StreamingExperts, Faulty) {
    let reader = MemReader::from_bytes(vec![file.bytes.clone()]).expect("small");
    let fault = std::io::ErrorKind::InvalidData;
    let reader = Arc::new(FaultyReader::new(reader, Schedule::Never, fault));
    let lanes = LaneQueue::new(Arc::clone(&reader) as Arc<dyn RecordReader>, 3).expect("lanes");
    let queue: Arc<dyn ReadQueue> = Arc::new(lanes);
    let ops = Arc::new(HostOps::new(Arc::new(Reference)));
    let mut builder = StreamingExperts::builder(geometry(), layout(), slots);
    if let Some(sink) = sink {
        builder = builder.with_sink(sink);
    }
    let experts = builder.build(Arc::new(file.clone()), queue, ops).expect("builds");
    (experts, reader)
}

fn rows(m: usize) -> Tensor {
    let values: Vec<f32> = (0..m * HIDDEN).map(|i| (i as f32 * 0.37).sin()).collect();
    Tensor::from_vec(values, (m, HIDDEN), &Device::Cpu).expect("fits")
}

const WEIGHTS: [f32; TOP_K] = [0.5, 0.3, 0.2];

fn weights(m: usize) -> Tensor {
    Tensor::from_vec(WEIGHTS.repeat(m), (m, TOP_K), &Device::Cpu).expect("fits")
}

/// One pass over both layers with these routes (`[rows][top_k]`, the same in both layers).
fn pass(experts: &mut StreamingExperts, routes: &[[u16; TOP_K]]) -> Result<Vec<Vec<f32>>, Error> {
    let (m, tokens) = (routes.len(), vec![0; routes.len()]);
    let ids: Vec<_> = routes.concat().into_iter().map(ExpertIdx::new).collect();
    let phase = if m == 1 { Phase::Decode } else { Phase::Prefill };
    let (pass, session) = (PassId::new(1), SessionId::new(1));
    let step = Step { pass, phase, session, position: 0, tokens: &tokens };
    experts.begin_pass(&step)?;
    let run = |experts: &mut StreamingExperts, layer| {
        let routing = Routing::new(&step, LayerIdx::new(layer), TOP_K, &ids, &[]);
        experts.demand(&routing)?;
        let y = experts.compute(&rows(m), &weights(m))?;
        Ok(y.flatten_all().and_then(|t| t.to_vec1()).expect("f32"))
    };
    let result = (0..2).map(|layer| run(experts, layer)).collect();
    experts.end_pass();
    experts.pool().validate().expect("consistent");
    result
}

/// The same sums straight from the file.
fn expected(file: &File, layer: u16, routes: &[[u16; TOP_K]]) -> Vec<f32> {
    let x: Vec<f32> = rows(routes.len()).flatten_all().and_then(|t| t.to_vec1()).expect("f32");
    let mut y = Vec::new();
    for (row, route) in routes.iter().enumerate() {
        for expert in route {
            let key = ExpertKey::new(LayerIdx::new(layer), ExpertIdx::new(*expert));
            let pieces = file
                .pieces(key)
                .expect("in range")
                .map(|e| &file.bytes[e.offset() as usize..e.end() as usize]);
            let matrix = |i: usize| {
                let [w, s, b] = [pieces[3 * i], pieces[3 * i + 1], pieces[3 * i + 2]];
                AffineMatrix::new(AffineFormat::Q4_G64, HIDDEN, HIDDEN, w, s, b).expect("fits")
            };
            let MlpWeights { gate, up, down } =
                MlpWeights { gate: matrix(0), up: matrix(1), down: matrix(2) };
            let x = &x[row * HIDDEN..][..HIDDEN];
            let mut gates = vec![0.0; HIDDEN];
            let (mut ups, mut out) = (gates.clone(), gates.clone());
            Reference.affine_matmul(x, &gate, &mut gates);
            Reference.affine_matmul(x, &up, &mut ups);
            for (g, u) in gates.iter_mut().zip(&ups) {
                *g = *g / (1.0 + (-*g).exp()) * u;
            }
            Reference.affine_matmul(&gates, &down, &mut out);
            y.extend(out);
        }
    }
    let mut out = vec![0.0; routes.len() * HIDDEN];
    Reference.rank_sum(&y, &WEIGHTS.repeat(routes.len()), HIDDEN, &mut out);
    out
}

#[test]
fn sums_are_those_of_the_file_for_every_pool_size() {
    let file = File::new();
    assert_eq!(PIECE_ORDER.len(), 9);
    let mut routes = vec![[5, 0, 2]];
    for i in 0..6_u16 {
        routes.push([i % 8, (i + 3) % 8, (i * 5 + 6) % 8].map(|e| e));
    }
    let routes: Vec<_> =
        routes.into_iter().filter(|[a, b, c]| a != b && b != c && a != c).collect();
    for slots in [6, 7, 16] {
        let (mut experts, _) = provider(&file, slots);
        for m in 1..=routes.len() {
            let found = pass(&mut experts, &routes[..m]).expect("runs");
            for (layer, found) in found.iter().enumerate() {
                let want = expected(&file, layer as u16, &routes[..m]);
                for (a, b) in found.iter().zip(&want) {
                    assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "{slots} {m}: {a} {b}");
                }
            }
        }
        assert_eq!(experts.metrics().waves > 0, slots < 8, "{slots}");
    }
}

#[test]
fn every_read_may_fail_and_the_next_pass_works() {
    let file = File::new();
    let (routes, half) = ([[5, 0, 2], [1, 7, 6], [3, 4, 0]], [[1, 2, 3]]);
    let clean = pass(&mut provider(&file, 16).0, &routes).expect("runs");
    let reads = 2 * 8 * 9;
    for n in 0..reads {
        let (mut experts, reader) = provider(&file, 6);
        reader.arm(Schedule::Nth(n));
        let error = pass(&mut experts, &routes).expect_err("one read fails");
        let source = std::error::Error::source(&error).expect("the provider's own error");
        let source = source.downcast_ref::<ExpertsError>().expect("typed");
        let ExpertsError::Read { tensor: Some(_), .. } = source else { panic!("{source}") };
        assert_ne!(error.kind(), ErrorKind::Bug);
        reader.arm(Schedule::Never);
        assert!(pass(&mut experts, &routes).expect("runs") == clean, "read {n}");
        pass(&mut experts, &half).expect("runs");
    }
}

#[test]
fn the_order_of_calls_is_checked() {
    let file = File::new();
    let (mut experts, _) = provider(&file, 16);
    let error = experts.compute(&rows(1), &weights(1)).expect_err("no demand");
    assert_eq!(error.kind(), ErrorKind::Bug);
    let (pass_id, phase, session) = (PassId::new(1), Phase::Decode, SessionId::new(1));
    let step = Step { pass: pass_id, phase, session, position: 0, tokens: &[0] };
    let ids = [0, 1, 2].map(ExpertIdx::new);
    let routing = Routing::new(&step, LayerIdx::new(0), TOP_K, &ids, &[]);
    experts.begin_pass(&step).expect("begins");
    experts.demand(&routing).expect("queues");
    assert!(experts.demand(&routing).is_err(), "the first was not computed");
    // Ended without being computed: the reads are joined, the records there may stay.
    experts.end_pass();
    experts.pool().validate().expect("consistent");
    assert_eq!(experts.pool().open_claims(), 0);
    pass(&mut experts, &[[0, 1, 2]]).expect("runs");
}

#[test]
fn an_index_that_lies_is_named() {
    let mut file = File::new();
    file.wrong_length = Some(ExpertKey::new(LayerIdx::new(1), ExpertIdx::new(2)));
    // A replay that runs beside the provider gives up the same claims.
    let mut header = TraceHeader::requests(geometry());
    (header.slots, header.floor) = (16, geometry().floor_slots());
    let replay = ExactReplay::with_pool(&header, Clock::new()).expect("legal");
    let replay = Shared::new(replay);
    let (mut experts, _) = watched_provider(&file, 16, Some(Box::new(replay.clone())));
    let error = pass(&mut experts, &[[0, 1, 2]]).expect_err("other lengths");
    let source = std::error::Error::source(&error).expect("typed").to_string();
    assert!(source.contains("layer 1, expert 2"), "{source}");
    pass(&mut experts, &[[0, 1, 3]]).expect("the next request works");
    let live = PoolEnd::of(experts.pool());
    assert!(live.counters.withdrawn > 0);
    drop(experts);
    let replayed = replay.into_inner().expect("the provider is gone").finish().expect("the same");
    assert_eq!(PoolEnd::of(&replayed), live);
}
