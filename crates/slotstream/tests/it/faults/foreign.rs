//! Parts of an embedder that panic or break their contract.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use slotstream::cache::Clock;
use slotstream::core::{
    Deadline, ErrorKind, EventSink, EvictionPolicy, ExpertIdx, ExpertKey, Extent, FileId,
    Forecaster, Geometry, Incoming, LayerIdx, Origin, Outcome, Prediction, Probe, ProbeResults,
    ReadError, ReaderMode, RecordReader, RemoveCause, Routing, SessionId, SlotId, SlotView, Step,
    Tap,
};
use slotstream::io::{ReaderKind, open_reader};
use slotstream::{Engine, EngineBuilder, Sizing};

use super::assert_sound;
use crate::rig::{builder, chain, golden, greedy, random_golden, session};

/// With room for hits.
fn random_builder() -> EngineBuilder {
    crate::rig::random_builder().sizing(Sizing::Slots(48))
}

/// Panics at the n-th call of one method; afterwards, and everywhere else, it behaves.
#[derive(Clone, Debug)]
struct Fuse {
    method: &'static str,
    left: Arc<AtomicU64>,
}

impl Fuse {
    fn new(method: &'static str) -> Self {
        Self { method, left: Arc::default() }
    }

    /// From now on the `n`-th call panics, counted from 1.
    fn light(&self, n: u64) {
        self.left.store(n, Ordering::SeqCst);
    }

    fn burn(&self, method: &str) {
        if method != self.method || self.left.load(Ordering::SeqCst) == 0 {
            return;
        }
        let before = self.left.fetch_sub(1, Ordering::SeqCst);
        assert_ne!(before, 1, "a bug of the embedder's in {method}");
    }
}

/// Lights the fuse for the n-th call and runs a request: the panic reaches the caller, other
/// sessions and the hurt one go on to the right tokens. Gives whether the call took place.
fn blow(engine: &Engine, fuse: &Fuse, n: u64) -> bool {
    let what = format!("call {n} of {}", fuse.method);
    let (prompt, want) = (random_golden("p17.input_ids"), random_golden("p17.greedy.ids"));
    let mut hurt = session(engine);
    fuse.light(n);
    let request = catch_unwind(AssertUnwindSafe(|| {
        hurt.prefill(&prompt)?;
        hurt.generate_ids(6).ignoring_eos(true).collect::<Result<Vec<_>, _>>()
    }));
    fuse.light(0);
    if let Ok(tokens) = request {
        assert_eq!(tokens.expect("nothing else goes wrong"), want[..6], "{what}");
        return false;
    }
    assert_eq!(greedy(&mut session(engine), &prompt, 6), want[..6], "{what}");
    assert_sound(engine);
    let mut generated = hurt.generated().to_vec();
    while generated.len() < 6 {
        generated.push(hurt.next().expect("goes on"));
    }
    assert_eq!(generated, want[..6], "{what}");
    true
}

fn blow_everywhere(fuse: &Fuse, builder: impl Fn() -> EngineBuilder, calls: &[u64]) {
    let engine = builder().build().expect("builds");
    for n in calls {
        assert!(blow(&engine, fuse, *n), "{} is called {n} times", fuse.method);
    }
}

/// `clock` with fuses.
#[derive(Debug)]
struct Policy(Clock, Vec<Fuse>);

impl Policy {
    fn new(fuses: &[&Fuse]) -> Box<Self> {
        Box::new(Self(Clock::new(), fuses.iter().copied().cloned().collect()))
    }

    fn burn(&self, method: &str) {
        self.1.iter().for_each(|fuse| fuse.burn(method));
    }
}

impl EvictionPolicy for Policy {
    fn on_insert(&mut self, slot: SlotId, key: ExpertKey, origin: Origin) {
        self.burn("on_insert");
        self.0.on_insert(slot, key, origin);
    }
    fn on_hit(&mut self, slot: SlotId, key: ExpertKey) {
        self.burn("on_hit");
        self.0.on_hit(slot, key);
    }
    fn choose_victim(&mut self, incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        self.burn("choose_victim");
        self.0.choose_victim(incoming, view)
    }
    fn bind(
        &mut self,
        geometry: &Geometry,
        slots: usize,
    ) -> Result<(), slotstream::core::BindError> {
        self.0.bind(geometry, slots)
    }
    fn on_miss(&mut self, key: ExpertKey) {
        self.burn("on_miss");
        self.0.on_miss(key);
    }
    fn on_remove(&mut self, slot: SlotId, key: ExpertKey, cause: RemoveCause) {
        self.burn("on_remove");
        self.0.on_remove(slot, key, cause);
    }
    fn on_routing(&mut self, routing: &Routing<'_>) {
        self.burn("on_routing");
        self.0.on_routing(routing);
    }
    fn on_step(&mut self, step: &Step<'_>) {
        self.burn("on_step");
        self.0.on_step(step);
    }
    fn reset(&mut self) {
        self.burn("reset");
        self.0.reset();
    }
}

#[test]
fn a_panic_in_any_method_of_a_policy() {
    for method in ["on_insert", "on_hit", "choose_victim", "on_miss", "on_remove", "on_routing"] {
        let fuse = Fuse::new(method);
        let own = || random_builder().policy(Policy::new(&[&fuse]));
        blow_everywhere(&fuse, own, &[1, 2, 7, 20, 31]);
    }
    let fuse = Fuse::new("on_step");
    let own = || random_builder().policy(Policy::new(&[&fuse]));
    blow_everywhere(&fuse, own, &[1, 2, 4]);
}

/// A policy that panics while it is set right after a panic: the engine says that it is unusable
/// or works, and gives no wrong token.
#[test]
fn a_policy_that_cannot_be_set_right() {
    let fuse = Fuse::new("on_insert");
    let reset = Fuse::new("reset");
    let policy = Policy::new(&[&fuse, &reset]);
    let engine = random_builder().policy(policy).build().expect("builds");
    let prompt = random_golden("p17.input_ids");
    fuse.light(3);
    let request = || session(&engine).prefill(&prompt);
    assert!(catch_unwind(AssertUnwindSafe(request)).is_err());
    reset.light(1);
    // Whatever becomes of the request in which the resetting panics ...
    let _ = catch_unwind(AssertUnwindSafe(request));
    reset.light(0);
    // ... the ones after it work.
    let tokens = greedy(&mut session(&engine), &prompt, 4);
    assert_eq!(tokens, random_golden("p17.greedy.ids")[..4]);
    assert_sound(&engine);
}

/// Asks for probes at every tap, guesses at every call, and has a fuse.
#[derive(Debug)]
struct Guesser(Fuse);

impl Forecaster for Guesser {
    fn probes(&mut self, at: Tap, want: &mut Vec<Probe>) {
        self.0.burn("probes");
        let target = LayerIdx::new(at.layer().get() + 1);
        want.push(Probe { target, with_ple: true, keep_mixed: true });
    }
    fn predict(&mut self, _at: Tap, _results: &ProbeResults<'_>, _out: &mut Vec<Prediction>) {
        self.0.burn("predict");
    }
    fn observe(&mut self, _routing: &Routing<'_>) {
        self.0.burn("observe");
    }
    fn reset(&mut self, _session: SessionId) {
        self.0.burn("forget");
    }
}

#[test]
fn a_panic_in_any_method_of_a_forecaster() {
    for method in ["probes", "predict", "observe"] {
        let fuse = Fuse::new(method);
        let own = || random_builder().forecaster(Box::new(Guesser(fuse.clone())));
        // 8 layers, and two taps in each.
        blow_everywhere(&fuse, own, &[1, 2, 8, 17, 30]);
    }
}

#[test]
fn a_forecaster_is_told_of_sessions_that_end_or_go_back() {
    let fuse = Fuse::new("forget");
    let engine = random_builder().forecaster(Box::new(Guesser(fuse.clone()))).build();
    let engine = engine.expect("builds");
    let (prompt, want) = (random_golden("p17.input_ids"), random_golden("p17.greedy.ids"));
    let told = |expected: u64| {
        let before = 1000;
        fuse.light(before);
        greedy(&mut session(&engine), &prompt, 1);
        assert_eq!(before - fuse.left.load(Ordering::SeqCst), expected);
        fuse.light(0);
    };
    told(0);
    told(1);
    let mut back = session(&engine);
    greedy(&mut back, &prompt, 3);
    back.truncate(prompt.len()).expect("goes back");
    told(1);
    drop(session(&engine));
    told(1); // only the session that ran: the one dropped here never did
    // A panic there reaches whoever comes next, and no token is wrong.
    fuse.light(1);
    assert_eq!(back.next().expect("its logits are known: no pass runs"), want[0]);
    assert!(catch_unwind(AssertUnwindSafe(|| back.next())).is_err());
    assert_eq!(back.next().expect("works"), want[1]);
    assert_sound(&engine);
}

/// A sink with a fuse.
#[derive(Debug)]
struct Sink(Fuse);

impl EventSink for Sink {
    fn on_step(&mut self, _step: &Step<'_>) {
        self.0.burn("on_step");
    }
    fn on_routing(&mut self, _routing: &Routing<'_>) {
        self.0.burn("on_routing");
    }
    fn on_outcome(&mut self, _outcome: &Outcome) {
        self.0.burn("on_outcome");
    }
}

#[test]
fn a_panic_in_any_method_of_a_sink() {
    for (method, calls) in [("on_step", [1, 2, 4]), ("on_routing", [1, 9, 30])] {
        let fuse = Fuse::new(method);
        blow_everywhere(&fuse, || random_builder().sink(Box::new(Sink(fuse.clone()))), &calls);
    }
}

/// A session that is dropped while its own pass unwinds takes nothing with it.
#[test]
fn a_session_dropped_in_the_middle_of_a_pass() {
    let fuse = Fuse::new("on_routing");
    let engine = random_builder().sink(Box::new(Sink(fuse.clone()))).build().expect("builds");
    let (prompt, want) = (random_golden("p17.input_ids"), random_golden("p17.greedy.ids"));
    let mut other = session(&engine);
    assert_eq!(greedy(&mut other, &prompt, 2), want[..2]);
    for n in 1..=8 {
        let mut doomed = session(&engine);
        fuse.light(n);
        let ended = catch_unwind(AssertUnwindSafe(move || {
            let _ = doomed.prefill(&prompt_of(17));
        }));
        fuse.light(0);
        assert!(ended.is_err(), "layer {n}");
    }
    assert_eq!(other.next().expect("goes on"), want[2]);
    assert_sound(&engine);
    // In the middle of a generation: the iterator is dropped, then the session.
    let mut left = session(&engine);
    left.prefill(&prompt).expect("runs");
    assert_eq!(left.generate_ids(8).take(3).count(), 3);
    drop(left);
    assert_eq!(other.next().expect("goes on"), want[3]);
}

fn prompt_of(length: usize) -> Vec<u32> {
    random_golden(&format!("p{length}.input_ids"))
}

/// A reader that panics at its n-th read.
#[derive(Debug)]
struct Bursting(Arc<dyn RecordReader>, Fuse);

impl RecordReader for Bursting {
    fn read_exact_at(&self, extent: &Extent, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.1.burn("read");
        self.0.read_exact_at(extent, buffer)
    }
    fn effective(&self) -> ReaderMode {
        self.0.effective()
    }
    fn path(&self, file: FileId) -> Option<&std::path::Path> {
        self.0.path(file)
    }
}

#[test]
fn a_reader_that_panics_is_an_error() {
    let fuse = Fuse::new("read");
    let own = fuse.clone();
    let engine = random_builder()
        .open_reader(Box::new(move |paths| {
            Ok(Arc::new(Bursting(open_reader(ReaderKind::Buffered, paths)?, own)) as _)
        }))
        .build()
        .expect("builds");
    let (prompt, want) = (random_golden("p17.input_ids"), random_golden("p17.greedy.ids"));
    for n in [1, 2, 10, 200] {
        let mut hurt = session(&engine);
        fuse.light(n);
        let error = hurt.prefill(&prompt).expect_err("a read panicked");
        fuse.light(0);
        assert!(chain(&error).contains("a bug of the embedder's in read"), "{}", chain(&error));
        assert_sound(&engine);
        assert_eq!(hurt.next().expect("goes on"), want[0]);
    }
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
fn an_unlawful_policy_is_named() {
    // A sweep asks for no victim while slots are free.
    let engine = builder().policy(Box::new(Stubborn)).sizing(Sizing::Slots(18));
    let engine = engine.prefill_sweep(slotstream::PrefillSweep::Off).build().expect("builds");
    let error = session(&engine).prefill(&golden("p1.input_ids")).expect_err("unlawful");
    assert_eq!(error.kind(), ErrorKind::Bug);
    assert!(chain(&error).contains("stubborn"), "{}", chain(&error));
    assert_sound(&engine);
}

/// Asks for everything a thousand times, also for what there is not, and guesses nonsense.
#[derive(Debug)]
struct Immoderate;

impl Forecaster for Immoderate {
    fn probes(&mut self, _at: Tap, want: &mut Vec<Probe>) {
        for layer in [7, u16::MAX].repeat(1000) {
            let target = LayerIdx::new(layer);
            want.push(Probe { target, with_ple: false, keep_mixed: true });
        }
    }
    fn predict(&mut self, _at: Tap, results: &ProbeResults<'_>, out: &mut Vec<Prediction>) {
        assert!(results.results.len() <= 1, "each probe is computed once");
        let key = ExpertKey::new(LayerIdx::new(u16::MAX), ExpertIdx::new(u16::MAX));
        let needed_by = Deadline { passes_ahead: u32::MAX, layer: LayerIdx::new(0) };
        out.extend([Prediction { key, confidence: f32::NAN, needed_by }; 1000]);
    }
    fn observe(&mut self, _routing: &Routing<'_>) {}
}

#[test]
fn a_forecaster_that_wants_too_much_changes_nothing() {
    let engine = random_builder().forecaster(Box::new(Immoderate)).build().expect("builds");
    let (prompt, want) = (random_golden("p17.input_ids"), random_golden("p17.greedy.ids"));
    assert_eq!(greedy(&mut session(&engine), &prompt, 4), want[..4]);
    assert_sound(&engine);
}
