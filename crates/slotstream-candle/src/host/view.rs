//! Host slices behind candle tensors.

use std::cell::RefCell;
use std::marker::PhantomData;

use candle_core::{CpuStorage, InplaceOp1, Layout, Storage, StorageRef, Tensor, WithDType};
use half::bf16;
use slotstream_kernels::{AffineMatrix, Bf16Matrix};

use crate::checks::wrong_shape;
use crate::{AffineWeight, Error};

/// A contiguous host tensor, locked for reading.
pub(super) struct View<'a, T> {
    op: &'static str,
    name: &'static str,
    guard: StorageRef<'a>,
    range: std::ops::Range<usize>,
    marker: PhantomData<T>,
}

impl<'a, T: WithDType> View<'a, T> {
    pub(super) fn new(
        op: &'static str,
        name: &'static str,
        tensor: &'a Tensor,
    ) -> Result<Self, Error> {
        let (guard, layout) = tensor.storage_and_layout();
        let Some((start, end)) = layout.contiguous_offsets() else {
            let found = format!("strided as {:?}", layout.stride());
            return Err(Error::Storage { op, tensor: name, expected: "contiguous", found });
        };
        let view = Self { op, name, guard, range: start..end, marker: PhantomData };
        view.slice()?;
        Ok(view)
    }

    /// The same, refusing any other number of elements than `len`.
    pub(super) fn with_len(
        op: &'static str,
        name: &'static str,
        tensor: &'a Tensor,
        len: usize,
    ) -> Result<Self, Error> {
        if tensor.elem_count() != len {
            return Err(wrong_shape(op, name, tensor.dims(), &[len]));
        }
        Self::new(op, name, tensor)
    }

    pub(super) fn slice(&self) -> Result<&[T], Error> {
        let storage = cpu(self.op, self.name, &self.guard)?;
        let all = storage.as_slice::<T>().map_err(|source| Error::candle(self.op, source))?;
        Ok(&all[self.range.clone()])
    }
}

fn cpu<'a>(
    op: &'static str,
    tensor: &'static str,
    storage: &'a Storage,
) -> Result<&'a CpuStorage, Error> {
    match storage {
        Storage::Cpu(storage) => Ok(storage),
        _ => Err(Error::Storage {
            op,
            tensor,
            expected: "on the CPU",
            found: "on another device".into(),
        }),
    }
}

/// The bytes of a u32 or bf16 tensor.
pub(super) enum BytesView<'a> {
    Words(View<'a, u32>),
    Halves(View<'a, bf16>),
}

impl<'a> BytesView<'a> {
    pub(super) fn words(op: &'static str, tensor: &'a Tensor) -> Result<Self, Error> {
        View::new(op, "weight", tensor).map(Self::Words)
    }

    pub(super) fn bf16(op: &'static str, tensor: &'a Tensor) -> Result<Self, Error> {
        View::new(op, "weight", tensor).map(Self::Halves)
    }

    pub(super) fn bytes(&self) -> Result<&[u8], Error> {
        match self {
            Self::Words(view) => view.slice().map(bytemuck::cast_slice),
            Self::Halves(view) => view.slice().map(bytemuck::cast_slice),
        }
    }

    pub(super) fn bf16_matrix(&self, rows: usize, cols: usize) -> Result<Bf16Matrix<'_>, Error> {
        Bf16Matrix::new(rows, cols, self.bytes()?)
            .map_err(|source| Error::Matrix { op: "bf16_matmul", source })
    }
}

/// The three arrays of an affine weight.
pub(super) struct AffineView<'a> {
    op: &'static str,
    weight: &'a AffineWeight,
    arrays: [BytesView<'a>; 3],
}

impl<'a> AffineView<'a> {
    pub(super) fn new(op: &'static str, weight: &'a AffineWeight) -> Result<Self, Error> {
        let [words, scales, biases] = weight.tensors();
        let arrays = [
            BytesView::words(op, words)?,
            BytesView::bf16(op, scales)?,
            BytesView::bf16(op, biases)?,
        ];
        Ok(Self { op, weight, arrays })
    }

    pub(super) fn matrix(&self) -> Result<AffineMatrix<'_>, Error> {
        let [words, scales, biases] = &self.arrays;
        let (rows, cols) = (self.weight.rows(), self.weight.cols());
        AffineMatrix::new(
            self.weight.format(),
            rows,
            cols,
            words.bytes()?,
            scales.bytes()?,
            biases.bytes()?,
        )
        .map_err(|source| Error::Matrix { op: self.op, source })
    }
}

/// Elements of host storage.
pub(super) trait Element: Sized {
    const NAME: &'static str;

    fn of(storage: &mut CpuStorage) -> Option<&mut [Self]>;
}

impl Element for f32 {
    const NAME: &'static str = "f32";

    fn of(storage: &mut CpuStorage) -> Option<&mut [Self]> {
        if let CpuStorage::F32(all) = storage { Some(all) } else { None }
    }
}

impl Element for u32 {
    const NAME: &'static str = "u32";

    fn of(storage: &mut CpuStorage) -> Option<&mut [Self]> {
        if let CpuStorage::U32(all) = storage { Some(all) } else { None }
    }
}

/// Runs `write` on the elements of a contiguous host tensor, in place.
pub(super) fn in_place<T: Element>(
    op: &'static str,
    name: &'static str,
    tensor: &Tensor,
    write: impl FnOnce(&mut [T]) -> Result<(), Error>,
) -> Result<(), Error> {
    let action = Write {
        op,
        tensor: name,
        write: RefCell::new(Some(write)),
        outcome: RefCell::new(Ok(())),
        marker: PhantomData,
    };
    tensor.inplace_op1(&action).map_err(|source| Error::candle(op, source))?;
    action.outcome.into_inner()
}

struct Write<T, F> {
    op: &'static str,
    tensor: &'static str,
    write: RefCell<Option<F>>,
    /// The closure's own result: candle's error type would lose its fields.
    outcome: RefCell<Result<(), Error>>,
    marker: PhantomData<T>,
}

impl<T: Element, F: FnOnce(&mut [T]) -> Result<(), Error>> InplaceOp1 for Write<T, F> {
    fn name(&self) -> &'static str {
        self.op
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        let wrong = |expected, found: String| {
            Err(Error::Storage { op: self.op, tensor: self.tensor, expected, found })
        };
        let outcome = match (layout.contiguous_offsets(), T::of(storage)) {
            (Some((start, end)), Some(all)) => match self.write.take() {
                Some(write) => write(&mut all[start..end]),
                None => Ok(()),
            },
            (None, _) => wrong("contiguous", format!("strided as {:?}", layout.stride())),
            (_, None) => wrong(T::NAME, "of another element type".into()),
        };
        *self.outcome.borrow_mut() = outcome;
        Ok(())
    }
}
