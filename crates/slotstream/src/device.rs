//! Where the arithmetic runs.

use std::sync::Arc;

use slotstream_candle::PlanEncoder;

use crate::Error;

/// Where the arithmetic runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceKind {
    /// The CPU.
    #[default]
    Cpu,
    /// Apple's Metal, on macOS 15 or later; elsewhere asking for it is an error. Not yet run on
    /// Apple hardware: see `docs/metal.md`.
    Metal,
}

/// Opens the default GPU of this Mac. An engine does it by itself; this is for who wants to launch
/// kernels without one.
///
/// # Errors
/// [`Error::Device`] elsewhere than on a Mac, before macOS 15, and where there is no GPU, as in some
/// virtual machines.
pub fn open_metal() -> Result<Arc<dyn PlanEncoder>, Error> {
    #[cfg(target_os = "macos")]
    {
        use slotstream_candle::{Error as OpsError, MetalEncoder};

        match MetalEncoder::new() {
            Ok(encoder) => Ok(Arc::new(encoder)),
            Err(OpsError::NoMetal { why, .. }) => Err(Error::Device { device: "metal", why }),
            Err(other) => Err(slotstream_experts::ExpertsError::from(other).into()),
        }
    }
    #[cfg(not(target_os = "macos"))]
    {
        let why = "Metal is there on Macs only; ask for `cpu`";
        Err(Error::Device { device: "metal", why })
    }
}
