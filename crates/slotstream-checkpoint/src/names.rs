//! Names of modules and tensors.

use slotstream_core::{LayerIdx, Matrix};

/// The prefix that text tensors may carry.
const TEXT_PREFIX: &str = "language_model.";

/// The name without `language_model.`.
pub(crate) fn canonical(name: &str) -> &str {
    name.strip_prefix(TEXT_PREFIX).unwrap_or(name)
}

/// Whether a canonical name belongs to the optional vision tower.
pub(crate) fn is_vision(name: &str) -> bool {
    name.starts_with("vision_tower.")
}

/// Whether a canonical name belongs to the optional draft head.
pub(crate) fn is_draft(name: &str) -> bool {
    name.starts_with("mtp.")
}

/// The layer in a canonical name `model.layers.L.…`.
pub(crate) fn layer_of(name: &str) -> Option<usize> {
    name.strip_prefix("model.layers.")?.split('.').next()?.parse().ok()
}

/// Last part of a matrix's name.
pub(crate) const fn matrix_name(matrix: Matrix) -> &'static str {
    match matrix {
        Matrix::Gate => "gate_proj",
        Matrix::Up => "up_proj",
        Matrix::Down => "down_proj",
    }
}

/// The stacked module of all experts of a layer.
pub(crate) fn expert_module(layer: LayerIdx, matrix: Matrix) -> String {
    format!("model.layers.{}.mlp.switch_mlp.{}", layer.get(), matrix_name(matrix))
}
