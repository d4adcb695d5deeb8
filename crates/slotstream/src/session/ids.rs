//! Tokens, one an item.

use slotstream_core::ErrorKind;

use super::Session;
use crate::Error;

/// Why a generation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FinishReason {
    /// A token of [`Engine::eos_tokens`](crate::Engine::eos_tokens) was generated.
    Eos(u32),
    /// A stop string appeared.
    Stop(String),
    /// As many tokens as asked for were generated.
    Length,
    /// The context is full.
    Context,
    /// The session's cancel token was set.
    Cancelled,
    /// The session's deadline passed.
    Deadline,
    /// Another error was returned.
    Failed,
}

impl FinishReason {
    /// The reason of a generation that this error ended.
    #[must_use]
    pub fn of(error: &Error) -> Self {
        match error {
            Error::Deadline { .. } => Self::Deadline,
            _ if error.kind() == ErrorKind::Cancelled => Self::Cancelled,
            _ => Self::Failed,
        }
    }
}

/// Generates tokens, one an item. Ends after an error.
#[derive(Debug)]
pub struct TokenIter<'s> {
    session: &'s mut Session,
    left: usize,
    ignore_eos: bool,
    finish: Option<FinishReason>,
}

impl<'s> TokenIter<'s> {
    pub(super) const fn new(session: &'s mut Session, left: usize) -> Self {
        Self { session, left, ignore_eos: false, finish: None }
    }

    /// Goes on after tokens that end the text.
    #[must_use]
    pub const fn ignoring_eos(mut self, ignore: bool) -> Self {
        self.ignore_eos = ignore;
        self
    }

    /// Why it ended; `None` while it has not.
    #[must_use]
    pub const fn finish_reason(&self) -> Option<&FinishReason> {
        self.finish.as_ref()
    }

    /// The session.
    #[must_use]
    pub const fn session(&self) -> &Session {
        self.session
    }

    /// Ends the generation for a reason found outside, such as a stop string.
    #[cfg(feature = "text")]
    pub(crate) fn end(&mut self, reason: FinishReason) {
        self.finish = Some(reason);
    }
}

impl Iterator for TokenIter<'_> {
    type Item = Result<u32, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.finish.is_some() {
            return None;
        }
        if self.left == 0 {
            self.finish = Some(FinishReason::Length);
            return None;
        }
        if self.session.tokens.len() >= self.session.engine.0.context {
            self.finish = Some(FinishReason::Context);
            return None;
        }
        self.left -= 1;
        let token = match self.session.one_more() {
            Ok(token) => token,
            Err(error) => {
                self.finish = Some(FinishReason::of(&error));
                return Some(Err(error));
            }
        };
        if !self.ignore_eos && self.session.engine.eos_tokens().contains(&token) {
            self.finish = Some(FinishReason::Eos(token));
        } else if self.left > 0 {
            self.session.look_ahead();
        }
        Some(Ok(token))
    }
}
