//! The published checkpoint's shape, written sparsely.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use slotstream_checkpoint::{
    Checkpoint, LayerType, OutputGate, TensorClass, verify_ngram_constants,
};
use slotstream_core::{AffineFormat, ExpertIdx, ExpertKey, FileId, LayerIdx};
use slotstream_testkit::checkpoint::{CheckpointSpec, published_config};

use crate::Files;

fn open() -> (tempfile::TempDir, Checkpoint) {
    let folder = tempfile::tempdir().expect("a folder");
    CheckpointSpec::new(published_config()).write_sparse(folder.path()).expect("written");
    let start = Instant::now();
    let checkpoint = Checkpoint::open(folder.path()).expect("legal");
    let took = start.elapsed();
    assert!(took < Duration::from_secs(1), "opening took {took:?}");
    (folder, checkpoint)
}

#[test]
fn ledger_of_the_published_checkpoint() {
    let (folder, checkpoint) = open();
    let ledger = checkpoint.ledger();
    assert_eq!(ledger.expert_bytes, 67_947_724_800);
    assert_eq!(ledger.ngram_bytes, 32_000_153_600);
    assert_eq!(ledger.rest_bytes, 3_821_867_512);
    assert_eq!(ledger.total_bytes, 103_769_745_912);
    assert_eq!(ledger.resident_bytes, 3_821_867_512 - 897_862_112);
    assert_eq!(ledger.record_bytes, 2_764_800);
    assert_eq!(checkpoint.tensors().len(), 3_215);
    use TensorClass as C;
    for (class, count, bytes) in [
        (C::RoutedExperts, 48, 67_947_724_800),
        (C::NgramTable, 128, 32_000_153_600),
        (C::Router, 48, 125_829_120),
        (C::SharedExpert, 48, 132_710_400),
        (C::SharedExpertGate, 48, 245_760),
        (C::HyperConnection, 97, 359_567_360),
        (C::BlockInject, 96, 7_864_320),
        (C::LinearQkv, 36, 530_841_600),
        (C::LinearZ, 36, 318_504_960),
        (C::LinearOut, 36, 318_504_960),
        (C::LinearAb, 36, 17_694_720),
        (C::LinearConv, 36, 2_949_120),
        (C::LinearSmall, 36, 16_128),
        (C::AttentionQ, 12, 212_336_640),
        (C::AttentionKv, 12, 17_694_720),
        (C::AttentionOut, 12, 106_168_320),
        (C::Indexer, 12, 39_321_600),
        (C::AttentionNorms, 12, 18_432),
        (C::PleProjections, 1, 18_432_000),
        (C::PleSmall, 1, 143_360),
        (C::NgramConstants, 1, 280),
        (C::Embedding, 1, 357_580_800),
        (C::Head, 1, 357_580_800),
        (C::VisionTower, 333, 897_862_112),
        (C::DraftHead, 0, 0),
    ] {
        let row = ledger.row(class);
        assert_eq!((row.count, row.bytes), (count, bytes), "{class:?}");
    }
    let text = ledger.to_string();
    for number in ["67,947,724,800", "32,000,153,600", "3,821,867,512", "103,769,745,912"] {
        assert!(text.contains(number), "{text}");
    }
    assert!(text.contains("2,764,800"), "{text}");
    let json = serde_json::to_value(ledger).expect("serializable");
    assert_eq!(json["rows"][0]["class"], "routed-experts");
    assert_eq!(json["total_bytes"], 103_769_745_912_u64);
    // The index of the published checkpoint has this size: every name is right to the letter.
    let index = folder.path().join("model.safetensors.index.json");
    assert_eq!(index.metadata().expect("there").len(), 317_973);
    assert_eq!(checkpoint.files().len(), 11);
    let logical: u64 = checkpoint.file_sizes().iter().sum();
    assert!(logical > 103_769_745_912);
    let on_disk: u64 =
        checkpoint.files().iter().map(|f| f.metadata().expect("there").blocks() * 512).sum();
    assert!(on_disk < 2 << 20, "{on_disk} bytes on the disk");
}

#[test]
fn numbers_of_the_published_config() {
    let (_folder, checkpoint) = open();
    let config = checkpoint.config();
    assert_eq!((config.residual_width(), config.linear_channels()), (10_240, 10_240));
    assert_eq!((config.rotary_dims, config.rope_theta), (64, 1e7));
    assert_eq!(config.output_gate, OutputGate::Sigmoid);
    assert!(config.norm_topk_prob);
    assert_eq!(config.reset_token(), Some(248_044));
    let indexed: Vec<_> =
        (0..48).filter(|layer| config.layer_types[*layer] == LayerType::IndexedAttention).collect();
    assert_eq!(indexed, (0..12).map(|i| 4 * i + 3).collect::<Vec<_>>());
    let geometry = checkpoint.geometry();
    assert_eq!((geometry.records(), geometry.floor_slots()), (24_576, 640));
    assert_eq!(checkpoint.record_layout().stride(), 2_768_896);
    let q = checkpoint.affine("model.layers.3.self_attn.q_proj").expect("there");
    assert_eq!((q.rows, q.cols, q.format), (12_288, 2_560, AffineFormat::Q4_G64));
    let head = checkpoint.affine("language_model.lm_head").expect("there");
    assert_eq!((head.rows, head.weight.len()), (248_320, 317_849_600));
    assert!(checkpoint.affine("model.layers.0.mlp.gate").is_err());
    assert!(checkpoint.affine("model.layers.0.mlp.switch_mlp.up_proj").is_err());
}

#[test]
fn hash_constants_of_the_published_checkpoint() {
    let (_folder, checkpoint) = open();
    let plan = checkpoint.ngram().expect("there");
    assert_eq!(plan.multipliers, [23_703_573_157_769, 20_109_073_645_365, 8_052_911_324_071]);
    let tails = [3, 23, 33, 47, 59, 63, 69, 77, 81, 93, 107, 147, 153, 159, 161, 171];
    assert_eq!(plan.head_sizes, tails.map(|tail| 20_000_000 + tail));
    assert_eq!(plan.head_offsets[..3], [0, 20_000_003, 40_000_026]);
    assert_eq!(plan.head_offsets[15] + plan.head_sizes[15], 320_001_446);
    assert_eq!((plan.rows_per_shard, plan.shards.len(), plan.row_width), (2_500_012, 128, 160));
    assert_eq!((plan.layer, plan.reset_token), (LayerIdx::new(1), 248_044));
    assert_eq!(plan.format, AffineFormat::Q4_G32);
    verify_ngram_constants(&checkpoint, &Files::of(&checkpoint)).expect("equal");
}

#[test]
fn extents_and_their_reverse() {
    let (_folder, checkpoint) = open();
    for (layer, expert) in [(0, 0), (0, 511), (8, 300), (47, 511)] {
        let key = ExpertKey::new(LayerIdx::new(layer), ExpertIdx::new(expert));
        let pieces = checkpoint.expert_pieces(key).expect("in range");
        assert_eq!(pieces.map(|piece| piece.len())[..3], [819_200, 51_200, 51_200]);
        for piece in pieces {
            for offset in [piece.offset(), piece.end() - 1] {
                let found = checkpoint.locate(piece.file(), offset).expect("a tensor");
                assert_eq!(found.expert, Some(key), "{found}");
            }
        }
    }
    for (layer, expert) in [(48, 0), (0, 512)] {
        let key = ExpertKey::new(LayerIdx::new(layer), ExpertIdx::new(expert));
        assert_eq!(checkpoint.expert_pieces(key), None);
    }
    let shard = checkpoint.ngram().expect("there").shards[105];
    let row_7 = shard.scales.slice(7 * 10, 10).expect("inside");
    let found = checkpoint.locate(row_7.file(), row_7.end() - 1).expect("a tensor");
    assert_eq!(found.ngram_row, Some(105 * 2_500_012 + 7));
    assert_eq!(checkpoint.locate(FileId::new(0), 0), None, "a header");
    assert_eq!(checkpoint.locate(FileId::new(11), 0), None, "no such file");
    assert_eq!(checkpoint.locate(FileId::new(0), u64::MAX), None, "past the end");
    // Files end where a tensor brings them to 10 GB, so some module is parted.
    let parted =
        checkpoint.tensors().iter().filter_map(|t| t.name.strip_suffix(".weight")).any(|module| {
            let affine = checkpoint.affine(module);
            affine.is_ok_and(|a| a.weight.file() != a.biases.file())
        });
    let stacked = checkpoint.ngram().expect("there").shards.iter();
    assert!(parted || stacked.into_iter().any(|s| s.weight.file() != s.biases.file()));
}
