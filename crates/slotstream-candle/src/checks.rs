//! What every op set checks of its arguments.

use candle_core::Tensor;

use crate::Error;
use crate::ops::HeadLayout;

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

/// Refuses `x[m, found]` unless it is `[m, expected]`.
pub(crate) fn check_cols(
    op: &'static str,
    name: &'static str,
    (m, found): (usize, usize),
    expected: usize,
) -> Result<usize, Error> {
    if found == expected { Ok(m) } else { Err(wrong_shape(op, name, &[m, found], &[m, expected])) }
}

/// Refuses heads that reach past the end of a row.
pub(crate) fn check_heads(op: &'static str, heads: HeadLayout, row: usize) -> Result<(), Error> {
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
