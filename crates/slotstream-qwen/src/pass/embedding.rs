//! The n-gram rows of a pass: they come while layers before them run.

use candle_core::Tensor;
use slotstream_candle::CandleContext;
use slotstream_core::CancelToken;
use slotstream_ngram::{NgramStore, NgramTicket};

use super::Pass;
use crate::QwenError;
use crate::model::QwenModel;
use crate::state::State;

/// The n-gram rows of a pass: requested when it begins, joined where they are first needed.
pub(super) enum Embedding<'n> {
    Absent,
    Requested(&'n mut NgramStore, Option<NgramTicket>),
    Joined(Tensor),
}

impl<'n> Embedding<'n> {
    pub(super) fn request(
        state: &State,
        pass: &Pass<'_>,
        store: Option<&'n mut NgramStore>,
    ) -> Result<Self, QwenError> {
        let Some(store) = store else { return Ok(Self::Absent) };
        let ticket = store
            .request(state.token_window(), pass.step.tokens)
            .map_err(|e| QwenError::Ngram { source: Box::new(e) })?;
        Ok(Self::Requested(store, Some(ticket)))
    }

    /// `[m, ple_embed_dim]`.
    pub(super) fn join(
        &mut self,
        model: &QwenModel,
        rows: usize,
        cancel: Option<&CancelToken>,
    ) -> Result<&Tensor, QwenError> {
        if let Self::Requested(store, ticket) = self
            && let Some(ticket) = ticket.take()
        {
            let width = ticket.values() / rows.max(1);
            let mut values = vec![0.0; ticket.values()];
            let joined = match cancel {
                Some(cancel) => store.join_unless(cancel, ticket, &mut values),
                None => store.join(ticket, &mut values),
            };
            joined.map_err(|e| QwenError::Ngram { source: Box::new(e) })?;
            let joined = Tensor::from_vec(values, (rows, width), &model.device).within("ngram");
            *self = Self::Joined(joined.map_err(QwenError::layer(0))?);
        }
        match self {
            Self::Joined(tensor) => Ok(tensor),
            _ => Err(QwenError::NgramStore { model: model.ple.is_some() }),
        }
    }
}
