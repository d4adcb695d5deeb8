//! Computes a perplexity. `cargo run --release --example perplexity -- --help` lists the flags.

use std::process::ExitCode;

fn main() -> ExitCode {
    slotstream_examples::main(slotstream_examples::perplexity::run)
}
