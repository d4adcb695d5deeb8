//! The validation report: every check with what it found.

use indicatif::HumanCount;
use serde::Serialize;
use slotstream::checkpoint::{
    CheckedValues, Checkpoint, NormForm, TensorClass, expected_tensors, norm_means,
    verify_ngram_constants,
};
use slotstream::core::RecordReader;
use slotstream::{Error, TextParts};

use crate::figures::count;
use crate::prompt::Room;

/// A check that passed.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Check {
    /// What was checked.
    pub(super) name: &'static str,
    /// What was found.
    pub(super) found: String,
}

/// The form of the norms and what it was decided from.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Norms {
    pub(super) form: NormForm,
    /// Whether `--norms` said so.
    pub(super) forced: bool,
    pub(super) lowest_mean: f64,
    pub(super) highest_mean: f64,
    pub(super) tensors: usize,
}

/// What the checks found.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Findings {
    pub(super) checks: Vec<Check>,
    pub(super) norms: Option<Norms>,
    /// The file of the tokenizer.
    pub(super) tokenizer: Option<String>,
    /// The file of the chat template.
    pub(super) chat_template: Option<String>,
    /// Bytes of the values that were looked at; null without `--values`.
    pub(super) values_bytes: Option<u64>,
    /// Tokens of the prompt.
    pub(super) prompt_tokens: Option<usize>,
}

impl Findings {
    fn passed(&mut self, name: &'static str, found: String) {
        self.checks.push(Check { name, found });
    }

    /// What opening the checkpoint checked: config, index and headers.
    pub(super) fn of_headers(checkpoint: &Checkpoint) -> Self {
        let mut findings = Self::default();
        let (config, geometry) = (checkpoint.config(), checkpoint.geometry());
        let layers = config.num_hidden_layers;
        findings.passed(
            "config",
            format!(
                "every field that a qwen4_exp model of {} is built from is in its range",
                count(layers as u64, "layer")
            ),
        );
        let (default, overrides) = (config.quantization.default, &config.quantization.overrides);
        findings.passed(
            "quantization",
            format!(
                "{} bits in groups of {}; {}, each of a module that exists",
                default.bits(),
                default.group_size(),
                count(overrides.len() as u64, "override")
            ),
        );
        let bytes: u64 = checkpoint.file_sizes().iter().sum();
        findings.passed(
            "files",
            format!(
                "{}, {}; none is missing, cut off or has bytes of no tensor",
                count(checkpoint.files().len() as u64, "safetensors file"),
                count(bytes, "byte")
            ),
        );
        let expected = expected_tensors(config).map_or(0, |tensors| tensors.len());
        let optional: u64 = [TensorClass::VisionTower, TensorClass::DraftHead]
            .iter()
            .map(|class| checkpoint.ledger().row(*class).tensors)
            .sum();
        findings.passed(
            "tensors",
            format!(
                "{}: the {} that the config asks for with their dtypes and shapes, {} of optional \
                 parts, none that nothing uses",
                count(checkpoint.tensors().len() as u64, "tensor"),
                HumanCount(expected as u64),
                HumanCount(optional)
            ),
        );
        let resolved =
            (0..geometry.records()).filter_map(|i| checkpoint.expert_pieces(geometry.key(i)?));
        findings.passed(
            "experts",
            format!(
                "{} of {} have their nine pieces, {} each",
                HumanCount(resolved.count() as u64),
                count(geometry.records() as u64, "record"),
                count(checkpoint.ledger().record_bytes, "byte")
            ),
        );
        findings
    }

    /// What needs a few bytes of the tensors: norms and hash constants.
    pub(super) fn of_payload(
        &mut self,
        checkpoint: &Checkpoint,
        reader: &dyn RecordReader,
        forced: Option<NormForm>,
    ) -> Result<(), Error> {
        let means = norm_means(checkpoint, reader)?;
        let form = NormForm::detect(checkpoint, reader, forced)?;
        let of = |pick: fn(f64, f64) -> f64, start| means.iter().map(|m| m.0).fold(start, pick);
        let norms = Norms {
            form,
            forced: forced.is_some(),
            lowest_mean: of(f64::min, f64::INFINITY),
            highest_mean: of(f64::max, f64::NEG_INFINITY),
            tensors: means.len(),
        };
        self.passed(
            "norms",
            format!(
                "{form}{}: means of the {} hc_norm weights from {:.4} to {:.4}",
                if norms.forced { " (forced)" } else { "" },
                norms.tensors,
                norms.lowest_mean,
                norms.highest_mean
            ),
        );
        self.norms = Some(norms);
        verify_ngram_constants(checkpoint, reader)?;
        let found = match checkpoint.ngram() {
            None => "the model has no n-gram layer".to_owned(),
            Some(plan) => format!(
                "{} multipliers, {} table sizes and offsets in the file equal those of the config",
                plan.multipliers.len(),
                plan.head_sizes.len()
            ),
        };
        self.passed("n-gram constants", found);
        Ok(())
    }

    /// Tokenizer and chat template; both may be absent.
    pub(super) fn of_text(&mut self, parts: &TextParts, checkpoint: &Checkpoint) {
        if let Ok(tokenizer) = parts.tokenizer() {
            self.passed(
                "tokenizer",
                format!(
                    "ids below {}, the model has {} embeddings",
                    tokenizer.id_bound(),
                    checkpoint.config().vocab_size
                ),
            );
            self.tokenizer = Some(tokenizer.path().display().to_string());
        }
        if let Some(template) = parts.chat_template() {
            self.passed("chat template", format!("compiles: {}", template.names().join(", ")));
            self.chat_template = Some(template.path().display().to_string());
        }
    }

    /// Every scale, bias and float.
    pub(super) fn of_values(&mut self, checked: CheckedValues) {
        let CheckedValues { tensors, values, bytes, .. } = checked;
        let (tensors, values) = (count(tensors as u64, "tensor"), count(values, "value"));
        self.passed("values", format!("{values} of {tensors} are finite numbers"));
        self.values_bytes = Some(bytes);
    }

    /// The prompt.
    pub(super) fn of_prompt(&mut self, tokens: usize, room: &Room) {
        let found = format!(
            "{} of a vocabulary of {}; the context has room for {}",
            count(tokens as u64, "token"),
            HumanCount(room.vocab_size as u64),
            HumanCount(room.context as u64)
        );
        self.passed("prompt", found);
        self.prompt_tokens = Some(tokens);
    }
}
