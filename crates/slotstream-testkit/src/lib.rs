//! What an outside author runs to prove a policy, reader or forecaster lawful.

pub mod checkpoint;
pub mod policy;
pub mod reader;
