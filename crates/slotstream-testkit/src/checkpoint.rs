//! Writes checkpoints of any shape.
