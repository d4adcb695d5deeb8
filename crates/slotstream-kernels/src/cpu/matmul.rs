//! `x . w^T` over blocks of rows and threads.

use super::{
    Cpu,
    dispatch::Weights,
    pack::{Buffer, PART, ROWS},
    tile::{Job, Out},
};

/// The numbers of the rows of a block.
pub(super) const IDENTITY: [u32; ROWS] = {
    let mut rows = [0; ROWS];
    let mut i = 0;
    while i < ROWS {
        rows[i] = i as u32;
        i += 1;
    }
    rows
};

/// Multiply-adds that packing one value is worth.
const PACK_WORK: usize = 8;

impl Cpu {
    /// `out[m, n] = x[m, k] . w[n, k]^T`.
    pub(super) fn matmul(&self, buffer: &mut Buffer, x: &[f32], w: &Weights<'_>, out: &mut [f32]) {
        let (n, k) = (w.rows(), w.cols());
        assert!(x.len().is_multiple_of(k) && x.len() / k * n == out.len(), "x [m, k], out [m, n]");
        if out.is_empty() {
            return;
        }
        for (x, out) in x.chunks(ROWS * k).zip(out.chunks_mut(ROWS * n)) {
            let rows = &IDENTITY[..x.len() / k];
            let source = |row: usize| &x[row * k..(row + 1) * k];
            let job = self.pack(buffer, w, rows.len(), source);
            let job = Job { from: rows, to: rows, out: Out::new(out), stride: n, ..job };
            let chunk = self.threads.rows_per_task(n, 1);
            self.threads.run(n.div_ceil(chunk), rows.len() * n * k, |i| {
                // SAFETY: `new` checked the instruction set; `pack` packed for `w`; each task has
                // its own columns of `out`, which is borrowed exclusively.
                unsafe { w.run(self.isa, &job, i * chunk..((i + 1) * chunk).min(n)) };
            });
        }
    }

    /// Packs `rows` rows for `w`, each in parts; the job has no rows and no place for results yet.
    pub(super) fn pack<'a, 'x>(
        &self,
        buffer: &'a mut Buffer,
        w: &Weights<'_>,
        rows: usize,
        source: impl Fn(usize) -> &'x [f32] + Sync,
    ) -> Job<'a> {
        let (packing, k) = (w.packing(), w.cols());
        let (width, groups) = (packing.width(k), packing.groups(k));
        let parts = k.div_ceil(PART);
        let (x, sums) = buffer.of(packing, rows, k);
        let (to, to_sums) = (Out::new(x), Out::new(sums));
        self.threads.run(rows * parts, rows * k * PACK_WORK, |i| {
            let (row, start) = (i / parts, i % parts * PART);
            let x = &source(row)[start..(start + PART).min(k)];
            let of = packing.groups_of(start, k);
            let sums = row * groups + of.start..row * groups + of.end;
            let head = row * width..row * width + packing.head(k);
            let scales = if head.is_empty() {
                head.clone()
            } else {
                head.start + of.start..head.start + of.end
            };
            let at = head.end + packing.blocks(start);
            // SAFETY: each task has its own blocks and groups of its own row of the two buffers,
            // which outlive the call and are borrowed exclusively; `new` checked the instruction
            // set.
            unsafe {
                let (scales, sums) = (to.slice(scales), to_sums.slice(sums));
                let blocks = to.slice(at..at + packing.blocks(x.len()));
                packing.pack(self.isa, x, scales, blocks, sums);
            }
        });
        Job { x, width, sums, groups, from: &[], to: &[], out: Out::new(&mut []), stride: 0 }
    }
}
