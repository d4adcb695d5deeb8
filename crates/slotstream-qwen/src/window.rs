//! The last rows of something: what a causal convolution or an unfinished block looks back at.

use candle_core::{DType, Device, Tensor};
use slotstream_candle::{CandleContext, Error};

/// Rows that fit behind the held ones before those are moved to the front again.
const ROOM: usize = 8;

/// The last `need + spare` rows of a sequence of f32 rows; zeros before its start.
///
/// A convolution needs the last `need`; the `spare` ones let it go back that many rows. A few
/// rows are added in place, so that a token allocates and copies nothing but its own row.
#[derive(Debug)]
pub(crate) struct Window {
    need: usize,
    spare: usize,
    width: usize,
    /// `[need + spare + ROOM, width]`, of which the held rows end at `end`.
    rows: Tensor,
    end: usize,
}

impl Window {
    pub(crate) fn new(
        need: usize,
        spare: usize,
        width: usize,
        device: &Device,
    ) -> Result<Self, Error> {
        let shape = (need + spare + ROOM, width);
        let rows = Tensor::zeros(shape, DType::F32, device).within("window")?;
        Ok(Self { need, spare, width, rows, end: need + spare })
    }

    /// Bytes of a window of this shape.
    pub(crate) const fn planned_bytes(need: usize, spare: usize, width: usize) -> u64 {
        ((need + spare + ROOM) * width * 4) as u64
    }

    pub(crate) const fn bytes(&self) -> u64 {
        Self::planned_bytes(self.need, self.spare, self.width)
    }

    /// Rows that the next row looks back at.
    pub(crate) const fn need(&self) -> usize {
        self.need
    }

    /// Whether `m` rows fit behind the held ones.
    const fn has_room(&self, m: usize) -> bool {
        self.end + m <= self.need + self.spare + ROOM
    }

    /// The `need` rows before `new`, then `new`: `[need + m, width]`. What this lends is valid
    /// until the window is pushed to.
    pub(crate) fn with(&self, new: &Tensor) -> Result<Tensor, Error> {
        let m = new.dim(0).within("window")?;
        let start = self.end - self.need;
        if self.has_room(m) {
            self.rows.slice_set(new, 0, self.end).within("window")?;
            return self.rows.narrow(0, start, self.need + m).within("window");
        }
        let before = self.rows.narrow(0, start, self.need).within("window")?;
        Tensor::cat(&[&before, new], 0).and_then(|t| t.contiguous()).within("window")
    }

    /// Takes the rows of a finished pass.
    pub(crate) fn push(&mut self, new: &Tensor) -> Result<(), Error> {
        let (keep, m) = (self.need + self.spare, new.dim(0).within("window")?);
        if keep == 0 {
            return Ok(());
        }
        if !self.has_room(m) {
            let held = self.rows.narrow(0, self.end - keep, keep).within("window")?;
            let last = if m < keep {
                let left = held.narrow(0, m, keep - m).within("window")?;
                Tensor::cat(&[&left, new], 0).and_then(|t| t.contiguous())
            } else {
                new.narrow(0, m - keep, keep).and_then(|t| t.copy())
            };
            self.rows.slice_set(&last.within("window")?, 0, 0).within("window")?;
            self.end = keep;
            return Ok(());
        }
        self.rows.slice_set(new, 0, self.end).within("window")?;
        self.end += m;
        Ok(())
    }

    /// Forgets the last `rows` rows, at most `spare` in a row of calls without a push.
    pub(crate) fn roll_back(&mut self, rows: usize) -> Result<(), Error> {
        let keep = self.need + self.spare;
        let rows = rows.min(keep);
        let held = self.rows.narrow(0, self.end - keep, keep - rows).and_then(|t| t.copy());
        let zeros = Tensor::zeros((rows, self.width), DType::F32, self.rows.device());
        let both = [zeros.within("window")?, held.within("window")?];
        let joined = Tensor::cat(&both, 0).and_then(|t| t.contiguous()).within("window")?;
        self.rows.slice_set(&joined, 0, 0).within("window")?;
        self.end = keep;
        Ok(())
    }

    /// The `need` rows that the next row looks back at, `[need, width]`.
    pub(crate) fn held(&self) -> Result<Tensor, Error> {
        let held = self.rows.narrow(0, self.end - self.need, self.need);
        held.and_then(|t| t.contiguous()).within("window")
    }

    /// Makes these the rows that the next row looks back at, `[need, width]`, in a window that was
    /// never pushed to.
    pub(crate) fn fill(&mut self, held: &Tensor) -> Result<(), Error> {
        self.rows.slice_set(held, 0, self.end - self.need).within("window")
    }

    /// A copy that goes its own way.
    pub(crate) fn snapshot(&self) -> Result<Self, Error> {
        let Self { need, spare, width, end, .. } = *self;
        Ok(Self { need, spare, width, rows: self.rows.copy().within("window")?, end })
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

    /// Pushes of every size up to beyond the room, against a list of all rows.
    #[test]
    fn holds_the_last_rows_whatever_the_sizes_of_pushes() {
        for (need, spare) in [(0, 0), (1, 0), (3, 2), (9, 0)] {
            let mut window = Window::new(need, spare, 1, &Device::Cpu).expect("small");
            let mut all = vec![0.0; need + spare];
            for size in (1..2 * ROOM).chain(std::iter::repeat_n(1, 3 * ROOM)).chain([25, 1]) {
                let new: Vec<f32> = (0..size).map(|i| (all.len() + i) as f32).collect();
                let lent = window.with(&rows(&new)).and_then(|t| t.flatten_all().within("flat"));
                let lent: Vec<f32> = lent.and_then(|t| t.to_vec1().within("flat")).expect("f32");
                assert_eq!(lent, [&all[all.len() - need..], &new[..]].concat());
                // A snapshot is not touched by what comes after.
                let snapshot = window.snapshot().expect("copies");
                let before = seen(&snapshot);
                window.push(&rows(&new)).expect("same width");
                all.extend(&new);
                assert_eq!(seen(&window), [&all[all.len() - need..], &[9.0]].concat());
                assert_eq!(seen(&snapshot), before);
            }
        }
    }
}
