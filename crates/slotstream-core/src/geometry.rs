//! The shape of a streamed model, as far as a cache needs to know it.

use crate::{CoreError, ExpertIdx, ExpertKey, LayerIdx};

/// How many records there are and how they are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    layers: u16,
    experts: u16,
    top_k: u16,
}

impl Geometry {
    /// `layers` layers (`num_hidden_layers`) of `experts` experts (`num_experts`), of which a
    /// token uses `top_k` (`num_experts_per_tok`).
    ///
    /// # Errors
    /// [`CoreError::Geometry`] when a number is zero or `top_k` exceeds `experts`.
    pub fn new(layers: u16, experts: u16, top_k: u16) -> Result<Self, CoreError> {
        if layers == 0 || experts == 0 || top_k == 0 || top_k > experts {
            return Err(CoreError::Geometry { layers, experts, top_k });
        }
        Ok(Self { layers, experts, top_k })
    }

    /// Number of layers with experts.
    #[inline]
    #[must_use]
    pub const fn layers(&self) -> usize {
        self.layers as usize
    }

    /// Experts of one layer.
    #[inline]
    #[must_use]
    pub const fn experts(&self) -> usize {
        self.experts as usize
    }

    /// Experts that one token uses in one layer.
    #[inline]
    #[must_use]
    pub const fn top_k(&self) -> usize {
        self.top_k as usize
    }

    /// Records of the whole model: `layers * experts`.
    #[inline]
    #[must_use]
    pub const fn records(&self) -> usize {
        self.layers() * self.experts()
    }

    /// The smallest lawful pool: `max(2 * top_k, ceil(records * 640 / 24576))`, capped at the
    /// number of records. For the 48 x 512 model this is the original's 640 slots.
    #[must_use]
    pub fn floor_slots(&self) -> usize {
        let share = (self.records() * 640).div_ceil(24_576);
        share.max(2 * self.top_k()).min(self.records())
    }

    /// Dense number of a record, layer-major, in `0..records()`; `None` outside the geometry.
    #[inline]
    #[must_use]
    pub fn index(&self, key: ExpertKey) -> Option<usize> {
        let (layer, expert) = (key.layer().index(), key.expert().index());
        (layer < self.layers() && expert < self.experts()).then(|| layer * self.experts() + expert)
    }

    /// The record with dense number `index`; `None` when there is no such record.
    #[inline]
    #[must_use]
    pub fn key(&self, index: usize) -> Option<ExpertKey> {
        if index >= self.records() {
            return None;
        }
        let layer = u16::try_from(index / self.experts()).ok()?;
        let expert = u16::try_from(index % self.experts()).ok()?;
        Some(ExpertKey::new(LayerIdx::new(layer), ExpertIdx::new(expert)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floor_matches_the_original() {
        let real = Geometry::new(48, 512, 10).expect("legal");
        assert_eq!((real.records(), real.floor_slots()), (24_576, 640));
        let tiny = Geometry::new(12, 56, 6).expect("legal");
        assert_eq!((tiny.records(), tiny.floor_slots()), (672, 18));
        let one = Geometry::new(1, 2, 2).expect("legal");
        assert_eq!(one.floor_slots(), 2);
    }

    #[test]
    fn dense_numbers_are_a_bijection() {
        let g = Geometry::new(3, 5, 2).expect("legal");
        for i in 0..g.records() {
            assert_eq!(g.index(g.key(i).expect("in range")), Some(i));
        }
        assert_eq!(g.key(15), None);
        assert_eq!(g.index(ExpertKey::new(LayerIdx::new(3), ExpertIdx::new(0))), None);
    }

    #[test]
    fn illegal_numbers_are_named() {
        for (l, e, k) in [(0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 4, 5)] {
            assert!(Geometry::new(l, e, k).is_err());
        }
    }
}
