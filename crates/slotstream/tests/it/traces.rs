//! A recorded run replays to the same counters and the same slots, whatever befell it.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use slotstream::cache::{default_policy, parse_policy, policy_names};
use slotstream::core::{
    CancelToken, Deadline, EventSink, ExpertIdx, ExpertKey, Forecaster, LayerIdx, Outcome,
    Prediction, Probe, ProbeResults, Routing, SlotId, Step, Tap,
};
use slotstream::{Engine, EngineBuilder, PrefillSweep, Session, SessionOptions, Sizing};
use slotstream_replay::{
    Event, ExactReplay, Modelled, PoolEnd, Requests, Shared, TraceOptions, TraceReader, TraceWriter,
};
use slotstream_testkit::reader::Schedule;

use crate::rig::{
    Faulty, Trip, builder, faulty, golden, greedy, random_builder, random_golden, session,
};

/// A file in memory.
#[derive(Clone, Debug, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("not poisoned").write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct Recording {
    buffer: Buffer,
    writer: Shared<TraceWriter<Buffer>>,
}

impl Recording {
    fn new(detail: bool) -> Self {
        let buffer = Buffer::default();
        let options = TraceOptions::new().with_detail(detail);
        let writer = Shared::new(TraceWriter::new(buffer.clone(), "memory", options));
        Self { buffer, writer }
    }

    /// The first sink: one that panics must not keep events from it.
    fn of(&self, builder: EngineBuilder) -> EngineBuilder {
        builder.sink(Box::new(self.writer.clone()))
    }

    /// Ends the recording, replays it, and compares with the engine: counters and content.
    fn assert_replays(&self, engine: &Engine, what: &str) -> Vec<Event> {
        let end = engine.inspect(|experts| PoolEnd::of(experts.pool()));
        self.writer.with(|writer| writer.finish(Some(&end))).expect("recorded");
        let bytes = self.buffer.0.lock().expect("not poisoned").clone();
        let reader = TraceReader::new(&bytes[..], "memory").expect("whole");
        let mut replay = ExactReplay::recorded(reader.header()).expect("a built-in policy");
        let played = reader.play(&mut replay).expect("whole");
        let pool = replay.verify(&played).unwrap_or_else(|error| panic!("{what}: {error}"));
        engine.inspect(|experts| {
            assert_eq!(pool.counters(), experts.pool().counters(), "{what}");
            for slot in (0..pool.slots() as u32).map(SlotId::new) {
                assert_eq!(pool.key(slot), experts.pool().key(slot), "{what} {slot}");
            }
        });
        let events = TraceReader::new(&bytes[..], "memory").expect("whole").events();
        events.map(|event| event.expect("whole")).collect()
    }
}

/// Every policy; a combinator's name ends in a colon.
fn policies() -> impl Iterator<Item = String> {
    policy_names().map(|name| if name.ends_with(':') { name + "clock" } else { name })
}

/// Expects two records at every tap, one of which no model has.
#[derive(Debug)]
struct Guesser;

impl Forecaster for Guesser {
    fn probes(&mut self, _at: Tap, _want: &mut Vec<Probe>) {}
    fn predict(&mut self, at: Tap, _results: &ProbeResults<'_>, out: &mut Vec<Prediction>) {
        let layer = LayerIdx::new(at.layer().get() + 1);
        for expert in [1, u16::MAX] {
            let key = ExpertKey::new(layer, ExpertIdx::new(expert));
            let needed_by = Deadline { passes_ahead: 0, layer };
            out.push(Prediction { key, confidence: 0.5, needed_by });
        }
    }
    fn observe(&mut self, _routing: &Routing<'_>) {}
}

/// Whether the policy needs room for a route of each layer: at the floor it refuses.
fn needs_a_route(policy: &str) -> bool {
    policy.starts_with("per-layer")
}

/// An engine for the random checkpoint at its floor, or with 8 layers x 4 slots for a policy that
/// needs them, with a reader that fails on demand.
fn faulty_engine(policy: &str, recording: &Recording, trip: &Trip) -> (Engine, Faulty) {
    let own = parse_policy(policy).expect("a listed name");
    let slots = if needs_a_route(policy) { 32 } else { 8 };
    let builder = random_builder().sizing(Sizing::Slots(slots)).policy(own);
    let builder = builder.ngram_cache_rows(0).lanes(3).chunk(9);
    let builder = recording.of(builder).sink(Box::new(trip.clone())).forecaster(Box::new(Guesser));
    faulty(builder, std::io::ErrorKind::InvalidData)
}

/// Goes on until a session has this many tokens, whatever fails.
fn go_on(session: &mut Session, want: &[u32]) {
    let mut generated = session.generated().to_vec();
    while generated.len() < want.len() {
        generated.extend(session.next());
    }
    assert_eq!(generated, want);
}

#[test]
fn every_policy_with_faults_cancelled_passes_waves_and_sessions() {
    let (prompt, want) = (random_golden("p17.input_ids"), random_golden("p17.greedy.ids"));
    for policy in policies() {
        let (recording, trip) = (Recording::new(false), Trip::default());
        let (engine, reader) = faulty_engine(&policy, &recording, &trip);
        let mut quiet = session(&engine);
        greedy(&mut quiet, &prompt, 2);
        for round in 0..12 {
            // The 9 rows of a chunk need 9 x 16 rows of the n-gram table, 3 reads each, first.
            reader.arm(Schedule::Nth(440 + 89 * round));
            let mut hurt = session(&engine);
            let failed = hurt.prefill(&prompt).is_err();
            reader.arm(Schedule::Never);
            assert!(failed, "{policy}: read {round}");
            go_on(&mut hurt, &want[..3]);
            let token = CancelToken::new();
            let options = SessionOptions::new().with_cancel(token.clone());
            let mut doomed = engine.session(options).expect("legal");
            let layer = LayerIdx::new(round as u16 % 8);
            trip.set(Some((layer, token)));
            assert!(doomed.prefill(&prompt).is_err(), "{policy}: cancelled at {layer}");
            trip.set(None);
            quiet.next().expect("was not concerned");
        }
        let events = recording.assert_replays(&engine, &policy);
        let count = |wanted: fn(&Event) -> bool| events.iter().filter(|e| wanted(e)).count();
        let failed = count(|e| matches!(e, Event::Outcome(Outcome::Failed { .. })));
        let left = count(|e| matches!(e, Event::Outcome(Outcome::Ended { waves: 1.., .. })));
        // A layer has 16 experts: 8 slots take waves, 32 hold them all.
        let waves = engine.inspect(|experts| experts.metrics().waves);
        let fits = needs_a_route(&policy);
        assert!(fits || (left > 0 && waves > 0), "{policy}: {left} ended early, {waves} waves");
        // In a larger pool some of the chosen reads are the n-gram rows of the second chunk.
        assert!(failed >= if fits { 6 } else { 12 }, "{policy}: {failed} failed");
        let unlawful = |e: &Event| match e {
            Event::Forecast { predictions, .. } => predictions.len() != 1,
            _ => false,
        };
        assert!(!events.iter().any(unlawful), "{policy}");
        assert!(count(|e| matches!(e, Event::Forecast { .. })) > 100, "{policy}");
        let dropped = engine.inspect(|experts| experts.metrics().predictions_dropped);
        assert!(dropped > 100, "{policy}");
    }
}

/// Panics at the n-th routing, and otherwise does nothing.
#[derive(Clone, Debug)]
struct Bomb(Arc<Mutex<Option<u32>>>);

impl EventSink for Bomb {
    fn on_step(&mut self, _step: &Step<'_>) {}
    fn on_routing(&mut self, _routing: &Routing<'_>) {
        let mut left = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(n) = &mut *left {
            *n -= 1;
            if *n == 0 {
                *left = None;
                drop(left);
                panic!("a bomb");
            }
        }
    }
}

#[test]
fn a_pool_that_was_emptied_after_a_panic() {
    let (prompt, want) = (random_golden("p17.input_ids"), random_golden("p17.greedy.ids"));
    let (recording, bomb) = (Recording::new(false), Bomb(Arc::default()));
    let builder = random_builder().sizing(Sizing::Slots(48)).chunk(9);
    let engine = recording.of(builder).sink(Box::new(bomb.clone())).build().expect("builds");
    for n in [1, 5, 9, 14] {
        *bomb.0.lock().expect("not poisoned") = Some(n);
        let mut hurt = session(&engine);
        let ended = catch_unwind(AssertUnwindSafe(|| hurt.prefill(&prompt)));
        assert!(ended.is_err(), "routing {n}");
        assert_eq!(greedy(&mut session(&engine), &prompt, 4), want[..4]);
    }
    let events = recording.assert_replays(&engine, "panics");
    let cleared = events.iter().filter(|e| matches!(e, Event::Outcome(Outcome::Cleared))).count();
    assert_eq!(cleared, 4);
}

#[test]
fn sweeps_and_what_they_admit() {
    let (prompt, want) = (random_golden("p17.input_ids"), random_golden("p17.greedy.ids"));
    for policy in policies() {
        let recording = Recording::new(false);
        let own = parse_policy(&policy).expect("a listed name");
        let slots = if needs_a_route(&policy) { 32 } else { 20 };
        let builder = random_builder().sizing(Sizing::Slots(slots)).policy(own).chunk(9);
        let builder = recording.of(builder.prefill_sweep(PrefillSweep::Rows(8)));
        let engine = builder.build().expect("builds");
        for _ in 0..3 {
            assert_eq!(greedy(&mut session(&engine), &prompt, 6), want[..6], "{policy}");
            // Below the threshold.
            session(&engine).prefill(&prompt[..5]).expect("runs");
        }
        let metrics = engine.inspect(|experts| *experts.metrics());
        let events = recording.assert_replays(&engine, &policy);
        let count = |wanted: fn(&Event) -> bool| events.iter().filter(|e| wanted(e)).count() as u64;
        let swept = count(|e| matches!(e, Event::Outcome(Outcome::Swept { .. })));
        let admitted = count(|e| matches!(e, Event::Outcome(Outcome::Admitted { .. })));
        assert_eq!((swept, admitted), (metrics.sweeps, metrics.hot_admitted), "{policy}");
        assert_eq!(swept, 3 * 2 * 8, "{policy}");
        assert!(admitted > 8, "{policy}: {admitted}");
    }
}

#[test]
fn recording_changes_no_token_and_details_come_back() {
    let (prompt, want) = (golden("p1.input_ids"), golden("p1.greedy_ids"));
    let recording = Recording::new(true);
    let engine = recording.of(builder().sizing(Sizing::Slots(202))).build().expect("builds");
    assert_eq!(greedy(&mut session(&engine), &prompt, 24), want[..24]);
    let events = recording.assert_replays(&engine, "detail");
    let (mut decode, mut steps) = (0, 0);
    for event in &events {
        match event {
            Event::Step(step) => {
                steps += 1;
                decode += usize::from(step.tokens.len() == 1);
            }
            Event::Routing(routing) => {
                let rows = routing.ids.len() / 6;
                assert_eq!(routing.weights.len(), rows * 6);
                for (row, logits) in routing.logits.chunks(56).enumerate() {
                    // The chosen experts are those with the highest logits, in this order.
                    let known = logits.iter().filter(|logit| logit.is_finite()).count();
                    assert_eq!(known, 6 + 8);
                    let ids = &routing.ids[row * 6..][..6];
                    let logit = |id: &ExpertIdx| logits[id.index()];
                    assert!(ids.windows(2).all(|pair| logit(&pair[0]) >= logit(&pair[1])));
                    let least = logit(&ids[5]);
                    assert_eq!(logits.iter().filter(|logit| **logit > least).count(), 5);
                    let weights = &routing.weights[row * 6..][..6];
                    assert!((weights.iter().sum::<f32>() - 1.0).abs() < 1e-5, "{weights:?}");
                }
                assert_eq!(routing.logits.len(), rows * 56);
            }
            _ => {}
        }
    }
    assert!(decode >= 23 && steps > decode, "{decode} of {steps}");
}

#[test]
fn several_sinks_hear_the_same() {
    let prompt = random_golden("p17.input_ids");
    let recording = Recording::new(false);
    let geometry = slotstream::checkpoint::Checkpoint::open(&crate::rig::random_model())
        .expect("there")
        .geometry();
    let requests = Shared::new(Requests::new(geometry));
    let builder = recording.of(random_builder().chunk(9)).sink(Box::new(requests.clone()));
    let engine = builder.build().expect("builds");
    greedy(&mut session(&engine), &prompt, 5);
    recording.assert_replays(&engine, "two sinks");
    let counters = engine.inspect(|experts| *experts.pool().counters());
    let lookups = |phase: &slotstream::cache::PhaseCounters| phase.hits + phase.misses;
    let heard = requests.with(|requests| (requests.lookups(), requests.rejected()));
    assert_eq!(heard, (lookups(&counters.decode) + lookups(&counters.prefill), 0));
    // The same run under the same policy, modelled: nothing failed, so the figures are the same.
    let bytes = recording.buffer.0.lock().expect("not poisoned").clone();
    let reader = TraceReader::new(&bytes[..], "memory").expect("whole");
    let (policy, slots) = (default_policy(), reader.header().slots);
    let mut modelled = Modelled::new(reader.header(), slots, policy, 0).expect("legal");
    reader.play(&mut modelled).expect("whole");
    assert_eq!(*modelled.finish().expect("runs").counters(), counters);
}
