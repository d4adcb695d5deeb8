use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value, json};
use slotstream_core::ErrorKind;
use slotstream_testkit::mutate::{Edit, JSON, Material};

use super::{CancelToken, RecvTimeoutError, SHORT, Tokenizer, receive};
use crate::text::TextError;

pub(in crate::text) fn bundled_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/models/tiny-moe")
}

pub(in crate::text) fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path)
}

pub(in crate::text) fn bundled() -> Tokenizer {
    Tokenizer::load(&bundled_folder().join("tokenizer.json"), 4096).unwrap()
}

static BUNDLED: LazyLock<Tokenizer> = LazyLock::new(bundled);

/// `tokenizer.json` of the bundled model with a changed part, read with `vocab_size`.
fn altered(change: impl Fn(&mut Value), vocab_size: usize) -> Result<Tokenizer, TextError> {
    let text = std::fs::read(bundled_folder().join("tokenizer.json")).unwrap();
    let mut json: Value = serde_json::from_slice(&text).unwrap();
    change(&mut json);
    from_text(&json.to_string(), vocab_size)
}

fn from_text(text: &str, vocab_size: usize) -> Result<Tokenizer, TextError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, text).unwrap();
    Tokenizer::load(&path, vocab_size)
}

#[test]
fn ids_equal_those_of_the_reference_tokenizer() {
    let golden = std::fs::read(data("tiny_moe_tokenizer.json")).unwrap();
    let golden: serde_json::Map<String, Value> = serde_json::from_slice(&golden).unwrap();
    assert_eq!(golden.len(), 4);
    let tokenizer = bundled();
    for (text, ids) in golden {
        let ids: Vec<u32> = serde_json::from_value(ids).unwrap();
        assert_eq!(tokenizer.encode(&text, false).unwrap(), ids, "{text:?}");
        assert_eq!(tokenizer.encode(&text, true).unwrap(), ids, "{text:?}");
        assert_eq!(tokenizer.decode(&ids, false).unwrap(), text);
    }
}

#[test]
fn special_tokens_in_a_text_become_their_ids() {
    let tokenizer = bundled();
    let ids = tokenizer.encode("a<|im_end|><think>", false).unwrap();
    assert_eq!(ids[ids.len() - 2..], [4065, 4087]);
    assert_eq!(tokenizer.decode(&ids, false).unwrap(), "a<|im_end|><think>");
    // Thinking marks are added tokens, but not special ones.
    assert_eq!(tokenizer.decode(&ids, true).unwrap(), "a<think>");
    assert_eq!(tokenizer.token_id("<|im_end|>"), Some(4065));
    assert_eq!(tokenizer.token_text(4065).as_deref(), Some("<|im_end|>"));
    assert_eq!(tokenizer.token_id("<|no such token|>"), None);
    assert!(tokenizer.special_ids().contains(&4063));
    assert!(!tokenizer.special_ids().contains(&4087));
    assert!(tokenizer.special_ids().is_sorted());
}

#[test]
fn text_is_normalised_and_split_as_the_model_was_trained() {
    let tokenizer = bundled();
    // NFC: a letter and a combining mark are one character.
    let composed = tokenizer.encode("caf\u{e9}", false).unwrap();
    assert_eq!(tokenizer.encode("cafe\u{301}", false).unwrap(), composed);
    // The look-ahead: of several spaces the last belongs to the word, the others stay together.
    let two = tokenizer.encode("a  b", false).unwrap();
    let parts = ["a", " ", " b"].map(|part| tokenizer.encode(part, false).unwrap());
    assert_eq!(two, parts.concat());
    // Digits are single.
    let digits = tokenizer.encode("2048", false).unwrap();
    assert_eq!(digits.len(), 4);
}

/// The splitting regex needs backtracking; were it to give up on a long run, the rest of the text
/// would silently become one piece.
#[test]
fn long_runs_are_split_like_short_ones() {
    let encode = |text: &str| BUNDLED.encode(text, false).unwrap();
    // Two spaces are a token, yet split before a word: an unsplit text would end otherwise.
    assert_eq!(encode("  ").len(), 1);
    let tail = [encode(" "), encode(" b")].concat();
    for unit in [" ", "\n", "\t \t", "a", "!", "\u{301}", "7", "é", " \n", "\u{3000}"] {
        for count in [3, 1_000, 200_000] {
            let text = format!("x{}tail  b", unit.repeat(count));
            let ids = encode(&text);
            assert_eq!(BUNDLED.decode(&ids, false).unwrap(), text, "{unit:?} x {count}");
            assert!(ids.ends_with(&tail), "{unit:?} x {count}");
        }
    }
}

#[test]
fn a_cancelled_text_is_given_up_and_others_keep_their_ids() {
    let cancel = CancelToken::new();
    let words = "It is a truth universally acknowledged, 12345.\n";
    for text in ["", "hi", &words.repeat(SHORT / words.len() + 1)] {
        let ids = BUNDLED.encode_cancellable(text, false, &cancel).unwrap();
        assert_eq!(ids, BUNDLED.encode(text, false).unwrap());
    }
    cancel.cancel();
    let error = BUNDLED.encode_cancellable("hi", false, &cancel).unwrap_err();
    assert!(matches!(error, TextError::Cancelled { bytes: 2, .. }), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::Cancelled);
}

#[test]
fn waiting_ends_by_a_value_a_cancellation_or_a_dead_thread() {
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    let cancel = CancelToken::new();
    let later = cancel.clone();
    let waiting = std::thread::spawn(move || receive::<u8>(&receiver, &later));
    cancel.cancel();
    assert_eq!(waiting.join().unwrap(), Err(RecvTimeoutError::Timeout));
    drop(sender);

    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    sender.send(5).unwrap();
    // Work that is done counts, even if it came with the cancellation.
    assert_eq!(receive(&receiver, &cancel), Ok(5));
    drop(sender);
    assert_eq!(receive(&receiver, &CancelToken::new()), Err(RecvTimeoutError::Disconnected));
}

#[test]
fn a_vocabulary_larger_than_the_model_is_refused() {
    let path = bundled_folder().join("tokenizer.json");
    let error = Tokenizer::load(&path, 4095).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    match &error {
        TextError::Vocabulary { path: in_error, id, token, vocab_size } => {
            assert_eq!((in_error, *id, *vocab_size), (&path, 4095, 4095));
            assert_eq!(token, "<|audio_pad|>");
        }
        other => panic!("{other:?}"),
    }
    let text = error.to_string();
    assert!(text.contains("token 4095") && text.contains("vocab_size is 4095"), "{text}");
    // Smaller is fine, whoever the model is.
    let random = data("random_fixture/tokenizer.json");
    let random = Tokenizer::load(&random, 1024).unwrap();
    assert_eq!(random.id_bound(), 993);
    assert_eq!(random.token_id("<|endoftext|>"), Some(960));
    assert_eq!(random.decode(&[1000], false).unwrap(), "");
}

#[test]
fn file_errors_name_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    let missing = Tokenizer::load(&path, 10).unwrap_err();
    assert!(matches!(missing, TextError::Read { .. }), "{missing:?}");
    assert_eq!(missing.kind(), ErrorKind::User);
    assert!(missing.to_string().contains("tokenizer.json"));
    let is_folder = Tokenizer::load(folder.path(), 10).unwrap_err();
    assert!(matches!(is_folder, TextError::NotAFile { .. }), "{is_folder:?}");
    assert_eq!(is_folder.kind(), ErrorKind::User);
    let refused = [
        "",
        "{",
        "[]",
        "{}",
        "{\"model\": {\"type\": \"BPE\"}}",
        // The library panics on the first of these.
        "{\"version\": \"1.0\", \"decoder\": {\"type\": \"ByteLevel\"",
        "{\"version\": \"1.0\", \"decoder\": {\"type\": 5}}",
        "\u{0}",
    ];
    for text in refused {
        let error = from_text(text, 10).unwrap_err();
        assert!(matches!(error, TextError::Json { .. }), "{text:?} {error:?}");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
    let limited = super::super::files::read_limited(&bundled_folder().join("tokenizer.json"), 1000)
        .unwrap_err();
    assert!(matches!(limited, TextError::TooLarge { limit: 1000, .. }), "{limited:?}");
}

#[test]
fn a_tokenizer_that_makes_the_library_panic_is_refused() {
    let single = json!([{"SpecialToken": {"id": "zz", "type_id": 0}}]);
    let changes = [
        ("pre_tokenizer", json!({"type": "FixedLength", "length": 0})),
        ("normalizer", json!({"type": "Precompiled", "precompiled_charsmap": "AAAAAAAA"})),
        (
            "post_processor",
            json!({"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": {}}),
        ),
    ];
    for (field, value) in changes {
        let loaded = altered(|file| file[field] = value.clone(), 4096);
        let error = match loaded {
            Ok(tokenizer) => tokenizer.encode("It is a truth", true).unwrap_err(),
            Err(error) => error,
        };
        assert!(error.to_string().contains("tokenizer"), "{field}: {error}");
    }
}

#[cfg(unix)]
#[test]
fn only_regular_files_are_read() {
    for path in ["/dev/zero", "/dev/null", "/"] {
        let error = Tokenizer::load(Path::new(path), 10).unwrap_err();
        assert!(matches!(error, TextError::NotAFile { .. }), "{path}: {error}");
    }
}

#[test]
fn truncation_and_padding_of_the_file_are_ignored() {
    let text = "one two three four five six seven";
    let tokenizer = altered(
        |json| {
            json["truncation"] = serde_json::json!({
                "direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0
            });
            json["padding"] = serde_json::json!({
                "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": null,
                "pad_id": 0, "pad_type_id": 0, "pad_token": "!"
            });
        },
        4096,
    );
    assert_eq!(
        tokenizer.unwrap().encode(text, true).unwrap(),
        bundled().encode(text, true).unwrap()
    );
}

#[test]
fn a_changed_tokenizer_changes_the_ids() {
    let tokenizer = altered(|json| json["normalizer"] = Value::Null, 4096).unwrap();
    let ids = |text| tokenizer.encode(text, false).unwrap();
    assert_ne!(ids("cafe\u{301}"), ids("caf\u{e9}"));
}

proptest! {
    #[test]
    fn texts_come_back_in_normal_form(text in "[a-zA-Z0-9 \\n\\t.,!?éüß中文字🎉👩💻é-]{0,40}") {
        let ids = BUNDLED.encode(&text, false).unwrap();
        prop_assert_eq!(BUNDLED.decode(&ids, false).unwrap(), text);
    }

    /// Whatever stands in the file, loading it gives a tokenizer or an error.
    #[test]
    fn damaged_files_do_not_panic(edits in prop::collection::vec(any::<[u32; 4]>(), 1..6)) {
        let path = data("random_fixture/tokenizer.json");
        let mut bytes = std::fs::read(&path).unwrap();
        for edit in edits {
            Edit(edit).apply(&mut bytes, &Material { words: JSON, other: b"{\"type\": \"NFKC\"}" });
        }
        if let Ok(tokenizer) = Tokenizer::from_bytes(&path, &bytes, 1024) {
            tokenizer.encode("some <|im_start|> text 中", false).ok();
            tokenizer.decode(&[0, 500, 960, 5000], false).ok();
        }
    }
}
