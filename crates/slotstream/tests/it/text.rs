//! Text in, text out.

use slotstream::core::ErrorKind;
use slotstream::text::{ChatOptions, Message};
use slotstream::{FinishReason, TextOptions};

use crate::rig::{builder, golden, random_model, session};

#[test]
fn streamed_text_is_the_decoded_tokens() {
    let engine = builder().build().expect("builds");
    let mut session = session(&engine);
    session.prefill(&golden("p1.input_ids")).expect("runs");
    let mut iter = session.generate(&TextOptions::new(64).ignoring_eos(true)).expect("legal");
    let (mut text, mut tokens) = (String::new(), Vec::new());
    for piece in iter.by_ref() {
        let piece = piece.expect("runs");
        text.push_str(&piece.text);
        tokens.extend(piece.token);
    }
    assert_eq!(iter.finish_reason(), Some(&FinishReason::Length));
    assert_eq!(tokens, golden("p1.greedy_ids"));
    assert_eq!(text, engine.tokenizer().expect("bundled").decode(&tokens, true).expect("decodes"));
    assert!(text.starts_with("ing to the suspicion of a visitor's being"), "{text}");
}

#[test]
fn stop_strings_cut_exactly() {
    let engine = builder().build().expect("builds");
    let mut session = session(&engine);
    session.prefill(&golden("p1.input_ids")).expect("runs");
    let options = TextOptions::new(64).with_stop("visitor's being").ignoring_eos(true);
    let mut iter = session.generate(&options).expect("legal");
    let text: String = iter.by_ref().map(|piece| piece.expect("runs").text).collect();
    assert_eq!(text, "ing to the suspicion of a ");
    assert_eq!(iter.finish_reason(), Some(&FinishReason::Stop("visitor's being".into())));
    let error = session.generate(&TextOptions::new(1).with_stop("")).expect_err("empty");
    assert_eq!(error.kind(), ErrorKind::User, "{error}");
}

/// Stop strings out of what the model says, wherever they lie in its tokens.
#[test]
fn any_stop_string_ends_the_text_where_it_begins() {
    let engine = builder().build().expect("builds");
    let mut session = session(&engine);
    session.prompt(&golden("p1.input_ids")).expect("runs");
    let whole = engine.tokenizer().expect("bundled").decode(&golden("p1.greedy_ids"), true);
    let whole = whole.expect("decodes");
    for from in (0..whole.len() - 8).step_by(11) {
        for len in [1, 3, 8] {
            let Some(stop) = whole.get(from..from + len) else { continue };
            session.prompt(&golden("p1.input_ids")).expect("is known");
            let options = TextOptions::new(64).with_stop(stop).ignoring_eos(true);
            let mut iter = session.generate(&options).expect("legal");
            let text: String = iter.by_ref().map(|piece| piece.expect("runs").text).collect();
            assert_eq!(text, whole[..whole.find(stop).expect("is there")], "{stop:?}");
            assert_eq!(iter.finish_reason(), Some(&FinishReason::Stop(stop.into())));
        }
    }
}

#[test]
fn chats_render_and_end() {
    let engine = builder().build().expect("builds");
    let messages = [Message::user("What is a vector?")];
    let tokens = engine.chat_tokens(&messages, &ChatOptions::default()).expect("a template");
    let expected =
        [4064, 1714, 198, 1943, 319, 261, 3553, 3019, 30, 4065, 198, 4064, 470, 494, 489, 198];
    assert_eq!(tokens, expected);
    assert_eq!(engine.eos_tokens(), [4065, 4063]);
    let mut session = session(&engine);
    session.prefill(&tokens).expect("runs");
    let mut iter = session.generate(&TextOptions::new(400)).expect("legal");
    let text: String = iter.by_ref().map(|piece| piece.expect("runs").text).collect();
    assert!(!text.contains("<|im_end|>"), "{text}");
}

#[test]
fn a_model_without_template_says_so() {
    let engine = slotstream::Engine::builder(random_model())
        .sizing(slotstream::Sizing::Share(0.5))
        .context(64)
        .build()
        .expect("builds");
    let result = engine.chat_tokens(&[Message::user("hi")], &ChatOptions::default());
    assert!(result.expect_err("no template").to_string().contains("template"));
}
