//! Expert MLPs, the shared expert, the sum over ranks.

use slotstream_core::{AffineFormat, ExpertShape, Matrix, Part, RecordLayout};
use slotstream_kernels::metal::{
    BufferId, ExpertJobs, ExpertViews, SharedScratch, SharedView, SlotJob, View, expert_mlp,
    rank_sum, shared_expert,
};
use slotstream_kernels::{ExpertRows, Kernels, MlpWeights, Reference, reference};

use crate::case::Case;
use crate::data::{Affine, Bf16, Random};

const G32: AffineFormat = AffineFormat::Q4_G32;
const G64: AffineFormat = AffineFormat::Q4_G64;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    // Tokens, experts of each.
    for (hidden, intermediate, format) in
        [(32, 32, G32), (64, 64, G64), (96, 32, G32), (128, 640, G64)]
    {
        for (m, chosen) in [(1, 1), (1, 3), (2, 3), (3, 10)] {
            let case = Routed { m, chosen, experts: 12, far: false, odd: None };
            cases.push(case.run(hidden, intermediate, format));
        }
    }
    // Every one of 512 experts once.
    let all = Routed { m: 1, chosen: 512, experts: 512, far: false, odd: None };
    cases.push(all.run(32, 32, G32));
    // Many rows of few experts: tiles, whole and cut off.
    for (hidden, intermediate, format) in [(64, 96, G32), (128, 64, G64)] {
        let many = Routed { m: 41, chosen: 3, experts: 4, far: false, odd: None };
        cases.push(many.run(hidden, intermediate, format));
    }
    // The real shape, records past 4 GiB.
    let far = Routed { m: 1, chosen: 2, experts: 3, far: true, odd: None };
    cases.push(far.run(2560, 640, G64));
    let far = Routed { m: 9, chosen: 1, experts: 1, far: true, odd: None };
    cases.push(far.run(64, 64, G64));
    for m in [2, 20] {
        for odd in [f32::NAN, f32::INFINITY] {
            let odd = Routed { m, chosen: 2, experts: 3, far: false, odd: Some(odd) };
            cases.push(odd.run(64, 64, G64));
        }
    }
    for (m, top_k, hidden) in [(1, 1, 32), (3, 10, 640), (2, 3, 2560), (1, 512, 33)] {
        cases.push(ranks(m, top_k, hidden, None));
    }
    for (m, hidden, intermediate) in [(1, 64, 64), (3, 128, 64), (1, 640, 128)] {
        cases.push(shared(m, hidden, intermediate, None));
    }
    for odd in [f32::NAN, f32::INFINITY] {
        cases.push(ranks(2, 3, 33, Some(odd)));
        cases.push(shared(2, 64, 64, Some(odd)));
    }
    cases
}

/// The experts of a token and of 16 that share them, the sum of their ranks, the shared expert.
pub(crate) fn timed() -> Vec<Case> {
    let routed = |m, experts| Routed { m, chosen: 10, experts, far: false, odd: None };
    vec![
        routed(1, 10).run(2560, 640, G64),
        routed(16, 10).run(2560, 640, G64),
        ranks(1, 10, 2560, None),
        shared(1, 2560, 640, None),
    ]
}

/// A pass of `m` tokens, each with `chosen` of the experts.
struct Routed {
    m: usize,
    chosen: usize,
    experts: usize,
    far: bool,
    odd: Option<f32>,
}

impl Routed {
    fn run(&self, hidden: usize, intermediate: usize, format: AffineFormat) -> Case {
        let &Self { m, chosen, experts, far, odd } = self;
        let name = format!("experts {m} x {chosen} of {experts}, {hidden} x {intermediate}");
        let mut case = Case::new(name);
        let shape = ExpertShape::new(hidden, intermediate, format).expect("a shape");
        let layout = RecordLayout::new(shape);
        let records: Vec<Vec<u8>> = (0..experts).map(|e| record(&layout, e)).collect();
        let mut x = Random::new(m as u64).values(m * hidden);
        if let Some(odd) = odd {
            x[hidden + 1] = odd;
        }
        // Token t takes experts t, t + 1, ..; one place more than there are rows, which is kept.
        let mut rows = vec![(Vec::new(), Vec::new()); experts];
        for (token, rank) in (0..m).flat_map(|t| (0..chosen).map(move |r| (t, r))) {
            let (of, places) = &mut rows[(token + rank) % experts];
            of.push(token as u32);
            places.push((token * chosen + rank) as u32);
        }
        let places = m * chosen + 1;
        let mut want = vec![f32::NAN; places * hidden];
        let of =
            |e: usize| ExpertRows { record: &records[e], rows: &rows[e].0, places: &rows[e].1 };
        let all: Vec<ExpertRows<'_>> = (0..experts).map(of).collect();
        Reference.expert_mlp(&layout, &x, &all, &mut want);

        // Slots in another order than experts.
        let slot = |expert: usize| (experts - 1 - expert) as u32;
        let jobs: Vec<SlotJob<'_>> = (0..experts)
            .map(|e| SlotJob { slot: slot(e), rows: &rows[e].0, places: &rows[e].1 })
            .collect();
        let lists = ExpertJobs::new(&jobs).expect("a place a row");
        let slots = table(&mut case, &records, far);
        let views = ExpertViews {
            slots,
            jobs: case.words(&lists.jobs),
            batches: case.words(&lists.batches),
            x: case.floats(&x),
            act: case.scratch(lists.rows() * intermediate),
            out: case.scratch(want.len()),
        };
        let plan = expert_mlp(&layout, &lists, experts, (m, places), &views).expect("a plan");
        case.launches.extend(plan);
        case.want_floats(views.out, want, 5e-6);
        case
    }
}

/// The table of slots, last record first; the records of one slab, 2.5 GiB apart, when `far`.
fn table(case: &mut Case, records: &[Vec<u8>], far: bool) -> View<BufferId> {
    let apart = 5 << 29;
    let table = case.memory.poisoned(8 * records.len());
    let slab = far.then(|| case.memory.sparse(apart * (records.len() + 2)));
    for (slot, record) in records.iter().rev().enumerate() {
        let (buffer, at) = match slab {
            Some(slab) => {
                case.memory.write(slab, apart * (slot + 2), record.clone());
                (slab, apart * (slot + 2))
            }
            None => (case.memory.bytes(record.clone()), 0),
        };
        case.memory.address(table, 8 * slot, buffer, at);
    }
    View::new(table, 0, 8 * records.len())
}

/// A random record; what lies between its pieces is poison.
fn record(layout: &RecordLayout, expert: usize) -> Vec<u8> {
    let mut bytes = vec![0xff; layout.record_len()];
    for matrix in [Matrix::Gate, Matrix::Up, Matrix::Down] {
        let (rows, cols) = layout.shape().dims(matrix);
        let mut w = Affine::random(layout.shape().format(), rows, cols);
        let turn = (1 + 7 * expert + matrix as usize) % w.weight.len();
        w.weight.rotate_left(turn);
        for (part, from) in
            [(Part::Weight, &w.weight), (Part::Scales, &w.scales), (Part::Biases, &w.biases)]
        {
            let piece = layout.piece(matrix, part);
            bytes[piece.offset..piece.offset + piece.len].copy_from_slice(from);
        }
    }
    bytes
}

/// With `odd`, one value of the first expert's output is that.
fn ranks(m: usize, top_k: usize, hidden: usize, odd: Option<f32>) -> Case {
    let mut case = Case::new(format!("ranks {m} x {top_k} x {hidden} {odd:?}"));
    let mut random = Random::new(hidden as u64);
    let (mut y, weights) = (random.values(m * top_k * hidden), random.values(m * top_k));
    if let Some(odd) = odd {
        y[hidden / 2] = odd;
    }
    let mut want = vec![f32::NAN; m * hidden];
    reference::rank_sum(&y, &weights, hidden, &mut want);
    let (y, weights, out) = (case.floats(&y), case.floats(&weights), case.scratch(want.len()));
    case.launch(rank_sum(m, top_k, hidden, y, weights, out).expect("a plan"));
    // To the bit: the same order, and nothing is fused.
    case.want_floats(out, want, 0.0);
    case
}

/// With `odd`, one value of the first row is that.
fn shared(m: usize, hidden: usize, intermediate: usize, odd: Option<f32>) -> Case {
    let mut case = Case::new(format!("shared {m} x {hidden} x {intermediate} {odd:?}"));
    let (gate, down) =
        (Affine::random(G64, intermediate, hidden), Affine::random(G64, hidden, intermediate));
    let mut up = Affine::random(G64, intermediate, hidden);
    up.weight.rotate_left(5);
    let gate_row = Bf16::random(1, hidden);
    let mut x = Random::new(hidden as u64).values(m * hidden);
    if let Some(odd) = odd {
        x[hidden / 2] = odd;
    }
    let mut want = vec![f32::NAN; m * hidden];
    let weights = MlpWeights { gate: gate.matrix(), up: up.matrix(), down: down.matrix() };
    Reference.shared_expert(&x, &weights, &gate_row.matrix(), &mut want);
    let w = SharedView {
        gate: case.affine(&gate),
        up: case.affine(&up),
        down: case.affine(&down),
        gate_row: case.bf16(&gate_row),
    };
    let scratch = SharedScratch {
        gate: case.scratch(m * intermediate),
        up: case.scratch(m * intermediate),
        gate_row: case.scratch(m),
    };
    let (x, out) = (case.floats(&x), case.scratch(want.len()));
    case.launches.extend(shared_expert(m, x, &w, &scratch, out).expect("a plan"));
    case.want_floats(out, want, 5e-6);
    case
}
