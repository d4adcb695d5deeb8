//! The memory plan against the process. A process of its own: others would be measured with it.
#![cfg(target_os = "linux")]

use std::path::Path;

use slotstream::{Engine, SessionOptions, Sizing, machine};

/// Bytes that the plan may be above what is taken.
const GAP: u64 = 16 << 20;

/// With its pool and its context full, the process has never had more than was planned before
/// anything was loaded, and not much less.
#[test]
fn the_peak_is_what_was_planned() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/models/tiny-moe");
    let engine = Engine::builder(model)
        .sizing(Sizing::Share(0.3))
        .context(2048)
        .threads(2)
        // Small enough to be full at the end.
        .ngram_cache_rows(1024)
        .build()
        .expect("builds");
    let mut session = engine.session(SessionOptions::new()).expect("greedy is legal");
    let prompt: Vec<u32> = (0..2_000).map(|i| (i * 97 + i / 7) % 4000).collect();
    session.prefill(&prompt).expect("runs");
    let tokens: Result<Vec<u32>, _> = session.generate_ids(47).ignoring_eos(true).collect();
    assert_eq!(tokens.expect("runs").len(), 47);
    let peak = machine::peak_resident_bytes().expect("linux says");
    let plan = engine.plan();
    let planned = plan.total_bytes();
    println!("{peak} bytes of {planned}\n{plan}");
    assert!(peak <= planned, "{peak} bytes, planned were\n{plan}");
    assert!(planned - peak <= GAP, "{peak} bytes, planned were\n{plan}");
}
