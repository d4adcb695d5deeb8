//! Text on top of sessions: the model's tokenizer and template, and streamed text.

use std::path::{Path, PathBuf};

use slotstream_checkpoint::container::Digest;

use crate::sampling::{GenerationDefaults, SamplingParams};
use crate::session::FinishReason;
use crate::text::{
    ChatOptions, ChatTemplate, Message, StopMatcher, StreamDecoder, TextError, Tokenizer, is_there,
};
use crate::{Engine, Error, Session, TokenIter};

/// Tokenizer and chat template of a model folder, where it has them. An [`Engine`] brings its own;
/// this is for looking at text without loading a model.
#[derive(Debug)]
pub struct TextParts {
    folder: PathBuf,
    tokenizer: Option<Tokenizer>,
    template: Option<ChatTemplate>,
}

impl TextParts {
    /// Loads what the folder has, for a model of `vocab_size` embeddings.
    ///
    /// # Errors
    /// [`Error::Text`] when a file is there and cannot be used.
    pub fn load(folder: &Path, vocab_size: usize) -> Result<Self, Error> {
        let path = tokenizer_path(folder);
        let tokenizer = is_there(&path).then(|| Tokenizer::load(&path, vocab_size)).transpose()?;
        let template = match ChatTemplate::load(folder, None) {
            Ok(template) => Some(template),
            Err(TextError::NoTemplate { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(Self { folder: folder.into(), tokenizer, template })
    }

    /// The tokenizer.
    ///
    /// # Errors
    /// [`Error::NoTokenizer`] when the folder has none.
    pub fn tokenizer(&self) -> Result<&Tokenizer, Error> {
        let missing = || Error::NoTokenizer { path: tokenizer_path(&self.folder) };
        self.tokenizer.as_ref().ok_or_else(missing)
    }

    /// The chat template; `None` when the folder has none.
    #[must_use]
    pub const fn chat_template(&self) -> Option<&ChatTemplate> {
        self.template.as_ref()
    }

    /// Digests of tokenizer and template; zero for what is not there.
    pub(crate) fn digests(&self) -> [Digest; 2] {
        let none = Digest::new([0; 32]);
        [
            self.tokenizer.as_ref().map_or(none, |tokenizer| Digest::new(*tokenizer.digest())),
            self.template.as_ref().map_or(none, |template| Digest::new(*template.digest())),
        ]
    }

    /// Renders a conversation with the template: the text that
    /// [`chat_tokens`](Self::chat_tokens) encodes.
    ///
    /// # Errors
    /// [`Error::Text`] when there is no template or it refuses.
    pub fn chat_text(&self, messages: &[Message], options: &ChatOptions) -> Result<String, Error> {
        let template = match &self.template {
            Some(template) => template,
            // Loading again names what is missing.
            None => &ChatTemplate::load(&self.folder, None)?,
        };
        Ok(template.render(messages, options)?)
    }

    /// Renders a conversation with the template and tokenizes it.
    ///
    /// # Errors
    /// As [`chat_text`](Self::chat_text), and [`Error::NoTokenizer`].
    pub fn chat_tokens(
        &self,
        messages: &[Message],
        options: &ChatOptions,
    ) -> Result<Vec<u32>, Error> {
        Ok(self.tokenizer()?.encode(&self.chat_text(messages, options)?, false)?)
    }
}

fn tokenizer_path(folder: &Path) -> PathBuf {
    folder.join("tokenizer.json")
}

impl Engine {
    /// Tokenizer and chat template.
    #[must_use]
    pub fn text(&self) -> &TextParts {
        &self.0.text
    }

    /// The model's tokenizer.
    ///
    /// # Errors
    /// [`Error::NoTokenizer`] when the folder has none.
    pub fn tokenizer(&self) -> Result<&Tokenizer, Error> {
        self.0.text.tokenizer()
    }

    /// The model's chat template; `None` when the folder has none.
    #[must_use]
    pub fn chat_template(&self) -> Option<&ChatTemplate> {
        self.0.text.chat_template()
    }

    /// Renders a conversation with the model's template: the text that
    /// [`chat_tokens`](Self::chat_tokens) encodes.
    ///
    /// # Errors
    /// As [`TextParts::chat_text`].
    pub fn chat_text(&self, messages: &[Message], options: &ChatOptions) -> Result<String, Error> {
        self.0.text.chat_text(messages, options)
    }

    /// Renders a conversation with the model's template and tokenizes it.
    ///
    /// # Errors
    /// As [`TextParts::chat_tokens`].
    pub fn chat_tokens(
        &self,
        messages: &[Message],
        options: &ChatOptions,
    ) -> Result<Vec<u32>, Error> {
        self.0.text.chat_tokens(messages, options)
    }

    /// The sampling that `generation_config.json` recommends.
    #[must_use]
    pub fn recommended_sampling(&self) -> SamplingParams {
        let config = self.0.checkpoint.generation();
        let defaults = GenerationDefaults {
            do_sample: Some(config.do_sample),
            temperature: config.temperature.map(|v| v as f32),
            top_k: config.top_k.and_then(|k| u32::try_from(k).ok()),
            top_p: config.top_p.map(|v| v as f32),
            min_p: config.min_p.map(|v| v as f32),
            ..GenerationDefaults::default()
        };
        SamplingParams::from_generation_config(&defaults)
    }
}

/// How much text to generate and where to stop.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TextOptions {
    /// Most tokens.
    pub max_tokens: usize,
    /// Strings that end the text; they are not part of it.
    pub stop: Vec<String>,
    /// Goes on after tokens that end the text.
    pub ignore_eos: bool,
}

impl TextOptions {
    /// Up to `max_tokens` tokens, no stop string.
    #[must_use]
    pub fn new(max_tokens: usize) -> Self {
        Self { max_tokens, ..Self::default() }
    }

    /// Adds a string that ends the text.
    #[must_use]
    pub fn with_stop(mut self, stop: impl Into<String>) -> Self {
        self.stop.push(stop.into());
        self
    }

    /// Goes on after tokens that end the text.
    #[must_use]
    pub const fn ignoring_eos(mut self, ignore: bool) -> Self {
        self.ignore_eos = ignore;
        self
    }
}

/// A piece of streamed text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TextPiece {
    /// The token that was generated; `None` for what was held back to the end.
    pub token: Option<u32>,
    /// The text that is certain now: empty while a character or a possible stop string is not
    /// complete.
    pub text: String,
}

/// Generates text piece by piece. The pieces together are the decoded tokens up to the first
/// stop string.
#[derive(Debug)]
pub struct TextIter<'s> {
    tokens: TokenIter<'s>,
    decoder: StreamDecoder,
    stops: StopMatcher,
    flushed: bool,
}

impl Session {
    /// Generates text.
    ///
    /// # Errors
    /// [`Error::NoTokenizer`]; [`Error::Text`] for an empty stop string.
    pub fn generate(&mut self, options: &TextOptions) -> Result<TextIter<'_>, Error> {
        let decoder = StreamDecoder::new(self.engine().tokenizer()?, true);
        let stops = StopMatcher::new(options.stop.iter().cloned())?;
        let tokens = self.generate_ids(options.max_tokens).ignoring_eos(options.ignore_eos);
        Ok(TextIter { tokens, decoder, stops, flushed: false })
    }

    /// Tokenizes a prompt and runs it; the session's cancel token and deadline end both.
    ///
    /// # Errors
    /// [`Error::NoTokenizer`], [`Error::Text`], and as [`Session::prefill`].
    pub fn prefill_text(&mut self, prompt: &str) -> Result<(), Error> {
        let tokens = self.encode(prompt)?;
        self.prefill(&tokens)
    }

    /// Tokenizes a text and makes it the whole sequence, running what is new of it; gives how many
    /// tokens did not run again.
    ///
    /// # Errors
    /// [`Error::NoTokenizer`], [`Error::Text`], and as [`Session::prompt`].
    pub fn prompt_text(&mut self, prompt: &str) -> Result<usize, Error> {
        let tokens = self.encode(prompt)?;
        self.prompt(&tokens)
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>, Error> {
        let tokenizer = self.engine().tokenizer()?;
        let tokens = tokenizer.encode_cancellable(text, true, &self.cancel_token());
        tokens.map_err(|error| self.ended(error))
    }
}

impl TextIter<'_> {
    /// Why it ended; `None` while it has not.
    #[must_use]
    pub const fn finish_reason(&self) -> Option<&FinishReason> {
        self.tokens.finish_reason()
    }

    /// The session.
    #[must_use]
    pub const fn session(&self) -> &Session {
        self.tokens.session()
    }

    fn decode(&mut self, token: u32) -> Result<TextPiece, Error> {
        // The token that ends the text is not part of it.
        let ends = matches!(self.tokens.finish_reason(), Some(FinishReason::Eos(_)));
        let text = if ends { "" } else { self.stops.push(self.decoder.push(token)?) };
        let piece = TextPiece { token: Some(token), text: text.to_owned() };
        if let Some(stop) = self.stops.matched() {
            let stop = stop.to_owned();
            self.tokens.end(FinishReason::Stop(stop));
            self.flushed = true;
        }
        Ok(piece)
    }

    /// What was held back for a character or a stop string that did not come.
    fn flush(&mut self) -> Result<TextPiece, Error> {
        let mut text = self.stops.push(self.decoder.finish()?).to_owned();
        text.push_str(self.stops.finish());
        Ok(TextPiece { token: None, text })
    }
}

impl Iterator for TextIter<'_> {
    type Item = Result<TextPiece, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.tokens.next() {
            Some(Ok(token)) => Some(self.decode(token)),
            Some(Err(error)) => Some(Err(error)),
            None if self.flushed => None,
            None => {
                self.flushed = true;
                match self.flush() {
                    Ok(piece) if piece.text.is_empty() => None,
                    piece => Some(piece),
                }
            }
        }
    }
}
