//! What the arithmetic of a token costs on this machine.

use std::time::Instant;

use serde::Serialize;
use slotstream::checkpoint::{Checkpoint, LayerType, NormForm, TensorClass};
use slotstream::io::ReaderKind;
use slotstream::{ContainerChoice, Engine, Error, SessionOptions, Sizing};

use super::subject::Subject;
use super::{Arguments, looked_up};
use crate::{Console, Failure, LockName};

/// Layers that are run, however many the model has: enough not to fit in a processor's cache.
const LAYERS: usize = 8;
/// Tokens of their vocabulary at most: the head is a product like the others.
const VOCABULARY: usize = 32_768;
/// Tokens that are run, and those of them that come first and are not counted.
const TOKENS: usize = 40;
const WARM_UP: usize = 8;

/// Seconds of a decoded token without waiting for reads.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Compute {
    /// Mean, and the quarters around the median.
    pub(super) token_s: f64,
    pub(super) fast_s: f64,
    pub(super) slow_s: f64,
    /// Bytes of weights and recurrent state that a token touches.
    pub(super) token_bytes: u64,
    /// GB/s at which the measured layers went through theirs.
    pub(super) gb_s: f64,
    pub(super) measured_layers: usize,
    pub(super) kernels: String,
}

impl Compute {
    /// Decodes with a few layers of the model's shapes, and takes the time by the bytes touched.
    pub(super) fn measure(
        arguments: &Arguments,
        subject: &Subject,
        checkpoint: &Checkpoint,
        console: &Console<'_>,
    ) -> Result<Self, Failure> {
        let config = checkpoint.config();
        let folder = subject.few_layers(LAYERS, VOCABULARY.min(config.vocab_size))?;
        let mut flags = arguments.engine.clone();
        (flags.slots, flags.experts_per_layer, flags.memory) = (None, None, None);
        (flags.container, flags.context, flags.chunk) = (None, None, None);
        flags.mirror.clear();
        // The prediction is of an engine that reads nothing ahead.
        flags.lookahead = "none".to_owned();
        flags.throttle = None;
        flags.elastic = false;
        // It is nobody's model.
        flags.lock = Some(LockName::Off);
        let place = crate::ModelFolder { path: folder.path().to_owned(), bundled: false };
        let part = Checkpoint::open(folder.path()).map_err(Error::from)?.geometry();
        let slots = part.floor_slots().max(LAYERS * part.top_k());
        let engine = flags
            .builder(&place, &console.cancel)?
            // Zeros route to the same experts in every pass, so all are resident.
            .sizing(Sizing::Slots(slots))
            .reader(ReaderKind::Buffered)
            .container(ContainerChoice::Shards)
            .verify_reads(false)
            .norms(NormForm::Raw)
            .context((2 * TOKENS).min(config.max_position_embeddings))
            .chunk(WARM_UP)
            .build()?;
        let seconds = decode(&engine, console)?;
        let (bytes, here) = (touched(checkpoint), touched(engine.checkpoint()));
        let scale = bytes as f64 / here.max(1) as f64;
        // As rates are counted: with what was slow now and then.
        let mean = seconds.iter().sum::<f64>() / seconds.len().max(1) as f64;
        let at = |share: usize| seconds.get(seconds.len() * share / 4).copied().unwrap_or(0.0);
        Ok(Self {
            token_s: scale * mean,
            fast_s: scale * at(1).min(mean),
            slow_s: scale * at(3).max(mean),
            token_bytes: bytes,
            gb_s: if mean > 0.0 { here as f64 / mean / 1e9 } else { 0.0 },
            measured_layers: LAYERS,
            kernels: engine.kernels(),
        })
    }
}

/// Seconds of tokens whose records are all resident, ascending.
fn decode(engine: &Engine, console: &Console<'_>) -> Result<Vec<f64>, Failure> {
    let options = SessionOptions::new().with_cancel(console.cancel.clone());
    let mut session = engine.session(options)?;
    session.prefill(&[1])?;
    let mut seconds = Vec::new();
    for token in 0..TOKENS {
        let begun = Instant::now();
        session.next()?;
        if token >= WARM_UP {
            seconds.push(begun.elapsed().as_secs_f64());
        }
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds)
}

/// Bytes of weights that a token reads, and of recurrent state that it reads and writes.
fn touched(checkpoint: &Checkpoint) -> u64 {
    let (config, ledger) = (checkpoint.config(), checkpoint.ledger());
    let rows = ledger.row(TensorClass::Embedding).bytes;
    let delta = config.layer_types.iter().filter(|t| **t == LayerType::LinearAttention).count();
    let state = config.linear_num_value_heads
        * config.linear_key_head_dim
        * config.linear_value_head_dim
        * 4;
    let state = 2 * (delta * state) as u64;
    ledger.resident_bytes.saturating_sub(rows) + looked_up(checkpoint) + state
}
