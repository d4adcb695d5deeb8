//! Damage that headers do not show.

use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use serde_json::json;
use slotstream_checkpoint::{CheckpointError as E, Header};
use slotstream_core::ErrorKind::Corrupt;

use super::{Broken, Row, file_of, io, text};
use crate::checkpoint::WriteError;

/// bf16 of a number that is none.
const NAN: u16 = 0x7FC0;
/// bf16 of infinity.
const INFINITY: u16 = 0x7F80;
/// bf16 of one.
const ONE: u16 = 0x3F80;

/// Overwrites values of a BF16 tensor.
fn poke(folder: &Path, tensor: &str, values: std::ops::Range<u64>, bits: u16) -> Broken {
    let path = file_of(folder, tensor)?;
    let header = Header::read(&path).map_err(|e| WriteError::source_of(&path, e))?;
    let found = header.tensors.iter().find(|t| t.name == tensor && 2 * values.end <= t.end);
    let Some(found) = found else { return Err(WriteError::nothing(&path, tensor)) };
    let start = header.data_start + found.begin + 2 * values.start;
    let bytes: Vec<u8> = values.flat_map(|_| bits.to_le_bytes()).collect();
    let write = || {
        let mut file = OpenOptions::new().write(true).open(&path)?;
        file.seek(SeekFrom::Start(start))?;
        file.write_all(&bytes)
    };
    io(&path, "overwrite", write())
}

const HC_NORM: &str = "language_model.model.layers.2.mlp_hyper_connection.hc_norm.weight";
const UP_SCALES: &str = "language_model.model.layers.3.mlp.switch_mlp.up_proj.scales";
const ROW_BIASES: &str =
    "language_model.model.layers.1.ple.ple_embedding.ngram_embedding.shard_3.biases";
const HEAD_SCALES: &str = "language_model.lm_head.scales";
const CONV: &str = "language_model.model.layers.1.linear_attn.conv1d.weight";

pub(super) const PAYLOAD: &[Row] = &[
    (
        "another seed of the n-gram hash",
        Corrupt,
        |f| text(f, "seed", json!(7)),
        |e| matches!(e, E::NgramConstant { index: 0, .. }),
        &[".safetensors", "layer_multipliers", "the config's `seed`"],
    ),
    (
        "a norm weight that is not a number",
        Corrupt,
        |f| poke(f, HC_NORM, 3..4, NAN),
        |e| matches!(e, E::NormNotFinite { .. }),
        &["model.layers.2.mlp_hyper_connection.hc_norm.weight", "not finite"],
    ),
    (
        "norms of two forms",
        Corrupt,
        |f| poke(f, HC_NORM, 0..512, ONE),
        |e| matches!(e, E::MixedNorms { .. }),
        &["two forms", "model.layers.2.mlp_hyper_connection", "convert the checkpoint again"],
    ),
];

pub(super) const VALUES: &[Row] = &[
    (
        "a scale of an expert that is not a number",
        Corrupt,
        |f| poke(f, UP_SCALES, 77..78, NAN),
        |e| matches!(e, E::NotFinite { index: 77, .. }),
        &[".safetensors", UP_SCALES, "NaN", "value 77", "download"],
    ),
    (
        "an infinite bias of an n-gram row",
        Corrupt,
        |f| poke(f, ROW_BIASES, 0..1, INFINITY),
        |e| matches!(e, E::NotFinite { index: 0, .. }),
        &[".safetensors", ROW_BIASES, "inf", "value 0"],
    ),
    (
        "a scale of the output head that is not a number",
        Corrupt,
        |f| poke(f, HEAD_SCALES, 255..256, NAN),
        |e| matches!(e, E::NotFinite { index: 255, .. }),
        &[".safetensors", HEAD_SCALES, "NaN", "value 255"],
    ),
    (
        "a float tensor with an infinite value",
        Corrupt,
        |f| poke(f, CONV, 9..10, INFINITY | 0x8000),
        |e| matches!(e, E::NotFinite { index: 9, .. }),
        &[".safetensors", CONV, "-inf", "value 9"],
    ),
];
