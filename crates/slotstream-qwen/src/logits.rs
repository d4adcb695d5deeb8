//! Logits on the host.

use candle_core::Tensor;
use slotstream_candle::CandleContext;
use slotstream_checkpoint::TextConfig;
use slotstream_core::Step;

use crate::QwenError;
use crate::error::layer_idx;

/// The values of a tensor of one row or several, in row order.
///
/// # Errors
/// [`QwenError::Layer`] when the device refuses or the tensor is not f32.
pub fn to_host(tensor: &Tensor) -> Result<Vec<f32>, QwenError> {
    let flat = tensor.flatten_all().and_then(|t| t.to_vec1());
    flat.within("read back").map_err(QwenError::layer(0))
}

/// Checks logits on the host, `[rows, vocab_size]`: the last rows of a pass.
///
/// # Errors
/// [`QwenError::LogitNotFinite`] names the first value that is NaN or infinite.
pub fn check_logits(config: &TextConfig, step: &Step<'_>, logits: &[f32]) -> Result<(), QwenError> {
    let Some(i) = logits.iter().position(|logit| !logit.is_finite()) else { return Ok(()) };
    let vocab = config.vocab_size.max(1);
    let rows = logits.len() / vocab;
    let row = step.tokens.len().saturating_sub(rows) + i / vocab;
    Err(QwenError::LogitNotFinite {
        layer: layer_idx(config.num_hidden_layers.saturating_sub(1)),
        pass: step.pass,
        position: step.position + row as u64,
        token: i % vocab,
        value: logits[i],
    })
}

#[cfg(test)]
mod tests {
    use slotstream_core::{LayerIdx, PassId, Phase, SessionId};

    use super::*;

    #[test]
    fn the_first_bad_logit_is_named_with_its_step() {
        let small = slotstream_testkit::checkpoint::small_config().to_string();
        let config = TextConfig::from_json("config.json".as_ref(), small.as_bytes()).unwrap();
        let tokens = [1, 2, 3];
        let step = Step {
            pass: PassId::new(7),
            phase: Phase::Prefill,
            session: SessionId::new(1),
            position: 40,
            tokens: &tokens,
        };
        let mut logits = vec![0.5; 2 * config.vocab_size];
        check_logits(&config, &step, &logits).unwrap();
        logits[config.vocab_size + 9] = f32::NEG_INFINITY;
        let error = check_logits(&config, &step, &logits).unwrap_err();
        assert!(
            matches!(error, QwenError::LogitNotFinite { layer, token: 9, position: 42, .. }
                if layer == LayerIdx::new(3)),
            "{error:?}"
        );
        for words in ["-inf", "token 9", "step 7", "position 42", "layer 3", "inspect --values"] {
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
