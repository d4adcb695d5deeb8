//! What can go wrong in an example, how it is shown, and the exit code.

use std::io;
use std::path::PathBuf;

use serde::Serialize;
use slotstream_checkpoint::CheckpointError;
use slotstream_checkpoint::container::ContainerError;
use slotstream_core::{ErrorKind, ReadError};
use slotstream_io::IoError;
use slotstream_replay::{ReplayError, TraceError};
use slotstream_testkit::checkpoint::WriteError;

use crate::{Place, TokenFileError, show_size};

/// Why an example ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The command line is wrong, or asks for help.
    #[error(transparent)]
    Usage(clap::Error),
    /// Something in the engine.
    #[cfg(feature = "engine")]
    #[error(transparent)]
    Engine(slotstream::Error),
    /// A file of a warm start that this engine cannot begin with.
    #[cfg(feature = "engine")]
    #[error(
        "--warm-start {} cannot be used: name another file, or begin with an empty pool and write this \
         one anew by --warm-start-or-cold",
        path.display()
    )]
    #[non_exhaustive]
    WarmStart {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<slotstream::warm::WarmError>,
    },
    /// A correction that was not trained.
    #[cfg(feature = "engine")]
    #[error(transparent)]
    Train(slotstream::lookahead::TrainError),
    /// A correction that cannot be kept.
    #[cfg(feature = "engine")]
    #[error(transparent)]
    Correction(slotstream::lookahead::CorrectionError),
    /// A file of token windows.
    #[error(transparent)]
    Tokens(TokenFileError),
    /// A trace.
    #[error(transparent)]
    Trace(TraceError),
    /// A replay.
    #[error(transparent)]
    Replay(ReplayError),
    /// A list of digests with a line that is none.
    #[cfg(feature = "engine")]
    #[error("{}, line {line}: expected {expected}, found {text:?}", path.display())]
    #[non_exhaustive]
    DigestList {
        /// The list.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// How it begins.
        text: String,
        /// What would be legal.
        expected: &'static str,
    },
    /// Files that are not those of a list of digests.
    #[cfg(feature = "engine")]
    #[error(
        "{} of {files} files are not those of {}: {}; download them again",
        wrong.len(), list.display(), wrong.join("; ")
    )]
    #[non_exhaustive]
    Digests {
        /// The list.
        list: PathBuf,
        /// Files in it.
        files: usize,
        /// What is wrong with each that is not as listed.
        wrong: Vec<String>,
    },
    /// A reader that cannot be opened, or its lanes not started.
    #[error("the reads cannot begin")]
    #[non_exhaustive]
    Reader {
        /// Why.
        source: IoError,
    },
    /// A read.
    #[error("a read failed")]
    #[non_exhaustive]
    Read {
        /// Which, and why.
        source: ReadError,
    },
    /// No memory to read into.
    #[error("no memory for {count} reads of {len} bytes at once: ask for a smaller --depth")]
    #[non_exhaustive]
    Slots {
        /// Reads at once.
        count: usize,
        /// Bytes of each.
        len: usize,
        /// The system's reason.
        source: io::Error,
    },
    /// A chart that cannot be drawn.
    #[error("the chart cannot be drawn: {reason}")]
    #[non_exhaustive]
    Chart {
        /// What the library says.
        reason: String,
    },
    /// A file that cannot be read.
    #[error("{} cannot be read", path.display())]
    #[non_exhaustive]
    ReadFile {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Ctrl-C.
    #[cfg(feature = "engine")]
    #[error("{what} was interrupted: the same command goes on where it stopped")]
    #[non_exhaustive]
    Interrupted {
        /// What was being done.
        what: &'static str,
    },
    /// A checkpoint that cannot be written.
    #[error(transparent)]
    Written(WriteError),
    /// A checkpoint, or the config of one.
    #[error(transparent)]
    Checkpoint(CheckpointError),
    /// A container.
    #[error(transparent)]
    Container(ContainerError),
    /// A disk without enough room.
    #[error(
        "{} has {} free and {} are needed: make room, or ask for less",
        path.display(), show_size(*free), show_size(*needed)
    )]
    #[non_exhaustive]
    Space {
        /// Where it was to be written.
        path: PathBuf,
        /// Bytes needed.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// A file that was to be written.
    #[error("{} cannot be written", path.display())]
    #[non_exhaustive]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// No model folder.
    #[error(
        "there is no model: {}; give a checkpoint folder with --model DIR",
        looked.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    )]
    #[non_exhaustive]
    NoModel {
        /// Where it was looked for.
        looked: Vec<Place>,
    },
    /// A text file cannot be read.
    #[error("{} cannot be read as text", path.display())]
    #[non_exhaustive]
    TextFile {
        /// The file.
        path: PathBuf,
        /// The system's reason, or that it is not UTF-8.
        source: io::Error,
    },
    /// A text file larger than any prompt.
    #[error("{} has more than {limit} bytes, the most that is read of a text", path.display())]
    #[non_exhaustive]
    TextTooLarge {
        /// The file.
        path: PathBuf,
        /// The limit in bytes.
        limit: u64,
    },
    /// A prompt without a token.
    #[error("the prompt is empty: give at least one character or token")]
    #[non_exhaustive]
    EmptyPrompt {},
    /// A prompt that leaves no room for an answer.
    #[error(
        "the prompt has {tokens} tokens and the context has room for {context}; shorten it{}",
        if context < longest { format!(", or give --context up to {longest}") } else { String::new() }
    )]
    #[non_exhaustive]
    LongPrompt {
        /// Tokens of the prompt.
        tokens: usize,
        /// The longest context of this run.
        context: usize,
        /// The longest context of the model.
        longest: usize,
    },
    /// A system message that leaves no room for a conversation.
    #[cfg(feature = "engine")]
    #[error(
        "--system takes {tokens} tokens together with the shortest message, and the context has {context}, \
         which leaves no room for an answer; shorten it{}",
        if tokens < longest {
            format!(", or give --context {} to {longest}", tokens + 1)
        } else {
            String::new()
        }
    )]
    #[non_exhaustive]
    LongSystem {
        /// Tokens of the shortest conversation.
        tokens: usize,
        /// The longest context of this run.
        context: usize,
        /// The longest context of the model.
        longest: usize,
    },
    /// Too few documents to fit a correction to.
    #[cfg(feature = "engine")]
    #[error(
        "of {given} texts {fit} are left to fit to and {held_out} to measure by: give more texts, of which at \
         least 2 are left to fit to{why}"
    )]
    #[non_exhaustive]
    FewDocuments {
        /// Texts that were given.
        given: usize,
        /// Documents that a correction would be fitted to.
        fit: usize,
        /// Documents that are held out.
        held_out: usize,
        /// What became of the others, if there are any.
        why: String,
    },
    /// Nothing to compute a perplexity of.
    #[error("{what} has {tokens} tokens: a perplexity needs at least 2")]
    #[non_exhaustive]
    NothingToScore {
        /// The text or window.
        what: String,
        /// Tokens of it.
        tokens: usize,
    },
    /// An option that does not go with another.
    #[error("{option} = {value}: expected {expected}")]
    #[non_exhaustive]
    Option {
        /// The option.
        option: &'static str,
        /// Its value.
        value: String,
        /// What would be legal.
        expected: String,
    },
    /// Nothing can be written.
    #[error("the output cannot be written")]
    #[non_exhaustive]
    Output {
        /// The system's reason.
        source: io::Error,
    },
    /// Standard input cannot be read as text.
    #[cfg(feature = "engine")]
    #[error("the input cannot be read as text")]
    #[non_exhaustive]
    Input {
        /// The system's reason, or that it is not UTF-8.
        source: io::Error,
    },
    /// The Metal path is not right on this Mac.
    #[cfg(feature = "engine")]
    #[error(
        "{wrong} checks of the Metal path failed: see the lines above, and please send them to us"
    )]
    #[non_exhaustive]
    SelfCheck {
        /// How many.
        wrong: usize,
    },
    /// Ctrl-C cannot be caught.
    #[error("the handler for Ctrl-C and SIGTERM cannot be set")]
    #[non_exhaustive]
    Interrupt {
        /// The reason.
        source: io::Error,
    },
}

impl Failure {
    /// What the caller can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            #[cfg(feature = "engine")]
            Self::Engine(error) => error.kind(),
            #[cfg(feature = "engine")]
            Self::WarmStart { source, .. } => source.kind(),
            #[cfg(feature = "engine")]
            Self::Train(error) => error.kind(),
            #[cfg(feature = "engine")]
            Self::Correction(error) => error.kind(),
            Self::Tokens(error) => error.kind(),
            Self::Trace(error) => error.kind(),
            Self::Replay(error) => error.kind(),
            Self::Checkpoint(error) => error.kind(),
            Self::Container(error) => error.kind(),
            Self::Written(error) => error.kind(),
            #[cfg(feature = "engine")]
            Self::Digests { .. } => ErrorKind::Corrupt,
            #[cfg(feature = "engine")]
            Self::Interrupted { .. } => ErrorKind::Cancelled,
            #[cfg(feature = "engine")]
            Self::Input { source } if source.kind() != io::ErrorKind::InvalidData => {
                ErrorKind::Transient
            }
            Self::Reader { source } => source.kind(),
            Self::Read { source } => source.kind(),
            #[cfg(feature = "engine")]
            Self::SelfCheck { .. } => ErrorKind::Bug,
            Self::Chart { .. } => ErrorKind::Bug,
            Self::File { source, .. } | Self::ReadFile { source, .. } => ErrorKind::of_file(source),
            Self::Output { .. } | Self::Interrupt { .. } => ErrorKind::Transient,
            _ => ErrorKind::User,
        }
    }

    /// The exit code: 2 for what the user can set right, 130 after Ctrl-C, 1 for the rest; 0
    /// when help was asked for, or nobody reads the output any more.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(error) => u8::try_from(error.exit_code()).unwrap_or(2),
            Self::Output { source } if source.kind() == io::ErrorKind::BrokenPipe => 0,
            _ => match self.kind() {
                ErrorKind::User => 2,
                ErrorKind::Cancelled => 130,
                _ => 1,
            },
        }
    }

    pub(crate) fn output(source: io::Error) -> Self {
        Self::Output { source }
    }
}

/// The word for a kind.
pub(crate) const fn kind_name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::User => "user",
        ErrorKind::Corrupt => "corrupt",
        ErrorKind::Transient => "transient",
        ErrorKind::Cancelled => "cancelled",
        _ => "bug",
    }
}

/// An error as JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ErrorFigure {
    kind: &'static str,
    message: String,
    causes: Vec<String>,
}

impl ErrorFigure {
    /// Whether it is that somebody pressed Ctrl-C.
    #[cfg(feature = "engine")]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.kind == kind_name(ErrorKind::Cancelled)
    }

    /// The error and its causes in one line.
    #[cfg(feature = "engine")]
    pub(crate) fn text(&self) -> String {
        std::iter::once(&self.message).chain(&self.causes).cloned().collect::<Vec<_>>().join(": ")
    }

    pub(crate) fn new(error: &dyn std::error::Error, kind: ErrorKind) -> Self {
        let causes = std::iter::successors(error.source(), |e| e.source());
        Self {
            kind: kind_name(kind),
            message: error.to_string(),
            causes: causes.map(ToString::to_string).collect(),
        }
    }
}

/// An error with everything behind it, one cause a line.
#[must_use]
pub fn describe(error: &Failure) -> String {
    let ErrorFigure { kind, message, causes } = ErrorFigure::new(error, error.kind());
    let mut text = format!("error ({kind}): {message}");
    for cause in causes {
        text.push_str("\n  caused by: ");
        text.push_str(&cause);
    }
    printable(&text)
}

/// Names and messages of other people's files may hold anything: what a terminal would obey is
/// escaped. Line breaks stay.
fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && c != '\n' {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(feature = "engine")]
impl From<slotstream::Error> for Failure {
    fn from(error: slotstream::Error) -> Self {
        Self::Engine(error)
    }
}

#[cfg(feature = "engine")]
impl From<slotstream::lookahead::TrainError> for Failure {
    fn from(error: slotstream::lookahead::TrainError) -> Self {
        Self::Train(error)
    }
}

#[cfg(feature = "engine")]
impl From<slotstream::lookahead::CorrectionError> for Failure {
    fn from(error: slotstream::lookahead::CorrectionError) -> Self {
        Self::Correction(error)
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        Self::Written(error)
    }
}

impl From<ContainerError> for Failure {
    fn from(error: ContainerError) -> Self {
        Self::Container(error)
    }
}

impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Self {
        Self::Usage(error)
    }
}

impl From<CheckpointError> for Failure {
    fn from(error: CheckpointError) -> Self {
        Self::Checkpoint(error)
    }
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        Self::Trace(error)
    }
}

impl From<ReplayError> for Failure {
    fn from(error: ReplayError) -> Self {
        Self::Replay(error)
    }
}

impl From<TokenFileError> for Failure {
    fn from(error: TokenFileError) -> Self {
        Self::Tokens(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_listed_and_codes_follow_the_kind() {
        let source = io::Error::other("the disk is gone");
        let error = Failure::TextFile { path: "a.txt".into(), source };
        let text = describe(&error);
        assert_eq!(
            text,
            "error (user): a.txt cannot be read as text\n  caused by: the disk is gone"
        );
        assert_eq!(error.exit_code(), 2);
        let pipe = Failure::output(io::ErrorKind::BrokenPipe.into());
        assert_eq!(pipe.exit_code(), 0);
        assert_eq!(Failure::output(io::ErrorKind::StorageFull.into()).exit_code(), 1);
    }
}
