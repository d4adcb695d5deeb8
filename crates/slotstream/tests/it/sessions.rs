//! Sessions: interleaving, truncation, snapshots, refusals.

use slotstream::core::{CancelToken, ErrorKind};
use slotstream::sampling::SamplingParams;
use slotstream::{Error, FinishReason, SessionOptions};

use crate::rig::{builder, golden, greedy, session};

#[test]
fn interleaved_sessions_equal_each_alone() {
    let engine = builder().build().expect("builds");
    let mut both = [session(&engine), session(&engine)];
    let prompts = [golden("p1.input_ids"), golden("p2.input_ids")];
    let expected = [golden("p1.greedy_ids"), golden("p2.greedy_ids")];
    for (session, prompt) in both.iter_mut().zip(&prompts) {
        session.prefill(prompt).expect("runs");
    }
    for i in 0..24 {
        for (session, expected) in both.iter_mut().zip(&expected) {
            assert_eq!(session.next().expect("runs"), expected[i], "token {i}");
        }
    }
}

#[test]
fn truncation_runs_again_what_is_needed() {
    let prompt = golden("p1.input_ids");
    let expected = golden("p1.greedy_ids");
    for rollback in [0, 4, 8] {
        let engine = builder().rollback_rows(rollback).build().expect("builds");
        let mut session = session(&engine);
        assert_eq!(greedy(&mut session, &prompt, 12), expected[..12]);
        for keep in [10, 9, 3] {
            session.truncate(prompt.len() + keep).expect("goes back");
            assert_eq!(session.generated(), &expected[..keep]);
            for wanted in &expected[keep..12] {
                assert_eq!(session.next().expect("runs"), *wanted, "{rollback} {keep}");
            }
        }
        // Into the prompt, on to another one.
        session.truncate(40).expect("goes back");
        session.prefill(&prompt[40..]).expect("runs");
        assert_eq!(session.next().expect("runs"), expected[0]);
        session.truncate(0).expect("goes back");
        assert!(matches!(session.next(), Err(Error::NoPrompt { .. })));
        assert_eq!(greedy(&mut session, &prompt, 3), expected[..3]);
    }
}

#[test]
fn truncation_uses_the_nearest_checkpoint() {
    let engine = builder().build().expect("builds");
    let mut session = session(&engine);
    let prompt = golden("p1.input_ids");
    session.prefill(&prompt).expect("runs");
    let expected = golden("p1.greedy_ids");
    for wanted in &expected[..6] {
        assert_eq!(session.next().expect("runs"), *wanted);
    }
    session.reset_metrics();
    session.truncate(prompt.len() + 2).expect("goes back");
    assert_eq!(session.next().expect("runs"), expected[2]);
    assert_eq!(session.metrics().total().tokens, 2, "only the tokens after the prompt ran again");
}

#[test]
fn the_last_token_is_taken_back_for_nothing() {
    let engine = builder().chunk(40).build().expect("builds");
    let mut session = session(&engine);
    let prompt = golden("p1.input_ids");
    let mut told = Vec::new();
    session.prefill_with(&prompt, |done, of| told.push((done, of))).expect("runs");
    assert_eq!(told, [(40, 96), (80, 96), (96, 96)]);
    let snapshot = session.snapshot().expect("copies");
    let first = session.next().expect("runs");
    session.reset_metrics();
    session.truncate(prompt.len()).expect("goes back");
    assert_eq!(session.next().expect("runs"), first);
    session.next().expect("runs");
    session.restore(&snapshot).expect("its own");
    assert_eq!(session.next().expect("runs"), first);
    assert_eq!(session.metrics().total().tokens, 1, "only the second token ran");
}

#[test]
fn snapshots_restore_tokens_and_random_numbers() {
    let engine = builder().build().expect("builds");
    let sampling = SamplingParams { temperature: 0.9, seed: 7, ..SamplingParams::default() };
    let options = SessionOptions::new().with_sampling(sampling);
    let mut session = engine.session(options.clone()).expect("legal");
    session.prefill(&golden("p1.input_ids")).expect("runs");
    session.next().expect("runs");
    let snapshot = session.snapshot().expect("copies");
    let mut take = |n: usize| (0..n).map(|_| session.next().expect("runs")).collect::<Vec<_>>();
    let first = take(10);
    session.restore(&snapshot).expect("its own");
    let again: Vec<_> = (0..10).map(|_| session.next().expect("runs")).collect();
    assert_eq!(first, again);
    let mut other = engine.session(options).expect("legal");
    let error = other.restore(&snapshot).expect_err("of another session");
    assert!(matches!(error, Error::ForeignSnapshot { .. }), "{error}");
    // The session of the same number of another engine on the same folder.
    let twin = builder().context(100).build().expect("builds");
    let error = crate::rig::session(&twin).restore(&snapshot).expect_err("of another engine");
    assert!(matches!(error, Error::ForeignSnapshot { .. }), "{error}");
}

#[test]
fn a_cancelled_pass_is_made_good() {
    let engine = builder().chunk(8).build().expect("builds");
    let cancel = CancelToken::new();
    let options = SessionOptions::new().with_cancel(cancel.clone());
    let mut session = engine.session(options).expect("legal");
    cancel.cancel();
    let error = session.prefill(&golden("p1.input_ids")).expect_err("cancelled");
    assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
    engine.inspect(|experts| experts.pool().validate()).expect("consistent");
    let mut fresh = crate::rig::session(&engine);
    assert_eq!(greedy(&mut fresh, &golden("p1.input_ids"), 4), golden("p1.greedy_ids")[..4]);
}

#[test]
fn what_is_refused_changes_nothing() {
    let engine = builder().context(100).build().expect("builds");
    let mut session = session(&engine);
    assert!(matches!(session.next(), Err(Error::NoPrompt { .. })));
    let vocab = engine.checkpoint().config().vocab_size as u32;
    let error = session.prefill(&[1, vocab]).expect_err("no such token");
    assert_eq!(error.kind(), ErrorKind::User);
    assert!(error.to_string().contains("position 1"), "{error}");
    let error = session.prefill(&[1; 101]).expect_err("too long");
    assert!(error.to_string().contains("context of 100"), "{error}");
    assert!(session.tokens().is_empty());
    let prompt = golden("p1.input_ids");
    session.prefill(&prompt).expect("96 tokens fit");
    let mut ids = session.generate_ids(10).ignoring_eos(true);
    assert_eq!(ids.by_ref().collect::<Result<Vec<_>, _>>().expect("runs").len(), 4);
    assert_eq!(ids.finish_reason(), Some(&FinishReason::Context));
    let error = session.next().expect_err("full");
    assert_eq!(error.kind(), ErrorKind::User, "{error}");
}

#[test]
fn metrics_add_up() {
    let engine = builder().chunk(32).build().expect("builds");
    let mut session = session(&engine);
    greedy(&mut session, &golden("p1.input_ids"), 9);
    let metrics = *session.metrics();
    assert_eq!((metrics.prefill.tokens, metrics.prefill.passes), (96, 3));
    assert_eq!((metrics.decode.tokens, metrics.decode.passes, metrics.generated), (8, 8, 9));
    // 12 layers x 6 experts a token, one row a pass: both rates have one unit.
    assert_eq!(metrics.decode.hits + metrics.decode.misses, 8 * 12 * 6);
    assert_eq!(metrics.decode.token_lookups, 8 * 12 * 6);
    assert_eq!(metrics.decode.hits, metrics.decode.token_hits);
    assert_eq!(metrics.prefill.token_lookups, 96 * 12 * 6);
    let record = engine.checkpoint().ledger().record_bytes;
    let pool = engine.inspect(|experts| *experts.pool().counters());
    assert_eq!(pool.decode.misses, metrics.decode.misses);
    // Everything read is a missed record or a row of the n-gram table (32 values: 20 bytes).
    let records = metrics.total().misses * record;
    let rows = metrics.total().bytes_read - records;
    assert!(rows > 0 && rows.is_multiple_of(20), "{rows} bytes of rows");
    assert!(metrics.decode_tok_s().is_some_and(|v| v > 0.0));
    assert!(metrics.time_to_first_token.is_some());
}
