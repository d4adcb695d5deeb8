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

/// Resident bytes after the 200th short session are at most 1.02 times those after the 20th. What is
/// allocated once but late, as the arena of a thread that other work kept from its first read, grows
/// in one block of 180 sessions; what is never given back grows in each.
#[test]
fn two_hundred_sessions_leave_nothing_behind() {
    const BLOCKS: u32 = 3;
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/models/tiny-moe");
    let engine = Engine::builder(model)
        .sizing(Sizing::Share(0.3))
        .context(512)
        .threads(2)
        // Full after a few sessions: what it then holds is as much as it will ever hold.
        .ngram_cache_rows(256)
        .build()
        .expect("builds");
    let resident_after = |sessions: std::ops::Range<u32>| {
        for n in sessions {
            let tokens = short_session(&engine, n).expect("runs");
            assert_eq!(tokens.len(), 6);
        }
        machine::resident_bytes().expect("linux says")
    };
    let mut resident = vec![resident_after(0..20)];
    for block in 0..BLOCKS {
        let before = resident[resident.len() - 1];
        resident.push(resident_after(20 + block * 180..200 + block * 180));
        if resident[resident.len() - 1] as f64 <= 1.02 * before as f64 {
            return;
        }
    }
    panic!("resident bytes after 20 sessions and after each 180 more: {resident:?}");
}
