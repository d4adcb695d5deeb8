//! The fixture checkpoint and its goldens, read with the safetensors crate.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use safetensors::SafeTensors;
use slotstream_checkpoint::NgramShard;
use slotstream_core::{AffineFormat, Extent, FileId, ReadQueue};
use slotstream_ngram::{NgramHasher, NgramStore, NgramTable};

use crate::queues::Memory;

const EMBEDDING: &str = "language_model.model.layers.1.ple.ple_embedding";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../slotstream-qwen/tests/fixtures/random")
}

/// A tensor's bytes and where they lie.
struct Tensor {
    extent: Extent,
    shape: Vec<usize>,
}

pub(crate) struct Fixture {
    pub(crate) reader: Arc<Memory>,
    pub(crate) hasher: NgramHasher,
    pub(crate) table: NgramTable,
    pub(crate) shards: Vec<NgramShard>,
    pub(crate) rows_per_shard: u64,
    pub(crate) row_width: usize,
    golden: Vec<u8>,
}

impl Fixture {
    pub(crate) fn open() -> Self {
        let config = fs::read(root().join("checkpoint/config.json")).unwrap();
        let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
        let number = |field: &str| config["text_config"][field].as_u64().unwrap() as usize;

        let (reader, tensors) = files();
        let ints =
            |name: &str| int64(reader.bytes(&tensors[&format!("{EMBEDDING}.{name}")].extent));
        let multipliers = ints("layer_multipliers");
        let (sizes, offsets) = (ints("ngram_heads_vocab_sizes"), ints("ngram_heads_offsets"));
        assert_eq!(multipliers.len(), number("ngram_size"));
        let reset = number("eos_token_id") as u32;
        let hasher = NgramHasher::from_constants(reset, &multipliers, &sizes, &offsets).unwrap();
        assert_eq!(hasher.heads_per_ngram(), number("heads_per_ngram"));

        let part = |i: usize, part: &str| &tensors[&shard(i, part)];
        let shards: Vec<_> = (0..number("split_ngram_parts"))
            .map(|i| NgramShard {
                weight: part(i, "weight").extent,
                scales: part(i, "scales").extent,
                biases: part(i, "biases").extent,
            })
            .collect();
        let shape = &part(0, "weight").shape;
        let (rows_per_shard, row_width) = (shape[0] as u64, shape[1] * 8);
        assert_eq!(row_width * hasher.heads(), number("ple_embed_dim"));
        let table =
            NgramTable::from_shards(AffineFormat::Q4_G32, row_width, rows_per_shard, &shards)
                .unwrap();
        let golden = fs::read(root().join("golden.safetensors")).unwrap();
        Self { reader, hasher, table, shards, rows_per_shard, row_width, golden }
    }

    pub(crate) fn store(&self, cache_rows: usize, queue: Arc<dyn ReadQueue>) -> NgramStore {
        NgramStore::from_parts(self.hasher.clone(), self.table.clone(), cache_rows, queue).unwrap()
    }

    /// The token ids and the row ids, `[tokens, heads]`, of a golden prompt.
    pub(crate) fn prompt(&self, name: &str) -> (Vec<u32>, Vec<u64>) {
        let golden = SafeTensors::deserialize(&self.golden).unwrap();
        let ids = golden.tensor(&format!("{name}.input_ids")).unwrap();
        let ids = ids.data().chunks_exact(4);
        let ids = ids.map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect::<Vec<_>>();
        let rows = golden.tensor(&format!("{name}.ngram.rows")).unwrap();
        assert_eq!(rows.shape(), [ids.len(), self.hasher.heads()]);
        (ids, int64(rows.data()).into_iter().map(|row| row as u64).collect())
    }

    /// A row from the raw bytes of the shards, by words and without this workspace's arithmetic.
    pub(crate) fn row(&self, row: u64) -> Vec<f32> {
        let shard = &self.shards[(row / self.rows_per_shard) as usize];
        let local = (row % self.rows_per_shard) as usize;
        let (words, groups) = (self.row_width / 8, self.row_width / 32);
        let words: Vec<u32> = self.reader.bytes(&shard.weight)[local * words * 4..][..words * 4]
            .chunks_exact(4)
            .map(|b| u32::from_le_bytes(b.try_into().unwrap()))
            .collect();
        let bf16 = |extent: &Extent| -> Vec<f32> {
            self.reader.bytes(extent)[local * groups * 2..][..groups * 2]
                .chunks_exact(2)
                .map(|b| f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16))
                .collect()
        };
        let (scales, biases) = (bf16(&shard.scales), bf16(&shard.biases));
        (0..self.row_width)
            .map(|i| {
                let q = (words[i / 8] >> (4 * (i % 8))) & 15;
                scales[i / 32] * q as f32 + biases[i / 32]
            })
            .collect()
    }

    /// The rows of a whole prompt, one after the other.
    pub(crate) fn values(&self, rows: &[u64]) -> Vec<f32> {
        rows.iter().flat_map(|&row| self.row(row)).collect()
    }
}

fn shard(i: usize, part: &str) -> String {
    format!("{EMBEDDING}.ngram_embedding.shard_{i}.{part}")
}

fn int64(bytes: &[u8]) -> Vec<i64> {
    bytes.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap())).collect()
}

/// All shards in memory, and every tensor by name.
fn files() -> (Arc<Memory>, HashMap<String, Tensor>) {
    let (mut files, mut tensors) = (Vec::new(), HashMap::new());
    for (i, name) in (1..=4).map(|n| format!("model-0000{n}.safetensors")).enumerate() {
        let path = root().join("checkpoint").join(name);
        let bytes = fs::read(&path).unwrap();
        let (header, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
        for (name, info) in metadata.tensors() {
            let (start, end) = info.data_offsets;
            // Eight bytes of header length, the header, the data.
            let offset = (8 + header + start) as u64;
            let extent = Extent::new(FileId::new(i as u16), offset, (end - start) as u64).unwrap();
            tensors.insert(name, Tensor { extent, shape: info.shape.clone() });
        }
        files.push((path, bytes));
    }
    (Arc::new(Memory::new(files)), tensors)
}
