//! The targets.

use std::error::Error;
use std::path::Path;

use crate::{container, correction, session, trace, warm};
use slotstream::checkpoint::{
    CheckpointError, GenerationConfig, Header, Index, TextConfig, expected_tensors,
};
use slotstream::text::{StreamDecoder, TextError, Tokenizer};
use slotstream_testkit::mutate::{Edit, JSON, Material};

/// Something that reads bytes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Target {
    /// Its name, and that of its folder below `corpus/`.
    pub name: &'static str,
    /// Words of the format, for mutations.
    pub words: &'static [&'static [u8]],
    /// Most bytes that it may hold at any moment.
    pub most_bytes: u64,
    /// Reads the bytes and says how that ended: `accepted`, or the refusal. Inputs that end in a
    /// new way are kept and changed further. Panics if what was accepted is not lawful.
    pub run: fn(&[u8]) -> String,
}

impl Target {
    /// Applies an edit, with words of the format or of JSON, as the edit's numbers say.
    pub fn edit(&self, edit: Edit, input: &mut Vec<u8>, other: &[u8]) {
        let words = if edit.0[2].is_multiple_of(3) { JSON } else { self.words };
        edit.apply(input, &Material { words, other });
    }
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "header", words: HEADER, most_bytes: 64 << 20, run: header },
    Target { name: "index", words: INDEX, most_bytes: 64 << 20, run: index },
    Target { name: "config", words: CONFIG, most_bytes: 64 << 20, run: config },
    Target {
        name: "container",
        words: container::WORDS,
        most_bytes: 64 << 20,
        run: container::container,
    },
    Target { name: "session", words: session::WORDS, most_bytes: 64 << 20, run: session::session },
    Target {
        name: "correction",
        words: correction::WORDS,
        most_bytes: 64 << 20,
        run: correction::correction,
    },
    Target { name: "trace", words: trace::WORDS, most_bytes: 192 << 20, run: trace::trace },
    Target { name: "warm", words: warm::WORDS, most_bytes: 64 << 20, run: warm::warm },
    Target { name: "tokenizer", words: TOKENIZER, most_bytes: 256 << 20, run: tokenizer },
];

/// The target of this name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

const HEADER: &[&[u8]] = &[
    b"\"dtype\":\"BF16\"",
    b"\"shape\":[2,3]",
    b"\"data_offsets\":[0,12]",
    b"\"U32\"",
    b"\"I64\"",
    b"\"F4\"",
    b"\"__metadata__\":{}",
    b"\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b"-",
    b".",
];

const INDEX: &[&[u8]] = &[
    b"\"weight_map\":",
    b"\"metadata\":",
    b"model-00001.safetensors",
    b"../",
    b"/",
    b"\\\\",
    b"..",
    b"\"a\":\"a.safetensors\",",
    b"{",
    b"}",
    b"[",
    b",",
];

const CONFIG: &[&[u8]] = &[
    b"\"text_config\":",
    b"\"quantization\":",
    b"\"quantization_config\":",
    b"\"bits\":8",
    b"\"group_size\":32",
    b"\"num_hidden_layers\":",
    b"\"num_experts\":",
    b"\"layer_types\":",
    b"\"full_attention\"",
    b"\"linear_attention\"",
    b"\"ple_layer_ids\":",
    b"\"rope_parameters\":",
    b"\"partial_rotary_factor\":0.25,",
    b"\"eos_token_id\":[1,2],",
    b"null",
    b"{}",
    b"[",
    b"{",
    b"}",
    b"1024",
    b"16384",
    b"1099511627776",
];

const TOKENIZER: &[&[u8]] = &[
    b"{\"Regex\":\"(?=a){9}\"}",
    b"{\"String\":\"\"}",
    b"{99}",
    b"(?=",
    b"(?<=a|b)",
    b"\\\\p{L}",
    b"*+",
    b"((((((((((((((((",
    b"\"type\":\"BPE\"",
    b"\"type\":\"Unigram\"",
    b"\"type\":\"WordPiece\"",
    b"\"type\":\"WordLevel\"",
    b"\"type\":\"Sequence\"",
    b"{\"type\":\"NFKC\"}",
    b"{\"type\":\"Prepend\",\"prepend\":\"x\"}",
    b"{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}",
    b"{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"\"}",
    b"{\"type\":\"Strip\",\"content\":\"a\",\"start\":1,\"stop\":1}",
    b"{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"always\"}",
    b"{\"type\":\"CTC\"}",
    b"{\"type\":\"ByteFallback\"}",
    b"{\"type\":\"Fuse\"}",
    b"{\"type\":\"FixedLength\",\"length\":0}",
    b"\"merges\":[[\"a\",\"b\"]]",
    b"\"byte_fallback\":true",
    b"\"unk_token\":\"a\"",
    b"\"dropout\":1.0",
    b"\"max_input_chars_per_word\":0",
    b"\"special\":true",
    b"\"single_word\":true",
    b"\"<0x41>\":9,",
    b"null",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
];

/// What an error says at the bottom, without numbers and without what it quotes, which differ
/// from input to input.
fn words_of(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    let text = last.to_string();
    let unquoted = text.split(['`', '"', '\'']).step_by(2).flat_map(str::chars);
    unquoted.filter(|c| c.is_ascii_alphabetic() || *c == ' ').take(100).collect()
}

/// How reading a file of a checkpoint ended; `check` looks at what was accepted.
fn outcome<T>(result: Result<T, CheckpointError>, check: impl FnOnce(T)) -> String {
    let error = match result {
        Ok(value) => {
            check(value);
            return "accepted".to_owned();
        }
        Err(error) => error,
    };
    let debug = format!("{error:?}");
    let variant = debug.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    match &error {
        // One field refused is another way to end than another field; most names are the config's.
        CheckpointError::Field { field, .. } | CheckpointError::MissingField { field, .. } => {
            let name = field.rsplit('.').next().unwrap_or_default();
            let letters = name.chars().filter(|c| c.is_ascii_lowercase() || *c == '_');
            format!("{variant} {}", letters.take(24).collect::<String>())
        }
        CheckpointError::Json { reason, .. } => {
            let words = reason.split(|c: char| !c.is_ascii_lowercase()).take(6);
            format!("{variant} {}", words.collect::<Vec<_>>().join(" "))
        }
        _ => variant.to_owned(),
    }
}

/// The JSON of a safetensors header. The size of the data behind it is the one that it asks for,
/// so that what is lawful is accepted.
fn header(bytes: &[u8]) -> String {
    let path = Path::new("a.safetensors");
    let data_len = match Header::from_json(path, bytes, 0) {
        Err(
            CheckpointError::TrailingBytes { expected, .. }
            | CheckpointError::Truncated { expected, .. },
        ) => expected.saturating_sub(8 + bytes.len() as u64),
        _ => 0,
    };
    outcome(Header::from_json(path, bytes, data_len), |header| {
        let mut end = 0;
        for tensor in &header.tensors {
            assert_eq!(tensor.begin, end, "{tensor:?} overlaps or leaves a gap");
            let values: u128 = tensor.shape.iter().map(|n| u128::from(*n)).product();
            let bits = u128::from(tensor.end - tensor.begin) * 8;
            assert_eq!(bits, values * u128::from(tensor.dtype.bits()), "{tensor:?}");
            end = tensor.end;
        }
        assert_eq!(end, data_len);
        assert_eq!(header.file_len, 8 + bytes.len() as u64 + data_len);
    })
}

/// `model.safetensors.index.json`.
fn index(bytes: &[u8]) -> String {
    outcome(Index::from_json(Path::new("index.json"), bytes), |index| {
        for (name, tensors) in &index.files {
            let plain = Path::new(name).file_name().is_some_and(|file| file == name.as_str());
            assert!(plain && !tensors.is_empty(), "{name:?}");
        }
    })
}

/// `config.json`, and the same bytes as `generation_config.json`.
fn config(bytes: &[u8]) -> String {
    let path = Path::new("config.json");
    let result = TextConfig::from_json(path, bytes);
    let config = outcome(result, |config| {
        let geometry = config.geometry().expect("accepted numbers are a geometry");
        assert!(geometry.top_k() <= geometry.experts() && geometry.floor_slots() > 0);
        let _ = config.expert_shape();
        if let Ok(tensors) = expected_tensors(&config) {
            let sum = tensors.iter().try_fold(0_u64, |sum, t| {
                let values = t.shape.iter().try_fold(1_u64, |n, dim| n.checked_mul(*dim))?;
                sum.checked_add(t.dtype.usual().bytes_of(values)?)
            });
            assert!(sum.is_some(), "the model has more bytes than a number can count");
        }
    });
    let generation = outcome(GenerationConfig::from_json(path, bytes, 4096), |generation| {
        assert!(generation.eos_token_ids.iter().all(|id| *id < 4096));
    });
    format!("{config}; {generation}")
}

/// Texts that reach every part of a tokenizer.
const TEXTS: [&str; 5] = [
    "",
    "a",
    "Hello, world! 1234  \n\t x",
    "é e\u{301} 中文 🙂\u{200d}",
    "<|endoftext|>ab<unk> aaa",
];

/// `tokenizer.json`: loading, and using what was loaded.
fn tokenizer(bytes: &[u8]) -> String {
    let tokenizer = match Tokenizer::from_bytes(Path::new("tokenizer.json"), bytes, 4096) {
        Ok(tokenizer) => tokenizer,
        Err(error) => return words_of(&error),
    };
    assert!(tokenizer.id_bound() <= 4096);
    let mut ids = vec![0, 1, 95, 96, 4095, u32::MAX];
    let mut outcome = "accepted".to_owned();
    let mut note = |result: Result<(), TextError>| {
        if let Err(error) = result {
            outcome = words_of(&error);
        }
    };
    for text in TEXTS {
        for add_special in [false, true] {
            note(tokenizer.encode(text, add_special).map(|found| ids.extend(found)));
        }
    }
    for skip_special in [false, true] {
        note(tokenizer.decode(&ids, skip_special).map(drop));
        let mut stream = StreamDecoder::new(&tokenizer, skip_special);
        note(ids.iter().take(64).try_for_each(|id| stream.push(*id).map(drop)));
        note(stream.finish().map(drop));
    }
    outcome
}
