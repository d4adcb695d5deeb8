//! Reads that fail: a typed error, a consistent pool, and right tokens afterwards.

use std::sync::Arc;

use slotstream::core::{
    ErrorKind, EvictionPolicy, ExpertKey, Incoming, Origin, RecordReader, SlotId, SlotView,
};
use slotstream::io::{ReaderKind, open_reader};
use slotstream::{Engine, Sizing};
use slotstream_testkit::reader::{FaultyReader, Schedule};

use crate::rig::{builder, golden, greedy, session};

type Faulty = Arc<FaultyReader<Arc<dyn RecordReader>>>;

fn faulty_engine() -> (Engine, Faulty) {
    let (tell, hear) = std::sync::mpsc::channel();
    let open = move |paths: &[std::path::PathBuf]| {
        let inner = open_reader(ReaderKind::Buffered, paths)?;
        let faulty: Faulty =
            Arc::new(FaultyReader::new(inner, Schedule::Never, std::io::ErrorKind::InvalidData));
        tell.send(Arc::clone(&faulty))?;
        Ok(faulty as Arc<dyn RecordReader>)
    };
    // No n-gram cache: every generation reads the same number of rows.
    let engine = builder()
        .sizing(Sizing::Slots(18))
        .ngram_cache_rows(0)
        .lanes(2)
        .open_reader(Box::new(open))
        .build()
        .expect("builds");
    (engine, hear.recv().expect("opened"))
}

#[test]
fn every_read_of_a_generation_may_fail_once() {
    let (engine, faulty) = faulty_engine();
    let prompt = &golden("p1.input_ids")[..2];
    let expected = greedy(&mut session(&engine), prompt, 4);
    let generation = |session: &mut slotstream::Session| {
        session.prefill(prompt)?;
        session.generate_ids(4).ignoring_eos(true).collect::<Result<Vec<_>, _>>()
    };
    faulty.arm(Schedule::Never);
    let mut clean = session(&engine);
    assert_eq!(generation(&mut clean).expect("runs"), expected);
    let reads = faulty.reads();
    assert!(reads > 1000, "{reads} reads");
    // Every read once would take minutes: a prime step reaches all kinds and layers.
    for n in (0..reads).step_by(if cfg!(debug_assertions) { 37 } else { 1 }) {
        faulty.arm(Schedule::Nth(n));
        let mut hurt = session(&engine);
        let error = match generation(&mut hurt) {
            Err(error) => error,
            // What is resident differs from run to run, so a late read may not happen.
            Ok(tokens) => {
                assert_eq!(tokens, expected, "read {n}");
                continue;
            }
        };
        assert!(matches!(error.kind(), ErrorKind::Transient), "read {n}: {error}");
        engine.inspect(|experts| experts.pool().validate()).expect("consistent");
        faulty.arm(Schedule::Never);
        // The same session goes on where it was: the lost pass runs again.
        let mut generated = hurt.generated().to_vec();
        while generated.len() < 4 {
            generated.push(hurt.next().expect("the next request works"));
        }
        assert_eq!(generated, expected, "read {n}");
    }
}

#[test]
fn a_failed_read_names_record_tensor_and_place() {
    let (engine, faulty) = faulty_engine();
    let mut session = session(&engine);
    faulty.arm(Schedule::Every(1));
    let error = session.prefill(&golden("p1.input_ids")[..3]).expect_err("all reads fail");
    let mut chain = vec![error.to_string()];
    let mut source = std::error::Error::source(&error);
    while let Some(error) = source {
        chain.push(error.to_string());
        source = error.source();
    }
    let chain = chain.join(": ");
    for word in ["layer 0", "expert", "switch_mlp", "offset", ".safetensors"] {
        assert!(chain.contains(word), "{word} is missing from: {chain}");
    }
}

/// Panics at its `n`-th choice.
#[derive(Debug)]
struct Panics(u32);

impl EvictionPolicy for Panics {
    fn on_insert(&mut self, _slot: SlotId, _key: ExpertKey, _origin: Origin) {}
    fn on_hit(&mut self, _slot: SlotId, _key: ExpertKey) {}
    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        self.0 = self.0.wrapping_sub(1);
        assert_ne!(self.0, 0, "a bug in the user's policy");
        (0..view.len() as u32).map(SlotId::new).find(|slot| view.is_evictable(*slot))
    }
    fn reset(&mut self) {}
}

/// Always answers with slot 0, pinned or not.
#[derive(Debug)]
struct Stubborn;

impl EvictionPolicy for Stubborn {
    fn on_insert(&mut self, _slot: SlotId, _key: ExpertKey, _origin: Origin) {}
    fn on_hit(&mut self, _slot: SlotId, _key: ExpertKey) {}
    fn choose_victim(&mut self, _incoming: &Incoming, _view: &SlotView<'_>) -> Option<SlotId> {
        Some(SlotId::new(0))
    }
    fn reset(&mut self) {}
}

#[test]
fn a_panicking_policy_ends_its_request_only() {
    let engine = builder().policy(Box::new(Panics(40))).sizing(Sizing::Slots(18)).build();
    let engine = engine.expect("builds");
    let prompt = golden("p1.input_ids");
    let mut hurt = session(&engine);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| hurt.prefill(&prompt)));
    assert!(caught.is_err(), "the panic reaches the caller");
    let mut next = session(&engine);
    assert_eq!(greedy(&mut next, &prompt, 4), golden("p1.greedy_ids")[..4]);
    // The session that was hurt knows its tokens and runs them again.
    assert_eq!(hurt.next().expect("runs"), golden("p1.greedy_ids")[0]);
}

#[test]
fn an_unlawful_policy_is_named() {
    let engine = builder().policy(Box::new(Stubborn)).sizing(Sizing::Slots(18)).build();
    let engine = engine.expect("builds");
    let error = session(&engine).prefill(&golden("p1.input_ids")).expect_err("unlawful");
    assert_eq!(error.kind(), ErrorKind::Bug);
    let mut chain = String::new();
    let mut source: Option<&dyn std::error::Error> = Some(&error);
    while let Some(error) = source {
        chain += &format!("{error}; ");
        source = error.source();
    }
    assert!(chain.contains("stubborn"), "{chain}");
    engine.inspect(|experts| experts.pool().validate()).expect("consistent");
}
