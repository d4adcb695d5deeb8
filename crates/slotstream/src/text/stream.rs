//! Token ids to text while they are generated.

#[cfg(test)]
mod tests;

use super::{TextError, Tokenizer};

/// Most tokens that a window holds back while its text ends in U+FFFD.
const MOST_HELD: usize = 64;

/// Turns token ids into text, one at a time, without ever giving out half a character.
///
/// Text that a later token could still change is held back: the first bytes of an emoji or a CJK
/// character split over tokens. All pieces and [`finish`](Self::finish) together equal
/// [`Tokenizer::decode`] of all ids. The work per token does not grow with their number.
///
/// Byte-level tokenizers (Qwen, GPT-2, Llama 3) are decoded byte by byte, exactly for any ids.
/// Others are decoded in a window of the last tokens; runs of byte tokens (`<0xE4>`) are held
/// back to their end, and 64 tokens that make no whole character are given up as U+FFFD.
#[derive(Clone, Debug)]
pub struct StreamDecoder {
    tokenizer: Tokenizer,
    skip_special: bool,
    state: State,
    piece: String,
}

#[derive(Clone, Debug)]
enum State {
    /// The bytes of a character that is not complete yet, at most 3 between calls.
    Bytes(Vec<u8>),
    Window(Window),
}

#[derive(Clone, Debug, Default)]
struct Window {
    /// `context` ids whose text was given out, then those held back.
    ids: Vec<u32>,
    context: usize,
    /// Text of the context alone.
    context_text: String,
}

impl StreamDecoder {
    /// A decoder at the start of a text, leaving out special tokens if `skip_special`.
    #[must_use]
    pub fn new(tokenizer: &Tokenizer, skip_special: bool) -> Self {
        let state = if tokenizer.is_byte_level() {
            State::Bytes(Vec::new())
        } else {
            State::Window(Window::default())
        };
        Self { tokenizer: tokenizer.clone(), skip_special, state, piece: String::new() }
    }

    /// Takes the next token id; returns the text that is now certain, often none.
    ///
    /// Ids that are no token give nothing, as in [`Tokenizer::decode`].
    ///
    /// # Errors
    /// [`TextError::Decode`] or [`TextError::Unstreamable`], never for a byte-level tokenizer.
    pub fn push(&mut self, id: u32) -> Result<&str, TextError> {
        self.piece.clear();
        if let Some(token) = self.tokenizer.decoded_token(id, self.skip_special) {
            match &mut self.state {
                State::Bytes(pending) => {
                    push_token_bytes(&token, pending);
                    take_characters(pending, &mut self.piece);
                }
                State::Window(window) => {
                    window.ids.push(id);
                    if !is_byte_token(&token) {
                        window.advance(&self.tokenizer, false, &mut self.piece)?;
                    }
                }
            }
        }
        Ok(&self.piece)
    }

    /// Gives out what is held back and begins a new text: an unfinished character as U+FFFD.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn finish(&mut self) -> Result<&str, TextError> {
        self.piece.clear();
        match &mut self.state {
            State::Bytes(pending) => {
                self.piece.push_str(&String::from_utf8_lossy(pending));
                pending.clear();
            }
            State::Window(window) => {
                let mut window = std::mem::take(window);
                if window.context < window.ids.len() {
                    window.advance(&self.tokenizer, true, &mut self.piece)?;
                }
            }
        }
        Ok(&self.piece)
    }
}

impl Window {
    fn advance(
        &mut self,
        tokenizer: &Tokenizer,
        finish: bool,
        piece: &mut String,
    ) -> Result<(), TextError> {
        let text = tokenizer.decode(&self.ids, false)?;
        let held = self.ids.len() - self.context;
        if text.ends_with(char::REPLACEMENT_CHARACTER) && held < MOST_HELD && !finish {
            return Ok(());
        }
        let Some(new) = text.strip_prefix(self.context_text.as_str()) else {
            return Err(TextError::Unstreamable {
                path: tokenizer.path().into(),
                id: self.ids.last().copied().unwrap_or_default(),
            });
        };
        piece.push_str(new);
        self.ids.drain(..self.context);
        self.context = self.ids.len();
        self.context_text = tokenizer.decode(&self.ids, false)?;
        Ok(())
    }
}

/// Whether a byte-fallback tokenizer spells a single byte like this.
fn is_byte_token(token: &str) -> bool {
    token.len() == 6 && token.starts_with("<0x") && token.ends_with('>')
}

/// Moves all whole characters of `pending` to `piece`, what can never become one as U+FFFD.
fn take_characters(pending: &mut Vec<u8>, piece: &mut String) {
    let mut rest = pending.as_slice();
    while !rest.is_empty() {
        let (valid, invalid) = match std::str::from_utf8(rest) {
            Ok(text) => (text, Some(0)),
            Err(error) => {
                let (valid, _) = rest.split_at(error.valid_up_to());
                let text = std::str::from_utf8(valid).unwrap_or_default();
                (text, error.error_len())
            }
        };
        piece.push_str(valid);
        rest = &rest[valid.len()..];
        match invalid {
            Some(0) => {}
            Some(length) => {
                piece.push(char::REPLACEMENT_CHARACTER);
                rest = &rest[length..];
            }
            None => break,
        }
    }
    let held = rest.len();
    pending.drain(..pending.len() - held);
}

/// Appends the bytes that a byte-level spelling stands for; a spelling with other characters (an
/// added token) stands for its own UTF-8.
fn push_token_bytes(token: &str, bytes: &mut Vec<u8>) {
    let start = bytes.len();
    for character in token.chars() {
        match spelled_byte(character) {
            Some(byte) => bytes.push(byte),
            None => {
                bytes.truncate(start);
                bytes.extend_from_slice(token.as_bytes());
                return;
            }
        }
    }
}

/// The byte that a character stands for in GPT-2's byte-level spelling: printable Latin-1 stands
/// for itself, the other 68 bytes are spelled, in order, from U+0100 on.
fn spelled_byte(character: char) -> Option<u8> {
    let code = character as u32;
    let byte = match code {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => code,
        0x100..=0x120 => code - 0x100,
        0x121..=0x142 => code - 0x121 + 0x7f,
        0x143 => 0xad,
        _ => return None,
    };
    u8::try_from(byte).ok()
}
