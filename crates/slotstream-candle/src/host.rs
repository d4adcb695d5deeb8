//! The op set on the host: candle CPU tensors over any [`Kernels`].

mod ops;
mod spare;
mod view;

use std::sync::Arc;

use candle_core::{DType, Tensor};
use slotstream_kernels::Kernels;

use self::spare::Spare;
use self::view::{View, in_place};
use crate::{Error, PagedTensor};

/// The op set on the host.
#[derive(Clone, Debug)]
pub struct HostOps {
    kernels: Arc<dyn Kernels>,
    spare: Arc<Spare>,
}

impl HostOps {
    /// Ops over these kernels.
    #[must_use]
    pub fn new(kernels: Arc<dyn Kernels>) -> Self {
        Self { kernels, spare: Arc::default() }
    }

    /// A tensor that `write` overwrites whole.
    fn output(
        &self,
        op: &'static str,
        shape: (usize, usize),
        write: impl FnOnce(&mut [f32]),
    ) -> Result<Tensor, Error> {
        let tensor = self.spare.take(op, shape, DType::F32)?;
        in_place(op, "out", &tensor, |out: &mut [f32]| {
            write(out);
            Ok(())
        })?;
        Ok(tensor)
    }

    /// Two tensors that `write` overwrites whole.
    fn outputs(
        &self,
        op: &'static str,
        [first, second]: [(usize, usize); 2],
        write: impl FnOnce(&mut [f32], &mut [f32]),
    ) -> Result<(Tensor, Tensor), Error> {
        let other = self.spare.take(op, second, DType::F32)?;
        let lend = |one: &mut [f32]| {
            in_place(op, "out", &other, |other: &mut [f32]| {
                write(one, other);
                Ok(())
            })
        };
        let one = self.spare.take(op, first, DType::F32)?;
        in_place(op, "out", &one, lend)?;
        Ok((one, other))
    }

    fn pages<'a>(op: &'static str, paged: &'a PagedTensor) -> Result<Vec<View<'a, f32>>, Error> {
        paged.pages().iter().map(|page| View::new(op, "page", page)).collect()
    }
}
