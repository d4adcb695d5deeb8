//! What every op set checks of its arguments: functions of the name of an operation check those of
//! that operation, and give the sizes they found.

use candle_core::Tensor;
use slotstream_core::{RecordLayout, SlotId};

use crate::ops::{AttentionInputs, BlockShape, DeltaInputs, DeltaRecord, HeadLayout, SlotRows};
use crate::{DeltaWeight, Error, PagedTensor};

pub(crate) fn wrong_shape(
    op: &'static str,
    tensor: &'static str,
    found: &[usize],
    expected: &[usize],
) -> Error {
    Error::Shape { op, tensor, expected: expected.to_vec(), found: found.to_vec() }
}

/// The two dimensions of a matrix.
pub(crate) fn matrix2(
    op: &'static str,
    name: &'static str,
    tensor: &Tensor,
) -> Result<(usize, usize), Error> {
    match *tensor.dims() {
        [m, n] => Ok((m, n)),
        _ => Err(wrong_shape(op, name, tensor.dims(), &[0, 0])),
    }
}

/// The rows of a matrix; refuses it unless it has `cols` columns.
pub(crate) fn rows_of(
    op: &'static str,
    name: &'static str,
    tensor: &Tensor,
    cols: usize,
) -> Result<usize, Error> {
    let (m, found) = matrix2(op, name, tensor)?;
    if found == cols { Ok(m) } else { Err(wrong_shape(op, name, &[m, found], &[m, cols])) }
}

/// Refuses heads that reach past the end of a row.
fn check_heads(op: &'static str, heads: HeadLayout, row: usize) -> Result<(), Error> {
    let last = heads.offset + heads.heads.saturating_sub(1) * heads.stride + heads.dim;
    if last > row {
        return Err(wrong_shape(op, "heads", &[row], &[last]));
    }
    Ok(())
}

/// Refuses values that are not below `limit`.
pub(crate) fn check_range(
    op: &'static str,
    what: &'static str,
    values: &[u32],
    limit: usize,
) -> Result<(), Error> {
    match values.iter().find(|v| **v as usize >= limit) {
        Some(v) => Err(Error::Range { op, what, value: u64::from(*v), limit: limit as u64 }),
        None => Ok(()),
    }
}

/// Rows, streams and the width of a stream.
pub(crate) fn hc_inject(
    h: &Tensor,
    inject: &Tensor,
    y: &Tensor,
) -> Result<(usize, usize, usize), Error> {
    const OP: &str = "hc_inject";
    let (m, hidden) = matrix2(OP, "y", y)?;
    let (rows, streams) = matrix2(OP, "inject", inject)?;
    let expected = [m, streams * hidden];
    if rows != m || h.dims() != expected {
        return Err(wrong_shape(OP, "h", h.dims(), &expected));
    }
    Ok((m, streams, hidden))
}

/// Rows that come out, channels and taps.
pub(crate) fn conv_silu(
    window: &Tensor,
    weight: &Tensor,
    dilation: usize,
) -> Result<(usize, usize, usize), Error> {
    const OP: &str = "conv_silu";
    let (channels, kernel) = matrix2(OP, "weight", weight)?;
    let history = kernel.saturating_sub(1) * dilation;
    let rows = rows_of(OP, "window", window, channels)?;
    match rows.checked_sub(history) {
        Some(m) if kernel > 0 => Ok((m, channels, kernel)),
        _ => Err(wrong_shape(OP, "window", window.dims(), &[history + 1, channels])),
    }
}

/// Rows.
pub(crate) fn gated_delta(
    inputs: &DeltaInputs<'_>,
    w: &DeltaWeight,
    state: &Tensor,
    record: Option<DeltaRecord<'_>>,
) -> Result<usize, Error> {
    const OP: &str = "gated_delta";
    let (nk, nv, dk, dv) = (w.key_heads, w.value_heads, w.key_dim, w.value_dim);
    let m = rows_of(OP, "qkv", inputs.qkv, 2 * nk * dk + nv * dv)?;
    if state.dims() != [nv, dk, dv] {
        return Err(wrong_shape(OP, "state", state.dims(), &[nv, dk, dv]));
    }
    match record {
        Some(record) if record.entries.len() != m => {
            Err(wrong_shape(OP, "entries", &[record.entries.len()], &[m]))
        }
        _ => Ok(m),
    }
}

/// Rows, and elements between them.
pub(crate) fn norm_rope(x: &Tensor, heads: HeadLayout) -> Result<(usize, usize), Error> {
    let (m, row) = matrix2("norm_rope", "x", x)?;
    check_heads("norm_rope", heads, row)?;
    Ok((m, row))
}

/// Rows, and the blocks that the last of them sees.
pub(crate) fn block_select(
    queries: &Tensor,
    keys: &PagedTensor,
    shape: BlockShape,
    position: u64,
) -> Result<(usize, usize), Error> {
    const OP: &str = "block_select";
    let m = rows_of(OP, "queries", queries, shape.heads * keys.width())?;
    let visible = (position as usize + m) / shape.ratio.max(1);
    if visible > keys.len() {
        let (value, limit) = (visible as u64, keys.len() as u64 + 1);
        return Err(Error::Range { op: OP, what: "visible blocks", value, limit });
    }
    Ok((m, visible))
}

/// Rows, and elements between the gates of one and of the next.
pub(crate) fn indexed_attention(inputs: &AttentionInputs<'_>) -> Result<(usize, usize), Error> {
    const OP: &str = "indexed_attention";
    let (m, gate_row) = matrix2(OP, "gate", inputs.gate)?;
    check_heads(OP, inputs.gate_layout, gate_row)?;
    let width = inputs.kv_heads * inputs.gate_layout.dim;
    let seen = inputs.position as usize + m;
    for (name, paged) in [("keys", inputs.keys), ("values", inputs.values)] {
        if paged.width() != width || paged.len() < seen {
            return Err(wrong_shape(OP, name, &[paged.len(), paged.width()], &[seen, width]));
        }
    }
    Ok((m, gate_row))
}

/// Rows and experts.
pub(crate) fn route(logits: &Tensor, top_k: usize) -> Result<(usize, usize), Error> {
    const OP: &str = "route";
    let (m, experts) = matrix2(OP, "logits", logits)?;
    if top_k > experts {
        let (value, limit) = (top_k as u64, experts as u64 + 1);
        return Err(Error::Range { op: OP, what: "top-k", value, limit });
    }
    Ok((m, experts))
}

/// Rows that go in, and places for those that come out.
pub(crate) fn expert_mlp(
    layout: &RecordLayout,
    experts: &[SlotRows<'_>],
    x: &Tensor,
    out: &Tensor,
) -> Result<(usize, usize), Error> {
    const OP: &str = "expert_mlp";
    let hidden = layout.shape().hidden();
    let (m, places) = (rows_of(OP, "x", x, hidden)?, rows_of(OP, "out", out, hidden)?);
    for expert in experts {
        check_range(OP, "row", expert.rows, m)?;
        check_range(OP, "place", expert.places, places)?;
    }
    Ok((m, places))
}

/// An expert whose slot the call was not lent.
pub(crate) fn not_lent(slot: SlotId) -> Error {
    Error::SlotBusy { slot, purpose: "reading", state: "not lent to this call" }
}

/// Rows, experts of a row, and width.
pub(crate) fn rank_sum(y: &Tensor, weights: &Tensor) -> Result<(usize, usize, usize), Error> {
    const OP: &str = "rank_sum";
    let ((m, top_k), (places, hidden)) = (matrix2(OP, "weights", weights)?, matrix2(OP, "y", y)?);
    if places != m * top_k {
        return Err(wrong_shape(OP, "y", y.dims(), &[m * top_k, hidden]));
    }
    Ok((m, top_k, hidden))
}
