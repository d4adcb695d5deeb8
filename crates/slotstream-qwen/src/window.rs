//! The last rows of something: what a causal convolution or an unfinished block looks back at.

use candle_core::{DType, Device, Tensor};
use slotstream_candle::{CandleContext, Error};

/// The last `need + spare` rows of a sequence of f32 rows; zeros before its start.
///
/// A convolution needs the last `need`; the `spare` ones let it go back that many rows.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    need: usize,
    spare: usize,
    width: usize,
    rows: Tensor,
}

impl Window {
    pub(crate) fn new(
        need: usize,
        spare: usize,
        width: usize,
        device: &Device,
    ) -> Result<Self, Error> {
        let rows = Tensor::zeros((need + spare, width), DType::F32, device).within("window")?;
        Ok(Self { need, spare, width, rows })
    }

    pub(crate) fn bytes(&self) -> u64 {
        ((self.need + self.spare) * self.width * 4) as u64
    }

    /// Rows that the next row looks back at.
    pub(crate) const fn need(&self) -> usize {
        self.need
    }

    /// The `need` rows before `new`, then `new`: `[need + m, width]`.
    pub(crate) fn with(&self, new: &Tensor) -> Result<Tensor, Error> {
        if self.need == 0 {
            return Ok(new.clone());
        }
        let before = self.rows.narrow(0, self.spare, self.need).within("window")?;
        Tensor::cat(&[&before, new], 0).and_then(|t| t.contiguous()).within("window")
    }

    /// Takes the rows of a finished pass.
    pub(crate) fn push(&mut self, new: &Tensor) -> Result<(), Error> {
        let (keep, m) = (self.need + self.spare, new.dim(0).within("window")?);
        let joined = Tensor::cat(&[&self.rows, new], 0).within("window")?;
        self.rows = joined.narrow(0, m, keep).and_then(|t| t.copy()).within("window")?;
        Ok(())
    }

    /// Forgets the last `rows` rows, at most `spare` in a row of calls without a push.
    pub(crate) fn roll_back(&mut self, rows: usize) -> Result<(), Error> {
        let keep = self.need + self.spare;
        let left = self.rows.narrow(0, 0, keep - rows.min(keep)).within("window")?;
        let zeros = Tensor::zeros(
            (keep - left.dim(0).within("window")?, self.width),
            DType::F32,
            self.rows.device(),
        );
        let zeros = zeros.within("window")?;
        self.rows =
            Tensor::cat(&[&zeros, &left], 0).and_then(|t| t.contiguous()).within("window")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(values: &[f32]) -> Tensor {
        Tensor::from_slice(values, (values.len(), 1), &Device::Cpu).expect("small")
    }

    fn seen(window: &Window) -> Vec<f32> {
        let all = window.with(&rows(&[9.0])).expect("same width");
        all.flatten_all().and_then(|t| t.to_vec1()).expect("flat")
    }

    #[test]
    fn looks_back_and_rolls_back() {
        let mut window = Window::new(2, 3, 1, &Device::Cpu).expect("small");
        assert_eq!(seen(&window), [0.0, 0.0, 9.0]);
        window.push(&rows(&[1.0])).expect("same width");
        assert_eq!(seen(&window), [0.0, 1.0, 9.0]);
        window.push(&rows(&[2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])).expect("same width");
        assert_eq!(seen(&window), [7.0, 8.0, 9.0]);
        window.roll_back(3).expect("spare");
        assert_eq!(seen(&window), [4.0, 5.0, 9.0]);
        window.push(&rows(&[6.5])).expect("same width");
        assert_eq!(seen(&window), [5.0, 6.5, 9.0]);
        window.roll_back(1).expect("spare");
        assert_eq!(seen(&window), [4.0, 5.0, 9.0]);
    }
}
