//! The tokenizer of Qwen3.8, which is too large to be shipped. `.ci/tokenizer/check.sh` rebuilds
//! it and runs these tests with `SLOTSTREAM_TOKENIZER` set to its folder.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Instant;

use serde_json::Value;
use slotstream::text::{StreamDecoder, Tokenizer};

use crate::chat::{conversation, golden, qwen};

/// `vocab_size` of the model: ids from 248,077 on are padding.
const VOCAB_SIZE: usize = 248_320;
/// Tokens of the byte-level vocabulary, before the added ones.
const BASE: u32 = 248_044;

/// Added tokens from id [`BASE`] on.
const ADDED: [&str; 33] = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
    "<|audio_start|>",
    "<|audio_end|>",
    "<tts_pad>",
    "<tts_text_bos>",
    "<tts_text_eod>",
    "<tts_text_bos_single>",
    "<|audio_pad|>",
];

fn folder() -> PathBuf {
    let folder = std::env::var_os("SLOTSTREAM_TOKENIZER");
    folder.expect("SLOTSTREAM_TOKENIZER names no folder: run .ci/tokenizer/check.sh").into()
}

fn read(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).expect("a file of the rebuilt tokenizer")
}

static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
    let (memory, begun) = (resident_kib(), Instant::now());
    let tokenizer = Tokenizer::load(&folder().join("tokenizer.json"), VOCAB_SIZE).expect("loads");
    let (seconds, memory) = (begun.elapsed().as_secs_f64(), resident_kib().saturating_sub(memory));
    eprintln!("tokenizer.json loaded in {seconds:.2} s, {} MiB stay resident", memory >> 10);
    assert!(seconds < 60.0, "a second or two of work, in a development build a few");
    tokenizer
});

/// Resident memory of the process; 0 where the system does not tell.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or(0)
}

fn encode(text: &str) -> Vec<u32> {
    TOKENIZER.encode(text, false).expect("encodes")
}

fn decode(ids: &[u32]) -> String {
    TOKENIZER.decode(ids, false).expect("decodes")
}

fn ids_of(golden: &Value) -> Vec<u32> {
    serde_json::from_value(golden["ids"].clone()).expect("ids")
}

/// Checks that the pieces of a stream are at every moment a beginning of `text`, and all of it in
/// the end.
fn assert_streams(ids: &[u32], text: &str) {
    let mut decoder = StreamDecoder::new(&TOKENIZER, false);
    let mut given = String::new();
    for id in ids {
        given.push_str(decoder.push(*id).expect("byte level"));
        assert!(text.starts_with(&given), "{given:?} of {text:?}");
    }
    given.push_str(decoder.finish().expect("byte level"));
    assert_eq!(given, text);
}

/// The base vocabulary: id -> spelling, and the bytes that the spelling stands for.
fn vocabulary() -> BTreeMap<u32, (String, Vec<u8>)> {
    let vocab: HashMap<String, u32> = serde_json::from_str(&read("vocab.json")).expect("JSON");
    let bytes = byte_of_character();
    let entry = |(spelling, id): (String, u32)| {
        let bytes = spelling.chars().map(|character| bytes[&character]).collect();
        (id, (spelling, bytes))
    };
    vocab.into_iter().map(entry).collect()
}

/// GPT-2's spelling: printable Latin-1 stands for itself, the other bytes follow from U+0100 on.
fn byte_of_character() -> HashMap<char, u8> {
    let mut next = 0x100..;
    let spelled = |byte: u8| match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => (char::from(byte), byte),
        _ => (next.next().and_then(char::from_u32).expect("below U+0144"), byte),
    };
    (0..=255).map(spelled).collect()
}

/// Ids of the entries that are longer than a byte and that no merge makes.
fn unreachable_ids(vocabulary: &BTreeMap<u32, (String, Vec<u8>)>) -> Vec<u32> {
    let merges = read("merges.txt");
    let made: HashSet<String> = merges.lines().map(|line| line.replacen(' ', "", 1)).collect();
    assert_eq!(made.len(), 247_587);
    let unmade = vocabulary
        .iter()
        .filter(|(_, (spelling, bytes))| bytes.len() > 1 && !made.contains(spelling));
    unmade.map(|(id, _)| *id).collect()
}

#[test]
#[ignore = "needs the rebuilt tokenizer: .ci/tokenizer/check.sh"]
fn strings_have_the_ids_of_the_reference() {
    let golden = golden("qwen/tokenizer_golden.json");
    let golden = golden.as_array().expect("a list");
    assert_eq!(golden.len(), 22);
    for case in golden {
        let (text, decoded) = (case["text"].as_str().expect("text"), case["decoded"].as_str());
        let ids = ids_of(case);
        assert_eq!(encode(text), ids, "{text:?}");
        assert_eq!(TOKENIZER.encode(text, true).expect("encodes"), ids, "nothing is added");
        assert_eq!(Some(decode(&ids).as_str()), decoded);
        assert_streams(&ids, decoded.expect("a text"));
    }
}

#[test]
#[ignore = "needs the rebuilt tokenizer: .ci/tokenizer/check.sh"]
fn conversations_have_the_ids_of_the_reference() {
    let (template, golden) = (qwen(), golden("qwen/chat_golden.json"));
    let cases = golden["cases"].as_array().expect("a list");
    assert_eq!(cases.len(), 15);
    for case in cases {
        let (messages, options) = conversation(case);
        let text = template.render(&messages, &options).expect("renders");
        let ids = ids_of(case);
        assert_eq!(encode(&text), ids, "{}", case["name"]);
        assert_eq!(decode(&ids), text);
        assert_streams(&ids, &text);
    }
}

#[test]
#[ignore = "needs the rebuilt tokenizer: .ci/tokenizer/check.sh"]
fn entries_without_a_merge_are_never_produced() {
    let vocabulary = vocabulary();
    let ids = unreachable_ids(&vocabulary);
    assert_eq!(ids.len(), 201);
    assert!(ids.contains(&108_918), "the one that the goldens encode otherwise");
    for id in ids {
        let (spelling, bytes) = &vocabulary[&id];
        assert_eq!(TOKENIZER.token_text(id).as_ref(), Some(spelling));
        let text = String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(decode(&[id]), text);
        for context in [text.clone(), format!(" {text}"), format!("x{text}y"), text.repeat(2)] {
            let produced = encode(&context);
            assert!(!produced.contains(&id), "{context:?} gives {id}");
            assert_eq!(encode(&decode(&produced)), produced, "{context:?}");
        }
    }
}

#[test]
#[ignore = "needs the rebuilt tokenizer: .ci/tokenizer/check.sh"]
fn every_id_decodes_to_its_bytes() {
    let vocabulary = vocabulary();
    assert_eq!(vocabulary.len(), BASE as usize);
    assert_eq!(vocabulary.keys().next_back(), Some(&(BASE - 1)));
    let mut all = Vec::new();
    for (id, (spelling, bytes)) in &vocabulary {
        assert_eq!(TOKENIZER.token_id(spelling), Some(*id));
        assert_eq!(decode(&[*id]), String::from_utf8_lossy(bytes), "{id}");
        all.extend_from_slice(bytes);
    }
    let ids: Vec<u32> = vocabulary.into_keys().collect();
    let mut decoder = StreamDecoder::new(&TOKENIZER, false);
    let mut text = String::new();
    for id in ids {
        text.push_str(decoder.push(id).expect("byte level"));
    }
    text.push_str(decoder.finish().expect("byte level"));
    assert!(text == String::from_utf8_lossy(&all), "the stream of all ids differs");
}

#[test]
#[ignore = "needs the rebuilt tokenizer: .ci/tokenizer/check.sh"]
fn added_tokens_and_their_flags() {
    let plain = 248_058..=248_069;
    let mut special = Vec::new();
    for (id, token) in (BASE..).zip(ADDED) {
        assert_eq!(TOKENIZER.token_id(token), Some(id), "{token}");
        assert_eq!(TOKENIZER.token_text(id).as_deref(), Some(token));
        let ids = [encode("a"), vec![id], encode("b")].concat();
        assert_eq!(encode(&format!("a{token}b")), ids);
        assert_eq!(decode(&ids), format!("a{token}b"));
        let kept = if plain.contains(&id) { token } else { "" };
        assert_eq!(TOKENIZER.decode(&ids, true).expect("decodes"), format!("a{kept}b"));
        if !plain.contains(&id) {
            special.push(id);
        }
    }
    assert_eq!(special.len(), 21);
    assert_eq!(TOKENIZER.special_ids(), special);
    assert_eq!(TOKENIZER.id_bound(), 248_077);
    // Padding is no token and decodes to nothing.
    assert_eq!(TOKENIZER.token_text(248_077), None);
    assert_eq!(decode(&[248_077, 248_319]), "");
}

#[test]
#[ignore = "needs the rebuilt tokenizer: .ci/tokenizer/check.sh"]
fn a_smaller_model_is_refused() {
    // After the load that is measured, not beside it.
    let path = LazyLock::force(&TOKENIZER).path();
    let error = Tokenizer::load(path, 248_076).expect_err("one too few");
    assert!(error.to_string().contains("<|audio_pad|>"), "{error}");
}
