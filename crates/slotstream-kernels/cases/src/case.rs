//! A case: what memory holds, what is launched, and what must come out.

use slotstream_core::bf16_to_f32;
use slotstream_kernels::metal::{AffineView, Bf16View, BufferId, Dispatch, Element, Memory, View};

use crate::data::{Affine, Bf16, narrow};

/// What a result must be.
#[derive(Clone, Debug)]
enum Want {
    /// Within `tolerance` of the value, relative to it and to the root mean square of all; what is
    /// not finite is the same.
    Close { element: Element, values: Vec<f32>, tolerance: f32 },
    /// These words.
    Words(Vec<u32>),
}

/// One case. Its outputs are full of NaN before the first launch.
#[derive(Clone, Debug)]
pub struct Case {
    name: String,
    pub(crate) memory: Memory,
    pub(crate) launches: Vec<Dispatch<BufferId>>,
    results: Vec<(View<BufferId>, Want)>,
}

/// A result that is not as in `reference/`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// Other bytes than a result has.
    #[error("result {result}: {got} bytes, want {want}")]
    #[non_exhaustive]
    Length {
        /// Which result.
        result: usize,
        /// Bytes that there are.
        got: usize,
        /// Bytes that there should be.
        want: usize,
    },
    /// Another number.
    #[error("result {result}: value {at} is {got}, want {want} within {tolerance} of {size}")]
    #[non_exhaustive]
    Value {
        /// Which result.
        result: usize,
        /// Which of its values.
        at: usize,
        /// What it is.
        got: f32,
        /// What it should be.
        want: f32,
        /// How far it may be off, in units of `size`.
        tolerance: f32,
        /// The root mean square of all values, or this one's own size where that is larger.
        size: f32,
    },
    /// Another word.
    #[error("result {result}: word {at} is {got}, want {want}")]
    #[non_exhaustive]
    Word {
        /// Which result.
        result: usize,
        /// Which of its words.
        at: usize,
        /// What it is.
        got: u32,
        /// What it should be.
        want: u32,
    },
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

    /// What is launched on what.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What device memory holds before the first launch.
    #[must_use]
    pub const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// What is launched, one after the other.
    #[must_use]
    pub fn launches(&self) -> &[Dispatch<BufferId>] {
        &self.launches
    }

    /// Where the results lie.
    #[must_use]
    pub fn results(&self) -> Vec<View<BufferId>> {
        self.results.iter().map(|(view, _)| *view).collect()
    }

    /// Makes every expectation a wrong one, to see that what is wrong is told.
    pub fn spoil(&mut self) {
        for (_, want) in &mut self.results {
            match want {
                Want::Close { values, .. } => values.iter_mut().for_each(|v| *v += 1.0),
                Want::Words(words) => words.iter_mut().for_each(|word| *word ^= 1),
            }
        }
    }

    /// Compares the bytes of the results with `reference/`: the largest error, relative to the
    /// value or to the root mean square of its result, whichever is larger.
    ///
    /// # Errors
    /// [`Mismatch`] says which value is further off than it may be.
    pub fn check(&self, results: &[Vec<u8>]) -> Result<f32, Mismatch> {
        let missing = Mismatch::Length {
            result: results.len().min(self.results.len()),
            got: results.len(),
            want: self.results.len(),
        };
        if results.len() != self.results.len() {
            return Err(missing);
        }
        let mut largest = 0.0_f32;
        for (result, ((view, want), bytes)) in self.results.iter().zip(results).enumerate() {
            if bytes.len() != view.len {
                return Err(Mismatch::Length { result, got: bytes.len(), want: view.len });
            }
            largest = largest.max(want.check(result, bytes)?);
        }
        Ok(largest)
    }
}

impl Want {
    fn check(&self, result: usize, bytes: &[u8]) -> Result<f32, Mismatch> {
        match self {
            Self::Words(want) => {
                let wrong =
                    words(bytes).zip(want).enumerate().find(|(_, (got, want))| got != *want);
                let wrong = wrong.map(|(at, (got, want))| (at, got, *want));
                wrong.map_or(Ok(0.0), |(at, got, want)| {
                    Err(Mismatch::Word { result, at, got, want })
                })
            }
            Self::Close { element, values, tolerance } => {
                let got: Vec<f32> = match element {
                    Element::F32 => words(bytes).map(f32::from_bits).collect(),
                    Element::Bf16 => {
                        let (pairs, _) = bytes.as_chunks::<2>();
                        pairs.iter().map(|b| bf16_to_f32(u16::from_le_bytes(*b))).collect()
                    }
                };
                close(result, &got, values, *tolerance)
            }
        }
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|bytes| u32::from_le_bytes(*bytes))
}

fn close(result: usize, got: &[f32], want: &[f32], tolerance: f32) -> Result<f32, Mismatch> {
    let finite = want.iter().filter(|v| v.is_finite());
    let squares: f64 = finite.clone().map(|v| f64::from(*v) * f64::from(*v)).sum();
    let mean = (squares / finite.count().max(1) as f64).sqrt() as f32;
    let mut largest = 0.0_f32;
    for (at, (&got, &want)) in got.iter().zip(want).enumerate() {
        let size = mean.max(want.abs());
        let same = if want.is_nan() {
            got.is_nan()
        } else if want.is_infinite() {
            got == want
        } else {
            // Where all is zero, so is the error that is allowed.
            largest = largest.max((got - want).abs() / size.max(f32::MIN_POSITIVE));
            (got - want).abs() <= tolerance * size
        };
        if !same {
            return Err(Mismatch::Value { result, at, got, want, tolerance, size });
        }
    }
    Ok(largest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case() -> Case {
        let mut case = Case::new("numbers");
        let out = case.scratch(4);
        case.want_floats(out, vec![3.0, f32::NAN, f32::INFINITY, -4.0], 0.01);
        let ids = case.scratch(2);
        case.want_words(ids, vec![7, 8]);
        case
    }

    fn floats(values: [f32; 4]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    #[test]
    fn the_largest_error_is_told() {
        let ids = [7_u32, 8].iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
        let found = case().check(&[floats([3.0, f32::NAN, f32::INFINITY, -4.02]), ids]);
        assert!(found.is_ok_and(|error| (error - 0.005).abs() < 1e-4));
    }

    #[test]
    fn what_is_wrong_is_told() {
        let ids = |last: u32| [7, last].iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
        let check = |values, last| case().check(&[floats(values), ids(last)]);
        for (at, values) in [
            (0, [3.1, f32::NAN, f32::INFINITY, -4.0]),
            (0, [f32::NAN, f32::NAN, f32::INFINITY, -4.0]),
            (1, [3.0, 0.0, f32::INFINITY, -4.0]),
            (2, [3.0, f32::NAN, f32::NEG_INFINITY, -4.0]),
            (3, [3.0, f32::NAN, f32::INFINITY, 4.0]),
        ] {
            let found = check(values, 8);
            assert!(matches!(found, Err(Mismatch::Value { at: a, .. }) if a == at), "{found:?}");
        }
        let right = [3.0, f32::NAN, f32::INFINITY, -4.0];
        assert!(matches!(check(right, 9), Err(Mismatch::Word { at: 1, got: 9, want: 8, .. })));
        assert!(matches!(case().check(&[]), Err(Mismatch::Length { .. })));
        assert!(matches!(case().check(&[ids(8), ids(8)]), Err(Mismatch::Length { .. })));
    }
}
