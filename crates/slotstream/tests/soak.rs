//! A thousand requests of which many go wrong: every answer is right, every error typed, and memory
//! does not grow.
//!
//! A test of its own: it looks at the memory of its process.
#![cfg(target_os = "linux")]

#[path = "it/rig.rs"]
#[expect(dead_code, reason = "shared with the other tests, which use more of it")]
mod rig;

use std::collections::BTreeMap;
use std::io;

use slotstream::checkpoint::Checkpoint;
use slotstream::checkpoint::container::Repack;
use slotstream::core::{CancelToken, ErrorKind, LayerIdx, Rng};
use slotstream::machine::resident_bytes;
use slotstream::sampling::SamplingParams;
use slotstream::{ContainerChoice, Engine, Error, Session, SessionOptions, Sizing};
use slotstream_testkit::reader::Schedule;

use rig::{Faulty, Trip, faulty, tiny_model};

const REQUESTS: usize = 1000;
const PROMPTS: usize = 20;
const TOKENS: usize = 8;
/// The pool's sizes, one after another: the same one at the 200th request and at the last.
const SLOTS: [usize; 4] = [60, 400, 18, 201];

fn prompt(number: usize) -> Vec<u32> {
    let mut rng = Rng::new(number as u64 + 1);
    (0..3 + rng.below(12)).map(|_| rng.below(4000) as u32).collect()
}

/// Every third request draws.
fn options(number: usize, cancel: &CancelToken) -> SessionOptions {
    let sampling = match number % 3 {
        0 => SamplingParams { temperature: 1.0, seed: number as u64, ..SamplingParams::GREEDY },
        _ => SamplingParams::GREEDY,
    };
    SessionOptions::new().with_sampling(sampling).with_cancel(cancel.clone())
}

/// Goes on with a request until it has an answer or an error.
fn go_on(session: &mut Session, number: usize) -> Result<Vec<u32>, Error> {
    if session.tokens().is_empty() {
        session.prefill(&prompt(number))?;
    }
    while session.generated().len() < TOKENS {
        session.next()?;
    }
    Ok(session.generated().to_vec())
}

/// Requests until there is an answer. Each error is one that a failed read may give; reads are well again
/// after the first.
fn answer(
    session: &mut Session,
    number: usize,
    reader: &Faulty,
    failed: &mut BTreeMap<String, usize>,
) -> Vec<u32> {
    for _ in 0..2 {
        match go_on(session, number) {
            Ok(tokens) => return tokens,
            Err(error) => {
                reader.arm(Schedule::Never);
                let variant = format!("{error:?}");
                let name: String =
                    variant.chars().take_while(char::is_ascii_alphanumeric).collect();
                assert_eq!(error.kind(), ErrorKind::Transient, "{error:?}");
                *failed.entry(name).or_default() += 1;
            }
        }
    }
    panic!("request {number} got no answer, though every read was well")
}

#[test]
#[cfg_attr(
    debug_assertions,
    ignore = "minutes without optimisation: cargo test --release --test soak"
)]
fn a_thousand_requests() {
    let folder = tempfile::tempdir().expect("a folder");
    let checkpoint = Checkpoint::open(&tiny_model()).expect("legal");
    let repack = Repack::new(&checkpoint, folder.path());
    repack.run(&mut |_| std::ops::ControlFlow::Continue(())).expect("repacks");
    let builder = || {
        let container = ContainerChoice::Folder(folder.path().into());
        Engine::builder(tiny_model()).container(container).threads(1).context(256).chunk(8)
    };
    let reference = builder().sizing(Sizing::Share(1.0)).build().expect("builds");
    let expected: Vec<Vec<u32>> = (0..PROMPTS * 3)
        .map(|number| {
            let mut session =
                reference.session(options(number, &CancelToken::new())).expect("legal");
            session.prefill(&prompt(number % PROMPTS)).expect("runs");
            (0..TOKENS).map(|_| session.next().expect("runs")).collect()
        })
        .collect();
    drop(reference);

    let trip = Trip::default();
    let builder = builder().sizing(Sizing::Slots(SLOTS[3])).ngram_cache_rows(64).lanes(2);
    let builder = builder.sink(Box::new(trip.clone()));
    let (engine, reader) = faulty(builder, io::ErrorKind::Interrupted);
    let layers = engine.checkpoint().geometry().layers() as u64;
    let (mut rng, mut failed, mut cancelled, mut after_200) = (Rng::new(9), BTreeMap::new(), 0, 0);
    for request in 0..REQUESTS {
        if request % 50 == 0 {
            engine.resize(SLOTS[request / 50 % 4]).expect("lawful");
        }
        let number = rng.below(3 * PROMPTS as u64) as usize;
        let cancel = CancelToken::new();
        let mut session = engine.session(options(number, &cancel)).expect("legal");
        if request % 5 == 4 {
            cancelled += 1;
            // After some tokens, in some layer.
            let before = rng.below(TOKENS as u64 - 1) as usize;
            go_on_to(&mut session, number % PROMPTS, before).expect("runs");
            let layer = LayerIdx::new(rng.below(layers) as u16);
            trip.set(Some((layer, cancel)));
            let kind = go_on(&mut session, number % PROMPTS).expect_err("cancelled").kind();
            trip.set(None);
            assert_eq!(kind, ErrorKind::Cancelled);
            if rng.below(2) == 0 {
                continue;
            }
            session.set_cancel(CancelToken::new());
        }
        if request % 20 == 7 {
            // Some read of this request, soon or late.
            reader.arm(Schedule::Nth(rng.below(60)));
        }
        let found = answer(&mut session, number % PROMPTS, &reader, &mut failed);
        reader.arm(Schedule::Never);
        assert_eq!(found, expected[number], "request {request}");
        if request + 1 == 200 {
            after_200 = resident_bytes().expect("linux");
        }
    }
    let last = resident_bytes().expect("linux");
    engine.inspect(|experts| experts.pool().validate()).expect("consistent");
    let (reads, faults) = (reader.reads(), reader.faults());
    println!(
        "{cancelled} cancelled, {faults} of {reads} reads failed, errors {failed:?}, resident {after_200} \
         after 200 requests and {last} after {REQUESTS}"
    );
    // A few of the 50 requests may have read nothing any more when theirs was to fail.
    assert!(cancelled == 200 && (30..=50).contains(&faults), "{cancelled}, {faults}");
    assert!(failed.values().sum::<usize>() >= 25, "{failed:?}");
    assert!(last as f64 <= 1.02 * after_200 as f64, "{after_200} bytes became {last}");
}

/// As far as `before` tokens.
fn go_on_to(session: &mut Session, prompt_number: usize, before: usize) -> Result<(), Error> {
    if session.tokens().is_empty() {
        session.prefill(&prompt(prompt_number))?;
    }
    while session.generated().len() < before {
        session.next()?;
    }
    Ok(())
}
