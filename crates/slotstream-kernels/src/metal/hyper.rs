//! Hyper-connections, and the forecaster's probes, which are a mixer and a router.

use super::affine::{AffineView, affine_matmul};
use super::bf16::{Bf16View, bf16_matmul};
use super::dispatch::count;
use super::library::{Constants, constants};
use super::norm::grouped_rms_norm;
use super::{Dispatch, Element, Library, PRELUDE, PlanError, View};

constants!(HcArgs { n: u32, streams: u32 });

/// Kernels of this file.
pub static HYPER: Library =
    Library::new("hyper", &[PRELUDE, HcArgs::MSL, include_str!("hyper.metal")]);

/// Threads of the element-wise kernels here.
const THREADS: u32 = 256;

/// Weights of a mixer in device memory; see [`HcWeights`](crate::HcWeights).
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct HcView<B> {
    /// Residual streams.
    pub streams: usize,
    /// f32 `[streams * hidden]`.
    pub norm: View<B>,
    /// `[rank, streams * hidden]`.
    pub down: AffineView<B>,
    /// `[streams * hidden, rank]`.
    pub up: AffineView<B>,
    /// `[streams, streams * hidden]`; absent in the final mixer.
    pub inject: Option<Bf16View<B>>,
    /// `rms_norm_eps`.
    pub eps: f32,
}

/// What a mixer writes on the way, f32.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct HcScratch<B> {
    /// `[m, streams * hidden]`.
    pub normed: View<B>,
    /// `[m, rank]`.
    pub low: View<B>,
    /// `[m, streams * hidden]`.
    pub gates: View<B>,
}

/// Mixes the streams `h[m, streams * hidden]` into `mixed[m, hidden]` and, where the mixer injects
/// and `inject` is given, the write gates `inject[m, streams]`.
///
/// # Errors
/// [`PlanError`].
pub fn hc_mix<B: Clone>(
    m: usize,
    h: View<B>,
    w: &HcView<B>,
    scratch: &HcScratch<B>,
    mixed: View<B>,
    inject: Option<View<B>>,
) -> Result<Vec<Dispatch<B>>, PlanError> {
    let (width, streams, rank) = (w.up.rows, w.streams, w.down.rows);
    let hidden = width / streams.max(1);
    if hidden * streams != width {
        return Err(PlanError::Parts { what: "columns", of: width, part: streams });
    }
    let HcScratch { normed, low, gates } = scratch;
    let norm = w.norm.clone();
    let mut plan = vec![
        grouped_rms_norm(m, streams, hidden, w.eps, h, norm, normed.clone())?,
        affine_matmul(Element::F32, m, normed.clone(), &w.down, low.clone())?,
        in_place("hc_low", low.clone(), m.saturating_mul(rank), streams)?,
        affine_matmul(Element::F32, m, low.clone(), &w.up, gates.clone())?,
        mean(m, hidden, streams, normed, gates, mixed)?,
    ];
    if let (Some(weight), Some(inject)) = (&w.inject, inject) {
        plan.push(bf16_matmul(Element::F32, m, normed.clone(), weight, inject.clone())?);
        plan.push(in_place("hc_gates", inject, m.saturating_mul(streams), streams)?);
    }
    Ok(plan)
}

fn mean<B: Clone>(
    m: usize,
    hidden: usize,
    streams: usize,
    normed: &View<B>,
    gates: &View<B>,
    mixed: View<B>,
) -> Result<Dispatch<B>, PlanError> {
    let all = m.saturating_mul(hidden).saturating_mul(streams);
    let args = HcArgs { n: count("columns", hidden)?, streams: count("streams", streams)? };
    Dispatch::new(&HYPER, "hc_mean")
        .input(normed.clone().floats("normed", all)?)
        .input(gates.clone().floats("gates", all)?)
        .output(mixed.floats("mixed", m.saturating_mul(hidden))?)
        .with_constants(args.bytes())
        .launch([hidden.div_ceil(THREADS as usize), m, 1], THREADS)
}

fn in_place<B>(
    kernel: &'static str,
    values: View<B>,
    n: usize,
    streams: usize,
) -> Result<Dispatch<B>, PlanError> {
    let args = HcArgs { n: count("values", n)?, streams: count("streams", streams)? };
    Dispatch::new(&HYPER, kernel)
        .update(values.floats("values", n)?)
        .with_constants(args.bytes())
        .launch([n.div_ceil(THREADS as usize), 1, 1], THREADS)
}

/// `h[m, s, hidden] += inject[m, s] * y[m, hidden]`.
///
/// # Errors
/// [`PlanError`].
pub fn hc_inject<B>(
    m: usize,
    streams: usize,
    hidden: usize,
    h: View<B>,
    inject: View<B>,
    y: View<B>,
) -> Result<Dispatch<B>, PlanError> {
    let rows = m.saturating_mul(streams);
    let args = HcArgs { n: count("columns", hidden)?, streams: count("streams", streams)? };
    Dispatch::new(&HYPER, "hc_inject")
        .update(h.floats("h", rows.saturating_mul(hidden))?)
        .input(inject.floats("inject", rows)?)
        .input(y.floats("y", m.saturating_mul(hidden))?)
        .with_constants(args.bytes())
        .launch([hidden.div_ceil(THREADS as usize), streams, m], THREADS)
}

/// A forecaster's probe of another layer on the streams `h` of this one: that layer's mixer
/// `w` (whose write gates are not computed) and its router, `logits[m, experts]`. Encoded behind
/// the layer's own launches, in the same submission.
///
/// # Errors
/// [`PlanError`].
pub fn probe<B: Clone>(
    m: usize,
    h: View<B>,
    w: &HcView<B>,
    router: &Bf16View<B>,
    scratch: &HcScratch<B>,
    mixed: View<B>,
    logits: View<B>,
) -> Result<Vec<Dispatch<B>>, PlanError> {
    let mut plan = hc_mix(m, h, w, scratch, mixed.clone(), None)?;
    plan.push(bf16_matmul(Element::F32, m, mixed, router, logits)?);
    Ok(plan)
}
