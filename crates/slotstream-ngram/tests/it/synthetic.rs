//! Small tables of any shape, made up.

use std::path::PathBuf;
use std::sync::Arc;

use slotstream_checkpoint::NgramShard;
use slotstream_core::{AffineFormat, Extent, FileId, ReadQueue, bf16_at, f32_to_bf16, quant_at};
use slotstream_ngram::{NgramHasher, NgramStore, NgramTable};

use crate::queues::Memory;

/// A table of `shards` shards with three heads of five rows each order; one file a shard.
pub(crate) struct Synthetic {
    pub(crate) reader: Arc<Memory>,
    pub(crate) table: NgramTable,
    pub(crate) hasher: NgramHasher,
}

impl Synthetic {
    pub(crate) fn new(format: AffineFormat, row_width: usize, ngram_size: usize) -> Self {
        let heads = 3 * (ngram_size - 1);
        let (rows_per_shard, shards) = (7, (heads * 5).div_ceil(7));
        let (words, groups) = (format.row_bytes(row_width), format.row_groups(row_width));
        let (mut files, mut extents) = (Vec::new(), Vec::new());
        for shard in 0..shards {
            // Odd offsets, as real files have them; biases first, as no order is promised.
            let mut bytes = vec![0xff; 2 * shard + 1];
            let mut put = |data: Vec<u8>| {
                let start = bytes.len() as u64;
                bytes.extend(&data);
                Extent::new(FileId::new(shard as u16), start, data.len() as u64).unwrap()
            };
            let small = |i: usize| f32_to_bf16((i % 61) as f32 / 16.0 - 1.5).to_le_bytes();
            let seed = 1000 * shard;
            let biases = put((0..groups * 7).flat_map(|i| small(seed + 7 * i)).collect());
            let weight = put((0..words * 7).map(|i| ((seed + i) * 37 % 251) as u8).collect());
            let scales = put((0..groups * 7).flat_map(|i| small(seed + 3 * i + 1)).collect());
            extents.push(NgramShard { weight, scales, biases });
            files.push((PathBuf::from(format!("shard-{shard}")), bytes));
        }
        let multipliers: Vec<i64> = (0..ngram_size as i64).map(|i| 2 * i + 7).collect();
        let offsets: Vec<i64> = (0..heads as i64).map(|i| 5 * i).collect();
        let hasher =
            NgramHasher::from_constants(0, &multipliers, &vec![5; heads], &offsets).unwrap();
        let table = NgramTable::from_shards(format, row_width, rows_per_shard, &extents).unwrap();
        Self { reader: Arc::new(Memory::new(files)), table, hasher }
    }

    pub(crate) fn store(&self, cache_rows: usize, queue: Arc<dyn ReadQueue>) -> NgramStore {
        NgramStore::from_parts(self.hasher.clone(), self.table.clone(), cache_rows, queue).unwrap()
    }

    /// What a join of `tokens` after `context` must write.
    pub(crate) fn want(&self, context: &[u32], tokens: &[u32]) -> Vec<f32> {
        let mut rows = Vec::new();
        self.hasher.rows_for(context, tokens, &mut rows);
        rows.iter().flat_map(|&row| self.row(row)).collect()
    }

    fn row(&self, row: u64) -> Vec<f32> {
        let pieces = self.table.pieces(row).unwrap();
        let [words, scales, biases] = pieces.map(|piece| self.reader.bytes(&piece));
        let format = self.table.format();
        (0..self.table.row_width())
            .map(|i| {
                let group = i / format.group_size();
                bf16_at(scales, group) * f32::from(quant_at(format, words, i))
                    + bf16_at(biases, group)
            })
            .collect()
    }
}
