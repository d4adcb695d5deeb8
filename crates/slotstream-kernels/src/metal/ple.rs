//! The gate of the n-gram embedding.

use super::dispatch::count;
use super::library::{Constants, constants};
use super::norm::{PARTS, reducers};
use super::{Dispatch, Library, PRELUDE, PlanError, View};

constants!(PleArgs { streams: u32, hidden: u32, eps: f32 });

/// Kernels of this file.
pub static PLE: Library = Library::new("ple", &[PRELUDE, PleArgs::MSL, include_str!("ple.metal")]);

/// Inputs of the gate, f32; see [`PleGateArgs`](crate::PleGateArgs).
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct PleViews<B> {
    /// Residual streams, `[m, streams * hidden]`.
    pub h: View<B>,
    /// `[m, streams * hidden]`.
    pub key: View<B>,
    /// `[m, hidden]`.
    pub value: View<B>,
    /// `[streams * hidden]`.
    pub norm_key: View<B>,
    /// `[streams * hidden]`.
    pub norm_query: View<B>,
    /// `[streams * hidden]`.
    pub norm_conv: View<B>,
}

/// Gated value streams `value_out[m, streams * hidden]` and their norm `conv_in`, as large.
///
/// # Errors
/// [`PlanError`].
pub fn ple_gate<B: Clone>(
    (m, streams, hidden): (usize, usize, usize),
    eps: f32,
    views: &PleViews<B>,
    value_out: View<B>,
    conv_in: View<B>,
) -> Result<Dispatch<B>, PlanError> {
    let cols = streams.saturating_mul(hidden);
    count("columns", cols)?;
    let all = m.saturating_mul(cols);
    let args =
        PleArgs { streams: count("streams", streams)?, hidden: count("columns", hidden)?, eps };
    let views = views.clone();
    Dispatch::new(&PLE, "ple_gate")
        .input(views.h.floats("h", all)?)
        .input(views.key.floats("key", all)?)
        .input(views.value.floats("value", m.saturating_mul(hidden))?)
        .input(views.norm_key.floats("norm_key", cols)?)
        .input(views.norm_query.floats("norm_query", cols)?)
        .input(views.norm_conv.floats("norm_conv", cols)?)
        .output(value_out.floats("value_out", all)?)
        .output(conv_in.floats("conv_in", all)?)
        .with_constants(args.bytes())
        .with_threadgroup_memory(PARTS)
        .launch([streams, m, 1], reducers(hidden))
}
