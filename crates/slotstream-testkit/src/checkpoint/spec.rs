//! A checkpoint to be written, described by its config.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use serde_json::{Value, json};
use slotstream_checkpoint::{Dtype, NgramConstants, TextConfig, expected_tensors};

use super::meter::Meter;
use super::random::{self, Random, Weights};
use super::routers::RouterSkew;
use super::shard::{Entry, write_shard};
use super::{WriteError, vision};

/// A tensor that is to be written.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SpecTensor {
    /// The name as written, prefix included.
    pub name: String,
    /// Type of a value.
    pub dtype: Dtype,
    /// Dimensions.
    pub shape: Vec<u64>,
    /// Bytes.
    pub len: u64,
    /// Values of an unpacked row, for quantized matrices.
    pub(crate) cols: u64,
    /// Half of the largest packed value, for quantized matrices.
    pub(crate) middle: f32,
}

/// The config of a model of four layers, small enough to be written for every test case: 4 experts
/// a layer, top-2, 128 tokens, an n-gram layer, a vision tower.
///
/// # Panics
/// Never: the text is a part of this crate.
#[must_use]
pub fn small_config() -> Value {
    serde_json::from_str(include_str!("small_config.json")).expect("it is JSON")
}

/// The `config.json` of the published checkpoint: 48 layers of 512 experts, top-10, records of
/// 2,764,800 bytes, an n-gram table of 32 GB.
///
/// # Panics
/// Never: the text is a part of this crate.
#[must_use]
pub fn published_config() -> Value {
    serde_json::from_str(include_str!("published_config.json")).expect("it is JSON")
}

/// Describes a checkpoint folder by a `config.json` and how its files are cut.
///
/// Names, dtypes and shapes follow from the config as in the published checkpoint: text tensors
/// carry `language_model.`, override keys in the config do not; the vision tower of
/// `vision_config` comes first, then the final mixer, layers 0 and 1, the other layers in the
/// order of their numbers as text, `embed_tokens` and `lm_head`. A file is closed by the tensor
/// that brings it to the limit, so weight, scales and biases of one module may part; within a
/// file the order is arbitrary.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use slotstream_testkit::checkpoint::CheckpointSpec;
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/models/tiny-moe/config.json");
///
/// let config = serde_json::from_slice(&std::fs::read(path)?)?;
/// let folder = std::env::temp_dir().join(format!("sparse-{}", std::process::id()));
/// CheckpointSpec::new(config).file_limit(4_000_000).write_sparse(&folder)?;
/// assert!(slotstream_checkpoint::Checkpoint::open(&folder)?.files().len() > 1);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct CheckpointSpec {
    config: Value,
    generation: Option<Value>,
    file_limit: u64,
    prefix: bool,
    index: bool,
    odd_starts: bool,
    routers: Option<RouterSkew>,
}

impl CheckpointSpec {
    /// A checkpoint with this `config.json`, files of 10 GB, an index, and prefixed names.
    #[must_use]
    pub fn new(config: Value) -> Self {
        Self {
            config,
            generation: None,
            file_limit: 10_000_000_000,
            prefix: true,
            index: true,
            odd_starts: false,
            routers: None,
        }
    }

    /// Also writes a `generation_config.json`.
    #[must_use]
    pub fn generation(mut self, generation: Value) -> Self {
        self.generation = Some(generation);
        self
    }

    /// Bytes after which a file is closed.
    #[must_use]
    pub const fn file_limit(mut self, bytes: u64) -> Self {
        self.file_limit = bytes;
        self
    }

    /// Writes names without `language_model.`.
    #[must_use]
    pub const fn without_prefix(mut self) -> Self {
        self.prefix = false;
        self
    }

    /// Writes no index.
    #[must_use]
    pub const fn without_index(mut self) -> Self {
        self.index = false;
        self
    }

    /// Lets the data of every file start at an odd offset.
    #[must_use]
    pub const fn odd_starts(mut self) -> Self {
        self.odd_starts = true;
        self
    }

    /// Random routers prefer some experts; without this all are alike.
    #[must_use]
    pub fn routers(mut self, skew: RouterSkew) -> Self {
        self.routers = Some(skew);
        self
    }

    /// All tensors in the order in which they are cut into files.
    ///
    /// # Errors
    /// [`WriteError::Source`] when the config is not legal.
    pub fn tensors(&self) -> Result<Vec<SpecTensor>, WriteError> {
        let config = self.text_config()?;
        let fail = |e| WriteError::source_of(&config.path, e);
        let mut text = expected_tensors(&config).map_err(fail)?;
        // Emission order: layers 0 and 1 first, the others by their numbers as text.
        text.sort_by_key(|tensor| {
            let rest = tensor.name.strip_prefix("model.layers.");
            match rest.and_then(|rest| rest.split('.').next()) {
                Some(layer @ ("0" | "1")) => (1, layer.to_owned()),
                Some(layer) => (2, layer.to_owned()),
                None if tensor.name.starts_with("model.hyper") => (0, String::new()),
                None => (3, String::new()),
            }
        });
        let mut list: Vec<_> = vision::tensors(&self.config)
            .into_iter()
            .map(|(name, shape)| spec_tensor(name, Dtype::BF16, shape, 0, 0.0))
            .collect();
        for tensor in text {
            let module = tensor.name.rsplit_once('.').map_or("", |(module, _)| module);
            let format = config.quantization.format(module).unwrap_or(config.quantization.default);
            let last = tensor.shape.last().copied().unwrap_or(0);
            let cols = last * format.group_size() as u64;
            let middle = ((1_u32 << format.bits()) - 1) as f32 / 2.0;
            let prefix = if self.prefix { "language_model." } else { "" };
            let name = format!("{prefix}{}", tensor.name);
            list.push(spec_tensor(name, tensor.dtype.usual(), tensor.shape, cols, middle));
        }
        Ok(list)
    }

    /// Writes the folder with holes instead of payload: the disk holds the headers only. The
    /// constants of the n-gram hash are real.
    ///
    /// # Errors
    /// [`WriteError::Source`] when the config is not legal, [`WriteError::Io`].
    pub fn write_sparse(&self, folder: &Path) -> Result<(), WriteError> {
        self.write(folder, None, &mut |_| ControlFlow::Continue(()))
    }

    /// Writes the folder with random weights: norms near one (one is added), matrices that keep
    /// the size of their input, real n-gram constants. Equal seeds give equal bytes for a tensor,
    /// however the files are cut.
    ///
    /// # Errors
    /// [`WriteError::Source`] when the config is not legal, [`WriteError::Io`].
    pub fn write_random(&self, folder: &Path, seed: u64) -> Result<(), WriteError> {
        self.write_random_with(folder, seed, |_| ControlFlow::Continue(()))
    }

    /// The same, and tells how many bytes of payload were written so far, about once a MiB. The
    /// memory it takes does not depend on the size of the checkpoint.
    ///
    /// # Errors
    /// As [`write_random`](Self::write_random); [`WriteError::Cancelled`] when `progress` breaks.
    /// What was written by then stays, and is no legal checkpoint.
    pub fn write_random_with(
        &self,
        folder: &Path,
        seed: u64,
        mut progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), WriteError> {
        self.write(folder, Some(seed), &mut progress)
    }

    fn text_config(&self) -> Result<TextConfig, WriteError> {
        let path = Path::new("config.json");
        TextConfig::from_json(path, self.config.to_string().as_bytes())
            .map_err(|e| WriteError::source_of(path, e))
    }

    fn write(
        &self,
        folder: &Path,
        seed: Option<u64>,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), WriteError> {
        fs::create_dir_all(folder).map_err(|e| WriteError::io(folder, "create", e))?;
        let config = self.text_config()?;
        let constants = config
            .ple
            .as_ref()
            .map(|ple| NgramConstants::from_config(&config, ple))
            .transpose()
            .map_err(|e| WriteError::source_of(&config.path, e))?;
        let weights = seed.map(|seed| Weights {
            seed,
            constants: constants.as_ref(),
            routers: self.routers.as_ref(),
        });
        let (mut map, mut total) = (BTreeMap::new(), 0);
        let mut meter = Meter::new(progress);
        for (number, mut group) in (1_usize..).zip(cut(self.tensors()?, self.file_limit)) {
            group.sort_by_key(|tensor| Random::of(0, &tensor.name).next());
            let name = format!("model-{number:05}.safetensors");
            let path = folder.join(&name);
            let entries: Vec<_> = group.iter().map(SpecTensor::entry).collect();
            let shard = write_shard(&path, &entries, self.odd_starts, |i, out| match &weights {
                Some(weights) => meter.watch(out, |out| weights.fill(&group[i], out)),
                None => random::write_constants(&group[i].name, constants.as_ref(), out),
            });
            shard.map_err(|error| meter.cause(folder, error))?;
            total += fs::metadata(&path).map_err(|e| WriteError::io(&path, "measure", e))?.len();
            map.extend(group.into_iter().map(|tensor| (tensor.name, name.clone())));
        }
        write_json(&folder.join("config.json"), &self.config)?;
        if let Some(generation) = &self.generation {
            write_json(&folder.join("generation_config.json"), generation)?;
        }
        if self.index {
            let index = json!({ "metadata": { "total_size": total }, "weight_map": map });
            write_json(&folder.join("model.safetensors.index.json"), &index)?;
        }
        Ok(())
    }
}

impl SpecTensor {
    fn entry(&self) -> Entry<'_> {
        let Self { name, dtype, shape, len, .. } = self;
        Entry { name, dtype: *dtype, shape, len: *len }
    }
}

fn spec_tensor(name: String, dtype: Dtype, shape: Vec<u64>, cols: u64, middle: f32) -> SpecTensor {
    let len = shape.iter().product::<u64>() * dtype.bits() / 8;
    SpecTensor { name, dtype, shape, len, cols, middle }
}

/// Cuts a list into files: one is closed by the tensor that brings it to the limit.
fn cut(tensors: Vec<SpecTensor>, limit: u64) -> Vec<Vec<SpecTensor>> {
    let (mut files, mut file, mut bytes) = (Vec::new(), Vec::new(), 0_u64);
    for tensor in tensors {
        bytes += tensor.len;
        file.push(tensor);
        if bytes >= limit {
            files.push(std::mem::take(&mut file));
            bytes = 0;
        }
    }
    if !file.is_empty() {
        files.push(file);
    }
    files
}

/// Writes JSON with an indent of two, as the published index has.
pub(crate) fn write_json(path: &Path, value: &Value) -> Result<(), WriteError> {
    let bytes = serde_json::to_vec_pretty(value).map_err(|e| WriteError::json(path, e))?;
    fs::write(path, bytes).map_err(|e| WriteError::io(path, "write", e))
}
