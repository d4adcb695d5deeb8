//! A state as plain numbers, to be kept elsewhere.

use std::fmt;

use candle_core::Tensor;
use slotstream_candle::{CandleContext, Error, PagedTensor};
use slotstream_checkpoint::{LayerType, TextConfig};
use slotstream_core::LayerIdx;

use super::{LayerState, PAGE_ROWS, State, conv_channels, delta_dims};
use crate::error::layer_idx;
use crate::window::Window;
use crate::{QwenError, QwenModel};

/// Which array of a layer's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PartKind {
    /// Keys of an attention layer, `[tokens, kv_heads * head_dim]`.
    Keys,
    /// Values of an attention layer, `[tokens, kv_heads * head_dim]`.
    Values,
    /// Finished block keys of an attention layer's indexer, `[blocks, indexer_head_dim]`.
    BlockKeys,
    /// The last raw index keys, `[compress_ratio - 1, indexer_head_dim]`.
    IndexKeys,
    /// Convolution window of a delta net, `[kernel - 1, channels]`.
    Convolution,
    /// Recurrent state of a delta net, `[value_heads * key_dim, value_dim]`.
    Recurrent,
    /// Convolution window of the n-gram layer, `[rows, hc_count * hidden_size]`.
    NgramConvolution,
}

/// One array of a state: f32 rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatePart {
    /// Its layer.
    pub layer: LayerIdx,
    /// Which one.
    pub kind: PartKind,
    /// Rows.
    pub rows: usize,
    /// Values of a row.
    pub width: usize,
}

impl StatePart {
    /// Values of all rows.
    #[must_use]
    pub const fn values(&self) -> usize {
        self.rows * self.width
    }
}

impl fmt::Display for StatePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            PartKind::Keys => "keys",
            PartKind::Values => "values",
            PartKind::BlockKeys => "block keys",
            PartKind::IndexKeys => "index keys",
            PartKind::Convolution => "convolution window",
            PartKind::Recurrent => "recurrent state",
            PartKind::NgramConvolution => "n-gram convolution window",
        };
        write!(f, "{kind} of {}", self.layer)
    }
}

impl State {
    /// The arrays of a state of `position` tokens, in the order in which they are exported.
    #[must_use]
    pub fn parts(config: &TextConfig, position: usize) -> Vec<StatePart> {
        let mut parts = Vec::new();
        for (index, kind) in config.layer_types.iter().enumerate() {
            let mut part = |kind, rows, width| {
                parts.push(StatePart { layer: layer_idx(index), kind, rows, width });
            };
            match kind {
                LayerType::IndexedAttention => {
                    let width = config.num_key_value_heads * config.head_dim;
                    let (ratio, head) = (config.indexer_compress_ratio, config.indexer_head_dim);
                    part(PartKind::Keys, position, width);
                    part(PartKind::Values, position, width);
                    part(PartKind::BlockKeys, position / ratio, head);
                    part(PartKind::IndexKeys, ratio - 1, head);
                }
                LayerType::LinearAttention => {
                    let [heads, key, value] = delta_dims(config);
                    let need = config.linear_conv_kernel_dim - 1;
                    part(PartKind::Convolution, need, conv_channels(config));
                    part(PartKind::Recurrent, heads * key, value);
                }
            }
        }
        if let Some(ple) = &config.ple {
            parts.push(StatePart {
                layer: ple.layer,
                kind: PartKind::NgramConvolution,
                rows: (ple.ple_conv_kernel_size - 1) * ple.ngram_size,
                width: config.hc_count * config.hidden_size,
            });
        }
        parts
    }

    /// Gives out every array of the state in blocks of whole rows, in the order of
    /// [`parts`](Self::parts). Rows kept for [`truncate`](Self::truncate) are not among them. An
    /// array without values is left out.
    ///
    /// # Errors
    /// [`QwenError::Dirty`] after a pass that failed midway, [`QwenError::Layer`] when the device
    /// refuses, and what `sink` answers.
    pub fn export<E: From<QwenError>>(
        &self,
        config: &TextConfig,
        mut sink: impl FnMut(&StatePart, &[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.dirty {
            return Err(QwenError::Dirty { position: self.position }.into());
        }
        for part in Self::parts(config, self.position as usize) {
            let failed = QwenError::layer(part.layer.index());
            let mut block = |rows: Result<Tensor, Error>| {
                let flat = rows.and_then(|t| t.flatten_all().within("export"));
                let values = flat.and_then(|t| t.to_vec1::<f32>().within("export"));
                let values = values.map_err(&failed)?;
                if values.is_empty() { Ok(()) } else { sink(&part, &values) }
            };
            match self.array(&part)? {
                Array::Paged(paged) => {
                    for (page, tensor) in paged.pages().iter().enumerate() {
                        let rows = paged.len().saturating_sub(page * PAGE_ROWS).min(PAGE_ROWS);
                        block(tensor.narrow(0, 0, rows).within("export"))?;
                    }
                }
                Array::Window(window) => block(window.held())?,
                Array::Whole(tensor) => block(Ok(tensor.clone()))?,
            }
        }
        Ok(())
    }

    fn array(&self, part: &StatePart) -> Result<Array<'_>, QwenError> {
        let layer = self.layers.get(part.layer.index());
        Ok(match (part.kind, layer) {
            (PartKind::Keys, Some(LayerState::Attention { keys, .. })) => Array::Paged(keys),
            (PartKind::Values, Some(LayerState::Attention { values, .. })) => Array::Paged(values),
            (PartKind::BlockKeys, Some(LayerState::Attention { blocks, .. })) => {
                Array::Paged(blocks)
            }
            (PartKind::IndexKeys, Some(LayerState::Attention { raw, .. })) => Array::Window(raw),
            (PartKind::Convolution, Some(LayerState::Delta { conv, .. })) => Array::Window(conv),
            (PartKind::Recurrent, Some(LayerState::Delta { recurrent, .. })) => {
                Array::Whole(recurrent)
            }
            (PartKind::NgramConvolution, _) => {
                Array::Window(self.ple.as_ref().ok_or(QwenError::NgramStore { model: true })?)
            }
            (_, _) => return Err(other_layers(part)),
        })
    }
}

/// An array of a state where it lies.
enum Array<'a> {
    Paged(&'a PagedTensor),
    Window(&'a Window),
    Whole(&'a Tensor),
}

fn other_layers(part: &StatePart) -> QwenError {
    let what = "the state is of a model with other layer types";
    let error = Error::provider(slotstream_core::ErrorKind::Bug, what);
    QwenError::layer(part.layer.index())(error)
}

impl QwenModel {
    /// Builds the state after `tokens` from what [`State::export`] gave: `source` fills block after
    /// block, in the same order and in whole rows. Nothing but the order tells blocks apart, so
    /// check what you fill in. It has room for `context` tokens and remembers `rollback` rows from
    /// here on.
    ///
    /// # Errors
    /// [`QwenError::Context`] for more tokens than the context has, [`QwenError::Token`] for one
    /// that the model does not know, [`QwenError::Layer`] when the device refuses, and what
    /// `source` answers.
    pub fn import_state<E: From<QwenError>>(
        &self,
        (context, rollback): (usize, usize),
        tokens: &[u32],
        mut source: impl FnMut(&StatePart, &mut [f32]) -> Result<(), E>,
    ) -> Result<State, E> {
        let vocab_size = self.config.vocab_size;
        if tokens.len() > context {
            return Err(QwenError::context(0, tokens.len(), context).into());
        }
        if let Some(at) = tokens.iter().position(|token| *token as usize >= vocab_size) {
            return Err(QwenError::token(tokens[at], at as u64, vocab_size).into());
        }
        let mut state = self.new_state(context, rollback)?;
        let mut values = Vec::new();
        for part in State::parts(&self.config, tokens.len()) {
            let mut left = part.rows;
            while left > 0 && part.width > 0 {
                let rows = match part.kind {
                    PartKind::Keys | PartKind::Values | PartKind::BlockKeys => left.min(PAGE_ROWS),
                    _ => left,
                };
                values.resize(rows * part.width, 0.0);
                source(&part, &mut values)?;
                state.put(&part, rows, &values, self)?;
                left -= rows;
            }
        }
        state.advance(tokens);
        state.recorded = 0;
        Ok(state)
    }
}

impl State {
    /// Puts a block where it belongs, in a state that never ran.
    fn put(
        &mut self,
        part: &StatePart,
        rows: usize,
        values: &[f32],
        model: &QwenModel,
    ) -> Result<(), QwenError> {
        let failed = QwenError::layer(part.layer.index());
        let block = Tensor::from_slice(values, (rows, part.width), &model.device);
        let block = block.within("import").map_err(&failed)?;
        match (part.kind, self.layers.get_mut(part.layer.index())) {
            (PartKind::Keys, Some(LayerState::Attention { keys, .. })) => keys.append(&block),
            (PartKind::Values, Some(LayerState::Attention { values, .. })) => values.append(&block),
            (PartKind::BlockKeys, Some(LayerState::Attention { blocks, .. })) => {
                blocks.append(&block)
            }
            (PartKind::IndexKeys, Some(LayerState::Attention { raw, .. })) => raw.fill(&block),
            (PartKind::Convolution, Some(LayerState::Delta { conv, .. })) => conv.fill(&block),
            (PartKind::Recurrent, Some(LayerState::Delta { recurrent, .. })) => {
                let shaped = block.reshape(recurrent.shape()).within("import");
                shaped.map(|shaped| *recurrent = shaped)
            }
            (PartKind::NgramConvolution, _) => match &mut self.ple {
                Some(window) => window.fill(&block),
                None => return Err(QwenError::NgramStore { model: false }),
            },
            (_, _) => return Err(other_layers(part)),
        }
        .map_err(failed)
    }
}
