//! Containers: what is in them, whose they are, and what is refused.

#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on fails the test")]

mod damage;
mod killed;
mod stale;

use std::collections::HashMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use allocation_counter::measure;
use proptest::prelude::*;
use safetensors::SafeTensors;
use slotstream_checkpoint::Checkpoint;
use slotstream_checkpoint::container::{
    Container, ContainerError, ContainerKind, Content, Held, Progress, Repack, Stage,
};
use slotstream_core::{
    ExpertIdx, ExpertKey, Extent, FileId, LayerIdx, Matrix, PIECE_ORDER, Part, RecordReader,
};
use slotstream_testkit::checkpoint::{CheckpointSpec, small_config};

use crate::{Files, random_fixture, tiny_model};

fn open(folder: &Path) -> Checkpoint {
    Checkpoint::open(folder).expect("legal")
}

fn go_on(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn repacked(checkpoint: &Checkpoint, pad_rows: bool) -> (tempfile::TempDir, Container) {
    let folder = tempfile::tempdir().expect("a folder");
    let repack = Repack::new(checkpoint, folder.path()).pad_rows(pad_rows);
    repack.run(&mut go_on).expect("written");
    let container = Container::open(folder.path(), checkpoint).expect("legal");
    (folder, container)
}

fn bytes_of(path: &Path, extent: &Extent) -> Vec<u8> {
    let mut bytes = vec![0; extent.len() as usize];
    Files(vec![path.into()])
        .read_exact_at(
            &Extent::new(FileId::new(0), extent.offset(), extent.len()).unwrap(),
            &mut bytes,
        )
        .expect("there");
    bytes
}

/// All tensors of a checkpoint as the library of the format reads them, by canonical name.
fn tensors(folder: &Path) -> HashMap<String, Vec<u8>> {
    let mut all = HashMap::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|ending| ending == "safetensors") {
            let bytes = fs::read(&path).expect("a file");
            for (name, view) in SafeTensors::deserialize(&bytes).expect("legal").tensors() {
                let name = name.trim_start_matches("language_model.").to_owned();
                all.insert(name, view.data().to_vec());
            }
        }
    }
    all
}

const fn part_name(part: Part) -> &'static str {
    match part {
        Part::Weight => "weight",
        Part::Scales => "scales",
        Part::Biases => "biases",
    }
}

/// Every byte of every record and row against the tensors as the format's own library reads them.
fn assert_same(folder: &Path, checkpoint: &Checkpoint, container: &Container) {
    let tensors = tensors(folder);
    let slots = fs::read(&container.files()[0]).expect("experts.slots");
    let geometry = checkpoint.geometry();
    let layout = container.record_layout().expect("experts");
    for index in 0..geometry.records() {
        let key = geometry.key(index).expect("inside");
        let extent = container.padded_extent(key).expect("inside");
        let record = &slots[extent.offset() as usize..extent.end() as usize];
        let mut expected = vec![0; layout.stride()];
        for (piece, (matrix, part)) in layout.pieces().iter().zip(PIECE_ORDER) {
            let matrix = match matrix {
                Matrix::Gate => "gate_proj",
                Matrix::Up => "up_proj",
                Matrix::Down => "down_proj",
            };
            let (layer, part) = (key.layer().get(), part_name(part));
            let stack = &tensors[&format!("model.layers.{layer}.mlp.switch_mlp.{matrix}.{part}")];
            let at = key.expert().index() * piece.len;
            expected[piece.offset..piece.offset + piece.len]
                .copy_from_slice(&stack[at..at + piece.len]);
        }
        assert!(record == expected, "{key} differs");
        let own = crc32fast::hash(&record[..layout.record_len()]);
        assert_eq!(container.record_checksum(key), Some(own));
    }
    let Some(plan) = checkpoint.ngram() else { return };
    let rows_file = fs::read(&container.files()[1]).expect("ngram.rows");
    let row = container.row_layout().expect("rows");
    for number in 0..plan.rows_per_shard * plan.shards.len() as u64 {
        let extent = container.ngram_row_extent(number).expect("inside");
        let found = &rows_file[extent.offset() as usize..extent.end() as usize];
        let (shard, within) = (number / plan.rows_per_shard, number % plan.rows_per_shard);
        let table = format!(
            "model.layers.{}.ple.ple_embedding.ngram_embedding.shard_{shard}",
            plan.layer.get()
        );
        let mut expected = Vec::new();
        for (part, name) in row.parts().iter().zip(["weight", "scales", "biases"]) {
            let at = within as usize * part.len;
            expected.extend_from_slice(&tensors[&format!("{table}.{name}")][at..at + part.len]);
        }
        assert!(found == expected, "row {number} differs");
    }
}

#[test]
fn records_and_rows_are_those_of_the_checkpoint() {
    for (folder, pad) in
        [(tiny_model(), false), (random_fixture(), false), (random_fixture(), true)]
    {
        let checkpoint = open(&folder);
        let (_out, container) = repacked(&checkpoint, pad);
        assert_same(&folder, &checkpoint, &container);
        container.verify(&checkpoint, None, &mut go_on).expect("the same");
    }
}

#[test]
fn every_extent_lies_in_its_file_and_none_overlaps_another() {
    for (folder, pad) in [(tiny_model(), false), (random_fixture(), true)] {
        let checkpoint = open(&folder);
        let (_out, container) = repacked(&checkpoint, pad);
        let (experts, ngram) = (container.experts().unwrap(), container.ngram().unwrap());
        for (header, path) in [experts, ngram].into_iter().zip(container.files()) {
            assert_eq!(header.file_len(), fs::metadata(path).unwrap().len());
            assert!(header.complete && header.data_offset() % 16384 == 0);
        }
        let geometry = checkpoint.geometry();
        let mut end = experts.data_offset();
        for key in (0..geometry.records()).filter_map(|index| geometry.key(index)) {
            let (record, padded) =
                (container.extent(key).unwrap(), container.padded_extent(key).unwrap());
            assert_eq!((padded.offset(), padded.file()), (end, FileId::new(0)));
            assert!(padded.offset() % 16384 == 0 && padded.len() % 16384 == 0);
            assert_eq!(record.offset(), padded.offset());
            assert_eq!(record.len(), checkpoint.record_layout().record_len() as u64);
            let pieces = container.expert_pieces(key).unwrap();
            let mut within = record.offset();
            for (piece, source) in pieces.iter().zip(checkpoint.expert_pieces(key).unwrap()) {
                assert!(piece.offset() >= within && piece.len() == source.len());
                within = piece.end();
                let held = container.locate(piece.file(), piece.end() - 1);
                assert_eq!(held, Some(Held::Record(key)));
            }
            assert_eq!(within, record.end());
            end = padded.end();
        }
        assert_eq!(end, experts.file_len());
        let Content::Ngram { rows, layout, .. } = &ngram.content else { panic!("rows") };
        let mut end = ngram.data_offset();
        for row in 0..*rows {
            let extent = container.ngram_row_extent(row).unwrap();
            assert_eq!((extent.offset(), extent.file()), (end, FileId::new(1)));
            assert_eq!(container.locate(extent.file(), extent.offset()), Some(Held::Row(row)));
            let (block, _) = container.ngram_block(row).unwrap();
            assert!(block.offset() <= extent.offset() && extent.end() <= block.end());
            end = extent.offset() + layout.stride() as u64;
        }
        assert!(end <= ngram.file_len() && ngram.file_len() - end < 16384);
        let path = &container.files()[1];
        let (block, sum) = container.ngram_block(rows - 1).unwrap();
        assert_eq!(crc32fast::hash(&bytes_of(path, &block)), sum);
        outside(&checkpoint, &container, *rows);
    }
}

fn outside(checkpoint: &Checkpoint, container: &Container, rows: u64) {
    let geometry = checkpoint.geometry();
    let key = |layer: usize, expert: usize| {
        ExpertKey::new(LayerIdx::new(layer as u16), ExpertIdx::new(expert as u16))
    };
    for key in [key(geometry.layers(), 0), key(0, geometry.experts())] {
        assert_eq!(container.extent(key), None);
        assert_eq!(container.padded_extent(key), None);
        assert_eq!(container.expert_pieces(key), None);
        assert_eq!(container.record_checksum(key), None);
    }
    for row in [rows, u64::MAX] {
        assert_eq!(container.ngram_row_extent(row), None);
        assert_eq!(container.ngram_block(row), None);
    }
    for file in [0, 1] {
        let file = FileId::new(file);
        assert_eq!(container.locate(file, 0), None);
        assert_eq!(container.locate(file, u64::MAX), None);
    }
    assert_eq!(container.locate(FileId::new(2), 1 << 16), None);
    let moved = container.clone().numbered_from(7);
    let first = key(0, 0);
    assert_eq!(moved.extent(first).unwrap().file(), FileId::new(7));
    assert_eq!(moved.ngram_row_extent(0).unwrap().file(), FileId::new(8));
    let at = moved.extent(first).unwrap().offset();
    assert_eq!(moved.locate(FileId::new(7), at), Some(Held::Record(first)));
    assert_eq!(moved.locate(FileId::new(0), at), None);
}

#[test]
fn steps_readers_and_halves_give_the_same_bytes() {
    let folder = random_fixture();
    let checkpoint = open(&folder);
    let (whole, _) = repacked(&checkpoint, false);
    let reader = Files::of(&checkpoint);
    let out = tempfile::tempdir().unwrap();
    for kind in [ContainerKind::Ngram, ContainerKind::Experts] {
        let repack = Repack::new(&checkpoint, out.path()).only(&[kind]);
        let mut seen = Vec::new();
        let files = repack
            .reader(&reader)
            .step_bytes(1)
            .run(&mut |progress| {
                seen.push(progress);
                ControlFlow::Continue(())
            })
            .expect("written");
        assert_eq!((files.len(), files[0].kind, files[0].kept), (1, kind, 0));
        assert!(seen.is_sorted_by_key(|progress| progress.done));
        let last = seen.last().expect("progress");
        assert!(last.stage == Stage::Writing && last.done <= last.total);
        assert!(last.total - last.done < 16384, "only the padding of the end is missing");
        let read = |folder: &Path| fs::read(folder.join(kind.file_name())).expect("a file");
        assert!(read(whole.path()) == read(out.path()), "{kind:?}");
        if kind == ContainerKind::Ngram {
            let container = Container::open(out.path(), &checkpoint).expect("half of one");
            let first = checkpoint.geometry().key(0).unwrap();
            assert!(container.experts().is_none() && container.record_layout().is_none());
            assert!(container.extent(first).is_none());
            assert_eq!(container.ngram_row_extent(0).unwrap().file(), FileId::new(0));
        }
    }
}

#[test]
fn what_is_finished_stays() {
    let checkpoint = open(&random_fixture());
    let (out, _) = repacked(&checkpoint, false);
    let changed = |name: &str| fs::metadata(out.path().join(name)).unwrap().modified().unwrap();
    let before = ContainerKind::ALL.map(|kind| changed(kind.file_name()));
    let again = Repack::new(&checkpoint, out.path());
    let plan = again.plan().expect("nothing to do");
    assert!(plan.iter().all(|file| file.kept == file.bytes));
    assert_eq!(again.run(&mut go_on).expect("nothing to do"), plan);
    assert_eq!(before, ContainerKind::ALL.map(|kind| changed(kind.file_name())));
    // Other options make another file.
    let padded = again.pad_rows(true).run(&mut go_on).expect("written");
    assert_eq!((padded[0].kept, padded[1].kept), (padded[0].bytes, 0));
    let container = Container::open(out.path(), &checkpoint).expect("legal");
    assert_eq!(container.row_layout().unwrap().stride() % 128, 0);
}

#[test]
fn a_model_without_a_table_has_no_rows() {
    let mut config = small_config();
    config["text_config"]["ple_layer_ids"] = serde_json::json!([]);
    for block in ["quantization", "quantization_config"] {
        // Overrides for the table would match nothing.
        if let Some(block) = config[block].as_object_mut() {
            block.retain(|module, _| !module.contains("ngram_embedding"));
        }
    }
    let folder = tempfile::tempdir().unwrap();
    CheckpointSpec::new(config).write_random(folder.path(), 3).expect("written");
    let checkpoint = open(folder.path());
    // Beside the model.
    Repack::new(&checkpoint, folder.path()).run(&mut go_on).expect("written");
    assert!(Container::is_in(folder.path()));
    let container = Container::open(folder.path(), &checkpoint).expect("legal");
    assert!(container.ngram().is_none() && container.ngram_row_extent(0).is_none());
    assert_same(folder.path(), &checkpoint, &container);
    open(folder.path());
    let rows = Repack::new(&checkpoint, folder.path()).only(&[ContainerKind::Ngram]);
    assert!(matches!(rows.plan(), Err(ContainerError::NoNgram { .. })));
}

#[test]
fn cancelled_at_any_step_it_goes_on() {
    let checkpoint = open(&random_fixture());
    let (whole, _) = repacked(&checkpoint, false);
    for stop in [1, 2, 5, 9, 14] {
        let out = tempfile::tempdir().unwrap();
        let repack = Repack::new(&checkpoint, out.path()).step_bytes(1);
        let mut left = stop;
        let error = repack
            .run(&mut |_| {
                left -= 1;
                if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .expect_err("cancelled");
        assert!(matches!(error, ContainerError::Cancelled { .. }), "{error}");
        let error = repack.run(&mut go_on).expect_err("not without --resume");
        assert!(matches!(error, ContainerError::PartExists { .. }), "{error}");
        let files = repack.resume(true).run(&mut go_on).expect("written");
        assert!(files[0].kept > 0);
        assert_same_files(whole.path(), out.path());
    }
}

#[test]
fn memory_is_that_of_a_step() {
    let checkpoint = open(&tiny_model());
    let out = tempfile::tempdir().unwrap();
    let repack = Repack::new(&checkpoint, out.path()).only(&[ContainerKind::Experts]);
    for step in [100_000, 1_000_000] {
        let mut files = Vec::new();
        let memory = measure(|| {
            files = repack.clone().step_bytes(step).run(&mut go_on).expect("written");
        });
        let bytes: u64 = files.iter().map(|file| file.bytes).sum();
        // The step, one run of its source, and headers, tables and hashes.
        let most = 2 * step as u64 + (300 << 10);
        assert!(bytes > 20_000_000 && memory.bytes_max < most, "{} bytes", memory.bytes_max);
        fs::remove_file(out.path().join("experts.slots")).unwrap();
    }
}

fn assert_same_files(a: &Path, b: &Path) {
    let names = |folder: &Path| {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = entries.collect();
        names.sort();
        names
    };
    assert_eq!(names(a), names(b));
    for name in names(a) {
        let read = |folder: &Path| fs::read(folder.join(&name)).expect("a file");
        assert!(read(a) == read(b), "{} differs", PathBuf::from(&name).display());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_shape(
        (layers, experts, limit) in (2_usize..5, 1_usize..7, 20_000_u64..400_000),
        (hidden, inner) in (1_usize..4, 1_usize..3),
        (pad, odd, step) in (any::<bool>(), any::<bool>(), 1_usize..300_000),
    ) {
        let mut config = small_config();
        let text = &mut config["text_config"];
        text["num_hidden_layers"] = layers.into();
        text["layer_types"] = vec!["linear_attention"; layers].into();
        text["num_experts"] = experts.into();
        text["num_experts_per_tok"] = 1.into();
        text["hidden_size"] = (64 * hidden).into();
        text["moe_intermediate_size"] = (64 * inner).into();
        let mut spec = CheckpointSpec::new(config).file_limit(limit);
        if odd {
            spec = spec.odd_starts();
        }
        let folder = tempfile::tempdir().unwrap();
        spec.write_random(folder.path(), 11).unwrap();
        let checkpoint = open(folder.path());
        let out = folder.path().join("container");
        Repack::new(&checkpoint, &out).pad_rows(pad).step_bytes(step).run(&mut go_on).unwrap();
        let container = Container::open(&out, &checkpoint).unwrap();
        assert_same(folder.path(), &checkpoint, &container);
        container.verify(&checkpoint, None, &mut go_on).unwrap();
    }
}
