//! The model: weights of all layers.

use std::sync::Arc;

use candle_core::Device;
use slotstream_candle::{AffineWeight, Bf16Weight, HcWeight, MlpWeight, Ops};
use slotstream_checkpoint::{Checkpoint, LayerType, NormForm, TextConfig, verify_ngram_constants};
use slotstream_core::{CancelToken, RecordReader};

use crate::attention::IndexedAttention;
use crate::delta::DeltaNet;
use crate::load::{LoadProgress, Loader};
use crate::ple::Ple;
use crate::{QwenError, State};

/// The dense weights of a checkpoint, ready to run. Shared by any number of states.
#[derive(Debug)]
pub struct QwenModel {
    pub(crate) config: TextConfig,
    pub(crate) ops: Arc<dyn Ops>,
    pub(crate) device: Device,
    pub(crate) embed: AffineWeight,
    pub(crate) layers: Vec<Layer>,
    pub(crate) ple: Option<(usize, Ple)>,
    pub(crate) mixer: HcWeight,
    pub(crate) head: AffineWeight,
    norms: NormForm,
}

/// One layer without its routed experts.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) attn_mixer: HcWeight,
    pub(crate) block: Block,
    pub(crate) mlp_mixer: HcWeight,
    /// `mlp.gate`, `[experts, hidden]`.
    pub(crate) router: Bf16Weight,
    pub(crate) shared: MlpWeight,
    /// `mlp.shared_expert_gate`, `[1, hidden]`.
    pub(crate) shared_gate: Bf16Weight,
}

#[derive(Debug)]
pub(crate) enum Block {
    Delta(DeltaNet),
    Attention(IndexedAttention),
}

/// Loads a [`QwenModel`].
pub struct ModelBuilder<'a> {
    checkpoint: &'a Checkpoint,
    reader: &'a dyn RecordReader,
    norms: Option<NormForm>,
    cancel: CancelToken,
    progress: Box<dyn FnMut(LoadProgress) + 'a>,
}

impl std::fmt::Debug for ModelBuilder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelBuilder").field("norms", &self.norms).finish_non_exhaustive()
    }
}

impl<'a> ModelBuilder<'a> {
    /// Overrides the norm form that is otherwise decided from the weights.
    #[must_use]
    pub const fn with_norms(mut self, norms: NormForm) -> Self {
        self.norms = Some(norms);
        self
    }

    /// Lets loading end with [`QwenError::Cancelled`] when `token` is set.
    #[must_use]
    pub fn with_cancel(mut self, token: CancelToken) -> Self {
        self.cancel = token;
        self
    }

    /// Is told how far loading has come, at least once for every 16 MiB.
    #[must_use]
    pub fn with_progress(mut self, progress: impl FnMut(LoadProgress) + 'a) -> Self {
        self.progress = Box::new(progress);
        self
    }

    /// Reads the dense weights: everything but routed experts, n-gram table and optional parts.
    ///
    /// # Errors
    /// [`QwenError::Checkpoint`] when norms are mixed or the n-gram constants differ,
    /// [`QwenError::Load`], [`QwenError::Place`], [`QwenError::Cancelled`].
    pub fn load(mut self, ops: Arc<dyn Ops>) -> Result<QwenModel, QwenError> {
        let (checkpoint, device) = (self.checkpoint, ops.device());
        let wrong = |e| QwenError::Checkpoint { source: Box::new(e) };
        let norms = NormForm::detect(checkpoint, self.reader, self.norms).map_err(wrong)?;
        if let Some(forced) = self.norms
            && let Ok(measured) = NormForm::detect(checkpoint, self.reader, None)
            && measured != forced
        {
            tracing::warn!(%forced, %measured, "the norm form given is not what the weights show");
        }
        verify_ngram_constants(checkpoint, self.reader).map_err(wrong)?;
        let mut loader = Loader {
            checkpoint,
            reader: self.reader,
            device: &device,
            norms,
            cancel: &self.cancel,
            progress: &mut *self.progress,
            done: 0,
            total: checkpoint.ledger().resident_bytes,
        };
        let config = checkpoint.config().clone();
        let embed = loader.affine("model.embed_tokens")?;
        let mut ple = None;
        let mut layers = Vec::new();
        for (index, kind) in config.layer_types.iter().enumerate() {
            let prefix = format!("model.layers.{index}");
            if config.ple.as_ref().is_some_and(|p| p.layer.index() == index) {
                ple = Ple::load(&mut loader, &prefix)?.map(|p| (index, p));
            }
            layers.push(Layer::load(&mut loader, &prefix, *kind)?);
        }
        let mixer = loader.mixer("model.hyper_connection_mixer", false)?;
        let head = loader.affine("lm_head")?;
        Ok(QwenModel { config, ops, device, embed, layers, ple, mixer, head, norms })
    }
}

impl Layer {
    fn load(loader: &mut Loader<'_>, prefix: &str, kind: LayerType) -> Result<Self, QwenError> {
        let name = |part: &str| format!("{prefix}.{part}");
        Ok(Self {
            attn_mixer: loader.mixer(&name("attn_hyper_connection"), true)?,
            block: match kind {
                LayerType::LinearAttention => Block::Delta(DeltaNet::load(loader, prefix)?),
                LayerType::IndexedAttention => {
                    Block::Attention(IndexedAttention::load(loader, prefix)?)
                }
            },
            mlp_mixer: loader.mixer(&name("mlp_hyper_connection"), true)?,
            router: loader.bf16(&name("mlp.gate.weight"))?,
            shared: loader.mlp(&name("mlp.shared_expert"))?,
            shared_gate: loader.bf16(&name("mlp.shared_expert_gate.weight"))?,
        })
    }
}

impl QwenModel {
    /// Starts loading the dense weights of `checkpoint` through `reader`.
    pub fn builder<'a>(
        checkpoint: &'a Checkpoint,
        reader: &'a dyn RecordReader,
    ) -> ModelBuilder<'a> {
        let progress = Box::new(|_| {});
        ModelBuilder { checkpoint, reader, norms: None, cancel: CancelToken::new(), progress }
    }

    /// The config.
    #[must_use]
    pub const fn config(&self) -> &TextConfig {
        &self.config
    }

    /// How the checkpoint stores its norms.
    #[must_use]
    pub const fn norms(&self) -> NormForm {
        self.norms
    }

    /// The op set.
    #[must_use]
    pub fn ops(&self) -> &Arc<dyn Ops> {
        &self.ops
    }

    /// An empty sequence of at most `context` tokens whose last `rollback` rows (at most
    /// [`MAX_ROLLBACK`](crate::MAX_ROLLBACK)) can be undone.
    ///
    /// # Errors
    /// [`QwenError::Layer`] when the device refuses memory.
    pub fn new_state(&self, context: usize, rollback: usize) -> Result<State, QwenError> {
        State::new(&self.config, context, rollback, &self.device)
    }
}
