//! A policy of one's own: checked, replayed against the built-in ones, then run live.
#![expect(clippy::print_stdout, reason = "it is a program")]

mod policy;

use std::error::Error;

use policy::Fading;
use slotstream::cache::parse_policy;
use slotstream::core::EvictionPolicy;
use slotstream::{Engine, SessionOptions, Sizing, TextOptions};
use slotstream_replay::{Phases, Recording, Report, Simulation, named_policy};

const MODEL: &str = "examples/models/tiny-moe";
const SLOTS: usize = 201;

fn main() -> Result<(), Box<dyn Error>> {
    // Thousands of small requests; panics with what is wrong.
    slotstream_testkit::policy::assert_lawful(|| Box::new(Fading::default()));
    println!("lawful\n");

    let trace = Recording::open(format!("{MODEL}/traces/prose-austen.txt.gz"))?.requests()?;
    let (simulation, mut report) = (Simulation::new(SLOTS), Report::new());
    for name in ["opt", "clock", "lru"] {
        let run = simulation.run(&trace, named_policy(name, &trace)?)?;
        report.push("", name, SLOTS, run.count(Phases::Decode), false);
    }
    let own = simulation.run(&trace, Fading::default())?;
    report.push("", &own.policy, SLOTS, own.count(Phases::Decode), false);
    println!("{}", report.table().without_empty_columns().text());

    let (own, own_rate) = live(Box::new(Fading::default()))?;
    let (clock, clock_rate) = live(parse_policy("clock")?)?;
    println!("live: hit rate {own_rate:.3}, with clock {clock_rate:.3}");
    if own != clock {
        return Err("a policy changed the tokens".into());
    }
    println!("the same {} tokens", own.len());
    Ok(())
}

/// Tokens of a short text under this policy, and the hit rate of decode.
fn live(policy: Box<dyn EvictionPolicy>) -> Result<(Vec<u32>, f64), Box<dyn Error>> {
    let builder = Engine::builder(MODEL).sizing(Sizing::Slots(SLOTS)).policy(policy);
    let mut session = builder.build()?.session(SessionOptions::new())?;
    session.prefill_text("CHAPTER II\n\nMr. Darcy ")?;
    let mut tokens = Vec::new();
    for piece in session.generate(&TextOptions::new(48))? {
        tokens.extend(piece?.token);
    }
    Ok((tokens, session.metrics().decode.hit_rate().unwrap_or(0.0)))
}
