use std::sync::LazyLock;

use proptest::prelude::*;

use super::StreamDecoder;
use crate::text::stop::tests::naive;
use crate::text::tokenizer::tests::bundled;
use crate::text::{StopMatcher, TextError, Tokenizer};

static BUNDLED: LazyLock<Tokenizer> = LazyLock::new(bundled);

/// All pieces, the last one from `finish`.
fn pieces(tokenizer: &Tokenizer, ids: &[u32], skip_special: bool) -> Vec<String> {
    let mut decoder = StreamDecoder::new(tokenizer, skip_special);
    let mut pieces: Vec<String> = Vec::new();
    for id in ids {
        pieces.push(decoder.push(*id).unwrap().to_owned());
    }
    pieces.push(decoder.finish().unwrap().to_owned());
    pieces
}

fn from_json(json: &serde_json::Value) -> Tokenizer {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, json.to_string()).unwrap();
    Tokenizer::load(&path, 1 << 20).unwrap()
}

/// A tokenizer in the manner of Llama 2: `▁` for spaces, single bytes as `<0x..>`.
static SENTENCE_PIECE: LazyLock<Tokenizer> = LazyLock::new(|| {
    let words = ["▁", "▁the", "▁cat", "s", "▁中", "é", "�", ".", "▁▁", "<0x", "x>"];
    let vocab: serde_json::Map<String, serde_json::Value> = (0..256)
        .map(|byte| format!("<0x{byte:02X}>"))
        .chain(words.map(String::from))
        .enumerate()
        .map(|(id, token)| (token, id.into()))
        .collect();
    from_json(&serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [{"id": 267, "content": "<s>", "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true}],
        "normalizer": null, "pre_tokenizer": null, "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
            "byte_fallback": true, "ignore_merges": false, "vocab": vocab, "merges": []}
    }))
});

#[test]
fn characters_split_over_tokens_are_held_back() {
    let ids = BUNDLED.encode("👩‍💻 ok", false).unwrap();
    let pieces = pieces(&BUNDLED, &ids, false);
    assert!(ids.len() > 8, "the emoji are split into bytes: {ids:?}");
    assert!(pieces.iter().all(|piece| !piece.contains('\u{fffd}')), "{pieces:?}");
    assert_eq!(pieces.concat(), "👩‍💻 ok");
    // The first emoji appears with its last byte, not before.
    assert_eq!(pieces.iter().position(|piece| !piece.is_empty()), Some(3));
}

#[test]
fn an_unfinished_character_ends_as_a_replacement() {
    let ids = BUNDLED.encode("a👩", false).unwrap();
    let cut = &ids[..ids.len() - 1];
    let pieces = pieces(&BUNDLED, cut, false);
    assert_eq!(pieces.concat(), "a\u{fffd}");
    assert_eq!(pieces.concat(), BUNDLED.decode(cut, false).unwrap());
    assert_eq!(pieces.last().unwrap(), "\u{fffd}");
    // `finish` begins a new text.
    let mut decoder = StreamDecoder::new(&BUNDLED, false);
    for id in cut {
        decoder.push(*id).unwrap();
    }
    assert_eq!(decoder.finish().unwrap(), "\u{fffd}");
    assert_eq!(decoder.finish().unwrap(), "");
    assert_eq!(decoder.push(39).unwrap(), BUNDLED.decode(&[39], false).unwrap());
}

#[test]
fn special_tokens_are_left_out_on_demand() {
    let ids = BUNDLED.encode("a<|im_end|>b<think>", false).unwrap();
    assert_eq!(pieces(&BUNDLED, &ids, true).concat(), "ab<think>");
    assert_eq!(pieces(&BUNDLED, &ids, false).concat(), "a<|im_end|>b<think>");
}

#[test]
fn certain_text_is_not_delayed() {
    let ids = BUNDLED.encode("Plain words, one by one.", false).unwrap();
    let pieces = pieces(&BUNDLED, &ids, false);
    assert!(pieces[..ids.len()].iter().all(|piece| !piece.is_empty()), "{pieces:?}");
    let word = SENTENCE_PIECE.token_id("▁cat").unwrap();
    let mut decoder = StreamDecoder::new(&SENTENCE_PIECE, false);
    let got: Vec<String> = (0..3).map(|_| decoder.push(word).unwrap().to_owned()).collect();
    assert_eq!(got, ["cat", " cat", " cat"]);
}

/// Every byte by itself, and all pairs that begin a character in a wrong way.
#[test]
fn every_byte_and_pair_of_bytes_decodes_as_a_whole() {
    let byte_tokens: Vec<u32> = (0..BUNDLED.id_bound() as u32)
        .filter(|id| BUNDLED.token_text(*id).is_some_and(|text| text.chars().count() == 1))
        .collect();
    assert!(byte_tokens.len() >= 256 - 13, "{}", byte_tokens.len());
    for &a in &byte_tokens {
        for &b in &byte_tokens {
            let ids = [a, b, a];
            let whole = BUNDLED.decode(&ids, false).unwrap();
            assert_eq!(pieces(&BUNDLED, &ids, false).concat(), whole, "{ids:?}");
        }
    }
}

#[test]
fn a_long_run_of_bytes_costs_no_more_than_its_length() {
    // 200,000 first bytes of a character: each is invalid once the next is known.
    let start = BUNDLED.encode("中", false).unwrap()[0];
    let mut decoder = StreamDecoder::new(&BUNDLED, false);
    let mut length = 0;
    for _ in 0..200_000 {
        let piece = decoder.push(start).unwrap();
        assert!(piece.len() <= 12, "{piece:?}");
        length += piece.len();
    }
    length += decoder.finish().unwrap().len();
    assert_eq!(length, BUNDLED.decode(&vec![start; 200_000], false).unwrap().len());
}

#[test]
fn a_decoder_that_takes_text_back_is_refused() {
    let vocab = serde_json::json!({"<pad>": 0, "a": 1, "b": 2, "|": 3});
    let ctc = from_json(&serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": {"type": "Lowercase"}, "pre_tokenizer": null, "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Fuse"}, {"type": "Replace", "pattern": {"String": "ab"}, "content": "X"}]},
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "<pad>"}
    }));
    let mut decoder = StreamDecoder::new(&ctc, false);
    assert_eq!(decoder.push(1).unwrap(), "a");
    let error = decoder.push(2).unwrap_err();
    assert!(matches!(error, TextError::Unstreamable { id: 2, .. }), "{error:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn pieces_equal_the_whole_for_any_ids(
        ids in prop::collection::vec(prop_oneof![0_u32..300, 0_u32..4200], 0..80),
        skip in any::<bool>(),
    ) {
        let whole = BUNDLED.decode(&ids, skip).unwrap();
        prop_assert_eq!(pieces(&BUNDLED, &ids, skip).concat(), whole);
    }

    #[test]
    fn pieces_equal_the_whole_for_any_text(text in "[\\PC😀👨‍👩‍👧🇫🇷中文日本語한국어e\u{301}\u{fffd}\u{300} \\n]{0,40}") {
        let ids = BUNDLED.encode(&text, false).unwrap();
        let whole = BUNDLED.decode(&ids, false).unwrap();
        let pieces = pieces(&BUNDLED, &ids, false);
        prop_assert_eq!(pieces.concat(), whole);
        // Nothing but what the text itself holds is a replacement.
        let replaced = text.matches('\u{fffd}').count();
        prop_assert_eq!(pieces.concat().matches('\u{fffd}').count(), replaced);
    }

    /// Texts and any ids, with stop strings out of the text itself, which begin and end in the middle
    /// of tokens and of sequences of joined emoji: what is streamed is the whole up to the first end
    /// of a stop string.
    #[test]
    fn streamed_text_ends_where_a_search_in_the_whole_says(
        text in "[a-c 😀👨‍👩‍👧🇫🇷中文日本語한국어e\u{301}\u{fffd}\\n]{0,40}",
        strays in prop::collection::vec(0_u32..4200, 0..6),
        cuts in prop::collection::vec(any::<[prop::sample::Index; 2]>(), 0..3),
        others in prop::collection::vec("[ab😀中\u{fffd}]{1,3}", 0..2),
    ) {
        let mut ids = BUNDLED.encode(&text, false).unwrap();
        let middle = ids.len() / 2;
        ids.splice(middle..middle, strays);
        let whole = BUNDLED.decode(&ids, true).unwrap();
        let chars: Vec<char> = whole.chars().collect();
        let cut = |[from, len]: &[prop::sample::Index; 2]| -> String {
            let from = from.index(chars.len() + 1);
            chars[from..].iter().take(1 + len.index(5)).collect()
        };
        let mut stops: Vec<String> = cuts.iter().map(cut).chain(others).collect();
        stops.retain(|stop| !stop.is_empty());
        let plain: Vec<&str> = stops.iter().map(String::as_str).collect();
        let mut matcher = StopMatcher::new(stops.clone()).unwrap();
        let mut decoder = StreamDecoder::new(&BUNDLED, true);
        let mut streamed = String::new();
        for id in &ids {
            streamed.push_str(matcher.push(decoder.push(*id).unwrap()));
            if matcher.matched().is_some() {
                break;
            }
        }
        if matcher.matched().is_none() {
            streamed.push_str(matcher.push(decoder.finish().unwrap()));
            streamed.push_str(matcher.finish());
        }
        let (wanted, stop) = naive(&plain, &whole);
        prop_assert_eq!((streamed, matcher.matched()), (wanted, stop.as_deref()));
    }

    #[test]
    fn windows_equal_the_whole_for_byte_fallback(
        ids in prop::collection::vec(
            prop_oneof![256_u32..268, 0x20_u32..0x80, 0x80_u32..0x100, Just(0xE4), Just(0xB8), Just(0xAD)],
            0..60,
        ),
        skip in any::<bool>(),
    ) {
        let whole = SENTENCE_PIECE.decode(&ids, skip).unwrap();
        prop_assert_eq!(pieces(&SENTENCE_PIECE, &ids, skip).concat(), whole);
    }
}
