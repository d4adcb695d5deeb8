//! Rollback, snapshot and refusal.

use std::sync::Arc;

use slotstream_checkpoint::NormForm;
use slotstream_core::{CancelToken, PassId, Phase, SessionId, Step};
use slotstream_kernels::{Cpu, Reference};
use slotstream_qwen::{Logits, MAX_ROLLBACK, Pass, QwenError, State, StatePart};

use crate::rig::{Goldens, Rig, floats, random_model};

fn rig() -> (Rig, Vec<u32>) {
    let goldens = Goldens::open("random/golden.safetensors");
    let rig = Rig::new(&random_model(), Arc::new(Cpu::new(1).expect("one thread")), 0.5);
    (rig, goldens.ids("p200.input_ids"))
}

fn last(rig: &mut Rig, state: &mut State, tokens: &[u32]) -> Vec<f32> {
    floats(&rig.run(state, tokens, Logits::Last, None).logits.expect("last"))
}

#[test]
fn every_rollback_equals_never_having_gone_on() {
    let (mut rig, tokens) = rig();
    // Positions 90 and 140 hold the reset token; 61 ends inside a block, 64 at a block's border.
    for at in [5, 61, 64, 91, 141] {
        let mut fresh = rig.state();
        last(&mut rig, &mut fresh, &tokens[..at]);
        let expected = last(&mut rig, &mut fresh, &tokens[at..at + 3]);
        // Passes of one row, of several, and of more than the ring holds.
        for further in [&[1_usize, 1, 1][..], &[3], &[2, 5], &[1, 7], &[4, 4]] {
            let mut state = rig.model.new_state(4096, MAX_ROLLBACK).expect("small");
            last(&mut rig, &mut state, &tokens[..at]);
            let mut end = at;
            for rows in further {
                last(&mut rig, &mut state, &tokens[end..end + rows]);
                end += rows;
            }
            state.truncate(at as u64).expect("within the ring");
            assert_eq!(state.position(), at as u64);
            let found = last(&mut rig, &mut state, &tokens[at..at + 3]);
            assert!(found == expected, "back to {at} after {further:?}");
        }
    }
}

#[test]
fn rollback_remembers_exactly_what_it_says() {
    let (mut rig, tokens) = rig();
    let mut state = rig.model.new_state(4096, 4).expect("small");
    last(&mut rig, &mut state, &tokens[..3]);
    assert_eq!(state.undoable(), 3);
    last(&mut rig, &mut state, &tokens[3..20]);
    assert_eq!(state.undoable(), 4);
    assert!(matches!(state.truncate(15), Err(QwenError::Rollback { kept: 4, .. })));
    state.truncate(18).expect("two rows");
    assert_eq!(state.undoable(), 2);
    assert!(state.truncate(15).is_err());
    state.truncate(16).expect("two more");
    let found = last(&mut rig, &mut state, &tokens[16..20]);
    let mut fresh = rig.state();
    assert!(found == last(&mut rig, &mut fresh, &tokens[..20]));
    let mut none = rig.state();
    last(&mut rig, &mut none, &tokens[..3]);
    assert!(matches!(none.truncate(2), Err(QwenError::Rollback { kept: 0, .. })));
}

#[test]
fn snapshots_go_their_own_way() {
    let (mut rig, tokens) = rig();
    let mut state = rig.state();
    last(&mut rig, &mut state, &tokens[..50]);
    let snapshot = state.snapshot().expect("copies");
    let straight = last(&mut rig, &mut state, &tokens[50..80]);
    let mut other = snapshot.snapshot().expect("copies");
    last(&mut rig, &mut other, &tokens[100..130]);
    let mut again = snapshot.snapshot().expect("copies");
    assert!(last(&mut rig, &mut again, &tokens[50..80]) == straight);
}

#[test]
fn a_checkpoint_is_resumed_any_number_of_times() {
    let (mut rig, tokens) = rig();
    for at in [0, 3, 61, 64] {
        let mut straight = rig.state();
        last(&mut rig, &mut straight, &tokens[..at + 20]);
        let want = last(&mut rig, &mut straight, &tokens[at + 20..at + 24]);
        let mut state = rig.model.new_state(4096, MAX_ROLLBACK).expect("small");
        if at > 0 {
            last(&mut rig, &mut state, &tokens[..at]);
        }
        let checkpoint = state.checkpoint().expect("copies");
        last(&mut rig, &mut state, &tokens[100..130]);
        for _ in 0..2 {
            let mut resumed = checkpoint.resume().expect("copies");
            assert_eq!((resumed.position(), resumed.undoable()), (at as u64, 0));
            last(&mut rig, &mut resumed, &tokens[at..at + 20]);
            assert!(last(&mut rig, &mut resumed, &tokens[at + 20..at + 24]) == want, "{at}");
            // It remembers rows from there on.
            resumed.truncate(at as u64 + 20).expect("within the ring");
            assert!(last(&mut rig, &mut resumed, &tokens[at + 20..at + 24]) == want, "{at}");
            assert!(resumed.truncate(at as u64).is_err());
        }
    }
}

/// Parts of a state as they are given out.
fn exported(rig: &Rig, state: &State) -> Vec<(StatePart, Vec<f32>)> {
    let mut blocks = Vec::new();
    let sink = |part: &StatePart, values: &[f32]| {
        blocks.push((*part, values.to_vec()));
        Ok::<(), QwenError>(())
    };
    state.export(rig.model.config(), sink).expect("exports");
    blocks
}

fn imported(
    rig: &Rig,
    tokens: &[u32],
    rollback: usize,
    blocks: &[(StatePart, Vec<f32>)],
) -> Result<State, QwenError> {
    let mut blocks = blocks.iter();
    let source = |part: &StatePart, values: &mut [f32]| {
        let (given, block) = blocks.next().expect("as many as were given out");
        assert_eq!((given, block.len()), (part, values.len()));
        values.copy_from_slice(block);
        Ok::<(), QwenError>(())
    };
    rig.model.import_state((4096, rollback), tokens, source)
}

#[test]
fn an_exported_state_goes_on_as_if_it_had_never_left() {
    let (mut rig, tokens) = rig();
    // Within a block, at its border, within a page of keys and beyond one.
    let long: Vec<u32> = tokens.iter().chain(&tokens).copied().collect();
    for at in [0, 1, 5, 61, 64, 256, 300] {
        for rollback in [0, 3] {
            let mut state = rig.model.new_state(4096, rollback).expect("small");
            if at > 0 {
                last(&mut rig, &mut state, &long[..at]);
            }
            let blocks = exported(&rig, &state);
            let mut again = imported(&rig, &long[..at], rollback, &blocks).expect("its own parts");
            assert_eq!((again.position(), again.undoable()), (at as u64, 0));
            assert_eq!(again.bytes(), state.bytes());
            assert!(exported(&rig, &again) == blocks);
            let want = last(&mut rig, &mut state, &long[at..at + 40]);
            assert!(last(&mut rig, &mut again, &long[at..at + 40]) == want, "{at} {rollback}");
        }
    }
    let parts = State::parts(rig.model.config(), 300);
    let values: usize = parts.iter().map(StatePart::values).sum();
    let mut state = rig.state();
    last(&mut rig, &mut state, &long[..300]);
    let given: usize = exported(&rig, &state).iter().map(|(_, block)| block.len()).sum();
    assert_eq!(given, values, "the parts say how much there is");
}

#[test]
fn a_state_is_exported_whole_or_not_at_all() {
    let (mut rig, tokens) = rig();
    let mut state = rig.state();
    last(&mut rig, &mut state, &tokens[..9]);
    let blocks = exported(&rig, &state);
    let vocab = rig.model.config().vocab_size as u32;
    let wrong = [&tokens[..8], &[vocab]].concat();
    assert!(matches!(imported(&rig, &wrong, 0, &blocks), Err(QwenError::Token { .. })));
    let long = vec![1; 4097];
    assert!(matches!(imported(&rig, &long, 0, &blocks), Err(QwenError::Context { .. })));
    // Whoever fills the blocks may fail, and so may who takes them.
    let failed = rig.model.import_state((4096, 0), &tokens[..9], |_, _| Err::<(), _>(dirty()));
    assert!(matches!(failed, Err(QwenError::Dirty { .. })));
    let failed = state.export(rig.model.config(), |_, _| Err::<(), _>(dirty()));
    assert!(matches!(failed, Err(QwenError::Dirty { .. })));
    let cancel = CancelToken::new();
    cancel.cancel();
    let (pass, phase, session) = (PassId::new(1), Phase::Decode, SessionId::new(1));
    let step = Step { pass, phase, session, position: 9, tokens: &[1] };
    let pass = Pass::new(step).with_cancel(&cancel);
    let run = rig.model.forward(&mut state, &pass, &mut rig.experts, rig.ngram.as_mut());
    assert!(run.is_err() && state.is_dirty());
    assert!(matches!(state.checkpoint(), Err(QwenError::Dirty { position: 9, .. })));
    let failed = state.export(rig.model.config(), |_, _| Ok::<(), QwenError>(()));
    assert!(matches!(failed, Err(QwenError::Dirty { position: 9, .. })));
}

fn dirty() -> QwenError {
    let (mut rig, _) = rig();
    let mut state = rig.state();
    let cancel = CancelToken::new();
    cancel.cancel();
    let (pass, phase, session) = (PassId::new(1), Phase::Decode, SessionId::new(1));
    let pass = Pass::new(Step { pass, phase, session, position: 0, tokens: &[1] });
    let pass = pass.with_cancel(&cancel);
    let run = rig.model.forward(&mut state, &pass, &mut rig.experts, rig.ngram.as_mut());
    run.expect_err("cancelled");
    state.truncate(0).expect_err("dirty")
}

#[test]
fn planned_bytes_are_the_bytes_held() {
    let (mut rig, tokens) = rig();
    for rollback in [0, 3, MAX_ROLLBACK] {
        let mut state = rig.model.new_state(4096, rollback).expect("small");
        last(&mut rig, &mut state, &tokens);
        let planned = State::planned_bytes(rig.model.config(), tokens.len(), rollback);
        assert_eq!(state.bytes(), planned.context + planned.fixed + planned.ring);
    }
}

#[test]
fn what_cannot_run_is_refused_by_name() {
    let (mut rig, tokens) = rig();
    let mut state = rig.model.new_state(10, 0).expect("small");
    let vocab = rig.model.config().vocab_size as u32;
    let mut try_run = |tokens: &[u32], position, cancel: Option<&CancelToken>| {
        let (pass, phase, session) = (PassId::new(1), Phase::Decode, SessionId::new(1));
        let step = Step { pass, phase, session, position, tokens };
        let mut pass = Pass::new(step);
        if let Some(cancel) = cancel {
            pass = pass.with_cancel(cancel);
        }
        rig.model.forward(&mut state, &pass, &mut rig.experts, rig.ngram.as_mut()).map(|_| ())
    };
    assert!(matches!(try_run(&[], 0, None), Err(QwenError::Position { .. })));
    assert!(matches!(try_run(&[1], 1, None), Err(QwenError::Position { expected: 0, .. })));
    let error = try_run(&[1, vocab], 0, None).expect_err("no such token");
    assert!(matches!(error, QwenError::Token { position: 1, .. }), "{error}");
    assert!(matches!(try_run(&tokens[..11], 0, None), Err(QwenError::Context { context: 10, .. })));
    try_run(&tokens[..4], 0, None).expect("refusals change nothing");
    let cancel = CancelToken::new();
    cancel.cancel();
    assert!(matches!(try_run(&[1], 4, Some(&cancel)), Err(QwenError::Cancelled { .. })));
    assert!(matches!(try_run(&[1], 4, None), Err(QwenError::Dirty { position: 4, .. })));
}

#[test]
fn both_norm_forms_give_equal_logits() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    slotstream_testkit::checkpoint::rewrite_raw_norms(&random_model(), folder.path(), |_| false)
        .expect("rewrites");
    let goldens = Goldens::open("random/golden.safetensors");
    let tokens = goldens.ids("p17.input_ids");
    let folded = Rig::new(&random_model(), Arc::new(Reference), 1.0).all_logits(&tokens, 17);
    let mut raw = Rig::new(folder.path(), Arc::new(Reference), 1.0);
    assert_eq!(raw.model.norms(), NormForm::Raw);
    assert!(folded == raw.all_logits(&tokens, 17));
}
