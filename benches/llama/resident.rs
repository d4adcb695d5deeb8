//! A prompt and decoding with every record in its slot, for `compare.sh`, which runs llama.cpp in turn.
//!
//! `cargo bench -p slotstream-benches --bench resident -- --model DIR`, with a checkpoint of
//! `synthesize`. A first prompt of the same length brings the experts into the pool and is not
//! counted. Figures go to standard output as one line of JSON.

use std::path::PathBuf;
use std::time::Instant;

use clap::Parser;
use serde_json::json;
use slotstream::{Arithmetic, Engine, SessionOptions, Sizing};

/// Measures a prompt and decoding of a resident model.
#[derive(Debug, Parser)]
struct Arguments {
    /// The checkpoint.
    #[arg(long)]
    model: PathBuf,
    /// Threads that compute.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Rounds activations to bytes.
    #[arg(long)]
    fast: bool,
    /// Tokens of the prompt, which is one pass.
    #[arg(long, default_value_t = 512)]
    prompt: usize,
    /// Tokens that are decoded.
    #[arg(long, default_value_t = 32)]
    tokens: usize,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let begun = Instant::now();
    let engine = Engine::builder(&arguments.model)
        .sizing(Sizing::Share(1.0))
        .arithmetic(if arguments.fast { Arithmetic::Fast } else { Arithmetic::Exact })
        .chunk(arguments.prompt)
        .context(arguments.prompt + arguments.tokens + 1)
        .threads(arguments.threads)
        .build()?;
    let load = begun.elapsed();
    let vocabulary = engine.checkpoint().config().vocab_size;
    let prompt: Vec<u32> =
        (0..arguments.prompt).map(|i| ((i * 7919 + 13) % vocabulary) as u32).collect();
    engine.session(SessionOptions::new())?.prefill(&prompt)?;

    let mut session = engine.session(SessionOptions::new())?;
    let begun = Instant::now();
    session.prefill(&prompt)?;
    let prefill = begun.elapsed();
    let begun = Instant::now();
    for _ in 0..arguments.tokens {
        session.next()?;
    }
    let decode = begun.elapsed();
    let report = json!({
        "prefill_tok_s": arguments.prompt as f64 / prefill.as_secs_f64(),
        "decode_tok_s": arguments.tokens as f64 / decode.as_secs_f64(),
        "bytes_per_token": session.metrics().decode.bytes_read as f64 / arguments.tokens as f64,
        "load_s": load.as_secs_f64(),
    });
    #[expect(clippy::print_stdout, reason = "the figures")]
    {
        println!("{report}");
    }
    Ok(())
}
