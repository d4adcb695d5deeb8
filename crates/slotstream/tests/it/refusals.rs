//! What an engine refuses, from the folder to the logits: each its own error, which names file
//! and cause and the remedy where there is one, soon and without a large allocation.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use allocation_counter::measure;
use slotstream::cache::CacheError;
use slotstream::checkpoint::Checkpoint;
use slotstream::core::{ErrorKind, RecordReader};
use slotstream::io::{ReaderKind, open_reader};
use slotstream::qwen::QwenError;
use slotstream::{Engine, EngineBuilder, Error, Sizing};
use slotstream_testkit::checkpoint::damage::{self, Damage, Found};
use slotstream_testkit::reader::{FaultyReader, Schedule};

use crate::rig::{chain, faulty, session};

/// The most that a refusal of a folder may hold at any moment.
const MOST_BYTES: u64 = 16 << 20;

/// Far more than a refusal takes on a busy machine.
const MOST_TIME: Duration = Duration::from_secs(5);

/// A good folder, damaged or not, and the folder that it goes with.
fn folder(damage: Option<&Damage>) -> (tempfile::TempDir, PathBuf) {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = parent.path().join("model");
    damage::write_good(&folder).expect("written");
    if let Some(damage) = damage {
        let broken = damage.apply(&folder);
        assert!(broken.is_ok(), "{}: {broken:?}", damage.name());
    }
    (parent, folder)
}

fn named(name: &str) -> Damage {
    damage::all().find(|damage| damage.name() == name).expect(name)
}

fn builder(folder: &Path) -> EngineBuilder {
    let builder = Engine::builder(folder).sizing(Sizing::Share(1.0)).threads(1).lanes(1);
    builder.context(64).ngram_cache_rows(0)
}

/// What building an engine answers, watched.
fn refused(damage: &Damage, folder: &Path) -> Error {
    let name = damage.name();
    let (mut result, mut took) = (None, Duration::ZERO);
    let memory = measure(|| {
        let start = Instant::now();
        result = Some(builder(folder).build());
        took = start.elapsed();
    });
    let error = result.expect("it ran").expect_err(name);
    assert!(took < MOST_TIME, "{name}: {took:?}");
    assert!(memory.bytes_max < MOST_BYTES, "{name}: held {} bytes", memory.bytes_max);
    error
}

fn check_words(damage: &Damage, error: &Error) {
    let (name, text) = (damage.name(), chain(error));
    assert_eq!(error.kind(), damage.kind(), "{name}: {text}");
    for words in damage.says() {
        assert!(text.contains(words), "{name}: `{text}` does not say `{words}`");
    }
}

#[test]
fn damaged_headers_are_refused_in_the_checkpoint_s_own_words() {
    for damage in damage::all().filter(|damage| damage.found() == Found::Opening) {
        let (_parent, folder) = folder(Some(&damage));
        let error = refused(&damage, &folder);
        let Error::Checkpoint(inner) = &error else { panic!("{}: {error:?}", damage.name()) };
        assert!(damage.is_checkpoint_error(inner), "{}: {inner:?}", damage.name());
        check_words(&damage, &error);
        let own = Checkpoint::open(&folder).expect_err(damage.name());
        assert_eq!(chain(&error), chain(&own));
    }
}

#[test]
fn damaged_norms_and_constants_are_refused_when_loading() {
    for damage in damage::all().filter(|damage| damage.found() == Found::Payload) {
        let (_parent, folder) = folder(Some(&damage));
        let error = refused(&damage, &folder);
        let Error::Model(inner) = &error else { panic!("{}: {error:?}", damage.name()) };
        let QwenError::Checkpoint { source, .. } = &**inner else { panic!("{inner:?}") };
        assert!(damage.is_checkpoint_error(source), "{}: {source:?}", damage.name());
        check_words(&damage, &error);
    }
}

#[cfg(feature = "text")]
mod text {
    use slotstream::text::TextError;

    use super::*;

    /// Whether an error of the text's files is the one that a damage must give.
    fn is(name: &str, error: &TextError) -> bool {
        match name {
            "a tokenizer with a token twice" | "a key twice in the tokenizer's settings" => {
                matches!(error, TextError::DuplicateKey { .. })
            }
            "a tokenizer with more tokens than the model" => {
                matches!(error, TextError::Vocabulary { id: 128, vocab_size: 128, .. })
            }
            "a splitting rule that repeats without bound" => {
                matches!(error, TextError::Unbounded { found: 3_600_000_000, .. })
            }
            "a character map longer than its bytes" => {
                matches!(error, TextError::Unbounded { found: 4_294_967_295, .. })
            }
            "a folder in place of the tokenizer" => matches!(error, TextError::NotAFile { .. }),
            "a tokenizer that is a loop of links" => matches!(error, TextError::LinkLoop { .. }),
            "a tokenizer that is a link to nowhere" => matches!(error, TextError::Read { .. }),
            "a chat template of the wrong form" => matches!(error, TextError::Field { .. }),
            "a chat template that does not compile" => {
                matches!(error, TextError::TemplateSyntax { line: 1, .. })
            }
            _ => matches!(error, TextError::Json { .. }),
        }
    }

    #[test]
    fn damaged_files_of_text_are_refused() {
        let mut rows = 0;
        for damage in damage::all().filter(|damage| damage.found() == Found::Text) {
            let (_parent, folder) = folder(Some(&damage));
            let error = refused(&damage, &folder);
            let Error::Text(inner) = &error else { panic!("{}: {error:?}", damage.name()) };
            assert!(is(damage.name(), inner), "{}: {inner:?}", damage.name());
            check_words(&damage, &error);
            rows += 1;
        }
        assert!(rows > 15, "{rows} rows");
    }

    #[test]
    fn a_model_without_tokenizer_speaks_ids_and_says_so() {
        let (_parent, folder) = folder(None);
        std::fs::remove_file(folder.join("tokenizer.json")).expect("removed");
        let engine = builder(&folder).build().expect("ids need no tokenizer");
        for error in [
            engine.tokenizer().expect_err("there is none"),
            session(&engine).prefill_text("Hello").expect_err("there is none"),
        ] {
            assert!(matches!(error, Error::NoTokenizer { .. }), "{error:?}");
            assert_eq!(error.kind(), ErrorKind::User);
            for words in ["tokenizer.json", "missing", "token ids"] {
                assert!(error.to_string().contains(words), "{error}");
            }
        }
    }
}

/// A request that is refused by an engine on a good folder.
type Request =
    (&'static str, fn(&Path) -> Result<(), Error>, fn(&Error) -> bool, &'static [&'static str]);

fn prefill(folder: &Path, tokens: &[u32]) -> Result<(), Error> {
    session(&builder(folder).build()?).prefill(tokens)
}

const REQUESTS: &[Request] = &[
    (
        "token id out of range",
        |f| prefill(f, &[1, 2, 128]),
        |e| matches!(e, Error::Model(e) if matches!(**e, QwenError::Token { token: 128, position: 2, .. })),
        &["token 128", "position 2", "128 entries"],
    ),
    (
        "prompt longer than the context",
        |f| prefill(f, &[1; 65]),
        |e| matches!(e, Error::Model(e) if matches!(**e, QwenError::Context { tokens: 65, context: 64, .. })),
        &["65 tokens", "context of 64 tokens"],
    ),
    (
        "context longer than the model's",
        |f| builder(f).context(4097).build().map(drop),
        |e| matches!(e, Error::Option { option: "context", .. }),
        &["4097", "4096"],
    ),
    (
        "pool below the floor",
        |f| builder(f).sizing(Sizing::Slots(3)).build().map(drop),
        |e| matches!(e, Error::Cache(CacheError::BelowFloor { slots: 3, floor: 4, .. })),
        &["3", "4"],
    ),
    (
        "no slot at all",
        |f| builder(f).sizing(Sizing::Slots(0)).build().map(drop),
        |e| matches!(e, Error::Cache(CacheError::BelowFloor { slots: 0, floor: 4, .. })),
        &["0", "4"],
    ),
    (
        "budget too small",
        |f| builder(f).sizing(Sizing::Memory(1 << 20)).build().map(drop),
        |e| matches!(e, Error::Budget { budget: 1_048_576, floor_slots: 4, .. }),
        &["1048576 bytes are not enough", "besides the pool", "4 slots x ", "give at least"],
    ),
    (
        "a share that is none",
        |f| builder(f).sizing(Sizing::Share(1.5)).build().map(drop),
        |e| matches!(e, Error::Option { .. }),
        &["1.5", "from 0 to 1"],
    ),
];

#[test]
fn requests_that_cannot_be_met_name_the_numbers() {
    let (_parent, folder) = folder(None);
    for (name, request, is, says) in REQUESTS {
        let start = Instant::now();
        let error = request(&folder).expect_err(name);
        assert!(start.elapsed() < MOST_TIME, "{name}");
        let text = chain(&error);
        assert!(is(&error), "{name}: {error:?}");
        assert_eq!(error.kind(), ErrorKind::User, "{name}: {text}");
        for words in *says {
            assert!(text.contains(words), "{name}: `{text}` does not say `{words}`");
        }
    }
}

#[test]
fn values_that_are_not_finite_are_named_with_layer_and_step() {
    // With weights of zero every expert of the lowest numbers is used, and zero times NaN is NaN.
    for (name, layer, says) in [
        ("a float tensor with an infinite value", 1, "reached the router of layer 1"),
        ("a scale of an expert that is not a number", 3, "is the logit of token 0"),
        ("a scale of the output head that is not a number", 3, "is the logit of token 127"),
    ] {
        let (_parent, folder) = folder(Some(&named(name)));
        let engine = builder(&folder).build().expect("headers do not show it");
        let mut session = session(&engine);
        let error = session.prefill(&[5, 6, 7]).expect_err(name);
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        let Error::Model(inner) = &error else { panic!("{error:?}") };
        let found = match **inner {
            QwenError::NotFinite { layer, .. } | QwenError::LogitNotFinite { layer, .. } => layer,
            ref other => panic!("{other:?}"),
        };
        assert_eq!(found.index(), layer, "{name}");
        let text = error.to_string();
        for words in [says, "in step 1,", "at position ", "inspect --values"] {
            assert!(text.contains(words), "{name}: `{text}` does not say `{words}`");
        }
        assert!(session.logits().is_empty(), "nothing to sample from");
        engine.inspect(|experts| experts.pool().validate()).expect("consistent");
        assert!(session.next().is_err(), "it stays refused");
    }
}

#[test]
fn a_reader_without_rights_is_the_user_s_to_set_right() {
    let (_parent, folder) = folder(None);
    let denied = std::io::ErrorKind::PermissionDenied;
    let open: slotstream::OpenReader = Box::new(move |paths: &[PathBuf]| {
        let inner = open_reader(ReaderKind::Buffered, paths)?;
        Ok(Arc::new(FaultyReader::new(inner, Schedule::Always, denied)) as Arc<dyn RecordReader>)
    });
    // While loading, and in the first pass: the reads before that one are those of loading.
    let loading = builder(&folder).open_reader(open).build();
    let error = loading.expect_err("no rights");
    assert_eq!(error.kind(), ErrorKind::User, "{error:?}");
    let text = chain(&error);
    assert!(text.contains("model-0000") && text.contains("ermission denied"), "{text}");
    let (engine, reader) = faulty(builder(&folder), denied);
    reader.arm(Schedule::Always);
    let error = session(&engine).prefill(&[1]).expect_err("no rights");
    assert_eq!(error.kind(), ErrorKind::User, "{error:?}");
    let text = chain(&error);
    assert!(text.contains("model-0000") && text.contains("ermission denied"), "{text}");
    engine.inspect(|experts| experts.pool().validate()).expect("consistent");
}
