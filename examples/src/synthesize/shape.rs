//! The config of the checkpoint that is written.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value, json};
use slotstream_checkpoint::{ExpectedTensor, TextConfig, expected_tensors};
use slotstream_testkit::checkpoint::published_config;

use super::Arguments;
use crate::Failure;
use crate::text_file::read_text;

/// The largest config that is read.
const LIMIT: u64 = 4 << 20;

/// A config, and what of it is shown.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) config: Value,
    pub(super) layers: usize,
    pub(super) experts: usize,
    pub(super) top_k: usize,
    pub(super) vocab: usize,
    pub(super) ngram: bool,
}

/// Which shape, and what of it is left.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cut<'a> {
    /// A config.json; the published one where there is none.
    pub(crate) config: Option<&'a Path>,
    /// Layers; as the config says where there is none.
    pub(crate) layers: Option<usize>,
    /// Tokens of the vocabulary, likewise.
    pub(crate) vocab: Option<usize>,
    /// Whether the n-gram layer is left out.
    pub(crate) no_ngram: bool,
}

impl<'a> From<&'a Arguments> for Cut<'a> {
    fn from(arguments: &'a Arguments) -> Self {
        let Arguments { layers, vocab, no_ngram, .. } = *arguments;
        Self { config: arguments.config.as_deref(), layers, vocab, no_ngram }
    }
}

impl Shape {
    /// The config that was named, with as many layers and tokens as were asked for. Whatever is no
    /// part of the text model is left out.
    pub(crate) fn of(cut: Cut<'_>) -> Result<Self, Failure> {
        let (path, mut config) = match cut.config {
            None => (Path::new("config.json"), published_config()),
            Some(path) => (path, read(path)?),
        };
        let nested = config.get("text_config").is_some_and(Value::is_object);
        if let (true, Some(whole)) = (nested, config.as_object_mut()) {
            // Token ids at the top are those of pictures and films.
            whole.retain(|name, _| name != "vision_config" && !name.ends_with("_token_id"));
        }
        // A config may be that of the text model alone.
        let text = if nested { config.get_mut("text_config") } else { Some(&mut config) };
        if let Some(text) = text.and_then(Value::as_object_mut) {
            cut_layers(text, cut.layers)?;
            cut_vocabulary(text, cut.vocab)?;
            text.insert("mtp_num_hidden_layers".into(), json!(0));
            if cut.no_ngram {
                text.insert("ple_layer_ids".into(), json!([]));
            }
            check_ngram(text)?;
        }
        let legal = TextConfig::from_json(path, config.to_string().as_bytes())?;
        let tensors = expected_tensors(&legal)?;
        drop_overrides(&mut config, &tensors);
        Ok(Self {
            layers: legal.num_hidden_layers,
            experts: legal.num_experts,
            top_k: legal.num_experts_per_tok,
            vocab: legal.vocab_size,
            ngram: legal.ple.is_some(),
            config,
        })
    }
}

fn read(path: &Path) -> Result<Value, Failure> {
    let text = read_text(path, LIMIT)?;
    serde_json::from_str(&text).map_err(|error| Failure::Option {
        option: "--config",
        value: path.display().to_string(),
        expected: format!("a config.json; {error}"),
    })
}

/// Leaves out quantization overrides of modules that are not there any more.
fn drop_overrides(config: &mut Value, tensors: &[ExpectedTensor]) {
    let modules: BTreeSet<&str> = tensors
        .iter()
        .filter_map(|tensor| tensor.name.rsplit_once('.').map(|(module, _)| module))
        .collect();
    for block in ["quantization", "quantization_config"] {
        if let Some(block) = config.get_mut(block).and_then(Value::as_object_mut) {
            block.retain(|name, value| !value.is_object() || modules.contains(name.as_str()));
        }
    }
}

/// Keeps the first layers; goes on with the pattern where there are to be more.
fn cut_layers(text: &mut Map<String, Value>, layers: Option<usize>) -> Result<(), Failure> {
    let Some(layers) = layers else { return Ok(()) };
    // The pattern may be one of 48 layers: a bound keeps it from filling the memory.
    if !(1..=1024).contains(&layers) {
        let (value, expected) = (layers.to_string(), "1 to 1024".to_owned());
        return Err(Failure::Option { option: "--layers", value, expected });
    }
    if let Some(Value::Array(types)) = text.get_mut("layer_types") {
        *types = types.iter().cycle().take(layers).cloned().collect();
    }
    text.insert("num_hidden_layers".into(), json!(layers));
    Ok(())
}

/// Sets the vocabulary; special tokens beyond it become its last one.
fn cut_vocabulary(text: &mut Map<String, Value>, vocab: Option<usize>) -> Result<(), Failure> {
    let Some(vocab) = vocab else { return Ok(()) };
    if !(2..=1 << 24).contains(&vocab) {
        let (value, expected) = (vocab.to_string(), format!("2 to {}", 1 << 24));
        return Err(Failure::Option { option: "--vocab", value, expected });
    }
    let last = json!(vocab - 1);
    let is_beyond = |id: &Value| id.as_u64().is_some_and(|id| id >= vocab as u64);
    for (_, value) in text.iter_mut().filter(|(name, _)| name.ends_with("_token_id")) {
        match value {
            Value::Array(ids) => {
                ids.iter_mut().filter(|id| is_beyond(id)).for_each(|id| *id = last.clone());
            }
            id if is_beyond(id) => *id = last.clone(),
            _ => {}
        }
    }
    text.insert("vocab_size".into(), json!(vocab));
    Ok(())
}

/// The n-gram layer must be one that is there.
fn check_ngram(text: &Map<String, Value>) -> Result<(), Failure> {
    let number = |value: Option<&Value>| value.and_then(Value::as_u64).unwrap_or(0);
    let layers = number(text.get("num_hidden_layers"));
    let ids = text.get("ple_layer_ids").and_then(Value::as_array);
    match ids.into_iter().flatten().map(|id| number(Some(id))).max() {
        Some(last) if last > layers => Err(Failure::Option {
            option: "--layers",
            value: layers.to_string(),
            expected: format!("at least {last}, the n-gram layer, or --no-ngram"),
        }),
        _ => Ok(()),
    }
}
