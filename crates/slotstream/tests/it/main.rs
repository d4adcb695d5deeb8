//! The engine on the bundled trained model.

mod faults;
mod law1;
mod plan;
mod refusals;
mod rig;
mod sessions;
#[cfg(feature = "text")]
mod text;
mod waiting;
