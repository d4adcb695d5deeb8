//! Attention over selected tokens.

use super::dispatch::count;
use super::library::{Constants, constants};
use super::norm::reducers;
use super::{Dispatch, Library, PRELUDE, PagedView, PlanError, View};

constants!(AttentionArgs {
    heads: u32,
    kv_heads: u32,
    dim: u32,
    position: u32,
    ratio: u32,
    budget: u32,
    page_rows: u32,
    splits: u32,
    gate_row_stride: u32,
    gate_offset: u32,
    gate_head_stride: u32,
});

/// Kernels of this file.
pub static ATTENTION: Library =
    Library::new("attention", &[PRELUDE, AttentionArgs::MSL, include_str!("attention.metal")]);

/// Tokens of a threadgroup: `SPLIT` of `attention.metal`.
const SPLIT: usize = 256;
/// `SIMDGROUPS` of `attention.metal`.
const SIMDGROUPS: usize = 8;
/// `HEAD` of `attention.metal`.
const HEAD: usize = 3;
/// Widest head: `LANE_DIMS` for each lane of a simdgroup.
const MAX_DIM: usize = 256;

/// Shape of the attention; see [`AttentionArgs`](crate::AttentionArgs).
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct AttentionShape {
    /// Query heads.
    pub heads: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// Width of a head, 256 at most.
    pub head_dim: usize,
    /// Position of the first row.
    pub position: usize,
    /// Tokens a block.
    pub ratio: usize,
    /// Blocks of a row of the selection; `None`: every token is seen.
    pub budget_blocks: Option<usize>,
}

impl AttentionShape {
    /// Tokens that a row of a pass of `m` looks at, those of padding included.
    fn tokens(&self, m: usize) -> usize {
        match self.budget_blocks {
            Some(budget) => budget.saturating_mul(self.ratio).saturating_add(self.ratio),
            None => self.position.saturating_add(m),
        }
    }

    fn splits(&self, m: usize) -> usize {
        self.tokens(m).div_ceil(SPLIT).max(1)
    }

    /// Floats of scratch that a pass of `m` rows needs.
    #[must_use]
    pub fn scratch(&self, m: usize) -> usize {
        let heads = m.saturating_mul(self.heads);
        heads.saturating_mul(self.splits(m)).saturating_mul(self.head_dim.saturating_add(HEAD))
    }
}

/// Arrays of the attention; see [`AttentionArgs`](crate::AttentionArgs).
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct AttentionViews<B> {
    /// `[m, heads, head_dim]`.
    pub queries: View<B>,
    /// `[tokens, kv_heads * head_dim]`.
    pub keys: PagedView<B>,
    /// `[tokens, kv_heads * head_dim]`, in pages as large as those of the keys.
    pub values: PagedView<B>,
    /// u32 `[m, budget_blocks]`, padded with `u32::MAX`; not read without a selection.
    pub selection: Option<View<B>>,
    /// Holds the output gates.
    pub gate: View<B>,
    /// Elements between rows of `gate`.
    pub gate_row_stride: usize,
    /// First head within a row of `gate`.
    pub gate_offset: usize,
    /// Elements between heads of `gate`.
    pub gate_head_stride: usize,
    /// f32, [`AttentionShape::scratch`].
    pub partials: View<B>,
}

/// Causal attention over the selected tokens, gated: `out[m, heads * head_dim]`.
///
/// # Errors
/// [`PlanError`].
pub fn indexed_attention<B: Clone>(
    m: usize,
    shape: &AttentionShape,
    views: &AttentionViews<B>,
    out: View<B>,
) -> Result<Vec<Dispatch<B>>, PlanError> {
    let AttentionShape { heads, head_dim: dim, .. } = *shape;
    let args = arguments(m, shape, views)?;
    let rows = m.saturating_mul(heads).saturating_mul(dim);
    let views = views.clone();
    let partials = views.partials.floats("partials", shape.scratch(m))?;
    let tokens = shape.position.saturating_add(m);
    let table = |pages: PagedView<B>, name| PagedView { rows: tokens, ..pages }.table(name);
    let selection = match (shape.budget_blocks, views.selection) {
        (Some(budget), Some(view)) => Some(view.words("selection", m.saturating_mul(budget))?),
        (None, _) => None,
        (Some(budget), None) => {
            let wanted = m.saturating_mul(budget).saturating_mul(4);
            return Err(PlanError::Length { argument: "selection", wanted, got: 0 });
        }
    };
    let kernel = if selection.is_some() { "attention_selected" } else { "attention_dense" };
    let mut attend = Dispatch::new(&ATTENTION, kernel)
        .input(views.queries.floats("queries", rows)?)
        .input(table(views.keys, "keys")?)
        .input(table(views.values, "values")?);
    if let Some(selection) = selection {
        attend = attend.input(selection);
    }
    let attend = attend
        .output(partials.clone())
        .with_constants(args.bytes())
        .with_threadgroup_memory(SIMDGROUPS * (dim + HEAD) * 4)
        .launch([heads, shape.splits(m), m], 256)?;
    let row = views.gate_offset + heads.saturating_sub(1) * views.gate_head_stride + dim;
    let gates = m.saturating_sub(1).saturating_mul(views.gate_row_stride).saturating_add(row);
    let merge = Dispatch::new(&ATTENTION, "attention_merge")
        .input(partials)
        .input(views.gate.floats("gate", gates)?)
        .output(out.floats("out", rows)?)
        .with_constants(args.bytes())
        .launch([heads, m, 1], reducers(dim))?;
    Ok(vec![attend, merge])
}

fn arguments<B>(
    m: usize,
    shape: &AttentionShape,
    views: &AttentionViews<B>,
) -> Result<AttentionArgs, PlanError> {
    let AttentionShape { heads, kv_heads, head_dim: dim, position, ratio, budget_blocks } = *shape;
    if ratio == 0 || kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
        return Err(PlanError::Parts { what: "heads", of: heads, part: kv_heads });
    }
    if dim == 0 || dim > MAX_DIM {
        return Err(PlanError::Limit { what: "columns", got: dim, least: 1, most: MAX_DIM });
    }
    if views.keys.page_rows != views.values.page_rows {
        let (of, part) = (views.values.page_rows, views.keys.page_rows);
        return Err(PlanError::Parts { what: "rows", of, part });
    }
    count("tokens", position.saturating_add(m))?;
    count("tokens", shape.tokens(m).saturating_add(SPLIT))?;
    Ok(AttentionArgs {
        heads: count("heads", heads)?,
        kv_heads: count("heads", kv_heads)?,
        dim: count("columns", dim)?,
        position: count("tokens", position)?,
        ratio: count("tokens", ratio)?,
        budget: count("blocks", budget_blocks.unwrap_or(0))?,
        page_rows: count("rows", views.keys.page_rows)?,
        splits: count("splits", shape.splits(m))?,
        gate_row_stride: count("columns", views.gate_row_stride)?,
        gate_offset: count("columns", views.gate_offset)?,
        gate_head_stride: count("columns", views.gate_head_stride)?,
    })
}
