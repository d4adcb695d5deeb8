//! Memory that is not given back. A process of its own, so that no other test disturbs it.
#![cfg(target_os = "linux")]

use std::path::Path;

use slotstream::{Engine, Error, SessionOptions, Sizing, machine};

fn short_session(engine: &Engine, first: u32) -> Result<Vec<u32>, Error> {
    let mut session = engine.session(SessionOptions::new())?;
    let prompt: Vec<u32> = (0..12).map(|i| (first * 131 + i * 17) % 4096).collect();
    session.prefill(&prompt)?;
    session.generate_ids(6).ignoring_eos(true).collect()
}

/// Resident bytes after the 200th short session are at most 1.02 times those after the 20th.
#[test]
fn two_hundred_sessions_leave_nothing_behind() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/models/tiny-moe");
    let engine = Engine::builder(model)
        .sizing(Sizing::Share(0.3))
        .context(512)
        .threads(2)
        // Full after a few sessions: what it then holds is as much as it will ever hold.
        .ngram_cache_rows(256)
        .build()
        .expect("builds");
    let resident = || machine::resident_bytes().expect("linux says");
    let mut after_20 = 0;
    for n in 1..=200 {
        let tokens = short_session(&engine, n).expect("runs");
        assert_eq!(tokens.len(), 6);
        if n == 20 {
            after_20 = resident();
        }
    }
    let after_200 = resident();
    println!("{after_20} bytes after 20 sessions, {after_200} after 200");
    assert!(
        after_200 as f64 <= 1.02 * after_20 as f64,
        "{after_20} bytes after 20 sessions, {after_200} after 200"
    );
}
