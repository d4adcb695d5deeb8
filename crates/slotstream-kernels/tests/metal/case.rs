//! A case: what memory holds, what is launched, and what must come out.

use slotstream_core::bf16_to_f32;
use slotstream_emulator::{BufferId, Emulator, Memory, Order};
use slotstream_kernels::metal::{AffineView, Bf16View, Dispatch, Element, View};

use crate::data::{Affine, Bf16, narrow};

/// What a result must be.
enum Want {
    /// Within `tolerance` of the value, relative to it and to the root mean square of all; what is
    /// not finite is the same.
    Close { element: Element, values: Vec<f32>, tolerance: f32 },
    /// These words.
    Words(Vec<u32>),
}

/// One case. Its outputs are full of NaN before the first launch.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) memory: Memory,
    pub(crate) launches: Vec<Dispatch<BufferId>>,
    results: Vec<(View<BufferId>, Want)>,
}

impl Case {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        let (launches, results) = (Vec::new(), Vec::new());
        Self { name: name.into(), memory: Memory::new(), launches, results }
    }

    fn whole(&self, buffer: BufferId) -> View<BufferId> {
        View::new(buffer, 0, self.memory.len(buffer))
    }

    pub(crate) fn bytes(&mut self, bytes: Vec<u8>) -> View<BufferId> {
        let buffer = self.memory.bytes(bytes);
        self.whole(buffer)
    }

    pub(crate) fn floats(&mut self, values: &[f32]) -> View<BufferId> {
        let buffer = self.memory.floats(values);
        self.whole(buffer)
    }

    pub(crate) fn words(&mut self, values: &[u32]) -> View<BufferId> {
        let buffer = self.memory.words(values);
        self.whole(buffer)
    }

    /// Values of this type, which are bf16 already.
    pub(crate) fn elements(&mut self, element: Element, values: &[f32]) -> View<BufferId> {
        match element {
            Element::F32 => self.floats(values),
            Element::Bf16 => self.bytes(narrow(values)),
        }
    }

    /// Room for `len` elements, full of NaN.
    pub(crate) fn room(&mut self, element: Element, len: usize) -> View<BufferId> {
        let buffer = self.memory.poisoned(len * element.size());
        self.whole(buffer)
    }

    /// Room for `len` floats or words, full of NaN.
    pub(crate) fn scratch(&mut self, len: usize) -> View<BufferId> {
        self.room(Element::F32, len)
    }

    pub(crate) fn affine(&mut self, w: &Affine) -> AffineView<BufferId> {
        AffineView {
            format: w.format,
            rows: w.rows,
            cols: w.cols,
            weight: self.bytes(w.weight.clone()),
            scales: self.bytes(w.scales.clone()),
            biases: self.bytes(w.biases.clone()),
        }
    }

    pub(crate) fn bf16(&mut self, w: &Bf16) -> Bf16View<BufferId> {
        Bf16View { rows: w.rows, cols: w.cols, weight: self.bytes(w.bytes.clone()) }
    }

    pub(crate) fn launch(&mut self, launch: Dispatch<BufferId>) {
        self.launches.push(launch);
    }

    pub(crate) fn want(
        &mut self,
        element: Element,
        view: View<BufferId>,
        values: Vec<f32>,
        tolerance: f32,
    ) {
        assert_eq!(view.len, values.len() * element.size(), "{}", self.name);
        self.results.push((view, Want::Close { element, values, tolerance }));
    }

    pub(crate) fn want_floats(&mut self, view: View<BufferId>, values: Vec<f32>, tolerance: f32) {
        self.want(Element::F32, view, values, tolerance);
    }

    pub(crate) fn want_words(&mut self, view: View<BufferId>, words: Vec<u32>) {
        self.results.push((view, Want::Words(words)));
    }

    /// Runs the case in every order: the results are right, and the same to the bit. Else says what
    /// is wrong.
    pub(crate) fn run(&self, emulator: &Emulator) -> Result<(), String> {
        let views: Vec<_> = self.results.iter().map(|(view, _)| *view).collect();
        let run = |order| {
            let results = emulator.run(&self.memory, &self.launches, &views, order);
            results.map_err(|error| format!("{}, {order:?}: {error}", self.name))
        };
        let normal = run(Order::Normal)?;
        for (i, ((_, want), bytes)) in self.results.iter().zip(&normal).enumerate() {
            want.check(bytes).map_err(|what| format!("{}, result {i}: {what}", self.name))?;
        }
        for order in [Order::Reversed, Order::Random { seed: 7 }] {
            if run(order)? != normal {
                return Err(format!("{}: {order:?} gives other bits", self.name));
            }
        }
        Ok(())
    }
}

impl Want {
    fn check(&self, bytes: &[u8]) -> Result<(), String> {
        match self {
            Self::Words(want) => {
                let got: Vec<u32> = words(bytes).collect();
                if &got == want { Ok(()) } else { Err(format!("got {got:?}, want {want:?}")) }
            }
            Self::Close { element, values, tolerance } => {
                let got: Vec<f32> = match element {
                    Element::F32 => words(bytes).map(f32::from_bits).collect(),
                    Element::Bf16 => {
                        let (pairs, _) = bytes.as_chunks::<2>();
                        pairs.iter().map(|b| bf16_to_f32(u16::from_le_bytes(*b))).collect()
                    }
                };
                close(&got, values, *tolerance)
            }
        }
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|bytes| u32::from_le_bytes(*bytes))
}

fn close(got: &[f32], want: &[f32], tolerance: f32) -> Result<(), String> {
    if got.len() != want.len() {
        return Err(format!("{} values, want {}", got.len(), want.len()));
    }
    let finite = want.iter().filter(|v| v.is_finite());
    let squares: f64 = finite.clone().map(|v| f64::from(*v) * f64::from(*v)).sum();
    let size = (squares / finite.count().max(1) as f64).sqrt() as f32;
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let same = if want.is_nan() {
            got.is_nan()
        } else if want.is_infinite() {
            got == want
        } else {
            (got - want).abs() <= tolerance * size.max(want.abs())
        };
        if !same {
            return Err(format!("{i}: got {got}, want {want}, size {size}"));
        }
    }
    Ok(())
}
