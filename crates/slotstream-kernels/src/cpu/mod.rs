//! The op set with SIMD and threads.
//!
//! All instruction sets run the same generic code over sixteen lanes (`lanes.rs`), in as many
//! registers as that takes, and so add in the same order (`tile.rs`) and give the same bits.

#[cfg(target_arch = "x86_64")]
mod across;
mod affine;
#[cfg(target_arch = "x86_64")]
mod amx;
mod attention;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod bf16;
mod delta;
mod dispatch;
mod error;
mod experts;
mod fixed;
mod hyper;
mod isa;
mod lanes;
mod matmul;
#[cfg(target_arch = "aarch64")]
mod neon;
mod norms;
mod pack;
mod ple;
mod rows;
mod scalar;
mod select;
mod threads;
mod tile;
mod vector;

use std::{cell::RefCell, thread::LocalKey, time::Duration};

use slotstream_core::RecordLayout;

use self::{dispatch::Weights, experts::Scratch, hyper::Between, pack::Buffer, threads::Threads};
use crate::{
    AffineMatrix, Arithmetic, AttentionArgs, Bf16Matrix, BlockSelectArgs, ConvArgs, ExpertRows,
    GatedDeltaArgs, HcWeights, Kernels, MlpWeights, NormRopeArgs, PleGateArgs, Rope,
};

pub use self::{error::CpuError, isa::InstructionSet};

thread_local! {
    static BUFFER: RefCell<Buffer> = RefCell::default();
    static SCRATCH: RefCell<Scratch> = RefCell::default();
    static BETWEEN: RefCell<Between> = RefCell::default();
    static ANGLES: RefCell<Vec<(f32, f32)>> = RefCell::default();
    static MEAN: RefCell<Vec<f32>> = RefCell::default();
}

/// Lends what a thread keeps between calls. It is taken out meanwhile: a call within the call
/// starts with nothing.
fn kept<T: Default>(key: &'static LocalKey<RefCell<T>>, call: impl FnOnce(&mut T)) {
    let mut scratch = key.take();
    call(&mut scratch);
    key.set(scratch);
}

/// The op set on the CPU: SIMD chosen at run time, work spread over threads.
///
/// Every operation has its own code. The bits of a result are the same for
/// every instruction set, number of threads and number of rows in the call, in either
/// [`Arithmetic`].
///
/// Each thread that calls keeps scratch for 32 rows of the widest `x` it ever gave.
#[derive(Debug)]
pub struct Cpu {
    isa: InstructionSet,
    arithmetic: Arithmetic,
    /// The machine has dot products of bytes in the registers of `isa`.
    dots: bool,
    threads: Threads,
}

impl Cpu {
    /// The best instruction set of this machine on `threads` threads: the caller's and
    /// `threads - 1` of its own. Those look for the next call for some microseconds, where there
    /// are processors for all threads, and then sleep.
    ///
    /// # Errors
    /// [`CpuError`] when `threads` is 0 or threads cannot be started.
    pub fn new(threads: usize) -> Result<Self, CpuError> {
        Self::with_instruction_set(threads, InstructionSet::detect())
    }

    /// A particular instruction set; for tests and measurements.
    ///
    /// # Errors
    /// As [`new`](Self::new), and when this machine lacks the instruction set.
    pub fn with_instruction_set(threads: usize, isa: InstructionSet) -> Result<Self, CpuError> {
        if !isa.is_available() {
            return Err(CpuError::Unavailable { wanted: isa, best: InstructionSet::detect() });
        }
        let threads = Threads::new(threads)?;
        Ok(Self { isa, arithmetic: Arithmetic::Exact, dots: isa.has_dots(), threads })
    }

    /// The same in another arithmetic.
    #[must_use]
    pub fn with_arithmetic(self, arithmetic: Arithmetic) -> Self {
        Self { arithmetic, ..self }
    }

    /// How products with this matrix are computed.
    fn weights<'a>(&self, w: AffineMatrix<'a>) -> Weights<'a> {
        if w.format().bits() != 4 {
            return Weights::Bytes(w);
        }
        let digits = match self.arithmetic {
            Arithmetic::Exact => 3,
            Arithmetic::Fast => 1,
        };
        Weights::Nibbles { w, digits, dots: self.dots }
    }

    /// The instruction set in use.
    #[must_use]
    pub fn instruction_set(&self) -> InstructionSet {
        self.isa
    }

    /// Threads, the caller's included.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.count()
    }
}

/// To be raised with every change after which a result has other bits.
const REVISION: u32 = 2;

impl Kernels for Cpu {
    fn name(&self) -> String {
        // What computes: tiles are of the fast products alone.
        let isa = match (self.isa, self.arithmetic) {
            (InstructionSet::Amx, Arithmetic::Exact) => InstructionSet::Avx512,
            (isa, _) => isa,
        };
        format!("{isa} x {}", self.threads())
    }

    fn arithmetic(&self) -> Arithmetic {
        self.arithmetic
    }

    fn thread_wait(&self) -> Duration {
        self.threads.waited()
    }

    fn identity(&self) -> String {
        // Whatever the instruction set and the threads.
        format!("{} cpu {REVISION}", self.arithmetic.as_str())
    }

    fn affine_matmul(&self, x: &[f32], w: &AffineMatrix<'_>, out: &mut [f32]) {
        kept(&BUFFER, |buffer| self.matmul(buffer, x, &self.weights(*w), out));
    }

    fn affine_rows(&self, w: &AffineMatrix<'_>, ids: &[u32], out: &mut [f32]) {
        self.rows(w, ids, out);
    }

    fn bf16_matmul(&self, x: &[f32], w: &Bf16Matrix<'_>, out: &mut [f32]) {
        kept(&BUFFER, |buffer| self.matmul(buffer, x, &Weights::Bf16(*w), out));
    }

    fn expert_mlp(
        &self,
        layout: &RecordLayout,
        x: &[f32],
        experts: &[ExpertRows<'_>],
        out: &mut [f32],
    ) {
        kept(&SCRATCH, |scratch| self.experts(scratch, layout, x, experts, out));
    }

    fn rank_sum(&self, y: &[f32], weights: &[f32], hidden: usize, out: &mut [f32]) {
        self.ranks(y, weights, hidden, out);
    }

    fn shared_expert(
        &self,
        x: &[f32],
        mlp: &MlpWeights<'_>,
        gate: &Bf16Matrix<'_>,
        out: &mut [f32],
    ) {
        kept(&BETWEEN, |between| self.shared(between, x, mlp, gate, out));
    }

    fn grouped_rms_norm(&self, x: &[f32], weight: &[f32], width: usize, eps: f32, out: &mut [f32]) {
        self.norm(x, weight, width, eps, out);
    }

    fn hc_mix(&self, h: &[f32], w: &HcWeights<'_>, mixed: &mut [f32], inject: Option<&mut [f32]>) {
        kept(&BETWEEN, |between| self.hc_read(between, h, w, mixed, inject));
    }

    fn hc_inject(&self, h: &mut [f32], inject: &[f32], y: &[f32], hidden: usize) {
        self.hc_write(h, inject, y, hidden);
    }

    fn conv_silu(&self, args: &ConvArgs<'_>, out: &mut [f32]) {
        self.conv(args, out);
    }

    fn gated_delta(
        &self,
        args: &GatedDeltaArgs<'_>,
        state: &mut [f32],
        record: &mut [Option<&mut [f32]>],
        out: &mut [f32],
    ) {
        self.delta(args, state, record, out);
    }

    fn norm_rope(&self, args: &NormRopeArgs<'_>, out: &mut [f32]) {
        kept(&ANGLES, |angles| self.heads(angles, args, out));
    }

    fn block_key(
        &self,
        raw: &[f32],
        weight: &[f32],
        eps: f32,
        rope: &Rope,
        position: u64,
        out: &mut [f32],
    ) {
        let dim = weight.len();
        let args = NormRopeArgs {
            x: &[],
            row_stride: dim,
            offset: 0,
            head_stride: dim,
            heads: 1,
            head_dim: dim,
            weight,
            eps,
            rope,
            position,
        };
        kept(&MEAN, |mean| {
            kept(&ANGLES, |angles| self.mean_key(mean, angles, raw, &args, out));
        });
    }

    fn block_select(&self, args: &BlockSelectArgs<'_>, out: &mut [u32]) {
        self.blocks(args, out);
    }

    fn indexed_attention(&self, args: &AttentionArgs<'_>, out: &mut [f32]) {
        self.attention(args, out);
    }

    fn route(
        &self,
        logits: &[f32],
        experts: usize,
        top_k: usize,
        ids: &mut [u32],
        weights: &mut [f32],
    ) {
        self.choose(logits, experts, top_k, ids, weights);
    }

    fn ple_gate(&self, args: &PleGateArgs<'_>, value_out: &mut [f32], conv_in: &mut [f32]) {
        self.gate(args, value_out, conv_in);
    }
}
