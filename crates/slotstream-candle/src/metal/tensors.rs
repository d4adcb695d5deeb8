//! Tensors as buffers, and what they hold.

use std::sync::Arc;

use candle_core::{Storage, Tensor, WithDType};
use candle_metal_kernels::metal::Buffer;
use objc2::runtime::ProtocolObject;
use objc2_metal::{MTLBuffer, MTLResource as _, MTLStorageMode};

use crate::{CandleContext, Error};

/// What a tensor holds, which nothing that is still running writes.
pub(super) fn values<T: Copy + WithDType>(tensor: &Tensor) -> Result<Vec<T>, Error> {
    const OP: &str = "read back";
    let (buffer, start) = buffer_of(tensor)?;
    let bytes = tensor.elem_count() * size_of::<T>();
    let shared = metal_buffer(&buffer).storageMode() == MTLStorageMode::Shared;
    if !shared || !tensor.is_contiguous() || tensor.dtype() != T::DTYPE {
        // Candle's own, which copies and waits once more.
        return tensor.flatten_all().and_then(|t| t.to_vec1()).within(OP);
    }
    if start + bytes > buffer.length() {
        let (expected, found) = (vec![start + bytes], vec![buffer.length()]);
        return Err(Error::Shape { op: OP, tensor: "float", expected, found });
    }
    // SAFETY: the buffer is memory that host and GPU share, and holds the range (checked); it
    // stays while `buffer` does. `start` is a multiple of the element's size, and the buffer
    // begins at a page. Its type is `T` (checked), for which every bit pattern is a value. The
    // GPU has ended all that was encoded before the wait, and what is encoded since writes
    // other tensors: the pool gives nobody a buffer that a tensor holds.
    let values = unsafe {
        std::slice::from_raw_parts(buffer.contents().add(start).cast::<T>(), bytes / size_of::<T>())
    };
    Ok(values.to_vec())
}

/// The objects behind candle's wrapper.
pub(super) fn metal_buffer(buffer: &Buffer) -> &ProtocolObject<dyn MTLBuffer> {
    buffer.as_ref()
}

/// The buffer of a tensor, and at which byte of it the tensor begins.
pub(super) fn buffer_of(tensor: &Tensor) -> Result<(Arc<Buffer>, usize), Error> {
    let (storage, layout) = tensor.storage_and_layout();
    match &*storage {
        Storage::Metal(storage) => {
            let start = layout.start_offset() * tensor.dtype().size_in_bytes();
            Ok((Arc::new(storage.buffer().clone()), start))
        }
        _ => Err(Error::Storage {
            op: "encode",
            tensor: "argument",
            expected: "on the GPU",
            found: "on another device".to_owned(),
        }),
    }
}
