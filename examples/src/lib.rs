//! What the examples share, and the examples themselves as functions.
//!
//! Each example is a function `run(arguments, console)` of this crate, so that tests call it in
//! their own process; the files in `examples/` are their `main`s. Nothing here is meant to be
//! depended on by other programs: copy what you like.
#![forbid(unsafe_code)]

mod arguments;
mod console;
#[cfg(doctest)]
mod documents;
mod failure;
mod figures;
pub mod generate;
pub mod inspect;
mod model;
pub mod perplexity;
mod prompt;
mod recording;
mod size;
mod token_file;

pub use arguments::{DEFAULT_SHARE, Device, EngineArguments};
pub use console::{Console, Ended, main};
pub use failure::{Failure, describe};
pub use model::{MODEL_VARIABLE, ModelFolder, Place, find_model};
pub use prompt::{PromptArguments, PromptIds, PromptIdsError};
pub use recording::TraceArguments;
pub use size::{SizeError, parse_size, show_size};
pub use token_file::{TokenFileError, TokenWindows, read_windows};
