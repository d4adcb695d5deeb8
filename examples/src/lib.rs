//! What the examples share, and the examples themselves as functions.
//!
//! Each example is a function `run(arguments, console)` of this crate, so that tests call it in
//! their own process; the files in `examples/` are their `main`s. Nothing here is meant to be
//! depended on by other programs: copy what you like. Without the feature `engine` only the
//! cache laboratory is left, which needs no candle.
#![deny(unsafe_code)]

#[cfg(feature = "engine")]
mod arguments;
pub mod article;
#[cfg(feature = "engine")]
pub mod chat;
mod console;
#[cfg(feature = "engine")]
pub mod doctor;
#[cfg(all(doctest, feature = "engine"))]
mod documents;
mod failure;
#[cfg(feature = "engine")]
mod figures;
#[cfg(feature = "engine")]
mod forecasts;
#[cfg(feature = "engine")]
pub mod generate;
mod heap;
#[cfg(feature = "engine")]
pub mod inspect;
#[cfg(feature = "engine")]
mod late_file;
mod leftover;
#[cfg(feature = "engine")]
mod mapped;
#[cfg(feature = "engine")]
pub mod metal_selfcheck;
mod model;
mod outputs;
#[cfg(feature = "engine")]
pub mod perplexity;
mod policies;
pub mod pool_view;
pub mod probe_ssd;
#[cfg(feature = "engine")]
mod prompt;
#[cfg(feature = "engine")]
mod recording;
pub mod repack;
pub mod replay;
#[cfg(feature = "engine")]
mod shadows;
mod size;
mod space;
pub mod synthesize;
mod text_file;
mod throttle;
mod token_file;
#[cfg(feature = "engine")]
pub mod train_lookahead;
#[cfg(feature = "engine")]
mod warm;
mod whole_file;

#[cfg(feature = "engine")]
pub use arguments::{ArithmeticName, DEFAULT_SHARE, Device, EngineArguments, LockName};
pub use console::{Console, Ended, main};
pub use failure::{Failure, describe};
#[cfg(feature = "engine")]
pub use forecasts::Traces;
#[cfg(feature = "engine")]
pub use mapped::{ReaderArgument, UnknownReader};
pub use model::{MODEL_VARIABLE, ModelFolder, Place, find_model};
#[cfg(feature = "engine")]
pub use prompt::{PromptArguments, PromptIds, PromptIdsError};
#[cfg(feature = "engine")]
pub use recording::TraceArguments;
#[cfg(feature = "engine")]
pub use shadows::ShadowArguments;
pub(crate) use size::show_throughput;
pub use size::{SizeError, parse_size, show_size};
pub use token_file::{TokenFileError, TokenWindows, read_windows};
#[cfg(feature = "engine")]
pub use warm::WarmArguments;
