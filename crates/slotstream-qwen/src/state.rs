//! What a sequence carries from token to token.

mod parts;

pub use parts::{PartKind, StatePart};

use candle_core::{Device, Tensor};
use slotstream_candle::{CandleContext, Error, PagedTensor, zeros};
use slotstream_checkpoint::{LayerType, TextConfig};

use crate::QwenError;
use crate::window::Window;

/// Most rows that a state can be made to remember for [`State::truncate`].
pub const MAX_ROLLBACK: usize = 8;

/// Rows of a page of keys, values or block keys.
const PAGE_ROWS: usize = 256;

/// Everything that one sequence carries from token to token: keys and values, block keys and raw
/// index keys of each attention layer; recurrent state and convolution window of each delta net;
/// convolution window of the n-gram layer; the last tokens.
#[derive(Debug)]
pub struct State {
    pub(crate) layers: Vec<LayerState>,
    pub(crate) ple: Option<Window>,
    position: u64,
    context: usize,
    rollback: usize,
    /// Positions before the current one whose recurrent states are in the rings.
    recorded: usize,
    /// The last tokens: what an n-gram may look back at, and `rollback` more.
    tail: Vec<u32>,
    tail_need: usize,
    /// A pass began and did not end.
    dirty: bool,
}

/// The state of one layer.
#[derive(Debug)]
pub(crate) enum LayerState {
    Delta {
        conv: Window,
        /// `[value_heads, key_dim, value_dim]`.
        recurrent: Tensor,
        /// `[rollback, value_heads, key_dim, value_dim]`; entry `p % rollback` is the state at
        /// position `p`.
        ring: Option<Tensor>,
    },
    Attention {
        /// `[tokens, kv_heads * head_dim]`.
        keys: PagedTensor,
        values: PagedTensor,
        /// Finished block keys, `[blocks, indexer_head_dim]`.
        blocks: PagedTensor,
        /// The last raw index keys.
        raw: Window,
    },
}

impl State {
    pub(crate) fn new(
        config: &TextConfig,
        context: usize,
        rollback: usize,
        device: &Device,
    ) -> Result<Self, QwenError> {
        let rollback = rollback.min(MAX_ROLLBACK);
        let layer = |(index, kind): (usize, &LayerType)| {
            LayerState::new(config, *kind, rollback, device).map_err(QwenError::layer(index))
        };
        let layers = config.layer_types.iter().enumerate().map(layer).collect::<Result<_, _>>()?;
        let ple = config.ple.as_ref().map(|ple| {
            let need = (ple.ple_conv_kernel_size - 1) * ple.ngram_size;
            Window::new(need, rollback, config.hc_count * config.hidden_size, device)
                .map_err(QwenError::layer(ple.layer.index()))
        });
        let tail_need = config.ple.as_ref().map_or(0, |ple| ple.ngram_size - 1);
        let ple = ple.transpose()?;
        Ok(Self {
            layers,
            ple,
            position: 0,
            context,
            rollback,
            recorded: 0,
            tail: Vec::new(),
            tail_need,
            dirty: false,
        })
    }

    /// Tokens seen.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Tokens that fit.
    #[must_use]
    pub const fn context(&self) -> usize {
        self.context
    }

    /// Whether a pass failed midway: some layers have seen its tokens and others have not. Such a
    /// state refuses every pass; go on from a snapshot or a fresh state.
    #[must_use]
    pub const fn is_dirty(&self) -> bool {
        self.dirty
    }

    pub(crate) const fn set_dirty(&mut self, dirty: bool) {
        self.dirty = dirty;
    }

    /// Rows that [`truncate`](Self::truncate) can undo now.
    #[must_use]
    pub const fn undoable(&self) -> usize {
        self.recorded
    }

    /// The last tokens, oldest first: what an n-gram looks back at.
    #[must_use]
    pub fn token_window(&self) -> &[u32] {
        &self.tail[self.tail.len().saturating_sub(self.tail_need)..]
    }

    /// Bytes that every token of the context adds: keys, values and its share of a block key.
    /// Memory is taken in pages of 256 rows.
    #[must_use]
    pub fn bytes_per_token(config: &TextConfig) -> u64 {
        let attention = config.layer_types.iter().filter(|t| **t == LayerType::IndexedAttention);
        let kv = 2 * config.num_key_value_heads * config.head_dim * 4;
        let blocks = (config.indexer_head_dim * 4).div_ceil(config.indexer_compress_ratio);
        attention.count() as u64 * (kv + blocks) as u64
    }

    /// Bytes of a state that holds `context` tokens and remembers `rollback` rows: pages whole.
    #[must_use]
    pub fn planned_bytes(config: &TextConfig, context: usize, rollback: usize) -> PlannedState {
        let rollback = rollback.min(MAX_ROLLBACK);
        let page =
            |rows: usize, width: usize| (rows.next_multiple_of(PAGE_ROWS) * width * 4) as u64;
        let mut planned = PlannedState::default();
        for kind in &config.layer_types {
            match kind {
                LayerType::IndexedAttention => {
                    let width = config.num_key_value_heads * config.head_dim;
                    let blocks = context / config.indexer_compress_ratio;
                    planned.context +=
                        2 * page(context, width) + page(blocks, config.indexer_head_dim);
                    let need = config.indexer_compress_ratio - 1;
                    planned.fixed += Window::planned_bytes(need, rollback, config.indexer_head_dim);
                }
                LayerType::LinearAttention => {
                    let dims = delta_dims(config);
                    let state = dims.iter().product::<usize>() as u64 * 4;
                    let need = config.linear_conv_kernel_dim - 1;
                    planned.fixed +=
                        state + Window::planned_bytes(need, rollback, conv_channels(config));
                    planned.ring += rollback as u64 * state;
                }
            }
        }
        if let Some(ple) = &config.ple {
            let need = (ple.ple_conv_kernel_size - 1) * ple.ngram_size;
            let width = config.hc_count * config.hidden_size;
            planned.fixed += Window::planned_bytes(need, rollback, width);
        }
        planned
    }

    /// Bytes held now.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let layer = |layer: &LayerState| match layer {
            LayerState::Delta { conv, recurrent, ring } => {
                let ring = ring.as_ref().map_or(0, Tensor::elem_count);
                conv.bytes() + 4 * (recurrent.elem_count() + ring) as u64
            }
            LayerState::Attention { keys, values, blocks, raw } => {
                keys.bytes() + values.bytes() + blocks.bytes() + raw.bytes()
            }
        };
        self.layers.iter().map(layer).sum::<u64>() + self.ple.as_ref().map_or(0, Window::bytes)
    }

    /// Before a pass of `rows` rows: keeps the recurrent states of the current position, and says
    /// into which entry of the rings each row's state goes. Empty without a ring.
    pub(crate) fn open_rings(&self, rows: usize) -> Result<Vec<Option<usize>>, Error> {
        let Some(n) = u64::try_from(self.rollback).ok().filter(|n| *n > 0) else {
            return Ok(Vec::new());
        };
        let (start, end) = (self.position, self.position + rows as u64);
        let oldest = end.saturating_sub(n);
        if start >= oldest {
            for layer in &self.layers {
                if let LayerState::Delta { recurrent, ring: Some(ring), .. } = layer {
                    let now = recurrent.unsqueeze(0).within("ring")?;
                    ring.slice_set(&now, 0, (start % n) as usize).within("ring")?;
                }
            }
        }
        // The state after row `r` is the one at position `start + r + 1`; that of the last row
        // stays in `recurrent`.
        let entry = |r: u64| {
            let position = start + r + 1;
            (position < end && position >= oldest).then_some((position % n) as usize)
        };
        Ok((0..rows as u64).map(entry).collect())
    }

    /// After a pass: its tokens are part of the sequence.
    pub(crate) fn advance(&mut self, tokens: &[u32]) {
        self.position += tokens.len() as u64;
        self.recorded = (self.recorded + tokens.len()).min(self.rollback);
        self.tail.extend_from_slice(tokens);
        let keep = self.tail_need + self.rollback;
        self.tail.drain(..self.tail.len().saturating_sub(keep));
    }

    /// Goes back to `position`. Every part goes back together.
    ///
    /// # Errors
    /// [`QwenError::Dirty`] after a pass that failed midway,
    /// [`QwenError::Rollback`] further back than [`undoable`](Self::undoable) rows (no change),
    /// [`QwenError::Layer`] when the device refuses.
    pub fn truncate(&mut self, position: u64) -> Result<(), QwenError> {
        if self.dirty {
            return Err(QwenError::Dirty { position: self.position });
        }
        if position >= self.position {
            return Ok(());
        }
        let rows = self.position - position;
        if rows > self.recorded as u64 {
            let kept = self.recorded;
            return Err(QwenError::Rollback { position: self.position, wanted: position, kept });
        }
        let rows = rows as usize;
        for (index, layer) in self.layers.iter_mut().enumerate() {
            layer.roll_back(rows, position, self.rollback).map_err(QwenError::layer(index))?;
        }
        if let Some(window) = &mut self.ple {
            window.roll_back(rows).map_err(QwenError::layer(0))?;
        }
        self.tail.truncate(self.tail.len().saturating_sub(rows));
        self.recorded -= rows;
        self.position = position;
        Ok(())
    }

    /// A copy that goes its own way. Whole pages of keys and values are shared.
    ///
    /// # Errors
    /// [`QwenError::Layer`] when the device refuses.
    pub fn snapshot(&self) -> Result<Self, QwenError> {
        self.copy(true)
    }

    /// A place to come back to: a copy without the rows kept for [`truncate`](Self::truncate), which
    /// are most of what a copy costs. Whole pages of keys and values are shared.
    ///
    /// # Errors
    /// [`QwenError::Dirty`] after a pass that failed midway, [`QwenError::Layer`] when the device
    /// refuses.
    pub fn checkpoint(&self) -> Result<Checkpoint, QwenError> {
        if self.dirty {
            return Err(QwenError::Dirty { position: self.position });
        }
        Ok(Checkpoint(Self { recorded: 0, ..self.copy(false)? }))
    }

    /// Bytes of a [`checkpoint`](Self::checkpoint) beside the whole pages that it shares, at most.
    #[must_use]
    pub fn checkpoint_bytes(config: &TextConfig, rollback: usize) -> u64 {
        // One page each that is in use.
        let tokens = config.indexer_compress_ratio.max(1);
        let planned = Self::planned_bytes(config, tokens, rollback);
        planned.context + planned.fixed
    }

    fn copy(&self, with_rings: bool) -> Result<Self, QwenError> {
        let layers = self.layers.iter().enumerate();
        let layers = layers.map(|(i, layer)| layer.copy(with_rings).map_err(QwenError::layer(i)));
        Ok(Self {
            layers: layers.collect::<Result<_, _>>()?,
            ple: self
                .ple
                .as_ref()
                .map(Window::snapshot)
                .transpose()
                .map_err(QwenError::layer(0))?,
            tail: self.tail.clone(),
            ..*self
        })
    }
}

/// A state at rest, to come back to. Never runs itself.
#[derive(Debug)]
pub struct Checkpoint(State);

impl Checkpoint {
    /// Tokens seen.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.0.position
    }

    /// A state that goes on from here. It remembers as many rows as the one that this was made of,
    /// from here on.
    ///
    /// # Errors
    /// [`QwenError::Layer`] when the device refuses.
    pub fn resume(&self) -> Result<State, QwenError> {
        let mut state = self.0.copy(false)?;
        for (index, layer) in state.layers.iter_mut().enumerate() {
            layer.add_ring(state.rollback).map_err(QwenError::layer(index))?;
        }
        Ok(state)
    }
}

/// Bytes of a planned state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlannedState {
    /// Keys, values and block keys of the whole context.
    pub context: u64,
    /// Recurrent states and windows.
    pub fixed: u64,
    /// Recurrent states kept for rollback.
    pub ring: u64,
}

fn delta_dims(config: &TextConfig) -> [usize; 3] {
    [config.linear_num_value_heads, config.linear_key_head_dim, config.linear_value_head_dim]
}

pub(crate) fn conv_channels(config: &TextConfig) -> usize {
    2 * config.linear_num_key_heads * config.linear_key_head_dim
        + config.linear_num_value_heads * config.linear_value_head_dim
}

impl LayerState {
    fn new(
        config: &TextConfig,
        kind: LayerType,
        rollback: usize,
        device: &Device,
    ) -> Result<Self, Error> {
        match kind {
            LayerType::LinearAttention => {
                let [heads, key, value] = delta_dims(config);
                let recurrent = zeros(&[heads, key, value], device)?;
                let need = config.linear_conv_kernel_dim - 1;
                let conv = Window::new(need, rollback, conv_channels(config), device)?;
                let mut layer = Self::Delta { conv, recurrent, ring: None };
                layer.add_ring(rollback)?;
                Ok(layer)
            }
            LayerType::IndexedAttention => {
                let width = config.num_key_value_heads * config.head_dim;
                let paged = |width| PagedTensor::new(width, PAGE_ROWS, device);
                let need = config.indexer_compress_ratio - 1;
                Ok(Self::Attention {
                    keys: paged(width),
                    values: paged(width),
                    blocks: paged(config.indexer_head_dim),
                    raw: Window::new(need, rollback, config.indexer_head_dim, device)?,
                })
            }
        }
    }

    fn roll_back(&mut self, rows: usize, position: u64, rollback: usize) -> Result<(), Error> {
        match self {
            Self::Delta { conv, recurrent, ring } => {
                if let Some(ring) = ring {
                    let entry = (position % rollback.max(1) as u64) as usize;
                    let kept = ring.get(entry).and_then(|t| t.copy()).within("rollback")?;
                    *recurrent = kept;
                }
                conv.roll_back(rows)
            }
            Self::Attention { keys, values, blocks, raw } => {
                let tokens = position as usize;
                // Whole blocks only: the ratio is what the windows' need says, plus one.
                let ratio = raw.need() + 1;
                keys.truncate(tokens)?;
                values.truncate(tokens)?;
                blocks.truncate(tokens / ratio)?;
                raw.roll_back(rows)
            }
        }
    }

    /// A ring of `rollback` entries, where there is none.
    fn add_ring(&mut self, rollback: usize) -> Result<(), Error> {
        if let Self::Delta { recurrent, ring: ring @ None, .. } = self
            && rollback > 0
        {
            let shape = [&[rollback][..], recurrent.dims()].concat();
            *ring = Some(zeros(&shape, recurrent.device())?);
        }
        Ok(())
    }

    fn copy(&self, with_ring: bool) -> Result<Self, Error> {
        Ok(match self {
            Self::Delta { conv, recurrent, ring } => Self::Delta {
                conv: conv.snapshot()?,
                recurrent: recurrent.copy().within("snapshot")?,
                ring: (ring.as_ref().filter(|_| with_ring))
                    .map(|t| t.copy().within("snapshot"))
                    .transpose()?,
            },
            Self::Attention { keys, values, blocks, raw } => Self::Attention {
                keys: keys.snapshot()?,
                values: values.snapshot()?,
                blocks: blocks.snapshot()?,
                raw: raw.snapshot()?,
            },
        })
    }
}
