//! The prompt: flags, reading, and whether it fits the model.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{ArgGroup, Args};
use slotstream::TextParts;
use slotstream::checkpoint::Checkpoint;
use slotstream::qwen::QwenError;
use slotstream::text::{ChatOptions, Message};
use slotstream_core::{CancelToken, ErrorKind};

use crate::Failure;
use crate::outputs::Input;
use crate::text_file::read_text;

/// The most that is read of a prompt file.
const PROMPT_LIMIT: u64 = 64 << 20;

/// A prompt in one of three forms.
#[derive(Args, Clone, Debug)]
#[command(group(ArgGroup::new("what").args(["prompt", "prompt_file", "prompt_ids"])))]
#[non_exhaustive]
pub struct PromptArguments {
    /// Text to continue
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, help_heading = "Prompt")]
    pub prompt: Option<String>,
    /// Read the prompt from a file
    #[arg(long, value_name = "FILE", help_heading = "Prompt")]
    pub prompt_file: Option<PathBuf>,
    /// Token ids instead of text, such as "1,2,3"
    #[arg(long, value_name = "IDS", conflicts_with = "chat", help_heading = "Prompt")]
    pub prompt_ids: Option<PromptIds>,
    /// Put the prompt into the model's chat template as a user's message
    #[arg(long, requires = "what", help_heading = "Prompt")]
    pub chat: bool,
}

impl PromptArguments {
    /// Whether there is a prompt.
    #[must_use]
    pub const fn given(&self) -> bool {
        self.prompt.is_some() || self.prompt_file.is_some() || self.prompt_ids.is_some()
    }

    /// The file that is read, if there is one.
    pub(crate) fn input(&self) -> Option<Input<'_>> {
        self.prompt_file.as_ref().map(|path| Input::File("--prompt-file", path.into()))
    }

    /// The prompt, if there is one.
    pub(crate) fn read(&self) -> Result<Option<Prompt>, Failure> {
        let text = match (&self.prompt_ids, &self.prompt_file, &self.prompt) {
            (Some(ids), _, _) => return Ok(Some(Prompt::Ids(ids.0.clone()))),
            (None, Some(path), _) => read_text(path, PROMPT_LIMIT)?,
            (None, None, Some(text)) => text.clone(),
            (None, None, None) => return Ok(None),
        };
        if text.is_empty() {
            return Err(Failure::EmptyPrompt {});
        }
        Ok(Some(Prompt::Text { text, chat: self.chat }))
    }
}

/// A prompt as given.
pub(crate) enum Prompt {
    Text { text: String, chat: bool },
    Ids(Vec<u32>),
}

impl Prompt {
    /// Its tokens; given up when `cancel` is set.
    pub(crate) fn tokens(
        self,
        parts: &TextParts,
        cancel: &CancelToken,
    ) -> Result<Vec<u32>, Failure> {
        let encode = |text: &str, add_special| {
            let ids = parts.tokenizer()?.encode_cancellable(text, add_special, cancel);
            ids.map_err(slotstream::Error::from)
        };
        Ok(match self {
            Self::Ids(ids) => ids,
            Self::Text { text, chat: true } => {
                let turns = [Message::user(text)];
                encode(&parts.chat_text(&turns, &ChatOptions::default())?, false)?
            }
            Self::Text { text, chat: false } => encode(&text, true)?,
        })
    }
}

/// What a prompt must fit into.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// The longest context of this run.
    pub(crate) context: usize,
    /// The longest context of the model.
    longest: usize,
    pub(crate) vocab_size: usize,
}

impl Room {
    pub(crate) fn new(checkpoint: &Checkpoint, context: usize) -> Self {
        let config = checkpoint.config();
        let (longest, vocab_size) = (config.max_position_embeddings, config.vocab_size);
        Self { context, longest, vocab_size }
    }

    /// Whether so many tokens leave room for at least one more.
    pub(crate) fn check_len(&self, tokens: usize) -> Result<(), Failure> {
        let (context, longest) = (self.context, self.longest);
        match tokens {
            0 => Err(Failure::EmptyPrompt {}),
            _ if tokens >= context => Err(Failure::LongPrompt { tokens, context, longest }),
            _ => Ok(()),
        }
    }

    /// Whether a system message with which the shortest message takes so many tokens leaves room for an
    /// answer.
    pub(crate) fn check_system(&self, tokens: usize) -> Result<(), Failure> {
        let (context, longest) = (self.context, self.longest);
        if tokens < context {
            Ok(())
        } else {
            Err(Failure::LongSystem { tokens, context, longest })
        }
    }

    /// Whether these tokens fit, and the model knows them all.
    pub(crate) fn check(&self, tokens: &[u32]) -> Result<(), Failure> {
        self.check_len(tokens.len())?;
        match tokens.iter().position(|token| *token as usize >= self.vocab_size) {
            None => Ok(()),
            Some(at) => {
                let error = QwenError::token(tokens[at], at as u64, self.vocab_size);
                Err(slotstream::Error::from(error).into())
            }
        }
    }
}

/// A list of token ids, separated by commas or spaces.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "it is a list")]
pub struct PromptIds(
    /// The ids.
    pub Vec<u32>,
);

/// A text that is no list of token ids.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PromptIdsError {
    /// Something that is no id.
    #[error("{text:?} (item {position}, from 1) is no token id: write ids such as \"1,2,3\"")]
    #[non_exhaustive]
    Id {
        /// The item.
        text: String,
        /// Its place, from 1.
        position: usize,
    },
    /// No id at all.
    #[error("the list is empty: write ids such as \"1,2,3\"")]
    #[non_exhaustive]
    Empty {},
}

impl PromptIdsError {
    /// What the caller can do about it: write another list.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::User
    }
}

impl FromStr for PromptIds {
    type Err = PromptIdsError;

    fn from_str(text: &str) -> Result<Self, PromptIdsError> {
        if text.chars().all(|c| c == ',' || c.is_whitespace()) {
            return Err(PromptIdsError::Empty {});
        }
        let mut ids = Vec::new();
        for part in text.split(',') {
            // Nothing between two commas is an item, too: one that is no id.
            let words = part.split_whitespace();
            let none = part.trim().is_empty().then_some("");
            for word in words.chain(none) {
                let position = ids.len() + 1;
                let id =
                    word.parse().map_err(|_| PromptIdsError::Id { text: word.into(), position });
                ids.push(id?);
            }
        }
        Ok(Self(ids))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids() {
        assert_eq!("1,2, 3\n4".parse(), Ok(PromptIds(vec![1, 2, 3, 4])));
        assert_eq!(" ,".parse::<PromptIds>(), Err(PromptIdsError::Empty {}));
        let item =
            |text: &str, position| Err(PromptIdsError::Id { text: text.to_owned(), position });
        assert_eq!("1,,2".parse::<PromptIds>(), item("", 2));
        assert_eq!("1 2, ,".parse::<PromptIds>(), item("", 3));
        assert_eq!(",1".parse::<PromptIds>(), item("", 1));
        assert_eq!("1,2,".parse::<PromptIds>(), item("", 3));
        let error = "1,-2".parse::<PromptIds>().unwrap_err();
        assert_eq!(error, PromptIdsError::Id { text: "-2".to_owned(), position: 2 });
    }
}
