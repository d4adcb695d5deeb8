//! The op set as plans of the Metal kernels, for whoever carries them out: on a Mac the GPU, in
//! tests elsewhere an emulator.

mod ops;
mod view;

use std::fmt;
use std::sync::Arc;

use candle_core::{DType, Device, Tensor};
use parking_lot::Mutex;
use slotstream_kernels::Rope;
use slotstream_kernels::metal::{Direction, Dispatch, Element, rope_angles};

use crate::device::SlotDevice;
use crate::lease::Reading;
use crate::{CandleContext, Error};

/// What a buffer of a launch is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Resource<'a> {
    /// The memory behind a tensor. Offsets count from its first byte, not from the tensor's.
    Tensor(Tensor),
    /// A table of addresses, 8 bytes each: where the memory of these pages begins.
    Pages(&'a [Tensor]),
    /// A table of addresses, 8 bytes each: where each of the slots that are lent begins.
    Slots(&'a Reading),
}

/// What a GPU says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GpuFigures {
    /// Its own name for its architecture.
    pub architecture: String,
    /// Bytes that may be resident without slowing the machine down, as it recommends.
    pub recommended_bytes: u64,
    /// Bytes that this process has allocated on it.
    pub allocated_bytes: u64,
    /// Bytes of the largest buffer that it takes.
    pub largest_buffer_bytes: u64,
}

/// Carries out plans, in the order in which it gets them.
///
/// A launch sees what launches before it wrote, and what candle's own operations on the same
/// device wrote, before it and after.
pub trait PlanEncoder: Send + Sync + fmt::Debug {
    /// The name under which figures are reported.
    fn name(&self) -> String;

    /// Where tensors lie.
    fn device(&self) -> &Device;

    /// What the GPU says of itself; `None` without one.
    fn figures(&self) -> Option<GpuFigures> {
        None
    }

    /// The device that reads slots; `None` where what is encoded is done at once.
    fn slot_device(&self) -> Option<Arc<dyn SlotDevice>> {
        None
    }

    /// Runs a step of a graph, as [`Ops::step`](crate::Ops::step) does.
    fn step(&self, work: &mut dyn FnMut()) {
        work();
    }

    /// A contiguous tensor of any content.
    ///
    /// # Errors
    /// [`Error::Candle`] when the device refuses.
    fn room(&self, shape: &[usize], dtype: DType) -> Result<Tensor, Error> {
        Tensor::zeros(shape, dtype, self.device()).within("room")
    }

    /// A contiguous tensor of words that the host made.
    ///
    /// # Errors
    /// [`Error::Candle`] when the device refuses.
    fn words(&self, words: Vec<u32>) -> Result<Tensor, Error> {
        let len = words.len();
        Tensor::from_vec(words, len, self.device()).within("upload")
    }

    /// A contiguous tensor of floats that the host made.
    ///
    /// # Errors
    /// [`Error::Candle`] when the device refuses.
    fn floats(&self, floats: Vec<f32>) -> Result<Tensor, Error> {
        let len = floats.len();
        Tensor::from_vec(floats, len, self.device()).within("upload")
    }

    /// Takes launches on.
    ///
    /// # Errors
    /// [`Error`] when a launch cannot be encoded.
    fn encode(&self, launches: Vec<Dispatch<Resource<'_>>>) -> Result<(), Error>;

    /// Waits until everything taken on is done, and gives what the tensors then hold. Meanwhile,
    /// the caller's own thread runs `meanwhile`, whose launches are behind those waited for.
    ///
    /// # Errors
    /// [`Error`] when the device fails, and whatever `meanwhile` answers.
    fn read_back(
        &self,
        ids: &Tensor,
        floats: &[&Tensor],
        meanwhile: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<(Vec<u32>, Vec<Vec<f32>>), Error>;
}

/// The op set over a [`PlanEncoder`].
///
/// Rows do not get the same bits whatever the number of rows in a pass: products of one row and of
/// several add in different orders. The arithmetic is therefore called `fast`.
#[derive(Debug)]
pub struct PlannedOps {
    encoder: Arc<dyn PlanEncoder>,
    element: Element,
    angles: Mutex<Angles>,
}

impl PlannedOps {
    /// Ops whose activations are f32 throughout.
    #[must_use]
    pub fn new(encoder: Arc<dyn PlanEncoder>) -> Self {
        Self { encoder, element: Element::F32, angles: Mutex::default() }
    }

    /// The same with what enters and what leaves products with affine weights rounded to
    /// `element`. Streams, mixers, norms, attention, the delta rule, router and experts stay f32.
    #[must_use]
    pub fn with_element(self, element: Element) -> Self {
        Self { element, ..self }
    }

    fn room(&self, shape: &[usize], dtype: DType) -> Result<Tensor, Error> {
        self.encoder.room(shape, dtype)
    }

    /// Cosines and sines of `m` positions from `position` on, uploaded once a pass and not once a
    /// layer.
    fn angles(&self, rope: &Rope, position: u64, m: usize) -> Result<Tensor, Error> {
        let key = (rope.clone(), position, m);
        if let Some(known) = self.angles.lock().find(&key) {
            return Ok(known);
        }
        let made = self.encoder.floats(rope_angles(rope, position..position + m as u64))?;
        self.angles.lock().keep(key, made.clone());
        Ok(made)
    }
}

/// Which table of angles.
type AnglesKey = (Rope, u64, usize);

/// The tables of the pass: one for its rows, and one for each block that it finishes.
#[derive(Debug, Default)]
struct Angles(Vec<(AnglesKey, Tensor)>);

impl Angles {
    /// Tables kept at most.
    const MOST: usize = 128;

    fn find(&self, key: &AnglesKey) -> Option<Tensor> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, table)| table.clone())
    }

    fn keep(&mut self, key: AnglesKey, table: Tensor) {
        if self.0.len() == Self::MOST {
            self.0.remove(0);
        }
        self.0.push((key, table));
    }
}

/// The tensors that a launch touches, and whether it writes them: what an encoder must keep in
/// order. Slots are not among them: the host writes them, when nothing reads them.
pub fn touched<'l>(
    launch: &'l Dispatch<Resource<'_>>,
) -> impl Iterator<Item = (&'l Tensor, bool)> + 'l {
    launch.binds().iter().flat_map(|bind| {
        let (tensor, pages): (_, &[Tensor]) = match &bind.view.buffer {
            Resource::Tensor(tensor) => (Some(tensor), &[]),
            Resource::Pages(pages) => (None, pages),
            Resource::Slots(_) => (None, &[]),
        };
        let writes = bind.direction != Direction::In;
        tensor.map(|tensor| (tensor, writes)).into_iter().chain(pages.iter().map(|p| (p, false)))
    })
}
