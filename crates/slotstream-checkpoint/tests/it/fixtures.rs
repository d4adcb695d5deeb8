//! The two small checkpoints.

use slotstream_checkpoint::{Checkpoint, Dtype, Header, NormForm, verify_ngram_constants};
use slotstream_core::RecordReader;

use crate::{Files, random_fixture, tiny_model};

#[test]
fn both_open_and_their_constants_are_those_of_the_config() {
    for folder in [random_fixture(), tiny_model()] {
        let checkpoint = Checkpoint::open(&folder).expect("legal");
        let reader = Files::of(&checkpoint);
        verify_ngram_constants(&checkpoint, &reader).expect("equal");
        assert_eq!(
            NormForm::detect(&checkpoint, &reader, None).expect("one form"),
            NormForm::Folded
        );
        let sum: u64 = checkpoint.tensors().iter().map(|tensor| tensor.extent.len()).sum();
        assert_eq!(checkpoint.ledger().total_bytes, sum);
        assert!(checkpoint.ignored_files().is_empty());
        for (file, size) in checkpoint.files().iter().zip(checkpoint.file_sizes()) {
            assert_eq!(file.metadata().expect("there").len(), *size);
        }
    }
}

#[test]
fn generation_configs() {
    let tiny = Checkpoint::open(&tiny_model()).expect("legal");
    let generation = tiny.generation();
    assert_eq!(generation.eos_token_ids, [4065, 4063]);
    assert_eq!((generation.temperature, generation.top_k), (Some(0.8), Some(40)));
    assert_eq!((generation.top_p, generation.do_sample), (Some(0.95), true));
    assert_eq!(tiny.config().reset_token(), Some(4063));
}

#[test]
fn a_module_may_span_files_and_data_may_start_at_odd_offsets() {
    let checkpoint = Checkpoint::open(&random_fixture()).expect("legal");
    let value = checkpoint.affine("model.layers.1.ple.value_proj").expect("there");
    assert_ne!(value.weight.file(), value.biases.file());
    assert_eq!((value.rows, value.cols), (128, 2560));
    let odd = checkpoint.files().iter().filter(|path| {
        let header = Header::read(path).expect("legal");
        header.data_start % 2 == 1
    });
    assert_eq!(odd.count(), 2);
    // The bytes behind an extent in an odd file are those that a plain parse of it finds.
    let norm = checkpoint
        .tensors()
        .iter()
        .find(|t| t.dtype == Dtype::BF16 && t.extent.offset() % 2 == 1)
        .expect("one at an odd offset");
    let mut bytes = vec![0; norm.extent.len() as usize];
    Files::of(&checkpoint).read_exact_at(&norm.extent, &mut bytes).expect("read");
    let file = std::fs::read(&checkpoint.files()[norm.extent.file().index()]).expect("read");
    let length = u64::from_le_bytes(file[..8].try_into().expect("eight")) as usize;
    let header: serde_json::Value = serde_json::from_slice(&file[8..8 + length]).expect("JSON");
    let range = header[&norm.name]["data_offsets"].as_array().expect("a list").clone();
    let [begin, end] = [0, 1].map(|i| 8 + length + range[i].as_u64().expect("a number") as usize);
    assert_eq!(bytes, file[begin..end]);
}

#[test]
fn every_byte_of_every_tensor_is_found_again() {
    for folder in [random_fixture(), tiny_model()] {
        let checkpoint = Checkpoint::open(&folder).expect("legal");
        for tensor in checkpoint.tensors() {
            let extent = tensor.extent;
            for offset in [extent.offset(), extent.offset() + extent.len() / 2, extent.end() - 1] {
                let found = checkpoint.locate(extent.file(), offset).expect("a tensor");
                assert_eq!((found.tensor, found.offset), (tensor, offset - extent.offset()));
            }
            assert_eq!(checkpoint.tensor(&tensor.name), Some(tensor));
        }
        let geometry = checkpoint.geometry();
        for key in (0..geometry.records()).filter_map(|i| geometry.key(i)) {
            let pieces = checkpoint.expert_pieces(key).expect("in range");
            for (piece, planned) in pieces.iter().zip(checkpoint.record_layout().pieces()) {
                assert_eq!(piece.len(), planned.len as u64);
                for offset in [piece.offset(), piece.end() - 1] {
                    let found = checkpoint.locate(piece.file(), offset).expect("a tensor");
                    assert_eq!(found.expert, Some(key));
                }
            }
        }
    }
}

#[test]
fn rows_of_the_table_are_found_again() {
    let checkpoint = Checkpoint::open(&tiny_model()).expect("legal");
    let plan = checkpoint.ngram().expect("there");
    let rows: u64 = plan.head_sizes.iter().map(|n| *n as u64).sum();
    assert!(rows <= plan.rows_per_shard * plan.shards.len() as u64);
    for row in [0, 1, 2519, 2520, rows - 1] {
        let shard = plan.shards[(row / plan.rows_per_shard) as usize];
        let within = row % plan.rows_per_shard;
        let row_bytes = shard.weight.len() / plan.rows_per_shard;
        let extent = shard.weight.slice(within * row_bytes, row_bytes).expect("inside");
        let found = checkpoint.locate(extent.file(), extent.end() - 1).expect("a tensor");
        assert_eq!(found.ngram_row, Some(row));
        assert!(found.to_string().contains(&format!("n-gram row {row}")));
    }
}
