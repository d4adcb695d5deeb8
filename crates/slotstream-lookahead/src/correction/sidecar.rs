//! The file of a correction.

use std::borrow::Cow;
use std::collections::HashMap;

use half::f16;
use safetensors::tensor::{Dtype, SafeTensors, TensorView, View};
use slotstream_core::{ErrorKind, LayerIdx};
use thiserror::Error;

use super::{Correction, CorrectionShape, TargetCorrection};
use crate::error::BoxedSource;

/// What a sidecar of ours says under `schema`.
pub const SCHEMA: &str = "slotstream-correction-v1";

/// What the sidecars say that are published with the Swift program of the same name.
pub const ORIGINAL_SCHEMA: &str = "slotstream-tap-correction-v1";

/// The only tap there is a correction for.
const TAP: &str = "attention";

/// Why a correction cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CorrectionError {
    /// No safetensors file.
    #[error("not a whole safetensors file")]
    #[non_exhaustive]
    Safetensors {
        /// Why.
        source: BoxedSource,
    },
    /// Not a correction, or one of another version.
    #[error("metadata {key:?} is {found:?}, expected {expected}")]
    #[non_exhaustive]
    Metadata {
        /// Which entry.
        key: &'static str,
        /// What it says; `None`: nothing.
        found: Option<String>,
        /// What it may say.
        expected: &'static str,
    },
    /// A tensor is missing.
    #[error("tensor {tensor:?} is missing")]
    #[non_exhaustive]
    Missing {
        /// Its name.
        tensor: &'static str,
    },
    /// A tensor has another type or shape.
    #[error("tensor {tensor:?} is {found}, expected {expected}")]
    #[non_exhaustive]
    Tensor {
        /// Its name.
        tensor: &'static str,
        /// Type and shape.
        found: String,
        /// What it may have.
        expected: String,
    },
    /// A target is no layer, or comes twice.
    #[error(
        "entry {at} of tensor \"targets\" is {found}, expected a layer that has not come before"
    )]
    #[non_exhaustive]
    Target {
        /// Which entry.
        at: usize,
        /// What it holds.
        found: i32,
    },
    /// A matrix has another length than its shape says.
    #[error("{tensor:?} has {found} numbers, expected {expected}")]
    #[non_exhaustive]
    Length {
        /// Which one.
        tensor: &'static str,
        /// Its length.
        found: usize,
        /// That of its shape.
        expected: usize,
    },
    /// A number is NaN or infinite.
    #[error("number {at} of {tensor:?} is not finite")]
    #[non_exhaustive]
    NotFinite {
        /// Which matrix.
        tensor: &'static str,
        /// Which number.
        at: usize,
    },
    /// Made for a model of another shape.
    #[error(
        "it is for {found:?} layers, experts and hidden size and the model has {expected:?}: train \
         one for this model"
    )]
    #[non_exhaustive]
    Shape {
        /// Layers at least, experts, hidden size.
        found: (usize, usize, usize),
        /// Those of the model.
        expected: (usize, usize, usize),
    },
    /// Trained with other routers.
    #[error(
        "it was trained with the routers {found} and those of this model are {expected}: train one \
         for this model"
    )]
    #[non_exhaustive]
    OtherModel {
        /// Whose it is.
        found: String,
        /// The model's.
        expected: String,
    },
}

impl CorrectionError {
    /// What the caller can do about it.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Shape { .. } | Self::OtherModel { .. } => ErrorKind::User,
            _ => ErrorKind::Corrupt,
        }
    }
}

/// The format.
impl Correction {
    /// Reads a sidecar: safetensors with `targets` I32 `[n]` (layers), `a` `[n, hidden, rank]` and
    /// `b` `[n, rank, experts]`, F16 or F32, `mu` F32 `[n, hidden]`, `delta` F32 `[n, experts]`;
    /// metadata `schema` ([`SCHEMA`], or [`ORIGINAL_SCHEMA`], which says no identity), `tap`
    /// (`attention`: the streams after the attention of the layer before) and `identity`.
    ///
    /// # Errors
    /// [`CorrectionError`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CorrectionError> {
        let not_whole = |source| CorrectionError::Safetensors { source: BoxedSource::from(source) };
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(not_whole)?;
        let file = SafeTensors::deserialize(bytes).map_err(not_whole)?;
        let metadata = header.metadata().clone().unwrap_or_default();
        let identity = read_metadata(&metadata)?;

        let layers = tensor(&file, "targets", &[Dtype::I32], &[None])?;
        let n = layers.shape()[0];
        let a = tensor(&file, "a", &[Dtype::F16, Dtype::F32], &[Some(n), None, None])?;
        let (hidden, rank) = (a.shape()[1], a.shape()[2]);
        let b = tensor(&file, "b", &[Dtype::F16, Dtype::F32], &[Some(n), Some(rank), None])?;
        let experts = b.shape()[2];
        let mu = tensor(&file, "mu", &[Dtype::F32], &[Some(n), Some(hidden)])?;
        let delta = tensor(&file, "delta", &[Dtype::F32], &[Some(n), Some(experts)])?;

        let shape = CorrectionShape { hidden, experts, rank };
        let mut correction = Self::new(shape, identity);
        for (at, layer) in layers.data().as_chunks::<4>().0.iter().enumerate() {
            let found = i32::from_le_bytes(*layer);
            let target = u16::try_from(found).map(LayerIdx::new).ok();
            let new = target.filter(|layer| correction.target(*layer).is_none());
            let target = new.ok_or(CorrectionError::Target { at, found })?;
            let part = |view: &TensorView<'_>| floats(view, at, n);
            let one = TargetCorrection::new(shape, part(&a), part(&b), part(&mu), part(&delta))?;
            correction.insert(target, one)?;
        }
        Ok(correction)
    }

    /// The bytes of its sidecar, `a` and `b` in F16.
    ///
    /// # Errors
    /// [`CorrectionError::NotFinite`] where a number is too large for F16.
    pub fn to_bytes(&self) -> Result<Vec<u8>, CorrectionError> {
        let CorrectionShape { hidden, experts, rank } = self.shape;
        let layers: Vec<LayerIdx> = self.targets().collect();
        let n = layers.len();
        let gather = |of: fn(&TargetCorrection) -> &Vec<f32>| -> Vec<f32> {
            self.targets.iter().flatten().flat_map(|one| of(one).iter().copied()).collect()
        };
        let targets =
            layers.iter().flat_map(|layer| i32::from(layer.get()).to_le_bytes()).collect();
        let tensors = [
            ("a", Part::half("a", vec![n, hidden, rank], &gather(|one| &one.a))?),
            ("b", Part::half("b", vec![n, rank, experts], &gather(|one| &one.b))?),
            ("mu", Part::single(vec![n, hidden], &gather(|one| &one.mu))),
            ("delta", Part::single(vec![n, experts], &gather(|one| &one.delta))),
            ("targets", Part { dtype: Dtype::I32, shape: vec![n], bytes: targets }),
        ];
        let metadata = HashMap::from([
            ("schema".to_owned(), SCHEMA.to_owned()),
            ("tap".to_owned(), TAP.to_owned()),
            ("identity".to_owned(), self.identity.clone()),
        ]);
        safetensors::serialize(tensors, Some(metadata))
            .map_err(|source| CorrectionError::Safetensors { source: source.into() })
    }
}

/// The identity.
fn read_metadata(metadata: &HashMap<String, String>) -> Result<String, CorrectionError> {
    let found = |key: &str| metadata.get(key).cloned();
    let schema = found("schema");
    if ![Some(SCHEMA), Some(ORIGINAL_SCHEMA)].contains(&schema.as_deref()) {
        const EXPECTED: &str = "\"slotstream-correction-v1\" or \"slotstream-tap-correction-v1\"";
        return Err(CorrectionError::Metadata { key: "schema", found: schema, expected: EXPECTED });
    }
    let tap = found("tap");
    if !tap.as_deref().is_some_and(|tap| tap.contains(TAP)) {
        return Err(CorrectionError::Metadata {
            key: "tap",
            found: tap,
            expected: "\"attention\"",
        });
    }
    match found("identity") {
        Some(identity) => Ok(identity),
        None if schema.as_deref() == Some(ORIGINAL_SCHEMA) => Ok(String::new()),
        found => Err(CorrectionError::Metadata {
            key: "identity",
            found,
            expected: "the model's routers",
        }),
    }
}

/// A tensor of one of these types whose sizes are as given, where they are given.
fn tensor<'f>(
    file: &SafeTensors<'f>,
    name: &'static str,
    types: &[Dtype],
    sizes: &[Option<usize>],
) -> Result<TensorView<'f>, CorrectionError> {
    let view = file.tensor(name).map_err(|_| CorrectionError::Missing { tensor: name })?;
    let fits = view.shape().len() == sizes.len()
        && view.shape().iter().zip(sizes).all(|(found, size)| size.is_none_or(|s| s == *found));
    if fits && types.contains(&view.dtype()) {
        return Ok(view);
    }
    let sizes = sizes.iter().map(|size| size.map_or("any".into(), |size| size.to_string()));
    Err(CorrectionError::Tensor {
        tensor: name,
        found: format!("{:?} {:?}", view.dtype(), view.shape()),
        expected: format!("{types:?} [{}]", sizes.collect::<Vec<_>>().join(", ")),
    })
}

/// Part `at` of `n` equal ones.
fn floats(view: &TensorView<'_>, at: usize, n: usize) -> Vec<f32> {
    let bytes = view.data();
    let part = bytes.len().checked_div(n).unwrap_or_default();
    let bytes = &bytes[at * part..(at + 1) * part];
    match view.dtype() {
        Dtype::F16 => {
            let halves = bytes.as_chunks::<2>().0;
            halves.iter().map(|half| f16::from_le_bytes(*half).to_f32()).collect()
        }
        _ => bytes.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect(),
    }
}

/// A tensor that is written.
struct Part {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Part {
    fn single(shape: Vec<usize>, values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self { dtype: Dtype::F32, shape, bytes }
    }

    fn half(
        tensor: &'static str,
        shape: Vec<usize>,
        values: &[f32],
    ) -> Result<Self, CorrectionError> {
        let halves: Vec<f16> = values.iter().map(|value| f16::from_f32(*value)).collect();
        if let Some(at) = halves.iter().position(|half| !half.is_finite()) {
            return Err(CorrectionError::NotFinite { tensor, at });
        }
        let bytes = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
        Ok(Self { dtype: Dtype::F16, shape, bytes })
    }
}

impl View for Part {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}
