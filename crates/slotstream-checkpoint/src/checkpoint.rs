//! A whole checkpoint folder, validated from config, index and headers.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use slotstream_core::{
    AffineFormat, ExpertKey, ExpertShape, Extent, FileId, Geometry, LayerIdx, PIECE_ORDER, Part,
    RecordLayout,
};

use crate::json;
use crate::names::{canonical, expert_module};
use crate::ngram::{NgramPlan, plan_ngram};
use crate::resolve::{self, Tensors};
use crate::shards::ShardList;
use crate::{CheckpointError, Dtype, GenerationConfig, Header, Ledger, TensorClass, TextConfig};

/// A tensor: where its bytes lie and what they are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorInfo {
    /// The name as written in the file.
    pub name: String,
    /// Type of a value.
    pub dtype: Dtype,
    /// Dimensions.
    pub shape: Vec<u64>,
    /// Where the bytes lie. The offset may be odd.
    pub extent: Extent,
    /// What it is for.
    pub class: TensorClass,
}

impl TensorInfo {
    /// The name without `language_model.`.
    #[must_use]
    pub fn canonical_name(&self) -> &str {
        canonical(&self.name)
    }
}

/// A quantized matrix `[rows, cols]`: three arrays that may lie in different files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AffineTensors {
    /// Bits and group size.
    pub format: AffineFormat,
    /// Output values.
    pub rows: usize,
    /// Input values: the unpacked row length.
    pub cols: usize,
    /// Packed words, `[rows, cols * bits / 32]` u32.
    pub weight: Extent,
    /// bf16 scales, `[rows, cols / group_size]`.
    pub scales: Extent,
    /// bf16 biases, `[rows, cols / group_size]`.
    pub biases: Extent,
}

/// What lies at a byte of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Location<'a> {
    /// The tensor.
    pub tensor: &'a TensorInfo,
    /// Bytes from the start of the tensor.
    pub offset: u64,
    /// The expert, when the tensor stacks experts.
    pub expert: Option<ExpertKey>,
    /// The global row, when the tensor is a part of the n-gram table.
    pub ngram_row: Option<u64>,
}

impl std::fmt::Display for Location<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "byte {} of `{}`", self.offset, self.tensor.name)?;
        match (self.expert, self.ngram_row) {
            (Some(key), _) => write!(f, " ({key})"),
            (None, Some(row)) => write!(f, " (n-gram row {row})"),
            (None, None) => Ok(()),
        }
    }
}

/// A validated checkpoint folder. Opening reads `config.json`, `generation_config.json`, the
/// index and the headers, never a tensor's bytes.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    folder: PathBuf,
    config: TextConfig,
    generation: GenerationConfig,
    files: Vec<PathBuf>,
    sizes: Vec<u64>,
    ignored: Vec<PathBuf>,
    tensors: Vec<TensorInfo>,
    by_name: HashMap<String, usize>,
    /// Indices into `tensors` in the order of their data, per file.
    by_file: Vec<Vec<usize>>,
    geometry: Geometry,
    layout: RecordLayout,
    /// The nine stacked arrays of each layer's experts.
    experts: Vec<[Extent; 9]>,
    ngram: Option<NgramPlan>,
    ledger: Ledger,
}

impl Checkpoint {
    /// Opens and validates the checkpoint in a folder.
    ///
    /// # Errors
    /// Names the file and what is wrong with it; see [`CheckpointError`].
    pub fn open(folder: &Path) -> Result<Self, CheckpointError> {
        check_folder(folder)?;
        let config = TextConfig::read(&folder.join("config.json"))?;
        let generation =
            GenerationConfig::read(&folder.join("generation_config.json"), config.vocab_size)?;
        let geometry = config.geometry()?;
        let layout = RecordLayout::new(config.expert_shape()?);
        let ShardList { shards, ignored } = ShardList::find(folder)?;
        let headers = shards.iter().map(|shard| Header::read(&shard.path));
        let headers = headers.collect::<Result<Vec<_>, _>>()?;
        let sizes = headers.iter().map(|header| header.file_len).collect();
        let Tensors { tensors, units, by_name, by_file } =
            resolve::resolve(folder, &config, &shards, headers)?;
        let experts = stacked_experts(folder, &tensors, &by_name, geometry)?;
        let ngram = plan_ngram(&config, |name| {
            by_name.get(name).map(|i| tensors[*i].extent).ok_or_else(|| no_such(folder, name))
        })?;
        let rows = tensors.iter().zip(units).map(|(t, unit)| (t.class, unit, t.extent.len()));
        let ledger = Ledger::new(rows, layout.payload_len() as u64);
        let files = shards.into_iter().map(|shard| shard.path).collect();
        let folder = folder.into();
        tracing::debug!(?folder, tensors = tensors.len(), bytes = ledger.total_bytes, "opened");
        Ok(Self {
            folder,
            config,
            generation,
            files,
            sizes,
            ignored,
            tensors,
            by_name,
            by_file,
            geometry,
            layout,
            experts,
            ngram,
            ledger,
        })
    }

    /// The folder that was opened.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The text model's configuration.
    #[must_use]
    pub const fn config(&self) -> &TextConfig {
        &self.config
    }

    /// The generation configuration; the default when there is no file.
    #[must_use]
    pub const fn generation(&self) -> &GenerationConfig {
        &self.generation
    }

    /// Number of records and how they are asked for.
    #[must_use]
    pub const fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Shape of one record.
    #[must_use]
    pub const fn expert_shape(&self) -> ExpertShape {
        self.layout.shape()
    }

    /// How a record lies in a slot.
    #[must_use]
    pub const fn record_layout(&self) -> &RecordLayout {
        &self.layout
    }

    /// The shards; a [`FileId`] is an index into this list.
    #[must_use]
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Sizes of the shards when they were opened, in bytes.
    #[must_use]
    pub fn file_sizes(&self) -> &[u64] {
        &self.sizes
    }

    /// Safetensors files in the folder that the index does not name.
    #[must_use]
    pub fn ignored_files(&self) -> &[PathBuf] {
        &self.ignored
    }

    /// All tensors, file by file in the order of their data.
    #[must_use]
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// A tensor by name, with or without `language_model.`.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.by_name.get(canonical(name)).map(|i| &self.tensors[*i])
    }

    /// A tensor that must be there, by name; for the tensors that are not quantized.
    ///
    /// # Errors
    /// [`CheckpointError::NoSuchTensor`].
    pub fn float(&self, name: &str) -> Result<&TensorInfo, CheckpointError> {
        self.tensor(name).ok_or_else(|| no_such(&self.folder, name))
    }

    /// A quantized matrix by module name, such as `model.layers.3.self_attn.q_proj` or `lm_head`.
    ///
    /// # Errors
    /// [`CheckpointError::NoSuchTensor`] when there is no quantized matrix of that name; stacked
    /// experts are not one.
    pub fn affine(&self, module: &str) -> Result<AffineTensors, CheckpointError> {
        let module = canonical(module);
        let part = |part: &str| self.tensor(&format!("{module}.{part}"));
        let (Some(weight), Some(scales), Some(biases), Some(format)) = (
            part("weight"),
            part("scales"),
            part("biases"),
            self.config.quantization.format(module),
        ) else {
            return Err(self.no_matrix(module));
        };
        let ([rows, _], [_, groups]) = (&weight.shape[..], &scales.shape[..]) else {
            return Err(self.no_matrix(module));
        };
        let size = |n: u64| usize::try_from(n).map_err(|_| self.no_matrix(module));
        Ok(AffineTensors {
            format,
            rows: size(*rows)?,
            cols: size(*groups)? * format.group_size(),
            weight: weight.extent,
            scales: scales.extent,
            biases: biases.extent,
        })
    }

    fn no_matrix(&self, module: &str) -> CheckpointError {
        let (folder, name) = (self.folder.clone(), module.to_owned());
        CheckpointError::NoSuchTensor { folder, what: "quantized matrix", name }
    }

    /// Where the nine pieces of a record lie, in core's `PIECE_ORDER`; `None` outside the
    /// geometry. Cheap: it multiplies and adds.
    #[must_use]
    pub fn expert_pieces(&self, key: ExpertKey) -> Option<[Extent; 9]> {
        self.geometry.index(key)?;
        let mut pieces = *self.experts.get(key.layer().index())?;
        for (extent, piece) in pieces.iter_mut().zip(self.layout.pieces()) {
            let len = piece.len as u64;
            *extent = extent.slice(u64::from(key.expert().get()) * len, len).ok()?;
        }
        Some(pieces)
    }

    /// The n-gram table; `None` when the config has no such layer.
    #[must_use]
    pub const fn ngram(&self) -> Option<&NgramPlan> {
        self.ngram.as_ref()
    }

    /// What lies at byte `offset` of a file: the reverse of the extents. `None` in a header, past
    /// the end, or in no file of this checkpoint.
    #[must_use]
    pub fn locate(&self, file: FileId, offset: u64) -> Option<Location<'_>> {
        let order = self.by_file.get(file.index())?;
        // The data follow each other without gaps, so the last tensor that starts at or before
        // the offset holds it, empty tensors aside.
        let after = order.partition_point(|i| self.tensors[*i].extent.offset() <= offset);
        let tensor = &self.tensors[*order.get(after.checked_sub(1)?)?];
        if offset >= tensor.extent.end() {
            return None;
        }
        let offset = offset - tensor.extent.offset();
        let mut location = Location { tensor, offset, expert: None, ngram_row: None };
        match tensor.class {
            TensorClass::RoutedExperts => location.expert = self.expert_at(tensor, offset),
            TensorClass::NgramTable => location.ngram_row = self.row_at(tensor, offset),
            _ => {}
        }
        Some(location)
    }

    fn expert_at(&self, tensor: &TensorInfo, offset: u64) -> Option<ExpertKey> {
        let layer = crate::names::layer_of(tensor.canonical_name())?;
        let each = tensor.extent.len().checked_div(self.geometry.experts() as u64)?;
        let expert = usize::try_from(offset.checked_div(each)?).ok()?;
        self.geometry.key(layer * self.geometry.experts() + expert)
    }

    fn row_at(&self, tensor: &TensorInfo, offset: u64) -> Option<u64> {
        let plan = self.ngram.as_ref()?;
        let name = tensor.canonical_name();
        let (_, tail) = name.rsplit_once(".shard_")?;
        let shard: u64 = tail.split('.').next()?.parse().ok()?;
        let row_bytes = tensor.extent.len().checked_div(plan.rows_per_shard)?;
        Some(shard * plan.rows_per_shard + offset.checked_div(row_bytes)?)
    }

    /// Bytes by class.
    #[must_use]
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}

/// The folder must be one, and hold a config.
fn check_folder(folder: &Path) -> Result<(), CheckpointError> {
    let meta = json::metadata(folder)?;
    if !meta.is_dir() {
        let path = folder.into();
        return Err(CheckpointError::FileType { path, expected: "a folder", found: "a file" });
    }
    match folder.join("config.json").symlink_metadata() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Err(CheckpointError::NoConfig { folder: folder.into() })
        }
        _ => Ok(()),
    }
}

fn no_such(folder: &Path, name: &str) -> CheckpointError {
    let (folder, name) = (folder.into(), name.to_owned());
    CheckpointError::NoSuchTensor { folder, what: "tensor", name }
}

/// The nine stacked arrays of each layer.
fn stacked_experts(
    folder: &Path,
    tensors: &[TensorInfo],
    by_name: &HashMap<String, usize>,
    geometry: Geometry,
) -> Result<Vec<[Extent; 9]>, CheckpointError> {
    let mut layers = Vec::with_capacity(geometry.layers());
    for layer in (0..=u16::MAX).take(geometry.layers()) {
        let mut pieces = Vec::with_capacity(PIECE_ORDER.len());
        for (matrix, part) in PIECE_ORDER {
            let module = expert_module(LayerIdx::new(layer), matrix);
            let part = match part {
                Part::Weight => "weight",
                Part::Scales => "scales",
                Part::Biases => "biases",
            };
            let name = format!("{module}.{part}");
            let found = by_name.get(&name).ok_or_else(|| no_such(folder, &name))?;
            pieces.push(tensors[*found].extent);
        }
        let pieces = <[Extent; 9]>::try_from(pieces);
        layers.push(pieces.map_err(|_| no_such(folder, "experts"))?);
    }
    Ok(layers)
}
