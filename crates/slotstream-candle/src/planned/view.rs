//! Tensors as the views of plans.

use candle_core::{DType, Tensor};
use slotstream_kernels::metal::{AffineView, Bf16View, PagedView, View};

use super::Resource;
use crate::lease::Reading;
use crate::{AffineWeight, Bf16Weight, Error, PagedTensor};

/// A view of what a launch touches.
pub(super) type Bytes<'a> = View<Resource<'a>>;

/// The bytes of a contiguous tensor of this type.
pub(super) fn bytes(
    op: &'static str,
    name: &'static str,
    tensor: &Tensor,
    dtype: DType,
) -> Result<Bytes<'static>, Error> {
    let wrong = |expected, found| Error::Storage { op, tensor: name, expected, found };
    if tensor.dtype() != dtype {
        return Err(wrong(dtype.as_str(), format!("of {}", tensor.dtype().as_str())));
    }
    let Some((start, end)) = tensor.layout().contiguous_offsets() else {
        return Err(wrong("contiguous", format!("strided as {:?}", tensor.layout().stride())));
    };
    let size = dtype.size_in_bytes();
    Ok(View::new(Resource::Tensor(tensor.clone()), start * size, (end - start) * size))
}

/// The bytes of a contiguous f32 tensor.
pub(super) fn floats(
    op: &'static str,
    name: &'static str,
    tensor: &Tensor,
) -> Result<Bytes<'static>, Error> {
    bytes(op, name, tensor, DType::F32)
}

/// The bytes of a contiguous u32 tensor.
pub(super) fn words(
    op: &'static str,
    name: &'static str,
    tensor: &Tensor,
) -> Result<Bytes<'static>, Error> {
    bytes(op, name, tensor, DType::U32)
}

pub(super) fn affine(
    op: &'static str,
    w: &AffineWeight,
) -> Result<AffineView<Resource<'static>>, Error> {
    let [weight, scales, biases] = w.tensors();
    Ok(AffineView {
        format: w.format(),
        rows: w.rows(),
        cols: w.cols(),
        weight: words(op, "weight", weight)?,
        scales: bytes(op, "scales", scales, DType::BF16)?,
        biases: bytes(op, "biases", biases, DType::BF16)?,
    })
}

pub(super) fn bf16(op: &'static str, w: &Bf16Weight) -> Result<Bf16View<Resource<'static>>, Error> {
    let weight = bytes(op, "weight", w.tensor(), DType::BF16)?;
    Ok(Bf16View { rows: w.rows(), cols: w.cols(), weight })
}

pub(super) fn paged(paged: &PagedTensor) -> PagedView<Resource<'_>> {
    let pages = paged.pages();
    let table = View::new(Resource::Pages(pages), 0, 8 * pages.len());
    PagedView { pages: table, page_rows: paged.page_rows(), rows: paged.len() }
}

pub(super) fn slots(slots: &Reading) -> Bytes<'_> {
    View::new(Resource::Slots(slots), 0, 8 * slots.slots().count())
}
