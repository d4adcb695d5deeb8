//! Damaged checkpoints: each gives its own error, which names the file and the cause, soon and
//! without a large allocation.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use allocation_counter::measure;
use slotstream_checkpoint::{
    Checkpoint, CheckpointError, NormForm, check_values, verify_ngram_constants,
};
use slotstream_core::{CancelToken, ErrorKind};
use slotstream_testkit::checkpoint::damage::{self, Damage, Found};
use slotstream_testkit::reader::{FaultyReader, Schedule};

use crate::{Files, chain};

/// The most that may be held at any moment. A file or a header is refused by its size before it
/// is read, so a mebibyte or two is what it takes.
const MOST_BYTES: u64 = 16 << 20;

/// Far more than a damage takes on a busy machine; what it takes is printed.
const MOST_TIME: Duration = Duration::from_secs(5);

/// The cases that a reader of checkpoints must know, and the damages that stand for each.
const CASES: &[(&str, &[&str])] = &[
    ("shard cut by 1 KiB", &["shard cut by 1 KiB"]),
    ("shard missing, how many and which", &["shards missing", "shard missing without an index"]),
    ("header length 0", &["length 0"]),
    ("header length over the cap", &["length over the cap in a file that is long enough"]),
    (
        "header length past the end",
        &["length past the end", "length one byte past the end", "length of all ones"],
    ),
    ("header not UTF-8", &["header is not UTF-8"]),
    ("header not JSON", &["header is not JSON", "header is a list"]),
    (
        "header of 200,000 brackets",
        &[
            "header of 200,000 brackets",
            "200,000 brackets in a tensor",
            "200,000 brackets in an unknown field",
        ],
    ),
    ("duplicate keys in a header", &["a tensor twice in a header", "a field twice"]),
    (
        "duplicate keys in a config",
        &[
            "a key twice",
            "a key twice in the quantization block",
            "a key twice in the generation config",
            "a key twice in the tokenizer's settings",
            "a tokenizer with a token twice",
        ],
    ),
    ("duplicate keys in an index", &["a tensor twice in the index"]),
    ("overlapping extents", &["overlapping extents", "a gap"]),
    ("negative extents", &["negative offset", "negative dimension", "end before begin"]),
    ("extents out of the file", &["an extent out of the file", "offset beyond 2^63"]),
    ("shape product overflows", &["shape product overflows"]),
    ("wrong dtype of one tensor", &["dtype", "packed words as bytes", "unknown dtype"]),
    ("wrong shape of one tensor", &["shape", "other experts in the config"]),
    ("scales missing", &["scales missing"]),
    ("a sidecar nobody maps", &["a sidecar that nobody maps"]),
    ("override that matches nothing", &["an override that matches nothing"]),
    ("bits other than 4 or 8", &["three bits", "three bits in an override"]),
    (
        "config layers are not those of the tensors",
        &["more layers in the config", "fewer layers in the config"],
    ),
    ("experts 0", &["no experts"]),
    ("top-k over experts", &["more experts a token than experts"]),
    ("index lacks a tensor", &["a tensor is not in the index"]),
    ("index names an absent shard", &["an absent shard", "a tensor is only in the index"]),
    ("index escapes the folder", &["out of the folder", "an absolute name", "a loop of links"]),
    (
        "a directory named like a shard",
        &["shard is a folder", "a folder named like a shard, no index"],
    ),
    ("empty folder", &["an empty folder", "only a config"]),
    ("wrong model_type", &["another model", "no model type"]),
    ("tokenizer does not match", &["a tokenizer with more tokens than the model"]),
    (
        "NaN or inf in the weights",
        &[
            "a norm weight that is not a number",
            "a scale of an expert that is not a number",
            "an infinite bias of an n-gram row",
            "a float tensor with an infinite value",
        ],
    ),
];

#[test]
fn the_list_of_damages_is_complete() {
    let mut names = BTreeSet::new();
    for damage in damage::all() {
        assert!(names.insert(damage.name()), "two damages are called {}", damage.name());
    }
    for (case, damages) in CASES {
        for name in *damages {
            assert!(names.contains(name), "{case}: there is no damage `{name}`");
        }
    }
}

/// Everything that looks at a folder, up to the looker that must find the damage.
fn look(folder: &Path, found: Found) -> Result<(), CheckpointError> {
    let checkpoint = Checkpoint::open(folder)?;
    assert_ne!(found, Found::Opening, "it opens");
    let reader = Files::of(&checkpoint);
    NormForm::detect(&checkpoint, &reader, None)?;
    verify_ngram_constants(&checkpoint, &reader)?;
    assert_ne!(found, Found::Payload, "norms and constants are good");
    check_values(&checkpoint, &reader, &CancelToken::new(), |_, _| {}).map(drop)
}

/// Applies a damage to a good folder and looks; how long looking took and how much it held.
fn check(damage: &Damage) -> (Duration, u64) {
    let name = damage.name();
    let parent = tempfile::tempdir().expect("a folder");
    let folder = parent.path().join("model");
    damage::write_good(&folder).expect("written");
    damage.apply(&folder).expect(name);
    let (mut result, mut took) = (Ok(()), Duration::ZERO);
    let memory = measure(|| {
        let start = Instant::now();
        result = look(&folder, damage.found());
        took = start.elapsed();
    });
    let error = result.expect_err(name);
    let text = chain(&error);
    assert!(damage.is_checkpoint_error(&error), "{name}: {error:?}");
    assert_eq!(error.kind(), damage.kind(), "{name}: {text}");
    let place = folder.to_str().expect("UTF-8");
    let payload = matches!(error, CheckpointError::Read { .. });
    assert!(payload || text.contains(place), "{name}: `{text}` names no file");
    for words in damage.says() {
        assert!(text.contains(words), "{name}: `{text}` does not say `{words}`");
    }
    assert!(took < MOST_TIME, "{name}: {took:?}");
    assert!(memory.bytes_max < MOST_BYTES, "{name}: held {} bytes", memory.bytes_max);
    (took, memory.bytes_max)
}

#[test]
fn each_is_named_soon_and_in_little_memory() {
    let (mut slowest, mut largest, mut rows) = ((Duration::ZERO, ""), (0, ""), 0);
    for damage in damage::all().filter(|damage| damage.found() != Found::Text) {
        let (took, bytes) = check(&damage);
        slowest = slowest.max((took, damage.name()));
        largest = largest.max((bytes, damage.name()));
        rows += 1;
    }
    println!("{rows} damages; slowest {slowest:?}; most bytes held {largest:?}");
    assert!(rows > 90, "{rows} damages");
}

#[test]
fn a_good_folder_passes_every_looker() {
    let folder = tempfile::tempdir().expect("a folder");
    damage::write_good(folder.path()).expect("written");
    let checkpoint = Checkpoint::open(folder.path()).expect("good");
    let reader = Files::of(&checkpoint);
    let (mut last, mut calls) = ((0, 0), 0);
    let checked = check_values(&checkpoint, &reader, &CancelToken::new(), |done, total| {
        assert!(done > last.0 && done <= total, "{done} of {total} after {last:?}");
        (last, calls) = ((done, total), calls + 1);
    })
    .expect("zeros are finite");
    assert_eq!((last.0, last.0), (checked.bytes, last.1));
    assert!(checked.tensors > 100 && calls >= checked.tensors, "{checked:?}, {calls} calls");
    assert!(checked.values > 10_000 && checked.bytes == 2 * checked.values, "{checked:?}");
}

#[test]
fn looking_at_values_ends_when_cancelled_or_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    damage::write_good(folder.path()).expect("written");
    let checkpoint = Checkpoint::open(folder.path()).expect("good");
    let (cancel, mut done) = (CancelToken::new(), 0);
    let error = check_values(&checkpoint, &Files::of(&checkpoint), &cancel, |bytes, _| {
        done = bytes;
        cancel.cancel();
    })
    .expect_err("cancelled");
    assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
    assert!(done > 0 && done < checkpoint.ledger().total_bytes / 2, "{done}");
    // The third read is refused with EACCES, as of a file whose rights were taken away.
    let denied = std::io::ErrorKind::PermissionDenied;
    let reader = FaultyReader::new(Files::of(&checkpoint), Schedule::Nth(2), denied);
    let error =
        check_values(&checkpoint, &reader, &CancelToken::new(), |_, _| {}).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::User, "{error}");
    let text = chain(&error);
    assert!(text.contains("model-0000") && text.contains("ermission denied"), "{text}");
}
