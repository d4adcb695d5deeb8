//! The files of text: tokenizer and template.

use std::path::Path;

use serde_json::{Value, json};
use slotstream_core::ErrorKind::{Corrupt, User};

use super::{Broken, END, TextRow, brackets, get, link, make_folder, put, remove};
use crate::checkpoint::spec::write_json;
use crate::checkpoint::{WriteError, edit};

const TOKENIZER: &str = "tokenizer.json";
const SETTINGS: &str = "tokenizer_config.json";

/// A byte-level tokenizer of the printable ASCII characters, space and line end: ids 0 to 95, and
/// the token that ends a text.
fn tokenizer() -> Value {
    let letters = ('!'..='~').chain(['Ġ', 'Ċ']).map(String::from);
    let vocab: serde_json::Map<String, Value> = letters.zip((0_u32..).map(Value::from)).collect();
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [{
            "id": END, "content": "<|endoftext|>", "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true,
        }],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "\\s+(?!\\S)|\\p{N}{1,3}|[^\\s\\p{N}]+|\\s+"},
             "behavior": "Isolated", "invert": false},
            byte_level,
        ]},
        "post_processor": null,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": false, "vocab": vocab, "merges": [],
        },
    })
}

/// Writes the files of text into a folder.
pub(super) fn write(folder: &Path) -> Result<(), WriteError> {
    write_json(&folder.join(TOKENIZER), &tokenizer())?;
    let settings = json!({
        "eos_token": "<|endoftext|>",
        "chat_template": "{% for message in messages %}{{ message.content }}\n{% endfor %}",
    });
    write_json(&folder.join(SETTINGS), &settings)
}

fn change(folder: &Path, edit: impl FnOnce(&mut Value)) -> Broken {
    edit::edit_json(&folder.join(TOKENIZER), edit)
}

fn regex(folder: &Path, pattern: &str) -> Broken {
    change(folder, |t| t["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = json!(pattern))
}

fn template(folder: &Path, value: Value) -> Broken {
    edit::edit_json(&folder.join(SETTINGS), |s| s["chat_template"] = value)
}

pub(super) const TEXTS: &[TextRow] = &[
    (
        "a tokenizer that is no JSON",
        Corrupt,
        |f| put(&f.join(TOKENIZER), b"{\"version\": \"1.0\", "),
        &[TOKENIZER, "line 1"],
    ),
    (
        "a tokenizer that is no UTF-8",
        Corrupt,
        |f| put(&f.join(TOKENIZER), b"{\"version\": \"\xff\"}"),
        &[TOKENIZER, "UTF-8"],
    ),
    (
        "a tokenizer of 200,000 brackets",
        Corrupt,
        |f| put(&f.join(TOKENIZER), brackets("{\"model\": ")),
        &[TOKENIZER, "recursion limit"],
    ),
    (
        "a tokenizer with a token twice",
        Corrupt,
        |f| {
            let text = String::from_utf8_lossy(&get(&f.join(TOKENIZER))?).replacen(
                "\"a\": 64",
                "\"b\": 64",
                1,
            );
            put(&f.join(TOKENIZER), text)
        },
        &[TOKENIZER, "`b` twice"],
    ),
    (
        "a tokenizer of an unknown model",
        Corrupt,
        |f| change(f, |t| t["model"]["type"] = json!("Letters")),
        &[TOKENIZER, "tokenizers library"],
    ),
    (
        "a tokenizer with more tokens than the model",
        Corrupt,
        |f| change(f, |t| t["model"]["vocab"]["~"] = json!(128)),
        &[TOKENIZER, "token 128", "vocab_size is 128", "do not belong together"],
    ),
    (
        "a tokenizer with a wrong merge",
        Corrupt,
        |f| change(f, |t| t["model"]["merges"] = json!([["a", "nowhere"]])),
        &[TOKENIZER, "nowhere"],
    ),
    (
        "a splitting rule that repeats without bound",
        Corrupt,
        |f| regex(f, "(?:(?=a){60000}){60000}"),
        &[TOKENIZER, "repetitions", "3600000000"],
    ),
    (
        "a character map longer than its bytes",
        Corrupt,
        |f| {
            change(f, |t| {
                t["normalizer"] =
                    json!({"type": "Precompiled", "precompiled_charsmap": "/////wAAAAA="});
            })
        },
        &[TOKENIZER, "precompiled_charsmap", "4294967295"],
    ),
    ("a splitting rule that is no regular expression", Corrupt, |f| regex(f, "(((a"), &[TOKENIZER]),
    (
        "a folder in place of the tokenizer",
        User,
        |f| {
            remove(&f.join(TOKENIZER))?;
            make_folder(&f.join(TOKENIZER))
        },
        &[TOKENIZER, "no regular file"],
    ),
    (
        "a tokenizer that is a loop of links",
        Corrupt,
        |f| link(&f.join(TOKENIZER), &f.join(TOKENIZER)),
        &[TOKENIZER, "symbolic links"],
    ),
    (
        "a tokenizer that is a link to nowhere",
        User,
        |f| link(&f.join(TOKENIZER), Path::new("/nowhere/at/all")),
        &[TOKENIZER, "No such file"],
    ),
    (
        "a key twice in the tokenizer's settings",
        Corrupt,
        |f| put(&f.join(SETTINGS), br#"{"eos_token": "a", "eos_token": "b"}"#),
        &[SETTINGS, "`eos_token` twice"],
    ),
    (
        "tokenizer settings that are no JSON",
        Corrupt,
        |f| put(&f.join(SETTINGS), b"{]"),
        &[SETTINGS, "line 1"],
    ),
    (
        "tokenizer settings of 200,000 brackets",
        Corrupt,
        |f| put(&f.join(SETTINGS), brackets("{\"x\": ")),
        &[SETTINGS, "recursion limit"],
    ),
    (
        "tokenizer settings that are a list",
        Corrupt,
        |f| put(&f.join(SETTINGS), b"[1]"),
        &[SETTINGS, "a JSON object expected"],
    ),
    (
        "a chat template of the wrong form",
        Corrupt,
        |f| template(f, json!({"default": "x"})),
        &[SETTINGS, "chat_template"],
    ),
    (
        "a chat template that does not compile",
        Corrupt,
        |f| template(f, json!("{% if %}")),
        &[SETTINGS, "syntax error in line 1"],
    ),
];
