//! Huge pages for large arrays. The only thing done here is a hint to the system.
#![cfg_attr(
    target_os = "linux",
    expect(unsafe_code, reason = "advice on memory is a system call on a pointer")
)]

use candle_core::{DType, Device, Tensor};

use crate::{CandleContext, Error};

/// Arrays smaller than this hardly ever hold a whole huge page.
#[cfg(any(target_os = "linux", test))]
const LEAST: usize = 2 << 20;

/// `len` times `zero`, on huge pages where the system gives them: a walk through weights then
/// waits for fewer page table entries.
pub(crate) fn filled<T: Copy>(len: usize, zero: T) -> Vec<T> {
    let mut values = Vec::with_capacity(len);
    #[cfg(target_os = "linux")]
    advise(values.spare_capacity_mut());
    values.resize(len, zero);
    values
}

/// A tensor of f32 zeros, on huge pages where it is large and the system gives them: for states that
/// every token walks through.
///
/// # Errors
/// [`Error::Candle`] when the device refuses.
pub fn zeros(shape: &[usize], device: &Device) -> Result<Tensor, Error> {
    if !matches!(device, Device::Cpu) {
        return Tensor::zeros(shape, DType::F32, device).within("zeros");
    }
    let values = filled(shape.iter().product(), 0.0_f32);
    Tensor::from_vec(values, shape, device).within("zeros")
}

/// Asks for huge pages under `values`, which nobody has written yet. Without them it is slower,
/// not wrong.
#[cfg(target_os = "linux")]
fn advise<T>(values: &mut [T]) {
    use rustix::mm::{Advice, madvise};
    let bytes = size_of_val(values);
    if bytes < LEAST {
        return;
    }
    let page = rustix::param::page_size();
    let at = values.as_mut_ptr().cast::<u8>();
    // Whole pages inside the array.
    let skip = at.addr().next_multiple_of(page) - at.addr();
    let len = (bytes - skip) / page * page;
    // SAFETY: `skip` is less than a page and the array is longer, so the pages lie within memory
    // that is borrowed exclusively here. The advice changes neither its content nor its being
    // mapped.
    if let Err(error) = unsafe { madvise(at.add(skip).cast(), len, Advice::LinuxHugepage) } {
        tracing::debug!(%error, "huge pages refused");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_of_every_size_are_zero_and_writable() {
        for len in [0, 1, LEAST / 4 - 1, LEAST / 4, LEAST + 4097] {
            let mut values = filled(len, 0_u32);
            assert!(values.len() == len && values.iter().all(|v| *v == 0));
            values.fill(7);
            assert!(values.iter().all(|v| *v == 7));
        }
    }
}
