//! The command line of `generate`.

use std::path::{Path, PathBuf};

use clap::{Parser, ValueEnum};
use slotstream::sampling::SamplingParams;

use crate::outputs::{self, Input, OutputFile, SESSION, unfinished};
use crate::{
    EngineArguments, Failure, PromptArguments, ShadowArguments, TraceArguments, WarmArguments,
};

/// Generates text with a mixture-of-experts model whose experts stay on disk.
///
/// Without arguments it runs the bundled model on a built-in prompt. Every routed expert is read
/// from the model's files into a pool of slots that is smaller than the model. Sampling is greedy
/// unless --temperature, --top-k, --top-p or --min-p say otherwise.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "generate",
    version,
    allow_negative_numbers = true,
    after_help = "RUST_LOG=debug logs what the engine does and each pass with its times, \
                  RUST_LOG=trace also each layer and read. Ctrl-C ends with the figures so far."
)]
#[non_exhaustive]
pub struct Arguments {
    /// What to continue.
    #[command(flatten)]
    pub prompt: PromptArguments,
    /// Most tokens to generate
    #[arg(long, value_name = "N", default_value_t = 128, help_heading = "Generation")]
    pub max_tokens: usize,
    /// Go on after tokens that end a text
    #[arg(long, help_heading = "Generation")]
    pub ignore_eos: bool,
    /// End before this text appears; may be given several times
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, help_heading = "Generation")]
    pub stop: Vec<String>,
    /// Go on from a session's file: of a prompt, what it shares with the session does not run again;
    /// without one the session itself goes on. Sampling flags, where there are any, replace the
    /// file's
    #[arg(long, value_name = "FILE", help_heading = "Generation")]
    pub load_session: Option<PathBuf>,
    /// Write the session to a file when the generation has ended by itself
    #[arg(long, value_name = "FILE", help_heading = "Generation")]
    pub save_session: Option<PathBuf>,
    /// Divisor of the logits; 0 is greedy [default: 0, or 1 with --top-k, --top-p or --min-p]
    #[arg(long, value_name = "T", help_heading = "Sampling")]
    pub temperature: Option<f32>,
    /// Draw from the K likeliest tokens; 0 is all
    #[arg(long, value_name = "K", help_heading = "Sampling")]
    pub top_k: Option<u32>,
    /// Draw from the likeliest tokens that make up this probability
    #[arg(long, value_name = "P", help_heading = "Sampling")]
    pub top_p: Option<f32>,
    /// Draw from tokens at least this likely, seen from the likeliest
    #[arg(long, value_name = "P", help_heading = "Sampling")]
    pub min_p: Option<f32>,
    /// Divide the logits of generated tokens by this; 1 is off
    #[arg(long, value_name = "X", default_value_t = 1.0, help_heading = "Sampling")]
    pub repetition_penalty: f32,
    /// Subtract this from the logits of generated tokens
    #[arg(long, value_name = "X", default_value_t = 0.0, help_heading = "Sampling")]
    pub presence_penalty: f32,
    /// Subtract this from a logit for each time its token was generated
    #[arg(long, value_name = "X", default_value_t = 0.0, help_heading = "Sampling")]
    pub frequency_penalty: f32,
    /// Seed of the draws; the same seed gives the same text
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Sampling")]
    pub seed: u64,
    /// The engine.
    #[command(flatten)]
    pub engine: EngineArguments,
    /// What it begins with.
    #[command(flatten)]
    pub warm: WarmArguments,
    /// How to show the figures; json: one object on the last line
    #[arg(long, value_enum, value_name = "FORM", help_heading = "Output")]
    pub stats: Option<Stats>,
    /// The same as --stats json
    #[arg(long, conflicts_with = "stats", help_heading = "Output")]
    pub json: bool,
    /// Print nothing but the line of JSON
    #[arg(long, help_heading = "Output")]
    pub quiet: bool,
    /// The recording.
    #[command(flatten)]
    pub trace: TraceArguments,
    /// The shadows.
    #[command(flatten)]
    pub shadow: ShadowArguments,
}

/// Forms of the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum Stats {
    /// A table.
    Text,
    /// One JSON object on the last line.
    Json,
}

impl Arguments {
    /// Whether the figures are JSON.
    #[must_use]
    pub fn json(&self) -> bool {
        self.json || self.quiet || self.stats == Some(Stats::Json)
    }

    /// Refuses what the parser cannot: a table of which nothing may be printed.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.quiet && self.stats == Some(Stats::Text) {
            let (value, expected) = ("text".to_owned(), "json, or no --quiet".to_owned());
            return Err(Failure::Option { option: "--stats", value, expected });
        }
        Ok(())
    }

    /// Refuses files that cannot be written, or may not: those that are read, one for two purposes, one
    /// that holds something else.
    pub(super) fn check_files(&self, model: &Path) -> Result<(), Failure> {
        let save = self.save_session.as_deref();
        let part = save.map(unfinished);
        let session = |option, path| OutputFile { option, path, kind: SESSION };
        let save = save.map(|path| session("--save-session", path));
        let part = part.as_deref().map(|path| session("--save-session until it is whole", path));
        let others = [self.trace.output(), self.warm.output(), part];
        // Only a session may be written to where it came from.
        if let Some(load) = &self.load_session {
            let load = Input::File("--load-session", load.into());
            others.iter().flatten().try_for_each(|output| output.check_unread(&load))?;
        }
        let mut inputs = self.engine.inputs(model);
        inputs.extend(self.prompt.input());
        let files: Vec<_> = others.into_iter().chain([save]).flatten().collect();
        outputs::check(&files, &inputs)
    }

    /// Whether the built-in prompt is shown before its continuation.
    pub(super) fn prints_prompt(&self) -> bool {
        !self.json() && !self.prompt.given() && self.load_session.is_none()
    }

    /// How tokens are chosen.
    #[must_use]
    pub fn sampling(&self) -> SamplingParams {
        let draws = self.top_k.is_some() || self.top_p.is_some() || self.min_p.is_some();
        SamplingParams {
            temperature: self.temperature.unwrap_or(if draws { 1.0 } else { 0.0 }),
            top_k: self.top_k.unwrap_or(0),
            top_p: self.top_p.unwrap_or(1.0),
            min_p: self.min_p.unwrap_or(0.0),
            repetition_penalty: self.repetition_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            seed: self.seed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Arguments {
        Arguments::try_parse_from([&["generate"], arguments].concat()).unwrap()
    }

    #[test]
    fn the_command_is_consistent() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }

    #[test]
    fn sampling_is_greedy_unless_a_flag_draws() {
        assert_eq!(parsed(&[]).sampling(), SamplingParams::GREEDY);
        assert!(parsed(&["--seed", "7"]).sampling().is_greedy());
        assert_eq!(parsed(&["--top-k", "40"]).sampling().temperature, 1.0);
        assert!(parsed(&["--temperature", "0", "--top-p", "0.9"]).sampling().is_greedy());
    }

    #[test]
    fn quiet_and_the_alias_mean_json() {
        for flags in [&["--quiet"][..], &["--json"], &["--stats", "json"]] {
            assert!(parsed(flags).json(), "{flags:?}");
        }
        assert!(!parsed(&["--stats", "text"]).json());
    }
}
