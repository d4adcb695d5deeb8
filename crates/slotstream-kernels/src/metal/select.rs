//! The indexer's choice of blocks.

use super::dispatch::count;
use super::library::{Constants, constants};
use super::{Dispatch, Library, PRELUDE, PlanError, View};

constants!(SelectArgs {
    heads: u32,
    dim: u32,
    page_rows: u32,
    ratio: u32,
    budget: u32,
    blocks: u32,
    position: u32,
});

/// Kernels of this file.
pub static SELECT: Library = Library::new(
    "select",
    &[PRELUDE, include_str!("order.metal"), SelectArgs::MSL, include_str!("select.metal")],
);

/// Bytes that `select_best` of `order.metal` needs: `SELECT_WORDS`.
pub(super) const SELECT_BYTES: usize = (256 + 2 + 32) * 4;

/// f32 rows in pages of equal size, found by address.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct PagedView<B> {
    /// The address of each page, 8 bytes.
    pub pages: View<B>,
    /// Rows a page.
    pub page_rows: usize,
    /// Rows that are there.
    pub rows: usize,
}

impl<B> PagedView<B> {
    /// The table, if it has all pages.
    pub(super) fn table(self, argument: &'static str) -> Result<View<B>, PlanError> {
        if self.page_rows == 0 {
            return Err(PlanError::Parts { what: "rows", of: self.rows, part: 0 });
        }
        self.pages.addresses(argument, self.rows.div_ceil(self.page_rows))
    }
}

/// Shape of the indexer; see [`BlockSelectArgs`](crate::BlockSelectArgs).
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "an argument list")]
pub struct SelectShape {
    /// Indexer heads.
    pub heads: usize,
    /// Width of a head.
    pub dim: usize,
    /// Tokens a block.
    pub ratio: usize,
    /// Most blocks of a query.
    pub budget_blocks: usize,
    /// Position of the first row.
    pub position: usize,
}

/// The best blocks of each of `m` queries `[m, heads, dim]`, ascending, padded with `u32::MAX`:
/// `out[m, budget_blocks]` u32. `scores` is scratch, f32 `[m, blocks]`, where `blocks` is the
/// number that the last row sees; unused when all of them fit the budget.
///
/// # Errors
/// [`PlanError`].
pub fn block_select<B: Clone>(
    m: usize,
    shape: SelectShape,
    queries: View<B>,
    keys: PagedView<B>,
    scores: View<B>,
    out: View<B>,
) -> Result<Vec<Dispatch<B>>, PlanError> {
    let SelectShape { heads, dim, ratio, budget_blocks: budget, position } = shape;
    let tokens = position.saturating_add(m);
    count("tokens", tokens)?;
    if ratio == 0 {
        return Err(PlanError::Parts { what: "tokens", of: tokens, part: 0 });
    }
    let blocks = tokens / ratio;
    let args = SelectArgs {
        heads: count("heads", heads)?,
        dim: count("columns", dim)?,
        page_rows: count("rows", keys.page_rows)?,
        ratio: count("tokens", ratio)?,
        budget: count("blocks", budget)?,
        blocks: count("blocks", blocks)?,
        position: count("tokens", position)?,
    };
    let needed = if blocks > budget { m.saturating_mul(blocks) } else { 0 };
    let scores = scores.floats("scores", needed)?;
    let mut plan = Vec::new();
    if blocks > budget {
        let keys = PagedView { rows: blocks, ..keys };
        let scored = Dispatch::new(&SELECT, "block_scores")
            .input(queries.floats("queries", m.saturating_mul(heads).saturating_mul(dim))?)
            .input(keys.table("keys")?)
            .output(scores.clone())
            .with_constants(args.bytes())
            .launch([blocks.div_ceil(8), m, 1], 256)?;
        plan.push(scored);
    }
    let selected = Dispatch::new(&SELECT, "block_select")
        .input(scores)
        .output(out.words("out", m.saturating_mul(budget))?)
        .with_constants(args.bytes())
        .with_threadgroup_memory(SELECT_BYTES)
        .launch([m, 1, 1], 256)?;
    plan.push(selected);
    Ok(plan)
}
