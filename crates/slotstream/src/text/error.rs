//! What can go wrong with text and with the files that describe it.

use std::error::Error;
use std::path::{Path, PathBuf};

use slotstream_checkpoint::CheckpointError;
use slotstream_core::ErrorKind;

type Source = Box<dyn Error + Send + Sync>;

/// A tokenizer, template, message or stop string that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    #[non_exhaustive]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A symbolic link that leads back to itself.
    #[error("{} is a loop of symbolic links; download the file again", path.display())]
    #[non_exhaustive]
    LinkLoop {
        /// The link.
        path: PathBuf,
    },
    /// A key that appears twice in one JSON object, such as a token in the vocabulary.
    #[error("{} has the key `{key}` twice in one object", path.display())]
    #[non_exhaustive]
    DuplicateKey {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
    },
    /// A number in a tokenizer that would take memory without bound: the counted repetitions of a
    /// regular expression, or the length field of a character map.
    #[error("{}: {what}: {found}, at most {limit} are accepted", path.display())]
    #[non_exhaustive]
    Unbounded {
        /// The tokenizer file.
        path: PathBuf,
        /// What there is too much of.
        what: String,
        /// How much.
        found: u64,
        /// The most that is accepted.
        limit: u64,
    },
    /// A folder, a pipe or a device where a file should be.
    #[error("{} is no regular file", path.display())]
    #[non_exhaustive]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// No thread could be started to compile a template, or to encode a long text.
    #[error("no thread could be started to work with {}", path.display())]
    #[non_exhaustive]
    Thread {
        /// The file of the template or tokenizer.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file is too large to be what its name says.
    #[error("{} has more than {limit} bytes, the most that is read of such a file", path.display())]
    #[non_exhaustive]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit in bytes.
        limit: u64,
    },
    /// A file is not JSON, or not JSON of the expected form.
    #[error("{} is not valid: {expected} expected", path.display())]
    #[non_exhaustive]
    Json {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        expected: &'static str,
        /// The parser's reason, with line and column.
        source: Source,
    },
    /// A field of a JSON file has the wrong type.
    #[error("field {field} of {} is not valid: {expected} expected", path.display())]
    #[non_exhaustive]
    Field {
        /// The file.
        path: PathBuf,
        /// Name of the field.
        field: &'static str,
        /// The expected form.
        expected: &'static str,
    },
    /// The tokenizer has ids that the model has no embedding for.
    #[error(
        "{} has token {id} ({token:?}), but the model's vocab_size is {vocab_size}: tokenizer and \
         model do not belong together",
        path.display()
    )]
    #[non_exhaustive]
    Vocabulary {
        /// The tokenizer file.
        path: PathBuf,
        /// Highest id of the tokenizer.
        id: u32,
        /// Its token.
        token: String,
        /// `vocab_size` of the model's config.
        vocab_size: usize,
    },
    /// The tokenizer refused a text.
    #[error("cannot encode a text of {bytes} bytes with {}", path.display())]
    #[non_exhaustive]
    Encode {
        /// The tokenizer file.
        path: PathBuf,
        /// Length of the text in bytes.
        bytes: usize,
        /// The tokenizer's reason.
        source: Source,
    },
    /// Encoding a text was cancelled.
    #[error("cancelled while a text of {bytes} bytes was encoded with {}", path.display())]
    #[non_exhaustive]
    Cancelled {
        /// The tokenizer file.
        path: PathBuf,
        /// Length of the text in bytes.
        bytes: usize,
    },
    /// The tokenizer refused token ids.
    #[error("cannot decode {ids} token ids with {}", path.display())]
    #[non_exhaustive]
    Decode {
        /// The tokenizer file.
        path: PathBuf,
        /// Number of ids.
        ids: usize,
        /// The tokenizer's reason.
        source: Source,
    },
    /// The tokenizer's decoder changes text that it gave before, so it cannot stream.
    #[error(
        "token {id} changes text already given out: the decoder in {} cannot stream",
        path.display()
    )]
    #[non_exhaustive]
    Unstreamable {
        /// The tokenizer file.
        path: PathBuf,
        /// The token at which it showed.
        id: u32,
    },
    /// A stop string is empty; it would match before the first token.
    #[error("stop string {position} (counted from 0) is empty")]
    #[non_exhaustive]
    EmptyStop {
        /// Its position in the list.
        position: usize,
    },
    /// The model folder holds no chat template.
    #[error(
        "{} has no chat_template.jinja and no chat_template in tokenizer_config.json: give a \
         template file, or use a raw prompt",
        folder.display()
    )]
    #[non_exhaustive]
    NoTemplate {
        /// The model folder.
        folder: PathBuf,
    },
    /// No template of that name.
    #[error("no chat template is named {name:?}; there are: {}", available.join(", "))]
    #[non_exhaustive]
    TemplateName {
        /// The name asked for.
        name: String,
        /// The names there are.
        available: Vec<String>,
    },
    /// The template is not valid Jinja, or uses a tag that is not supported.
    #[error(
        "chat template {} has a syntax error in line {line}; another template file can be given \
         instead",
        path.display()
    )]
    #[non_exhaustive]
    TemplateSyntax {
        /// The file that holds the template.
        path: PathBuf,
        /// Line in the template, from 1.
        line: usize,
        /// The parser's reason.
        source: Source,
    },
    /// The template failed while it was rendered.
    #[error("chat template {} failed in line {line}", path.display())]
    #[non_exhaustive]
    TemplateRender {
        /// The file that holds the template.
        path: PathBuf,
        /// Line in the template, from 1.
        line: usize,
        /// The reason.
        source: Source,
    },
    /// The template refused the conversation by `raise_exception`.
    #[error("the chat template refuses this conversation: {message} ({}, line {line})", path.display())]
    #[non_exhaustive]
    Refused {
        /// The file that holds the template.
        path: PathBuf,
        /// Line of the template, from 1.
        line: usize,
        /// The template's own words.
        message: String,
    },
    /// An extra variable has a name that [`ChatOptions`](super::ChatOptions) sets by itself.
    #[error("template variable {name:?} cannot be set as an extra: it has its own option")]
    #[non_exhaustive]
    ReservedVariable {
        /// The name.
        name: String,
    },
    /// The arguments of a tool call are a text that is no JSON object.
    #[error("the arguments of the call of {function:?} must be a JSON object")]
    #[non_exhaustive]
    Arguments {
        /// Name of the function.
        function: String,
        /// The parser's reason.
        source: Source,
    },
    /// A JSON message is no object with a string `role`.
    #[error("a chat message must be a JSON object with a string \"role\", not {found}")]
    #[non_exhaustive]
    Message {
        /// What was found instead, in words.
        found: &'static str,
    },
}

impl TextError {
    /// The refusal of a JSON file that should hold `expected`.
    pub(super) fn json(path: &Path, expected: &'static str, error: CheckpointError) -> Self {
        match error {
            CheckpointError::DuplicateKey { path, key, .. } => Self::DuplicateKey { path, key },
            other => Self::Json { path: path.into(), expected, source: other.into() },
        }
    }

    /// What the caller can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Read { source, .. } => ErrorKind::of_file(source),
            Self::Thread { .. } => ErrorKind::Transient,
            Self::Cancelled { .. } => ErrorKind::Cancelled,
            Self::TooLarge { .. }
            | Self::Json { .. }
            | Self::Field { .. }
            | Self::Vocabulary { .. }
            | Self::LinkLoop { .. }
            | Self::DuplicateKey { .. }
            | Self::Unbounded { .. }
            | Self::TemplateRender { .. }
            | Self::Unstreamable { .. }
            | Self::TemplateSyntax { .. } => ErrorKind::Corrupt,
            Self::NotAFile { .. }
            | Self::Encode { .. }
            | Self::Decode { .. }
            | Self::EmptyStop { .. }
            | Self::NoTemplate { .. }
            | Self::TemplateName { .. }
            | Self::Refused { .. }
            | Self::ReservedVariable { .. }
            | Self::Arguments { .. }
            | Self::Message { .. } => ErrorKind::User,
        }
    }
}
