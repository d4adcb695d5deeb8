//! Tensors that are used again.

use std::sync::{Mutex, PoisonError};

use candle_core::{DType, Device, Tensor};

use crate::{CandleContext, Error};

/// Rows of the largest tensors that are kept: those of decoding. What a prompt's passes need is
/// given back to the system, so that it is not held beside the next ones.
const ROWS: usize = 8;

/// Tensors of each shape kept, more than a graph ever holds at once.
const MOST: usize = 8;

/// Tensors that nobody uses any more, for outputs of the same shape.
#[derive(Debug, Default)]
pub(super) struct Spare(Mutex<Vec<Tensor>>);

impl Spare {
    /// Keeps `tensor`, if one like it may be asked for.
    pub(super) fn put(&self, tensor: Tensor) {
        let few = matches!(*tensor.dims(), [rows, _] if rows <= ROWS);
        if !few || !matches!(tensor.device(), Device::Cpu) || !is_whole(&tensor) {
            return;
        }
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let alike = |t: &&Tensor| t.dims() == tensor.dims() && t.dtype() == tensor.dtype();
        if free.iter().filter(alike).count() < MOST {
            free.push(tensor);
        }
    }

    /// A tensor of this shape with unspecified content.
    pub(super) fn take(
        &self,
        op: &'static str,
        shape: (usize, usize),
        dtype: DType,
    ) -> Result<Tensor, Error> {
        if shape.0 <= ROWS {
            let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let fits = |t: &Tensor| *t.dims() == [shape.0, shape.1] && t.dtype() == dtype;
            if let Some(i) = free.iter().position(fits) {
                return Ok(free.swap_remove(i));
            }
        }
        Tensor::zeros(shape, dtype, &Device::Cpu).within(op)
    }
}

/// Whether the tensor is all of its memory, not a view of a larger one.
fn is_whole(tensor: &Tensor) -> bool {
    let (storage, layout) = tensor.storage_and_layout();
    let held = match &*storage {
        candle_core::Storage::Cpu(candle_core::CpuStorage::F32(all)) => all.len(),
        candle_core::Storage::Cpu(candle_core::CpuStorage::U32(all)) => all.len(),
        _ => return false,
    };
    layout.contiguous_offsets() == Some((0, held))
}
