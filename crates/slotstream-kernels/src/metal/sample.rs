//! Choices among the logits of a vocabulary.

use super::dispatch::count;
use super::library::{Constants, constants};
use super::select::SELECT_BYTES;
use super::{Dispatch, Library, MAX_THREADS, PRELUDE, PlanError, View};

constants!(SampleArgs { n: u32, k: u32 });

/// Kernels of this file.
pub static SAMPLE: Library = Library::new(
    "sample",
    &[PRELUDE, include_str!("order.metal"), SampleArgs::MSL, include_str!("sample.metal")],
);

/// The id of the largest of the logits `[m, n]` of each row: `out[m]` u32. Ties: the lower id; NaN
/// counts as less than everything.
///
/// # Errors
/// [`PlanError`].
pub fn argmax<B>(
    m: usize,
    n: usize,
    logits: View<B>,
    out: View<B>,
) -> Result<Dispatch<B>, PlanError> {
    if n == 0 {
        return Err(PlanError::Limit { what: "logits", got: 0, least: 1, most: u32::MAX as usize });
    }
    let args = SampleArgs { n: count("logits", n)?, k: 1 };
    Dispatch::new(&SAMPLE, "argmax")
        .input(logits.floats("logits", m.saturating_mul(n))?)
        .output(out.words("out", m)?)
        .with_constants(args.bytes())
        .with_threadgroup_memory(64 * 4)
        .launch([m, 1, 1], MAX_THREADS)
}

/// The `k` largest of the logits `[m, n]` of each row, descending: `ids[m, k]` u32 and
/// `values[m, k]`. Ties and NaN as for [`argmax`].
///
/// # Errors
/// [`PlanError`]; threadgroup memory limits `k` to about 3,900.
pub fn top_k<B>(
    m: usize,
    n: usize,
    k: usize,
    logits: View<B>,
    ids: View<B>,
    values: View<B>,
) -> Result<Dispatch<B>, PlanError> {
    if k == 0 || k > n {
        return Err(PlanError::Limit { what: "logits", got: k, least: 1, most: n });
    }
    let args = SampleArgs { n: count("logits", n)?, k: count("logits", k)? };
    // The last chunk of a row ends past it.
    count("logits", n.saturating_add(MAX_THREADS as usize))?;
    Dispatch::new(&SAMPLE, "top_k")
        .input(logits.floats("logits", m.saturating_mul(n))?)
        .output(ids.words("ids", m.saturating_mul(k))?)
        .output(values.floats("values", m.saturating_mul(k))?)
        .with_constants(args.bytes())
        .with_threadgroup_memory(k.saturating_mul(8).saturating_add(SELECT_BYTES))
        .launch([m, 1, 1], MAX_THREADS)
}
