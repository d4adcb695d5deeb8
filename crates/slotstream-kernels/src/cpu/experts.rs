//! Several gated MLPs at once.

use std::ops::Range;

use slotstream_core::RecordLayout;

use super::{
    Cpu,
    hyper::GateUp,
    matmul::IDENTITY,
    pack::{Buffer, ROWS},
    tile::{Job, Out},
};
use crate::{ExpertRows, MlpWeights, reference};

/// What a call of `expert_mlp` needs besides its arguments, kept between calls.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    x: Buffer,
    hidden: Buffer,
    gate: Vec<f32>,
    up: Vec<f32>,
}

/// At most [`ROWS`] rows of some experts, all worked on together.
#[derive(Default)]
struct Batch<'a> {
    /// The experts, each with its entries.
    experts: Vec<(MlpWeights<'a>, Range<usize>)>,
    /// Different rows of `x`.
    rows: Vec<u32>,
    /// For each entry the number of its row in `rows`.
    from: Vec<u32>,
    /// For each entry the row of the output.
    places: Vec<u32>,
}

impl<'a> Batch<'a> {
    /// Takes as many of the rows as fit; returns how many.
    fn take(&mut self, mlp: MlpWeights<'a>, rows: &[u32], places: &[u32]) -> usize {
        let (start, taken) = (self.from.len(), rows.len().min(ROWS - self.from.len()));
        for row in &rows[..taken] {
            let known = self.rows.iter().position(|known| known == row);
            self.from.push(known.unwrap_or(self.rows.len()) as u32);
            if known.is_none() {
                self.rows.push(*row);
            }
        }
        self.places.extend_from_slice(&places[..taken]);
        if taken > 0 {
            self.experts.push((mlp, start..start + taken));
        }
        taken
    }

    fn clear(&mut self) {
        self.experts.clear();
        self.rows.clear();
        self.from.clear();
        self.places.clear();
    }

    /// Two tasks may write at the same time: their places must differ.
    fn check_places(&self, places: usize) {
        let mut sorted = self.places.clone();
        sorted.sort_unstable();
        assert!(sorted.is_sorted_by(|a, b| a < b), "no two experts share a place");
        assert!(sorted.last().is_none_or(|last| (*last as usize) < places), "places are in out");
    }
}

impl Cpu {
    /// See [`Kernels::expert_mlp`](crate::Kernels::expert_mlp).
    pub(super) fn experts(
        &self,
        scratch: &mut Scratch,
        layout: &RecordLayout,
        x: &[f32],
        experts: &[ExpertRows<'_>],
        out: &mut [f32],
    ) {
        let mut batch = Batch::default();
        for expert in experts {
            assert_eq!(expert.rows.len(), expert.places.len(), "one place a row");
            let mlp = reference::record_mlp(layout, expert.record);
            let mut done = 0;
            // An expert whose rows are split has to be unpacked twice.
            if expert.rows.len() <= ROWS && batch.from.len() + expert.rows.len() > ROWS {
                self.batch(scratch, x, &batch, out);
                batch.clear();
            }
            while done < expert.rows.len() {
                done += batch.take(mlp, &expert.rows[done..], &expert.places[done..]);
                if batch.from.len() == ROWS {
                    self.batch(scratch, x, &batch, out);
                    batch.clear();
                }
            }
        }
        self.batch(scratch, x, &batch, out);
    }

    /// Gate and up of all experts of the batch at once, then all downs.
    fn batch(&self, scratch: &mut Scratch, x: &[f32], batch: &Batch<'_>, out: &mut [f32]) {
        let Some((first, _)) = batch.experts.first() else { return };
        let (inner, hidden) = (first.gate.rows(), first.gate.cols());
        let entries = batch.from.len();
        batch.check_places(out.len() / hidden);
        scratch.gate.resize(scratch.gate.len().max(entries * inner), 0.0);
        scratch.up.resize(scratch.up.len().max(entries * inner), 0.0);
        let job = self.pack(&mut scratch.x, &self.weights(first.gate), batch.rows.len(), |row| {
            &x[batch.rows[row] as usize * hidden..][..hidden]
        });
        let outs = [Out::new(&mut scratch.gate), Out::new(&mut scratch.up)];
        self.spread(batch, inner, 2 * hidden, |mlp, entries, rows| {
            self.gate_up(batch, mlp, entries, rows, &job, outs);
        });

        let gate = &scratch.gate;
        let job = self.pack(&mut scratch.hidden, &self.weights(first.down), entries, |row| {
            &gate[row * inner..(row + 1) * inner]
        });
        let out = Out::new(out);
        self.spread(batch, hidden, inner, |mlp, entries, rows| {
            let (from, to) = (&IDENTITY[entries.clone()], &batch.places[entries]);
            let job = Job { from, to, out, stride: hidden, ..job };
            // SAFETY: `new` checked the instruction set, `weights` its dots; all experts have the format and shape
            // that the job was packed for; no two tasks have both the same rows and the same
            // expert, and the places of experts were found to differ.
            unsafe { self.weights(mlp.down).run(self.isa, &job, rows) };
        });
    }

    /// `silu(gate . x) * (up . x)` of some rows of an expert, into the first of `outs`.
    fn gate_up(
        &self,
        batch: &Batch<'_>,
        mlp: &MlpWeights<'_>,
        entries: Range<usize>,
        rows: Range<usize>,
        job: &Job<'_>,
        outs: [Out; 2],
    ) {
        let (from, to) = (&batch.from[entries.clone()], &IDENTITY[entries.clone()]);
        let inner = mlp.gate.rows();
        for (w, out) in [mlp.gate, mlp.up].into_iter().zip(outs) {
            let job = Job { from, to, out, stride: inner, ..*job };
            // SAFETY: as for `down` in `batch`; entries of different experts are different rows
            // of `outs`.
            unsafe { self.weights(w).run(self.isa, &job, rows.clone()) };
        }
        for entry in entries {
            let span = entry * inner + rows.start..entry * inner + rows.end;
            // SAFETY: these are the elements that this task alone has just written.
            let (gate, up) = unsafe { (outs[0].slice(span.clone()), outs[1].slice(span)) };
            self.run(GateUp { gate, up });
        }
    }

    /// Splits the `n` rows of each expert's matrix and runs `task(mlp, entries, rows)`.
    fn spread(
        &self,
        batch: &Batch<'_>,
        n: usize,
        k: usize,
        task: impl Fn(&MlpWeights<'_>, Range<usize>, Range<usize>) + Sync,
    ) {
        let chunk = self.threads.rows_per_task(n, batch.experts.len());
        let chunks = n.div_ceil(chunk);
        let work = batch.from.len() * n * k;
        self.threads.run(batch.experts.len() * chunks, work, |i| {
            let (mlp, entries) = &batch.experts[i / chunks];
            let start = i % chunks * chunk;
            task(mlp, entries.clone(), start..(start + chunk).min(n));
        });
    }
}
