//! Law 1: pool size, policy, reader, lanes, threads and chunk change no token.

use std::sync::Arc;

use slotstream::cache::{DEFAULT_POLICY, parse_policy, policy_names};
use slotstream::io::ReaderKind;
use slotstream::ops::HostOps;
use slotstream::{Arithmetic, EngineBuilder, PrefillSweep, Sizing};
use slotstream_replay::{Shadows, Shared, all_policies};

use crate::rig::{builder, chain, golden, greedy, session};

const TOKENS: usize = 32;

fn tokens_of(engine: EngineBuilder) -> Vec<u32> {
    let engine = engine.build().expect("builds");
    let tokens = greedy(&mut session(&engine), &golden("p1.input_ids"), TOKENS);
    engine.inspect(|experts| experts.pool().validate()).expect("consistent");
    tokens
}

fn expected() -> Vec<u32> {
    golden("p1.greedy_ids")[..TOKENS].to_vec()
}

#[test]
fn every_policy_and_pool_size() {
    let expected = expected();
    for policy in policy_names() {
        // A combinator's name ends in a colon: it needs a policy inside.
        let policy = if policy.ends_with(':') { policy + "clock" } else { policy };
        // The pool does the same with every policy: all sizes with one, two with the others.
        let sizes = [Sizing::Slots(18), Sizing::Share(0.3), Sizing::Share(0.1), Sizing::Share(1.0)];
        for sizing in sizes.into_iter().take(if policy == "clock" { 4 } else { 2 }) {
            let own = parse_policy(&policy).expect("a listed name");
            let engine = builder().policy(own).sizing(sizing);
            if policy.starts_with("per-layer") && is_below_a_route(sizing) {
                let error = engine.build().expect_err("no room for a route of each layer");
                let chain = chain(&error);
                assert!(
                    chain.contains("the policy needs 72 slots"),
                    "{policy} {sizing:?}: {chain}"
                );
                continue;
            }
            assert_eq!(tokens_of(engine), expected, "{policy} {sizing:?}");
        }
    }
}

/// Whether the pool has fewer than 72 slots: 12 layers, 6 experts a token.
fn is_below_a_route(sizing: Sizing) -> bool {
    matches!(sizing, Sizing::Slots(..72)) || matches!(sizing, Sizing::Share(share) if share <= 0.1)
}

#[test]
fn shadows_of_every_policy() {
    let shadows = Shared::new(Shadows::new());
    let names = all_policies();
    shadows.with(|shadows| {
        for name in &names {
            shadows.add_named(name).expect("known");
        }
    });
    let slots = Sizing::Slots(150);
    // One pass of the prompt is swept, and then the pool has what was admitted.
    let engine = builder().sizing(slots).prefill_sweep(PrefillSweep::Rows(20));
    let engine = engine.sink(Box::new(shadows.clone())).build().expect("builds");
    let mut session = session(&engine);
    let tokens = greedy(&mut session, &golden("p1.input_ids"), TOKENS);
    assert_eq!(tokens, expected());
    assert!(session.metrics().prefill.hot_admitted > 0);
    session.prefill(&[1, 2, 3]).expect("runs, below the threshold");
    let counters = engine.inspect(|experts| *experts.pool().counters());
    shadows.with(|shadows| {
        let reports = shadows.reports().expect("replays");
        assert_eq!(reports.len(), names.len());
        for report in &reports {
            assert!(report.fault.is_none(), "{report:?}");
            let (own, engines) = (report.counters.decode, counters.decode);
            assert_eq!(own.hits + own.misses, engines.hits + engines.misses, "{report:?}");
            if report.name == DEFAULT_POLICY {
                assert_eq!((own, report.counters.prefill), (engines, counters.prefill));
            }
        }
    });
}

#[test]
fn lanes_threads_and_chunks() {
    let expected = expected();
    for (lanes, threads, chunk) in [(1, 1, 1), (8, 1, 96), (1, 2, 7), (8, 2, 64), (8, 4, 64)] {
        for sizing in [Sizing::Slots(18), Sizing::Share(0.3)] {
            let engine = builder().sizing(sizing).lanes(lanes).threads(threads).chunk(chunk);
            let what = format!("lanes {lanes} threads {threads} chunk {chunk} {sizing:?}");
            assert_eq!(tokens_of(engine), expected, "{what}");
        }
    }
}

#[test]
fn every_reader() {
    for kind in ReaderKind::ALL {
        assert_eq!(tokens_of(builder().reader(*kind)), expected(), "{kind}");
    }
}

#[test]
fn rollback_rings_change_nothing() {
    assert_eq!(tokens_of(builder().rollback_rows(8)), expected());
}

#[test]
fn the_floor_pool_runs_in_waves() {
    let engine = builder().sizing(Sizing::Slots(18)).chunk(96);
    let engine = engine.build().expect("builds");
    greedy(&mut session(&engine), &golden("p1.input_ids"), 2);
    assert!(
        engine.inspect(|experts| experts.metrics().waves) > 0,
        "96 rows want most of 56 experts"
    );
}

#[test]
fn the_reference_op_set_gives_the_same_tokens() {
    let ops = Arc::new(HostOps::new(Arc::new(slotstream::kernels::Reference)));
    assert_eq!(tokens_of(builder().ops(ops)), expected());
}

/// The planner never chooses it. Who asks for it gets other tokens, and those depend on nothing
/// either.
#[test]
fn fast_arithmetic_is_asked_for_and_keeps_the_law() {
    let engine = builder().sizing(Sizing::Auto).build().expect("builds");
    assert_eq!(engine.arithmetic(), "exact");
    let fast = || builder().arithmetic(Arithmetic::Fast);
    assert_eq!(fast().build().expect("builds").arithmetic(), "fast");
    let expected = tokens_of(fast());
    for engine in [
        fast().chunk(1),
        fast().chunk(7).sizing(Sizing::Slots(18)).prefill_sweep(PrefillSweep::Off),
        fast().prefill_sweep(PrefillSweep::Rows(20)).threads(3),
        fast().sizing(Sizing::Share(1.0)).reader(ReaderKind::Memory),
    ] {
        assert_eq!(tokens_of(engine), expected);
    }
}
