//! The engine on the bundled trained model.

#[cfg(feature = "text")]
mod chat;
mod container;
mod elastic;
mod faults;
mod law1;
mod lookahead;
mod mirrors;
mod plan;
#[cfg(feature = "text")]
mod real_tokenizer;
mod refusals;
#[cfg(feature = "text")]
mod reuse;
mod rig;
#[cfg(feature = "text")]
mod session_file;
mod sessions;
mod sweep;
#[cfg(feature = "text")]
mod text;
mod traces;
mod waiting;
mod warm;
