//! The gated delta rule.

use super::dispatch::count;
use super::library::{Constants, constants};
use super::{Dispatch, Library, PRELUDE, PlanError, SIMD, View};

constants!(DeltaArgs {
    m: u32,
    key_heads: u32,
    value_heads: u32,
    key_dim: u32,
    value_dim: u32,
    sigmoid_gate: u32,
    eps: f32,
});

/// Kernels of this file.
pub static DELTA: Library =
    Library::new("delta", &[PRELUDE, DeltaArgs::MSL, include_str!("delta.metal")]);

/// Rows of a state's column that a thread keeps: `KEYS` of `delta.metal`.
const KEYS: usize = 32;

/// Shape of the gated delta rule; see [`GatedDeltaArgs`](crate::GatedDeltaArgs).
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct DeltaShape {
    /// Key heads.
    pub key_heads: usize,
    /// Value heads, a multiple of the key heads.
    pub value_heads: usize,
    /// Width of a key head.
    pub key_dim: usize,
    /// Width of a value head.
    pub value_dim: usize,
    /// Whether the output gate is a sigmoid, else SiLU.
    pub sigmoid_gate: bool,
    /// `rms_norm_eps`.
    pub eps: f32,
}

/// Inputs of the gated delta rule, f32; see [`GatedDeltaArgs`](crate::GatedDeltaArgs).
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct DeltaViews<B> {
    /// `[m, 2 * key_heads * key_dim + value_heads * value_dim]`.
    pub qkv: View<B>,
    /// `[m, value_heads]`.
    pub a: View<B>,
    /// `[m, value_heads]`.
    pub b: View<B>,
    /// `[m, value_heads * value_dim]`.
    pub z: View<B>,
    /// `[value_heads]`.
    pub a_log: View<B>,
    /// `[value_heads]`.
    pub dt_bias: View<B>,
    /// `[value_dim]`.
    pub norm: View<B>,
}

/// Where the states after the rows of a pass are kept.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct DeltaRing<B> {
    /// For each row the entry of the ring, u32 `[m]`; `u32::MAX`: its state is not kept.
    pub entries: View<B>,
    /// f32 `[count, value_heads, key_dim, value_dim]`.
    pub ring: View<B>,
    /// Entries of the ring.
    pub count: usize,
}

/// Gated delta rule over `m` rows: `out[m, value_heads * value_dim]`; advances
/// `state[value_heads, key_dim, value_dim]`.
///
/// # Errors
/// [`PlanError`]; the heads of a state that is too large need more threads than there are.
pub fn gated_delta<B: Clone>(
    m: usize,
    shape: &DeltaShape,
    inputs: &DeltaViews<B>,
    state: View<B>,
    ring: Option<&DeltaRing<B>>,
    out: View<B>,
) -> Result<Dispatch<B>, PlanError> {
    let &DeltaShape { key_heads, value_heads: heads, key_dim, value_dim, .. } = shape;
    if key_heads == 0 || !heads.is_multiple_of(key_heads) {
        return Err(PlanError::Parts { what: "value heads", of: heads, part: key_heads });
    }
    let threads = key_dim.div_ceil(KEYS).saturating_mul(value_dim.next_multiple_of(SIMD as usize));
    let (keys, values) = (key_heads.saturating_mul(key_dim), heads.saturating_mul(value_dim));
    let cells = values.saturating_mul(key_dim);
    let rows = |width: usize| m.saturating_mul(width);
    let kernel = if ring.is_some() { "gated_delta_record" } else { "gated_delta" };
    let input = inputs.clone();
    let mut plan = Dispatch::new(&DELTA, kernel)
        .input(input.qkv.floats("qkv", rows(2 * keys + values))?)
        .input(input.a.floats("a", rows(heads))?)
        .input(input.b.floats("b", rows(heads))?)
        .input(input.z.floats("z", rows(values))?)
        .input(input.a_log.floats("a_log", heads)?)
        .input(input.dt_bias.floats("dt_bias", heads)?)
        .input(input.norm.floats("norm", value_dim)?)
        .update(state.floats("state", cells)?)
        .output(out.floats("out", rows(values))?);
    if let Some(ring) = ring.cloned() {
        plan = plan
            .input(ring.entries.words("entries", m)?)
            .update(ring.ring.floats("ring", ring.count.saturating_mul(cells))?);
    }
    plan.with_constants(arguments(m, shape)?.bytes())
        .with_threadgroup_memory((2 * key_dim + threads.saturating_mul(2)).saturating_mul(4))
        .launch([heads, 1, 1], count("threads", threads)?)
}

fn arguments(m: usize, shape: &DeltaShape) -> Result<DeltaArgs, PlanError> {
    Ok(DeltaArgs {
        m: count("rows", m)?,
        key_heads: count("heads", shape.key_heads)?,
        value_heads: count("heads", shape.value_heads)?,
        key_dim: count("columns", shape.key_dim)?,
        value_dim: count("columns", shape.value_dim)?,
        sigmoid_gate: u32::from(shape.sigmoid_gate),
        eps: shape.eps,
    })
}
