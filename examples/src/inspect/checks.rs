//! The validation report: every check with what it found.

use std::path::Path;

use serde::Serialize;
use slotstream::Error;
use slotstream::checkpoint::{
    Checkpoint, NormForm, TensorClass, expected_tensors, norm_means, verify_ngram_constants,
};
use slotstream::core::RecordReader;
use slotstream::text::{ChatTemplate, TextError, Tokenizer};

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
            format!("every field of a qwen4_exp model of {layers} layers is in its range"),
        );
        let (default, overrides) = (config.quantization.default, &config.quantization.overrides);
        findings.passed(
            "quantization",
            format!(
                "{} bits in groups of {}; {} overrides, each of a module that exists",
                default.bits(),
                default.group_size(),
                overrides.len()
            ),
        );
        let bytes: u64 = checkpoint.file_sizes().iter().sum();
        findings.passed(
            "files",
            format!(
                "{} safetensors files, {bytes} bytes; none is missing, cut off or has bytes of \
                 no tensor",
                checkpoint.files().len()
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
                "{} tensors: the {expected} that the config asks for with their dtypes and \
                 shapes, {optional} of optional parts, none that nothing uses",
                checkpoint.tensors().len()
            ),
        );
        let resolved =
            (0..geometry.records()).filter_map(|i| checkpoint.expert_pieces(geometry.key(i)?));
        findings.passed(
            "experts",
            format!(
                "{} of {} records have their nine pieces, {} bytes each",
                resolved.count(),
                geometry.records(),
                checkpoint.ledger().record_bytes
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
    pub(super) fn of_text(&mut self, folder: &Path, checkpoint: &Checkpoint) -> Result<(), Error> {
        let path = folder.join("tokenizer.json");
        if path.exists() {
            let tokenizer = Tokenizer::load(&path, checkpoint.config().vocab_size)?;
            self.passed(
                "tokenizer",
                format!(
                    "ids below {}, the model has {} embeddings",
                    tokenizer.id_bound(),
                    checkpoint.config().vocab_size
                ),
            );
            self.tokenizer = Some(path.display().to_string());
        }
        match ChatTemplate::load(folder, None) {
            Ok(template) => {
                self.passed("chat template", format!("compiles: {}", template.names().join(", ")));
                self.chat_template = Some(template.path().display().to_string());
                Ok(())
            }
            Err(TextError::NoTemplate { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
