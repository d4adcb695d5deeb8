//! The slot pool as a plain state machine, and the built-in eviction policies
