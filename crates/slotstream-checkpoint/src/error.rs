//! What can be wrong with a checkpoint.

mod kind;
mod words;

use std::path::PathBuf;

use slotstream_core::{CoreError, ReadError};

use words::{Count, Names, are, boundary, it};

/// Why a checkpoint was refused. Every variant names the file or folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The operating system refused.
    #[error("cannot {action} {}", path.display())]
    #[non_exhaustive]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried: `open`, `read`, ...
        action: &'static str,
        /// The system's own error.
        source: std::io::Error,
    },
    /// Something else lies where a file or a folder should be.
    #[error("{} is {found}, expected {expected}", path.display())]
    #[non_exhaustive]
    FileType {
        /// The path.
        path: PathBuf,
        /// What should be there.
        expected: &'static str,
        /// What is there.
        found: &'static str,
    },
    /// A symbolic link that leads back to itself.
    #[error("{} is a loop of symbolic links; download the file again", path.display())]
    #[non_exhaustive]
    LinkLoop {
        /// The link.
        path: PathBuf,
    },
    /// A JSON file is larger than anything sensible.
    #[error("{} has {found} bytes, the limit is {limit}", path.display())]
    #[non_exhaustive]
    FileTooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// Text that is not UTF-8.
    #[error("{}: {part} is not UTF-8 from byte {offset} on", path.display())]
    #[non_exhaustive]
    Utf8 {
        /// The file.
        path: PathBuf,
        /// Which part of it.
        part: &'static str,
        /// First bad byte, counted from the start of the text.
        offset: usize,
    },
    /// Text that is not the expected JSON.
    #[error("{}: {part} is not valid JSON at line {line} column {column}: {reason}", path.display())]
    #[non_exhaustive]
    Json {
        /// The file.
        path: PathBuf,
        /// Which part of it.
        part: String,
        /// Line, from one.
        line: usize,
        /// Column, from one.
        column: usize,
        /// What the parser says.
        reason: String,
    },
    /// A key that appears twice in one JSON object.
    #[error("{}: {part} has the key `{key}` twice", path.display())]
    #[non_exhaustive]
    DuplicateKey {
        /// The file.
        path: PathBuf,
        /// Which part of it.
        part: &'static str,
        /// The key.
        key: String,
    },
    /// A field that must be there is not.
    #[error("{}: field `{field}` is missing, expected {expected}", path.display())]
    #[non_exhaustive]
    MissingField {
        /// The file.
        path: PathBuf,
        /// Dotted name of the field.
        field: String,
        /// What would be accepted.
        expected: String,
    },
    /// A field has a value that cannot be used.
    #[error("{}: field `{field}` is {found}, expected {expected}", path.display())]
    #[non_exhaustive]
    Field {
        /// The file.
        path: PathBuf,
        /// Dotted name of the field.
        field: String,
        /// The value, shortened.
        found: String,
        /// What would be accepted.
        expected: String,
    },
    /// The model is of another family.
    #[error("{}: model_type is `{found}`, expected `qwen4_exp`: this is another model", path.display())]
    #[non_exhaustive]
    ModelType {
        /// The file.
        path: PathBuf,
        /// The value.
        found: String,
    },
    /// A quantization that no kernel knows.
    #[error(
        "{}: `{key}` asks for {bits} bits in groups of {group_size}, expected 4 or 8 bits in \
         groups of 32, 64 or 128",
        path.display()
    )]
    #[non_exhaustive]
    Quantization {
        /// The file.
        path: PathBuf,
        /// Dotted name of the block.
        key: String,
        /// `bits`.
        bits: u64,
        /// `group_size`.
        group_size: u64,
    },
    /// A quantization override that has no effect.
    #[error("{}: the quantization override `{module}` {reason}", path.display())]
    #[non_exhaustive]
    OverrideUnused {
        /// The file.
        path: PathBuf,
        /// The module it names.
        module: String,
        /// Why it has no effect.
        reason: &'static str,
    },
    /// A module whose rows do not consist of whole groups, or that the config leaves unquantized.
    #[error("{}: module `{module}` with rows of {cols} values {reason}", path.display())]
    #[non_exhaustive]
    ModuleFormat {
        /// The config file.
        path: PathBuf,
        /// The module.
        module: String,
        /// Values of a row.
        cols: u64,
        /// What is wrong.
        reason: String,
    },
    /// The folder holds no safetensors file.
    #[error("{} holds no *.safetensors file and no model.safetensors.index.json", folder.display())]
    #[non_exhaustive]
    NoShards {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder holds no config.
    #[error("{} holds no config.json: it is not a checkpoint folder", folder.display())]
    #[non_exhaustive]
    NoConfig {
        /// The folder.
        folder: PathBuf,
    },
    /// Files that should be there are not.
    #[error(
        "{}: {} of {} {} missing: {}; download {} again",
        folder.display(), missing.len(), Count(*total, "shard"), are(missing.len()), Names(missing),
        it(missing.len())
    )]
    #[non_exhaustive]
    MissingShards {
        /// The folder.
        folder: PathBuf,
        /// Names of the missing files.
        missing: Vec<String>,
        /// How many there should be.
        total: usize,
    },
    /// More shards than a file number can name.
    #[error("{}: {found} shards, the limit is {limit}", folder.display())]
    #[non_exhaustive]
    TooManyShards {
        /// The folder.
        folder: PathBuf,
        /// How many there are.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// A file name in the index that is not a plain name.
    #[error(
        "{}: the index puts `{tensor}` into `{file}`, expected the plain name of a file in the \
         same folder",
        path.display()
    )]
    #[non_exhaustive]
    ShardName {
        /// The index.
        path: PathBuf,
        /// A tensor that is said to lie in it.
        tensor: String,
        /// The name.
        file: String,
    },
    /// A tensor that the index names and the file does not have.
    #[error(
        "{}: the index puts {} here that the file does not have: {}",
        path.display(), Count(tensors.len(), "tensor"), Names(tensors)
    )]
    #[non_exhaustive]
    NotInShard {
        /// The shard.
        path: PathBuf,
        /// The tensors.
        tensors: Vec<String>,
    },
    /// A tensor that a file has and the index does not name.
    #[error(
        "{}: {} in this file {} not in the index: {}",
        path.display(), Count(tensors.len(), "tensor"), are(tensors.len()), Names(tensors)
    )]
    #[non_exhaustive]
    NotInIndex {
        /// The shard.
        path: PathBuf,
        /// The tensors.
        tensors: Vec<String>,
    },
    /// The length field of a safetensors header is impossible.
    #[error(
        "{}: the header claims {length} bytes: expected at least 2, at most {limit}, and at most \
         the {available} bytes that follow it",
        path.display()
    )]
    #[non_exhaustive]
    HeaderLength {
        /// The shard.
        path: PathBuf,
        /// What the first eight bytes say.
        length: u64,
        /// Bytes of the file after the length field.
        available: u64,
        /// The limit of the format.
        limit: u64,
    },
    /// A file too short for a length field.
    #[error("{} has {found} bytes, a safetensors file has at least 10; download it again", path.display())]
    #[non_exhaustive]
    NoHeader {
        /// The shard.
        path: PathBuf,
        /// Its size.
        found: u64,
    },
    /// More tensors or dimensions than anything sensible.
    #[error("{}: {what}: the limit is {limit}", path.display())]
    #[non_exhaustive]
    HeaderLimit {
        /// The shard.
        path: PathBuf,
        /// What there is too much of, with the tensor's name.
        what: String,
        /// The limit.
        limit: usize,
    },
    /// An entry of the header without one of its three fields.
    #[error("{}: tensor `{tensor}` has no `{field}`", path.display())]
    #[non_exhaustive]
    TensorField {
        /// The shard.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The field.
        field: &'static str,
    },
    /// A number in an entry of the header that is negative or beyond 64 bits.
    #[error("{}: tensor `{tensor}`: `{field}` holds {found}, expected a number from 0 to 2^63 - 1", path.display())]
    #[non_exhaustive]
    TensorNumber {
        /// The shard.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The field.
        field: &'static str,
        /// The number.
        found: i128,
    },
    /// A value type that the format does not know.
    #[error("{}: tensor `{tensor}` has the unknown dtype `{found}`", path.display())]
    #[non_exhaustive]
    UnknownDtype {
        /// The shard.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The name in the header.
        found: String,
    },
    /// A shape with more values than 64 bits can count.
    #[error("{}: tensor `{tensor}`: the product of the shape {shape:?} overflows", path.display())]
    #[non_exhaustive]
    ShapeOverflow {
        /// The shard.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The shape.
        shape: Vec<u64>,
    },
    /// A byte range that does not fit dtype and shape.
    #[error(
        "{}: tensor `{tensor}` spans bytes {begin}..{end} of the data, its dtype and shape need \
         {expected} bytes",
        path.display()
    )]
    #[non_exhaustive]
    TensorBytes {
        /// The shard.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// First byte in the data area.
        begin: u64,
        /// One past the last byte.
        end: u64,
        /// Bytes that dtype and shape need.
        expected: u64,
    },
    /// Two tensors share bytes, or bytes belong to no tensor.
    #[error(
        "{}: tensor `{tensor}` starts at byte {found} of the data, expected {expected}, where \
         {} ends: {}",
        path.display(),
        boundary(previous),
        if found < expected { "they overlap" } else { "the bytes between belong to no tensor" }
    )]
    #[non_exhaustive]
    TensorPlacement {
        /// The shard.
        path: PathBuf,
        /// The later tensor.
        tensor: String,
        /// The tensor before it; empty for the first.
        previous: String,
        /// Where the later one should start.
        expected: u64,
        /// Where it starts.
        found: u64,
    },
    /// The file is shorter than its header says.
    #[error(
        "{} has {found} bytes, its header describes {expected}: the file is cut off; download it \
         again",
        path.display()
    )]
    #[non_exhaustive]
    Truncated {
        /// The shard.
        path: PathBuf,
        /// Size that the header describes.
        expected: u64,
        /// Size of the file.
        found: u64,
    },
    /// The file is longer than its header says.
    #[error(
        "{} has {found} bytes, its header describes {expected}: the rest belongs to no tensor; \
         download it again",
        path.display()
    )]
    #[non_exhaustive]
    TrailingBytes {
        /// The shard.
        path: PathBuf,
        /// Size that the header describes.
        expected: u64,
        /// Size of the file.
        found: u64,
    },
    /// One tensor in two files, or under two spellings of its name.
    #[error("tensor `{tensor}` is both in {} and in {}", first.display(), second.display())]
    #[non_exhaustive]
    DuplicateTensor {
        /// The tensor.
        tensor: String,
        /// The shard that was read first.
        first: PathBuf,
        /// The other shard (or the same one).
        second: PathBuf,
    },
    /// The tensors have another number of layers than the config.
    #[error(
        "{}: num_hidden_layers is {expected}, the tensors have {found} layers",
        path.display()
    )]
    #[non_exhaustive]
    LayerCount {
        /// The config.
        path: PathBuf,
        /// Layers of the config.
        expected: usize,
        /// Layers of the tensors: the highest number in a name, plus one.
        found: usize,
    },
    /// Tensors that the config asks for are not there.
    #[error(
        "{}: {} {} missing: {}",
        folder.display(), Count(tensors.len(), "tensor"), are(tensors.len()), Names(tensors)
    )]
    #[non_exhaustive]
    MissingTensors {
        /// The folder.
        folder: PathBuf,
        /// Their names.
        tensors: Vec<String>,
    },
    /// A quantized matrix without its scales or biases.
    #[error(
        "{}: module `{module}` has a `.weight` but no `.{part}`: the quantized matrix is not \
         complete",
        folder.display()
    )]
    #[non_exhaustive]
    IncompleteModule {
        /// The folder.
        folder: PathBuf,
        /// The module.
        module: String,
        /// `scales` or `biases`.
        part: &'static str,
    },
    /// Tensors that nothing in the model uses.
    #[error(
        "{}: {} of no part of the model: {}; loading would ignore {}",
        folder.display(), Count(tensors.len(), "tensor"), Names(tensors),
        it(tensors.len())
    )]
    #[non_exhaustive]
    UnmappedTensors {
        /// The folder.
        folder: PathBuf,
        /// Their names.
        tensors: Vec<String>,
    },
    /// A tensor of another dtype than the model needs.
    #[error("{}: tensor `{tensor}` is {found}, expected {expected}", path.display())]
    #[non_exhaustive]
    TensorDtype {
        /// The shard.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The dtype in the header.
        found: &'static str,
        /// What would be accepted.
        expected: &'static str,
    },
    /// A tensor of another shape than the config asks for.
    #[error("{}: tensor `{tensor}` has shape {found:?}, the config asks for {expected:?}", path.display())]
    #[non_exhaustive]
    TensorShape {
        /// The shard.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The shape in the header.
        found: Vec<u64>,
        /// The shape that follows from the config.
        expected: Vec<u64>,
    },
    /// Experts of different layers that are quantized differently.
    #[error(
        "{}: `{module}` is quantized with {found}, other experts with {expected}; all records \
         must have one format",
        path.display()
    )]
    #[non_exhaustive]
    MixedExperts {
        /// The config.
        path: PathBuf,
        /// The module.
        module: String,
        /// Its format.
        found: String,
        /// The format of the first experts.
        expected: String,
    },
    /// A name that is not a module or tensor of this checkpoint.
    #[error("{}: there is no {what} `{name}`", folder.display())]
    #[non_exhaustive]
    NoSuchTensor {
        /// The folder.
        folder: PathBuf,
        /// What was asked for.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// The constants of the n-gram hash cannot be made from the config.
    #[error("{}: the n-gram constants: {what}", path.display())]
    #[non_exhaustive]
    NgramConfig {
        /// The config.
        path: PathBuf,
        /// What is wrong, with the numbers.
        what: String,
    },
    /// A stored constant of the n-gram hash differs from the one that the config gives.
    #[error(
        "{}: `{tensor}`[{index}] is {found}, the config gives {expected}: the config's `seed` \
         (absent means 1234), `vocab_size` or `ngram_vocab_size_base` is not the one that the \
         table was trained with",
        path.display()
    )]
    #[non_exhaustive]
    NgramConstant {
        /// The shard.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Number of the value.
        index: usize,
        /// What the config gives.
        expected: i64,
        /// What the file holds.
        found: i64,
    },
    /// Some norms are stored raw, others with one added.
    #[error(
        "{}: norm weights are stored in two forms: `{low}` has mean {low_mean:.3} (raw), `{high}` \
         has mean {high_mean:.3} (one added); convert the checkpoint again",
        folder.display()
    )]
    #[non_exhaustive]
    MixedNorms {
        /// The folder.
        folder: PathBuf,
        /// The norm with the lowest mean.
        low: String,
        /// Its mean.
        low_mean: f64,
        /// The norm with the highest mean.
        high: String,
        /// Its mean.
        high_mean: f64,
    },
    /// A norm weight that is not a number.
    #[error("{}: `{tensor}` holds a value that is not finite", folder.display())]
    #[non_exhaustive]
    NormNotFinite {
        /// The folder.
        folder: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// A weight that is not a number, or infinite.
    #[error(
        "{}: `{tensor}` holds {value} as value {index}, at byte {offset} of the file: the file is \
         damaged; download it again",
        path.display()
    )]
    #[non_exhaustive]
    NotFinite {
        /// The shard.
        path: PathBuf,
        /// The tensor, as written in the file.
        tensor: String,
        /// Number of the value in the tensor, from 0.
        index: u64,
        /// Its first byte in the file.
        offset: u64,
        /// The value.
        value: f32,
    },
    /// A word that names no norm form.
    #[error("norm form `{found}`: expected `raw` or `folded`")]
    #[non_exhaustive]
    NormFormName {
        /// The word.
        found: String,
    },
    /// Reading payload failed.
    #[error("reading `{tensor}` failed")]
    #[non_exhaustive]
    Read {
        /// The tensor.
        tensor: String,
        /// The reader's error.
        source: ReadError,
    },
    /// The numbers of the config give no legal geometry, record or extent.
    #[error("{}: the shape of the model is not legal", path.display())]
    #[non_exhaustive]
    Shape {
        /// The file.
        path: PathBuf,
        /// What is not legal.
        source: CoreError,
    },
}
