//! A low-rank correction of what a router says on earlier streams.

mod sidecar;
#[cfg(feature = "train")]
mod train;

use std::fmt;

use slotstream_core::{Geometry, LayerIdx};

pub use sidecar::{CorrectionError, ORIGINAL_SCHEMA, SCHEMA};
#[cfg(feature = "train")]
pub use train::{Fit, TrainError, TrainOptions, agreement, fit};

/// Shape of a correction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CorrectionShape {
    /// Width of the mixed router input.
    pub hidden: usize,
    /// Experts of a layer.
    pub experts: usize,
    /// Rank of the correction of a layer.
    pub rank: usize,
}

impl CorrectionShape {
    /// Of these.
    #[must_use]
    pub const fn new(hidden: usize, experts: usize, rank: usize) -> Self {
        Self { hidden, experts, rank }
    }
}

/// The correction of one layer's logits: `logits += ((mixed - mu) A) B + delta`.
#[derive(Clone, PartialEq)]
pub struct TargetCorrection {
    /// `A`, `[hidden, rank]`.
    pub(crate) a: Vec<f32>,
    /// `B`, `[rank, experts]`.
    pub(crate) b: Vec<f32>,
    /// Mean of the mixed router inputs, `[hidden]`.
    pub(crate) mu: Vec<f32>,
    /// Mean of what is to be added, `[experts]`.
    pub(crate) delta: Vec<f32>,
}

impl TargetCorrection {
    /// From its matrices, row by row.
    ///
    /// # Errors
    /// [`CorrectionError`] where a length is not that of the shape, or a number is not finite.
    pub fn new(
        shape: CorrectionShape,
        a: Vec<f32>,
        b: Vec<f32>,
        mu: Vec<f32>,
        delta: Vec<f32>,
    ) -> Result<Self, CorrectionError> {
        let CorrectionShape { hidden, experts, rank } = shape;
        let parts = [
            ("a", &a, hidden.saturating_mul(rank)),
            ("b", &b, rank.saturating_mul(experts)),
            ("mu", &mu, hidden),
            ("delta", &delta, experts),
        ];
        for (tensor, values, expected) in parts {
            if values.len() != expected {
                let found = values.len();
                return Err(CorrectionError::Length { tensor, found, expected });
            }
            if let Some(at) = values.iter().position(|value| !value.is_finite()) {
                return Err(CorrectionError::NotFinite { tensor, at });
            }
        }
        Ok(Self { a, b, mu, delta })
    }

    /// Corrects one row of logits, `[experts]`, given its mixed router input, `[hidden]`. `low` is
    /// scratch. Rows of other lengths stay as they are.
    pub fn apply(&self, mixed: &[f32], logits: &mut [f32], low: &mut Vec<f32>) {
        if mixed.len() != self.mu.len() || logits.len() != self.delta.len() {
            return;
        }
        let rank = self.a.len().checked_div(self.mu.len()).unwrap_or_default();
        low.clear();
        low.resize(rank, 0.0);
        if rank > 0 {
            for ((value, mean), row) in mixed.iter().zip(&self.mu).zip(self.a.chunks_exact(rank)) {
                add_scaled(low, value - mean, row);
            }
            for (value, row) in low.iter().zip(self.b.chunks_exact(logits.len().max(1))) {
                add_scaled(logits, *value, row);
            }
        }
        add_scaled(logits, 1.0, &self.delta);
    }
}

fn add_scaled(out: &mut [f32], factor: f32, row: &[f32]) {
    for (out, value) in out.iter_mut().zip(row) {
        *out += factor * value;
    }
}

impl fmt::Debug for TargetCorrection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TargetCorrection").finish_non_exhaustive()
    }
}

/// What is added to the logits that [`AttentionTap`](crate::AttentionTap) asks for, layer by layer:
/// what this model's routers usually say otherwise once the layers in between were computed.
///
/// It is trained by `fit` (feature `train`) and kept in a file beside the model, the *sidecar*:
/// [`Correction::from_bytes`] describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Correction {
    shape: CorrectionShape,
    /// Which routers it was trained with; empty: not said.
    identity: String,
    /// By layer of the model, as far as there is one.
    targets: Vec<Option<TargetCorrection>>,
}

impl Correction {
    /// An empty one for the model that `identity` names, which is whatever the caller can tell
    /// models apart by.
    #[must_use]
    pub fn new(shape: CorrectionShape, identity: impl Into<String>) -> Self {
        Self { shape, identity: identity.into(), targets: Vec::new() }
    }

    /// Puts in the correction of a layer, in place of what is there.
    ///
    /// # Errors
    /// [`CorrectionError::Length`] where it has another shape.
    pub fn insert(
        &mut self,
        target: LayerIdx,
        one: TargetCorrection,
    ) -> Result<(), CorrectionError> {
        let TargetCorrection { a, b, mu, delta } = one;
        let one = TargetCorrection::new(self.shape, a, b, mu, delta)?;
        if self.targets.len() <= target.index() {
            self.targets.resize(target.index() + 1, None);
        }
        self.targets[target.index()] = Some(one);
        Ok(())
    }

    /// Its shape.
    #[must_use]
    pub const fn shape(&self) -> CorrectionShape {
        self.shape
    }

    /// Which routers it was trained with; empty: not said.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The correction of a layer, if there is one.
    #[must_use]
    pub fn target(&self, target: LayerIdx) -> Option<&TargetCorrection> {
        self.targets.get(target.index())?.as_ref()
    }

    /// Layers that have a correction, ascending.
    pub fn targets(&self) -> impl Iterator<Item = LayerIdx> + '_ {
        (0..=u16::MAX)
            .zip(&self.targets)
            .filter(|(_, one)| one.is_some())
            .map(|(layer, _)| LayerIdx::new(layer))
    }

    /// Whether it fits a model of this shape with these routers. A correction that does not say
    /// which routers it was trained with fits any of its shape.
    ///
    /// # Errors
    /// [`CorrectionError::OtherModel`] and [`CorrectionError::Shape`].
    pub fn check(
        &self,
        geometry: &Geometry,
        hidden: usize,
        identity: &str,
    ) -> Result<(), CorrectionError> {
        let last = self.targets().last().map_or(0, LayerIdx::index);
        let shape = self.shape;
        if (shape.hidden, shape.experts) != (hidden, geometry.experts())
            || last >= geometry.layers()
        {
            return Err(CorrectionError::Shape {
                found: (last + 1, shape.experts, shape.hidden),
                expected: (geometry.layers(), geometry.experts(), hidden),
            });
        }
        if !self.identity.is_empty() && self.identity != identity {
            let (found, expected) = (self.identity.clone(), identity.to_owned());
            return Err(CorrectionError::OtherModel { found, expected });
        }
        Ok(())
    }

    /// Bytes in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let CorrectionShape { hidden, experts, rank } = self.shape;
        // Without a target the shape is no more than a claim.
        let one = hidden.saturating_add(experts).saturating_mul(rank.saturating_add(1));
        (one as u64).saturating_mul((size_of::<f32>() * self.targets().count()) as u64)
    }
}
