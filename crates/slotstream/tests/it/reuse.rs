//! What is known of a prompt already: reuse, forks, and their figures.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use slotstream::core::{CancelToken, EventSink, LayerIdx, Routing, Step};
use slotstream::machine::Machine;
use slotstream::sampling::SamplingParams;
use slotstream::{Engine, EngineBuilder, Error, FinishReason, Session, SessionOptions, Sizing};

use crate::rig::{Trip, builder, golden, greedy, random_builder, random_golden, session};

/// A new session's tokens after a prompt.
fn fresh(engine: &Engine, prompt: &[u32], count: usize) -> Vec<u32> {
    greedy(&mut session(engine), prompt, count)
}

fn some(session: &mut Session, count: usize) -> Vec<u32> {
    let ids = session.generate_ids(count).ignoring_eos(true);
    ids.collect::<Result<_, _>>().expect("runs")
}

#[test]
fn a_follow_up_reads_only_new_tokens() {
    let engine = builder().build().expect("builds");
    let mut session = session(&engine);
    let first = golden("p1.input_ids");
    assert_eq!(session.prompt(&first).expect("runs"), 0);
    let answer = some(&mut session, 8);
    assert_eq!(answer, golden("p1.greedy_ids")[..8]);
    // All of it and more: the last token of the answer has not run yet.
    let more = [&first[..], &answer, &[11, 39, 798]].concat();
    session.reset_metrics();
    assert_eq!(session.prompt(&more).expect("runs"), first.len() + 7);
    assert_eq!((session.metrics().reused, session.metrics().prefill.tokens), (103, 4));
    assert_eq!(some(&mut session, 6), fresh(&engine, &more, 6));
    // Another answer: back to the end of the second prompt, whose logits are kept.
    session.reset_metrics();
    assert_eq!(session.prompt(&more).expect("runs"), more.len());
    assert_eq!(session.metrics().total().tokens, 0);
    assert_eq!(some(&mut session, 6), fresh(&engine, &more, 6));
    // Cut within the first answer: back to the end of the first prompt.
    let other = [&first[..], &answer[..3], &[78, 78]].concat();
    assert_eq!(session.prompt(&other).expect("runs"), first.len());
    assert_eq!(some(&mut session, 6), fresh(&engine, &other, 6));
    // A beginning of what is held, short of every checkpoint.
    assert_eq!(session.prompt(&first[..40]).expect("runs"), 0);
    assert_eq!(some(&mut session, 3), fresh(&engine, &first[..40], 3));
}

#[test]
fn what_is_refused_leaves_the_session_as_it_was() {
    let engine = builder().context(120).build().expect("builds");
    let mut session = session(&engine);
    assert!(matches!(session.prompt(&[]), Err(Error::NoPrompt { .. })));
    let prompt = golden("p1.input_ids");
    session.prompt(&prompt).expect("runs");
    let vocab = engine.checkpoint().config().vocab_size as u32;
    for wrong in [&[][..], &[1; 121], &[prompt[0], vocab]] {
        session.prompt(wrong).expect_err("refused");
        assert_eq!(session.tokens(), prompt);
    }
    assert_eq!(some(&mut session, 4), golden("p1.greedy_ids")[..4]);
}

#[test]
fn text_is_reused_token_by_token() {
    let engine = builder().build().expect("builds");
    let mut session = session(&engine);
    assert_eq!(session.prompt_text("Mr. Darcy").expect("runs"), 0);
    let known = session.tokens().len();
    let reused = session.prompt_text("Mr. Darcy said").expect("runs");
    assert!(reused > 0 && reused <= known, "{reused} of {known}");
    let mut other = engine.session(SessionOptions::new()).expect("legal");
    other.prefill_text("Mr. Darcy said").expect("runs");
    assert_eq!(session.logits(), other.logits());
}

/// Edited prompts, answers, cancellations and forks in any order: tokens and logits are those of a
/// new session.
#[derive(Clone, Debug)]
enum Deed {
    /// Keep this share of the tokens and go on with others.
    Prompt(prop::sample::Index, Vec<u32>),
    Append(Vec<u32>),
    Generate(usize),
    Truncate(prop::sample::Index),
    /// A prompt that ends at this layer, and goes on.
    Cancel(u16, Vec<u32>),
    Fork,
    Snapshot,
    Restore,
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let tokens = || prop::collection::vec(0_u32..96, 1..14);
    let deed = prop_oneof![
        3 => (any::<prop::sample::Index>(), tokens()).prop_map(|(keep, t)| Deed::Prompt(keep, t)),
        2 => tokens().prop_map(Deed::Append),
        2 => (1_usize..6).prop_map(Deed::Generate),
        1 => any::<prop::sample::Index>().prop_map(Deed::Truncate),
        2 => (0_u16..4, tokens()).prop_map(|(layer, t)| Deed::Cancel(layer, t)),
        1 => Just(Deed::Fork),
        1 => Just(Deed::Snapshot),
        1 => Just(Deed::Restore),
    ];
    prop::collection::vec(deed, 1..10)
}

fn play(engine: &Engine, trip: &Trip, deeds: &[Deed]) -> Result<(), TestCaseError> {
    let mut own = session(engine);
    let (mut others, mut snapshot) = (Vec::new(), None);
    for deed in deeds {
        match deed {
            Deed::Prompt(keep, rest) => {
                let keep = keep.index(own.tokens().len() + 1);
                let tokens = [&own.tokens()[..keep], rest].concat();
                let reused = own.prompt(&tokens).expect("fits");
                prop_assert!(reused <= tokens.len());
            }
            Deed::Append(tokens) => own.prefill(tokens).expect("fits"),
            Deed::Generate(_) if own.tokens().is_empty() => {}
            Deed::Generate(count) => drop(some(&mut own, *count)),
            Deed::Truncate(len) => own.truncate(len.index(own.tokens().len() + 1)).expect("copies"),
            Deed::Cancel(layer, tokens) => {
                let token = CancelToken::new();
                own.set_cancel(token.clone());
                trip.set(Some((LayerIdx::new(*layer), token)));
                // At the last layer there is nothing left to cancel.
                let ended = own.prefill(tokens);
                trip.set(None);
                if let Err(error) = ended {
                    prop_assert!(matches!(FinishReason::of(&error), FinishReason::Cancelled));
                }
                own.set_cancel(CancelToken::new());
            }
            Deed::Fork => {
                let fork = own.fork().expect("copies");
                others.push(std::mem::replace(&mut own, fork));
                snapshot = None;
            }
            Deed::Snapshot => snapshot = Some(own.snapshot().expect("copies")),
            Deed::Restore => {
                if let Some(snapshot) = &snapshot {
                    own.restore(snapshot).expect("its own");
                }
            }
        }
        prop_assert!(own.checkpoints() <= engine.plan().checkpoints);
    }
    for session in others.iter_mut().chain([&mut own]) {
        if session.tokens().is_empty() {
            continue;
        }
        let tokens = session.tokens().to_vec();
        let next = session.next().expect("runs");
        let mut alone = crate::rig::session(engine);
        alone.prefill(&tokens).expect("runs");
        prop_assert_eq!(alone.next().expect("runs"), next);
        session.next().expect("runs");
        alone.next().expect("runs");
        prop_assert!(session.logits() == alone.logits(), "{} tokens", tokens.len());
    }
    Ok(())
}

fn engines() -> Vec<(Engine, Trip)> {
    let build = |builder: EngineBuilder| {
        let trip = Trip::default();
        (builder.sink(Box::new(trip.clone())).build().expect("builds"), trip)
    };
    vec![
        build(random_builder().chunk(9).checkpoints(2).checkpoint_every(7)),
        build(random_builder().chunk(4).checkpoints(0).threads(2)),
        build(random_builder().checkpoints(4).checkpoint_every(3).rollback_rows(4)),
        build(random_builder().chunk(5).checkpoints(1).sizing(Sizing::Share(1.0)).threads(3)),
    ]
}

#[test]
fn any_order_of_deeds_gives_what_a_new_session_gives() {
    let engines = engines();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let result = runner.run(&deeds(), |deeds| {
        engines.iter().try_for_each(|(engine, trip)| play(engine, trip, &deeds))
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn forks_go_their_own_ways() {
    let engine = builder().threads(2).build().expect("builds");
    let sampling = SamplingParams { temperature: 0.9, seed: 7, ..SamplingParams::default() };
    let mut first = engine.session(SessionOptions::new().with_sampling(sampling)).expect("legal");
    first.prompt(&golden("p1.input_ids")).expect("runs");
    first.next().expect("runs");
    let mut second = first.fork().expect("copies");
    assert_ne!(first.id(), second.id());
    assert_eq!((first.tokens(), first.generated()), (second.tokens(), second.generated()));
    // The same draws, whichever goes first; then another question each.
    let threads = [&mut first, &mut second].map(|session| some(session, 10));
    assert_eq!(threads[0], threads[1]);
    let with = |tail: &[u32]| [&golden("p1.input_ids")[..], tail].concat();
    let (one, two) = (with(&[39, 798]), with(&[11, 1453, 78]));
    std::thread::scope(|scope| {
        for (session, prompt) in [(first, one), (second, two)] {
            let engine = &engine;
            scope.spawn(move || {
                let mut session = session;
                session.set_sampling(SamplingParams::GREEDY).expect("legal");
                assert_eq!(session.prompt(&prompt).expect("runs"), 96);
                assert_eq!(some(&mut session, 8), fresh(engine, &prompt, 8));
            });
        }
    });
}

#[test]
fn checkpoints_are_bounded_and_thinned() {
    let engine = random_builder().chunk(4).checkpoints(3).checkpoint_every(8).build();
    let engine = engine.expect("builds");
    let mut session = session(&engine);
    let prompt: Vec<u32> = (0..100).map(|i| i % 90).collect();
    session.prompt(&prompt).expect("runs");
    assert_eq!(session.checkpoints(), 3);
    // One near the end, and one farther back.
    let ask = |session: &mut Session, keep: usize| {
        let reused = session.prompt(&[&prompt[..keep], &[91, 92]].concat()).expect("runs");
        assert!(session.checkpoints() <= 3);
        reused
    };
    let mut fork = session.fork().expect("copies");
    assert!(ask(&mut fork, 99) >= 80, "a recent one is kept");
    drop(fork);
    let mut fork = session.fork().expect("copies");
    assert!(ask(&mut fork, 60) > 0, "an old one is kept, too");
    drop(fork);
    // Ends of prompts push the others out, the last two stay.
    for end in [40, 50, 60, 70] {
        session.prompt(&prompt[..end]).expect("runs");
        session.prefill(&[1, 2]).expect("runs");
        session.truncate(end).expect("goes back");
    }
    assert_eq!(ask(&mut session, 70), 70);
}

#[test]
fn checkpoints_and_snapshots_are_in_the_plan() {
    let machine = Machine::default();
    let plan = |n| builder().checkpoints(n).machine(machine).plan().expect("fits");
    let each = plan(1).row_bytes("checkpoints");
    assert!(each > 0 && plan(0).row_bytes("checkpoints") == 0);
    assert_eq!(plan(3).row_bytes("checkpoints"), 3 * each);
    assert_eq!(
        builder().machine(machine).plan().expect("fits").row_bytes("checkpoints"),
        2 * each,
        "two are the default"
    );
    let two = builder().checkpoints(3).sessions(2).machine(machine).plan().expect("fits");
    assert_eq!(two.row_bytes("checkpoints"), 6 * each);
    // With a budget that leaves nothing over: one state, and no snapshot of it.
    let all = builder().sizing(Sizing::Share(1.0)).machine(machine).plan().expect("fits");
    let budget = Sizing::Memory(all.total_bytes());
    let engine = builder().sizing(budget).machine(machine).build().expect("builds");
    assert_eq!((engine.plan().slots, engine.plan().checkpoints), (672, 2));
    let mut session = session(&engine);
    session.prompt(&vec![1; 1000]).expect("planned");
    assert_eq!(session.checkpoints(), 2);
    assert!(matches!(session.snapshot(), Err(Error::State { .. })));
    assert!(matches!(session.fork(), Err(Error::State { .. })));
    session.next().expect("goes on");
    // Too little for them: they go before anything else does.
    let floor = 18 * 32_768 + all.total_bytes() - all.row_bytes("pool");
    for (missing, kept) in [(0, 2), (1, 1), (each, 1), (each + 1, 0), (2 * each, 0)] {
        let tight = builder().sizing(Sizing::Memory(floor - missing)).machine(machine);
        let tight = tight.plan().expect("with fewer checkpoints");
        assert_eq!((tight.checkpoints, tight.chunk), (kept, all.chunk), "{missing} missing");
    }
}

#[test]
fn a_deadline_ends_a_prompt_and_a_generation() {
    let engine = builder().chunk(8).build().expect("builds");
    let mut session = session(&engine);
    let prompt = golden("p1.input_ids");
    session.set_deadline(Some(Instant::now()));
    let error = session.prompt(&prompt).expect_err("the time is up");
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    assert_eq!(error.kind(), slotstream::core::ErrorKind::Cancelled);
    assert_eq!(FinishReason::of(&error), FinishReason::Deadline);
    session.set_deadline(Some(Instant::now() + Duration::from_secs(3600)));
    assert_eq!(some(&mut session, 4), golden("p1.greedy_ids")[..4]);
    session.set_deadline(Some(Instant::now()));
    let mut ids = session.generate_ids(4);
    assert!(ids.next().is_some_and(|token| token.is_err()) && ids.next().is_none());
    assert_eq!(ids.finish_reason(), Some(&FinishReason::Deadline));
    session.set_deadline(None);
    assert_eq!(some(&mut session, 2), golden("p1.greedy_ids")[4..6]);
    // Cancelled is not late, even when it is.
    let token = CancelToken::new();
    session.set_cancel(token.clone());
    session.set_deadline(Some(Instant::now()));
    token.cancel();
    let error = session.next().and_then(|_| session.next()).expect_err("cancelled");
    assert_eq!(FinishReason::of(&error), FinishReason::Cancelled);
}

/// Lets the first pass wait until it is let go.
#[derive(Debug)]
struct Gate(Option<(Sender<()>, Receiver<()>)>);

impl EventSink for Gate {
    fn on_step(&mut self, _step: &Step<'_>) {
        if let Some((reached, go)) = self.0.take() {
            reached.send(()).expect("the test waits");
            go.recv().expect("the test lets it go");
        }
    }

    fn on_routing(&mut self, _routing: &Routing<'_>) {}
}

#[test]
fn who_waits_for_others_hears_a_cancellation_and_a_deadline() {
    let ((reached, is_there), (let_go, go)) = (channel(), channel());
    let gate = Box::new(Gate(Some((reached, go))));
    let engine = random_builder().sink(gate).build().expect("builds");
    let prompt = random_golden("p17.input_ids");
    std::thread::scope(|scope| {
        let (engine, prompt) = (&engine, &prompt);
        let first = scope.spawn(move || fresh(engine, prompt, 3));
        is_there.recv().expect("a pass has begun");
        let mut late = session(engine);
        late.set_deadline(Some(Instant::now()));
        let error = late.prompt(prompt).expect_err("the other one has its turn");
        assert!(matches!(error, Error::Deadline { .. }), "{error}");
        let (mut stopped, token) = (session(engine), CancelToken::new());
        stopped.set_cancel(token.clone());
        token.cancel();
        let error = stopped.prompt(prompt).expect_err("the other one has its turn");
        assert!(matches!(error, Error::Cancelled { .. }), "{error}");
        let_go.send(()).expect("it waits");
        assert_eq!(first.join().expect("runs"), random_golden("p17.greedy.ids")[..3]);
        late.set_deadline(None);
        assert_eq!(some(&mut late, 3), random_golden("p17.greedy.ids")[..3]);
    });
}

#[test]
fn a_failed_pass_runs_again_from_the_nearest_checkpoint() {
    let trip = Trip::default();
    let engine = random_builder().chunk(5).checkpoint_every(5).sink(Box::new(trip.clone()));
    let engine = Arc::new(engine.build().expect("builds"));
    let prompt = random_golden("p17.input_ids");
    let token = CancelToken::new();
    let options = SessionOptions::new().with_cancel(token.clone());
    let mut session = engine.session(options).expect("legal");
    session.prompt(&prompt[..10]).expect("runs");
    trip.set(Some((LayerIdx::new(1), token)));
    session.prompt(&prompt).expect_err("cancelled");
    trip.set(None);
    assert_eq!(session.tokens(), prompt);
    session.set_cancel(CancelToken::new());
    session.reset_metrics();
    assert_eq!(session.next().expect("runs"), random_golden("p17.greedy.ids")[0]);
    assert_eq!(session.metrics().total().tokens, 7, "ten of seventeen were kept");
}
