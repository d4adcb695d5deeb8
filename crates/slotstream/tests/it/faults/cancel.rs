//! Cancelling at every layer of a token.

use slotstream::core::{CancelToken, ErrorKind, LayerIdx};
use slotstream::{Engine, FinishReason, SessionOptions};

use super::assert_sound;
use crate::rig::{Trip, chain, greedy, random_builder, random_golden, session};

fn engine() -> (Engine, Trip) {
    let trip = Trip::default();
    let engine = random_builder().chunk(9).sink(Box::new(trip.clone())).build().expect("builds");
    (engine, trip)
}

#[test]
fn at_every_layer_of_a_prompt_and_of_a_token() {
    let (engine, trip) = engine();
    let layers = engine.checkpoint().config().num_hidden_layers as u16;
    let (prompt, want) = (random_golden("p17.input_ids"), random_golden("p17.greedy.ids"));
    let mut bystander = session(&engine);
    bystander.prefill(&prompt).expect("runs");
    for before in 0..3 {
        for layer in (0..layers).map(LayerIdx::new) {
            let token = CancelToken::new();
            let options = SessionOptions::new().with_cancel(token.clone());
            let mut session = engine.session(options).expect("legal");
            if before > 0 {
                // The prompt and some tokens run in peace.
                assert_eq!(greedy(&mut session, &prompt, before), want[..before]);
            }
            trip.set(Some((layer, token)));
            let ended = if before == 0 {
                session.prefill(&prompt)
            } else {
                // The token cancels when it runs: with the call after it.
                session.next().and_then(|_| session.next()).map(drop)
            };
            trip.set(None);
            let error = ended.expect_err("cancelled");
            let mut ids = session.generate_ids(1);
            assert!(ids.next().is_some_and(|token| token.is_err()), "the token stays set");
            assert_eq!(ids.finish_reason(), Some(&FinishReason::Cancelled));
            assert_eq!(error.kind(), ErrorKind::Cancelled, "{before} {layer}: {}", chain(&error));
            assert_sound(&engine);
            // With a new token the session goes on where it was.
            session.set_cancel(CancelToken::new());
            let mut generated = session.generated().to_vec();
            while generated.len() < 6 {
                generated.push(session.next().expect("goes on"));
            }
            assert_eq!(generated, want[..6], "{before} {layer}");
        }
    }
    assert_eq!(bystander.next().expect("was not concerned"), want[0]);
}

#[test]
fn a_set_token_stays_set() {
    let (engine, _) = engine();
    let token = CancelToken::new();
    let options = SessionOptions::new().with_cancel(token.clone());
    let mut session = engine.session(options).expect("legal");
    token.cancel();
    for _ in 0..2 {
        let error = session.prefill(&[1, 2, 3]).expect_err("cancelled");
        assert_eq!(error.kind(), ErrorKind::Cancelled);
    }
    // What was appended stays.
    session.set_cancel(CancelToken::new());
    assert_eq!(session.tokens(), [1, 2, 3, 1, 2, 3]);
    session.next().expect("runs");
}

#[test]
fn loading_can_be_cancelled_at_every_report() {
    let token = CancelToken::new();
    token.cancel();
    let error = random_builder().cancel(token).build().expect_err("cancelled");
    assert_eq!(error.kind(), ErrorKind::Cancelled, "{}", chain(&error));
    let mut reports = 0_u32;
    loop {
        let (token, mut left) = (CancelToken::new(), reports);
        let own = token.clone();
        let engine = random_builder()
            .cancel(token)
            .progress(move |_| {
                if left == 0 {
                    own.cancel();
                }
                left = left.wrapping_sub(1);
            })
            .build();
        match engine {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Cancelled, "{}", chain(&error));
                reports += 1;
            }
            // The last report comes when all is loaded.
            Ok(engine) => {
                let prompt = random_golden("p17.input_ids");
                let want = random_golden("p17.greedy.ids");
                assert_eq!(greedy(&mut session(&engine), &prompt, 2), want[..2]);
                break;
            }
        }
    }
    assert!(reports > 0, "loading reports more than its end");
}
