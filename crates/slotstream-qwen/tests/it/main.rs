//! The graph against goldens computed by transformers 5.24.0 in f32.

mod agreement;
mod ahead;
mod goldens;
mod invariance;
mod overlap;
mod probes;
mod rig;
mod shapes;
mod state;
mod tiny;
mod traces;
