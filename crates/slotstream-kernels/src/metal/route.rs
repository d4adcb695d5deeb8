//! The router's choice.

use super::dispatch::count;
use super::library::{Constants, constants};
use super::{Dispatch, Library, MAX_THREADS, PRELUDE, PlanError, SIMD, View};

constants!(RouteArgs { experts: u32, top_k: u32 });

/// Kernels of this file.
pub static ROUTE: Library = Library::new(
    "route",
    &[PRELUDE, include_str!("order.metal"), RouteArgs::MSL, include_str!("route.metal")],
);

/// The `top_k` largest of the logits `[m, experts]`, descending (`ids[m, top_k]` u32), and the
/// softmax over them (`weights[m, top_k]`). Ties: the lower expert; NaN counts as less than
/// everything.
///
/// # Errors
/// [`PlanError`].
pub fn route<B>(
    m: usize,
    experts: usize,
    top_k: usize,
    logits: View<B>,
    ids: View<B>,
    weights: View<B>,
) -> Result<Dispatch<B>, PlanError> {
    if top_k == 0 || top_k > experts {
        return Err(PlanError::Limit { what: "experts", got: top_k, least: 1, most: experts });
    }
    let args = RouteArgs { experts: count("experts", experts)?, top_k: count("experts", top_k)? };
    let threads = args.experts.min(MAX_THREADS).next_multiple_of(SIMD);
    Dispatch::new(&ROUTE, "route")
        .input(logits.floats("logits", m.saturating_mul(experts))?)
        .output(ids.words("ids", m.saturating_mul(top_k))?)
        .output(weights.floats("weights", m.saturating_mul(top_k))?)
        .with_constants(args.bytes())
        .with_threadgroup_memory((experts + top_k).saturating_mul(4))
        .launch([m, 1, 1], threads)
}
