//! The contract between a graph and whatever brings its experts.

use std::fmt;

use candle_core::Tensor;
use slotstream_core::{Probe, ProbeResults, Routing, Step, Tap};

use crate::Error;

/// Brings the routed experts of a graph. It owns the forecaster: the graph asks it for probes
/// and hands it their results and the routing.
///
/// # Order of calls
/// [`begin_pass`](Self::begin_pass), then per layer: [`probes`](Self::probes) for each tap before
/// the layer is encoded; after the readback [`demand`](Self::demand) once, then
/// [`predict`](Self::predict) for each tap (on the host a tap before the layer is answered at
/// once, before the demand); then, when the graph has done what it can without
/// the experts (the shared expert), [`compute`](Self::compute). At last
/// [`end_pass`](Self::end_pass), also after an error or a cancellation.
pub trait ExpertProvider: Send + fmt::Debug {
    /// A pass begins.
    ///
    /// # Errors
    /// [`Error::Provider`].
    fn begin_pass(&mut self, step: &Step<'_>) -> Result<(), Error>;

    /// Adds to `want` what the forecaster asks for at this tap.
    fn probes(&mut self, at: Tap, want: &mut Vec<Probe>);

    /// The router decided: pins what is resident, claims slots for the rest and queues their
    /// reads. Does not wait.
    ///
    /// # Errors
    /// [`Error::Provider`].
    fn demand(&mut self, routing: &Routing<'_>) -> Result<(), Error>;

    /// The results of the probes of this tap.
    fn predict(&mut self, at: Tap, results: &ProbeResults<'_>);

    /// The weighted sum over ranks of the demanded experts on `x[m, hidden]`: `[m, hidden]`.
    /// `weights` is `[m, top_k]`. Waits for the reads of the demand. The arguments are lent for the
    /// call, and the result is the graph's alone: their memory is used again
    /// ([`Ops::recycle`](crate::Ops::recycle)).
    ///
    /// # Errors
    /// [`Error::Provider`] when a record could not be read; the provider is then ready for the
    /// next pass.
    fn compute(&mut self, x: &Tensor, weights: &Tensor) -> Result<Tensor, Error>;

    /// The pass is over, whether it succeeded or not.
    fn end_pass(&mut self);
}
