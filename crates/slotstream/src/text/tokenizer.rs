//! The checkpoint's own `tokenizer.json`.

#[cfg(test)]
pub(in crate::text) mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use slotstream_checkpoint::check_json;
use slotstream_core::CancelToken;
use tokenizers::DecoderWrapper;

use super::files::read_limited;
use super::guard::{Reason, guarded};
use super::{TextError, traps};

/// The most that is read of a `tokenizer.json`; that of a 248,077-token vocabulary has 13 MB.
const FILE_LIMIT: u64 = 256 << 20;

/// Longest text in bytes that is encoded without looking at the cancel token in between: some
/// hundredths of a second.
const SHORT: usize = 64 << 10;

/// How often a caller that waits for a long text looks at its cancel token.
const POLL: Duration = Duration::from_millis(20);

const EXPECTED: &str = "a tokenizer.json of the tokenizers library";

/// Text to token ids and back, by a Hugging Face `tokenizer.json`. Cloning is cheap.
#[derive(Clone)]
pub struct Tokenizer {
    shared: Arc<Shared>,
}

struct Shared {
    inner: tokenizers::Tokenizer,
    path: PathBuf,
    special: Vec<u32>,
    ids: usize,
    byte_level: bool,
    digest: [u8; 32],
}

impl Tokenizer {
    /// Reads `tokenizer.json` at `path` for a model of `vocab_size` embeddings.
    ///
    /// Ids that the tokenizer leaves unused below `vocab_size` are fine. Truncation and padding
    /// settings in the file are ignored: a prompt is never cut or filled up silently.
    ///
    /// # Errors
    /// [`TextError::Read`], [`TextError::TooLarge`] and others for the file, and as
    /// [`from_bytes`](Self::from_bytes).
    pub fn load(path: &Path, vocab_size: usize) -> Result<Self, TextError> {
        Self::from_bytes(path, &read_limited(path, FILE_LIMIT)?, vocab_size)
    }

    /// The tokenizer in the bytes of a `tokenizer.json`; `path` names it in errors.
    ///
    /// Whatever the bytes are, the answer is a tokenizer or an error. The tokenizers library
    /// panics on some of them; that is caught (see [`panics_are_caught`](super::panics_are_caught)),
    /// unless the program is built with `panic = "abort"`.
    ///
    /// # Errors
    /// [`TextError::Json`] and [`TextError::DuplicateKey`] for what is no JSON or no tokenizer;
    /// [`TextError::Unbounded`] for numbers that would take memory without bound;
    /// [`TextError::Vocabulary`] if it has an id that is not below `vocab_size`.
    pub fn from_bytes(path: &Path, bytes: &[u8], vocab_size: usize) -> Result<Self, TextError> {
        check_json(path, "the tokenizer", bytes).map_err(|e| TextError::json(path, EXPECTED, e))?;
        traps::check(path, bytes)?;
        let inner = parse(bytes).map_err(|source| TextError::Json {
            path: path.into(),
            expected: EXPECTED,
            source,
        })?;
        let added = inner.get_added_tokens_decoder();
        let mut special: Vec<u32> =
            added.iter().filter(|(_, token)| token.special).map(|(id, _)| *id).collect();
        special.sort_unstable();
        let highest = inner.get_vocab(false).into_values().chain(added.into_keys()).max();
        let ids = highest.map_or(0, |id| id as usize + 1);
        if let Some(id) = highest.filter(|_| ids > vocab_size) {
            return Err(TextError::Vocabulary {
                path: path.into(),
                id,
                token: inner.id_to_token(id).unwrap_or_default(),
                vocab_size,
            });
        }
        let byte_level = matches!(inner.get_decoder(), Some(DecoderWrapper::ByteLevel(_)));
        let (path, digest) = (path.into(), Sha256::digest(bytes).into());
        let shared = Shared { inner, path, special, ids, byte_level, digest };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// SHA-256 of the bytes that it was made of.
    #[must_use]
    pub fn digest(&self) -> &[u8; 32] {
        &self.shared.digest
    }

    /// Token ids of `text`.
    ///
    /// Special tokens spelled out in the text (`<|im_start|>`) become their ids, as a rendered
    /// chat template needs it; so do those in a raw prompt. `add_special` lets the tokenizer add
    /// its own (a start token, say) around it: false for text from a chat template.
    ///
    /// # Errors
    /// [`TextError::Encode`] if the tokenizer refuses the text.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>, TextError> {
        let encoded = guarded(|| self.shared.inner.encode_fast(text, add_special));
        match encoded {
            Ok(encoding) => Ok(encoding.get_ids().to_vec()),
            Err(source) => {
                Err(TextError::Encode { path: self.shared.path.clone(), bytes: text.len(), source })
            }
        }
    }

    /// [`encode`](Self::encode), given up when `cancel` is set.
    ///
    /// The ids are those of `encode`: the text is not cut, it is encoded on a thread of its own
    /// (from 64 KiB on). After a cancellation this thread works on unheard until it is done, on its
    /// copy of the text; nothing waits for it.
    ///
    /// # Errors
    /// [`TextError::Cancelled`]; [`TextError::Thread`] if the thread cannot be started; as `encode`.
    pub fn encode_cancellable(
        &self,
        text: &str,
        add_special: bool,
        cancel: &CancelToken,
    ) -> Result<Vec<u32>, TextError> {
        let cancelled =
            || TextError::Cancelled { path: self.shared.path.clone(), bytes: text.len() };
        if cancel.is_cancelled() {
            return Err(cancelled());
        }
        if text.len() < SHORT {
            return self.encode(text, add_special);
        }
        let (sender, receiver) = sync_channel(1);
        let (tokenizer, copy) = (self.clone(), text.to_owned());
        // Nobody listens any more after a cancellation.
        let work = move || drop(sender.send(tokenizer.encode(&copy, add_special)));
        let spawned = thread::Builder::new().name("slotstream-encode".into()).spawn(work);
        spawned.map_err(|source| TextError::Thread { path: self.shared.path.clone(), source })?;
        match receive(&receiver, cancel) {
            Ok(encoded) => encoded,
            Err(RecvTimeoutError::Timeout) => Err(cancelled()),
            Err(source @ RecvTimeoutError::Disconnected) => {
                let (path, bytes) = (self.shared.path.clone(), text.len());
                Err(TextError::Encode { path, bytes, source: source.into() })
            }
        }
    }

    /// Text of `ids` as a whole, without special tokens if `skip_special`.
    ///
    /// Bytes that are not UTF-8 become U+FFFD. Ids that are no token (the padding of a model's
    /// vocabulary) give nothing.
    ///
    /// # Errors
    /// [`TextError::Decode`] if the tokenizer refuses the ids.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, TextError> {
        let decoded = guarded(|| self.shared.inner.decode(ids, skip_special));
        decoded.map_err(|source| TextError::Decode {
            path: self.shared.path.clone(),
            ids: ids.len(),
            source,
        })
    }

    /// The vocabulary's spelling of a token, in which a byte-level tokenizer writes a space as
    /// `Ġ`; `None` if the id is no token.
    #[must_use]
    pub fn token_text(&self, id: u32) -> Option<String> {
        self.shared.inner.id_to_token(id)
    }

    /// The id of a token in the vocabulary's spelling.
    #[must_use]
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.shared.inner.token_to_id(token)
    }

    /// Ids of the tokens marked special, ascending: the ones that `skip_special` leaves out.
    #[must_use]
    pub fn special_ids(&self) -> &[u32] {
        &self.shared.special
    }

    /// Highest token id plus one, at most the model's `vocab_size`.
    #[must_use]
    pub fn id_bound(&self) -> usize {
        self.shared.ids
    }

    /// The file it was read from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Whether text is the tokens' bytes strung together, so that it can be decoded byte by byte.
    pub(super) fn is_byte_level(&self) -> bool {
        self.shared.byte_level
    }

    /// The spelling of a token that decoding keeps.
    pub(super) fn decoded_token(&self, id: u32, skip_special: bool) -> Option<String> {
        let added = self.shared.inner.get_added_vocabulary();
        self.token_text(id).filter(|token| !skip_special || !added.is_special_token(token))
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("path", &self.shared.path)
            .field("id_bound", &self.shared.ids)
            .finish_non_exhaustive()
    }
}

/// Waits for a value; a cancellation is the only timeout.
fn receive<T>(receiver: &Receiver<T>, cancel: &CancelToken) -> Result<T, RecvTimeoutError> {
    loop {
        match receiver.recv_timeout(POLL) {
            Err(RecvTimeoutError::Timeout) if !cancel.is_cancelled() => {}
            received => return received,
        }
    }
}

/// The tokenizer in these bytes, without truncation and padding.
fn parse(bytes: &[u8]) -> Result<tokenizers::Tokenizer, Reason> {
    guarded(|| {
        let mut inner = tokenizers::Tokenizer::from_bytes(bytes)?;
        inner.with_padding(None);
        inner.with_truncation(None)?;
        Ok(inner)
    })
}
