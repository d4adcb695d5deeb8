//! The tensors of a vision tower, which a text loader must recognise and leave alone.

use serde_json::Value;

/// Names and shapes of the tower that a config's `vision_config` describes: nine tensors around
/// twelve a block. Empty when a number is missing.
pub(crate) fn tensors(config: &Value) -> Vec<(String, Vec<u64>)> {
    tower(&config["vision_config"]).unwrap_or_default()
}

fn tower(config: &Value) -> Option<Vec<(String, Vec<u64>)>> {
    let number = |name: &str| config[name].as_u64();
    let (hidden, wide) = (number("hidden_size")?, number("intermediate_size")?);
    let merge = number("spatial_merge_size")?;
    let merged = hidden * merge * merge;
    let patch = number("patch_size")?;
    let mut list = Vec::new();
    let mut push = |name: String, shape: &[u64]| {
        list.push((format!("vision_tower.{name}"), shape.to_vec()));
    };
    let patches = [hidden, number("temporal_patch_size")?, patch, patch, number("in_channels")?];
    push("patch_embed.proj.weight".to_owned(), &patches);
    push("patch_embed.proj.bias".to_owned(), &[hidden]);
    push("pos_embed.weight".to_owned(), &[number("num_position_embeddings")?, hidden]);
    for block in 0..number("depth")? {
        for norm in ["norm1", "norm2"] {
            push(format!("blocks.{block}.{norm}.weight"), &[hidden]);
            push(format!("blocks.{block}.{norm}.bias"), &[hidden]);
        }
        for (layer, rows, cols) in [
            ("attn.qkv", 3 * hidden, hidden),
            ("attn.proj", hidden, hidden),
            ("mlp.linear_fc1", wide, hidden),
            ("mlp.linear_fc2", hidden, wide),
        ] {
            push(format!("blocks.{block}.{layer}.weight"), &[rows, cols]);
            push(format!("blocks.{block}.{layer}.bias"), &[rows]);
        }
    }
    push("merger.norm.weight".to_owned(), &[hidden]);
    push("merger.norm.bias".to_owned(), &[hidden]);
    for (layer, rows) in [("linear_fc1", merged), ("linear_fc2", number("out_hidden_size")?)] {
        push(format!("merger.{layer}.weight"), &[rows, merged]);
        push(format!("merger.{layer}.bias"), &[rows]);
    }
    Some(list)
}
