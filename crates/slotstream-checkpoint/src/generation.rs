//! `generation_config.json`: how the publisher suggests to draw tokens.

use std::path::Path;

use crate::CheckpointError;
use crate::config::CONFIG_LIMIT;
use crate::json::{self, Fields};

/// `generation_config.json`, as far as generation needs it. An absent file gives the default.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct GenerationConfig {
    /// Tokens that end a reply (`eos_token_id`, a number or a list); empty when absent.
    pub eos_token_ids: Vec<u32>,
    /// Whether tokens are drawn (`do_sample`); absent means always the likeliest.
    pub do_sample: bool,
    /// `temperature`, 0 to 100.
    pub temperature: Option<f64>,
    /// `top_k`; 0 means no limit.
    pub top_k: Option<u64>,
    /// `top_p`, 0 to 1.
    pub top_p: Option<f64>,
    /// `min_p`, 0 to 1.
    pub min_p: Option<f64>,
    /// `repetition_penalty`, 0 to 100.
    pub repetition_penalty: Option<f64>,
}

impl GenerationConfig {
    /// Checks the bytes of a `generation_config.json`; token ids must be below `vocab_size`.
    ///
    /// # Errors
    /// Names the field, its value and what was expected.
    pub fn from_json(
        path: &Path,
        bytes: &[u8],
        vocab_size: usize,
    ) -> Result<Self, CheckpointError> {
        let map = json::parse_object(path, "the generation config", bytes)?;
        let fields = Fields::new(path, &map);
        Ok(Self {
            eos_token_ids: fields.tokens("eos_token_id", vocab_size as u64)?,
            do_sample: fields.bool_or("do_sample", false)?,
            temperature: fields.opt_float("temperature", &(0.0..=100.0))?,
            top_k: fields.opt_uint("top_k", &(0..=1 << 24))?,
            top_p: fields.opt_float("top_p", &(0.0..=1.0))?,
            min_p: fields.opt_float("min_p", &(0.0..=1.0))?,
            repetition_penalty: fields.opt_float("repetition_penalty", &(0.0..=100.0))?,
        })
    }

    /// Reads the file of a checkpoint folder, when there is one.
    ///
    /// # Errors
    /// As [`GenerationConfig::from_json`], or the operating system's refusal.
    pub fn read(path: &Path, vocab_size: usize) -> Result<Self, CheckpointError> {
        match path.symlink_metadata() {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            _ => Self::from_json(path, &json::read_file(path, CONFIG_LIMIT)?, vocab_size),
        }
    }
}
