//! The header of a session's file: what it is bound to and how long its sections are.

use std::io::Read;
use std::path::Path;

use slotstream_checkpoint::container::Digest;
use slotstream_checkpoint::{NormForm, TextConfig};
use slotstream_qwen::{State, StatePart};

use super::fields::Fields;
use super::sections::Sections;
use super::{MOST_NOTE, SessionFileError};
use crate::sampling::SamplingParams;

/// The version of session files that this build writes and reads.
pub const SESSION_VERSION: u16 = 1;

pub(super) const MAGIC: [u8; 8] = *b"\x89SLSE\r\n\x1a";
/// Magic, version, flags, length of the payload, checksum.
const FIXED: usize = 20;
/// The payload without the text at its end.
const PAYLOAD: usize = 256;
/// Longest name of an arithmetic.
const MOST_TEXT: usize = 256;

/// What a session's bits depend on. A file goes on only where all of it is the same.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionIdentity {
    /// SHA-256 of `config.json`.
    pub config: Digest,
    /// SHA-256 of a sample of all weights
    /// ([`Checkpoint::weights_digest`](slotstream_checkpoint::Checkpoint::weights_digest)).
    pub weights: Digest,
    /// SHA-256 of `tokenizer.json`; zero without one, or without the feature `text`.
    pub tokenizer: Digest,
    /// SHA-256 of the chat template and its special tokens; zero without one, or without the
    /// feature `text`.
    pub template: Digest,
    /// How the norm weights were read.
    pub norms: NormForm,
    /// The op set's identity ([`Ops::identity`](slotstream_candle::Ops::identity)).
    pub arithmetic: String,
}

impl SessionIdentity {
    /// Whether a file's identity is this engine's.
    pub(super) fn check(&self, path: &Path, here: &Self) -> Result<(), SessionFileError> {
        let digests = [
            ("model, by its config", self.config, here.config),
            ("model, by its weights", self.weights, here.weights),
            ("tokenizer", self.tokenizer, here.tokenizer),
            ("chat template", self.template, here.template),
        ]
        .map(|(what, found, expected)| {
            (
                what,
                format!("SHA-256 {found:.16}"),
                format!("SHA-256 {expected:.16}"),
                found == expected,
            )
        });
        let norms = (self.norms.to_string(), here.norms.to_string());
        let texts = [
            ("norm form", norms.0, norms.1, self.norms == here.norms),
            (
                "arithmetic",
                self.arithmetic.clone(),
                here.arithmetic.clone(),
                self.arithmetic == here.arithmetic,
            ),
        ];
        match digests.into_iter().chain(texts).find(|(_, _, _, same)| !same) {
            None => Ok(()),
            Some((what, found, expected, _)) => {
                Err(SessionFileError::Foreign { path: path.into(), what, expected, found })
            }
        }
    }
}

/// The header of a session's file.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SessionHeader {
    /// What it is bound to.
    pub identity: SessionIdentity,
    /// Bytes of the file.
    pub file_len: u64,
    /// Tokens of the sequence.
    pub tokens: usize,
    /// Those of them that the state has seen.
    pub position: usize,
    /// Where the last prompt ended: tokens from here on were generated.
    pub prompt_end: usize,
    /// Logits after the last token that the state has seen; 0 or the size of the vocabulary.
    pub logits: usize,
    /// How tokens are chosen.
    pub sampling: SamplingParams,
    /// Where the stream of draws is.
    pub draws: [u64; 4],
    /// Bytes of the note ([`Session::note`](crate::Session::note)).
    pub note: usize,
}

/// The error of a stream of draws that is none.
pub(super) fn no_stream(path: &Path) -> SessionFileError {
    SessionFileError::Field {
        path: path.into(),
        field: "state of the draws",
        expected: "not all zero".into(),
        found: "zero".into(),
    }
}

impl SessionHeader {
    /// Bytes of a header before its first section.
    fn len(&self) -> u64 {
        (FIXED + PAYLOAD + self.identity.arithmetic.len()) as u64
    }

    /// Bytes of a file with this header for a model of this config.
    pub(crate) fn planned_len(&self, config: &TextConfig) -> u64 {
        let part = |part: &StatePart| match part.values() as u64 {
            0 => 0,
            values => 4 * values + 4,
        };
        let parts: u64 = State::parts(config, self.position).iter().map(part).sum();
        let words = self.tokens + self.logits + self.note.div_ceil(4);
        self.len() + 4 * words as u64 + 12 + parts
    }

    /// Whether a header of this identity can be written.
    pub(super) fn check_writable(&self, path: &Path) -> Result<(), SessionFileError> {
        let name = &self.identity.arithmetic;
        if name.len() <= MOST_TEXT {
            return Ok(());
        }
        Err(SessionFileError::Field {
            path: path.into(),
            field: "name of the arithmetic",
            expected: format!("at most {MOST_TEXT} bytes"),
            found: format!("{} bytes", name.len()),
        })
    }

    /// The header as it is written.
    pub(super) fn encode(&self) -> Vec<u8> {
        let identity = &self.identity;
        let mut payload = Vec::with_capacity(PAYLOAD + identity.arithmetic.len());
        for digest in [identity.config, identity.weights, identity.tokenizer, identity.template] {
            payload.extend(digest.bytes());
        }
        payload.extend(u64::from(identity.norms == NormForm::Folded).to_le_bytes());
        for number in [self.file_len, self.tokens as u64, self.position as u64] {
            payload.extend(number.to_le_bytes());
        }
        payload.extend((self.prompt_end as u64).to_le_bytes());
        payload.extend((self.logits as u64).to_le_bytes());
        let sampling = &self.sampling;
        for number in [
            sampling.temperature,
            sampling.top_p,
            sampling.min_p,
            sampling.repetition_penalty,
            sampling.presence_penalty,
            sampling.frequency_penalty,
        ] {
            payload.extend(number.to_le_bytes());
        }
        payload.extend(u64::from(sampling.top_k).to_le_bytes());
        payload.extend(sampling.seed.to_le_bytes());
        for word in self.draws {
            payload.extend(word.to_le_bytes());
        }
        payload.extend((self.note as u64).to_le_bytes());
        debug_assert_eq!(payload.len(), PAYLOAD);
        payload.extend(identity.arithmetic.as_bytes());
        let mut bytes = Vec::with_capacity(FIXED + payload.len());
        bytes.extend(MAGIC);
        bytes.extend(SESSION_VERSION.to_le_bytes());
        bytes.extend(0_u16.to_le_bytes());
        // At most PAYLOAD + MOST_TEXT.
        bytes.extend((payload.len() as u32).to_le_bytes());
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(&bytes);
        checksum.update(&payload);
        bytes.extend(checksum.finalize().to_le_bytes());
        bytes.extend(payload);
        bytes
    }

    /// Reads the header of a file of `file_len` bytes. Nothing in it is trusted before its checksum
    /// was compared, and nothing is sized from it but its own payload of at most 512 bytes.
    pub(super) fn read(
        sections: &mut Sections<'_, impl Read>,
        file_len: u64,
    ) -> Result<Self, SessionFileError> {
        let path = sections.path();
        let too_short = |expected: usize| SessionFileError::Length {
            path: path.into(),
            expected: expected as u64,
            found: file_len,
        };
        if file_len < MAGIC.len() as u64 {
            return Err(too_short(FIXED + PAYLOAD));
        }
        let mut fixed = [0; FIXED];
        let known = (FIXED as u64).min(file_len) as usize;
        sections.raw(&mut fixed[..known])?;
        if fixed[..8] != MAGIC {
            let found = fixed[..8].iter().map(|byte| format!("{byte:02x}")).collect();
            return Err(SessionFileError::Magic { path: path.into(), found });
        }
        if known < FIXED {
            return Err(too_short(FIXED + PAYLOAD));
        }
        let mut fields = Fields::new(path, &fixed[8..]);
        let version = fields.u16();
        if version != SESSION_VERSION {
            let known = SESSION_VERSION;
            return Err(SessionFileError::Version { path: path.into(), found: version, known });
        }
        let (flags, len, expected) = (fields.u16(), fields.u32() as usize, fields.u32());
        fields.expect("flags", flags == 0, "0", flags)?;
        let lens = PAYLOAD..=PAYLOAD + MOST_TEXT;
        fields.expect("length of the header", lens.contains(&len), "256 to 512 bytes", len)?;
        if file_len < (FIXED + len) as u64 {
            return Err(too_short(FIXED + len));
        }
        let mut payload = vec![0; len];
        sections.raw(&mut payload)?;
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(&fixed[..16]);
        checksum.update(&payload);
        let found = checksum.finalize();
        if found != expected {
            let (path, section) = (path.into(), "numbers of the header".to_owned());
            return Err(SessionFileError::Checksum { path, section, expected, found });
        }
        let header = Self::decode(&mut Fields::new(path, &payload))?;
        if header.file_len != file_len {
            let (path, expected) = (path.into(), header.file_len);
            return Err(SessionFileError::Length { path, expected, found: file_len });
        }
        Ok(header)
    }

    fn decode(fields: &mut Fields<'_>) -> Result<Self, SessionFileError> {
        let [config, weights, tokenizer, template] =
            std::array::from_fn(|_| Digest::new(fields.array()));
        let folded = fields.u64();
        fields.expect("norm form", folded < 2, "0 or 1", folded)?;
        let file_len = fields.u64();
        let [tokens, position, prompt_end, logits] = [
            fields.count("tokens")?,
            fields.count("position")?,
            fields.count("end of the prompt")?,
            fields.count("logits")?,
        ];
        fields.expect("position", position <= tokens, "at most the tokens", position)?;
        fields.expect(
            "end of the prompt",
            prompt_end <= tokens,
            "at most the tokens",
            prompt_end,
        )?;
        let [temperature, top_p, min_p, repetition, presence, frequency] =
            std::array::from_fn(|_| f32::from_le_bytes(fields.array()));
        let top_k = fields.u64();
        let sampling = SamplingParams {
            temperature,
            top_k: u32::try_from(top_k).unwrap_or_default(),
            top_p,
            min_p,
            repetition_penalty: repetition,
            presence_penalty: presence,
            frequency_penalty: frequency,
            seed: fields.u64(),
        };
        fields.expect("top-k", u64::from(sampling.top_k) == top_k, "32 bits", top_k)?;
        let lawful = sampling.validate();
        let words = lawful.as_ref().map_or_else(ToString::to_string, |()| String::new());
        fields.expect("sampling", lawful.is_ok(), "legal parameters", words)?;
        let draws: [u64; 4] = std::array::from_fn(|_| fields.u64());
        if draws == [0; 4] {
            return Err(no_stream(fields.path()));
        }
        let note = fields.count("note")?;
        fields.expect("note", note <= MOST_NOTE, "at most 16 MiB", note)?;
        let arithmetic = fields.text("name of the arithmetic")?;
        let norms = if folded == 1 { NormForm::Folded } else { NormForm::Raw };
        let identity = SessionIdentity { config, weights, tokenizer, template, norms, arithmetic };
        Ok(Self { identity, file_len, tokens, position, prompt_end, logits, sampling, draws, note })
    }

    /// Whether the sections have the lengths that a model of this config gives them, in a context of
    /// so many tokens. Only then may anything be allocated for them.
    pub(super) fn check_shape(
        &self,
        path: &Path,
        config: &TextConfig,
        context: usize,
    ) -> Result<(), SessionFileError> {
        if self.tokens > context {
            let (path, tokens) = (path.into(), self.tokens);
            return Err(SessionFileError::TooLong { path, tokens, context });
        }
        let fields = Fields::new(path, &[]);
        let lawful = self.logits == 0 || self.logits == config.vocab_size;
        fields.expect("logits", lawful, "none or those of the vocabulary", self.logits)?;
        let planned = self.planned_len(config);
        let found = self.file_len;
        fields.expect("length of the file", planned == found, planned, found)
    }
}
