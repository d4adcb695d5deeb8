//! Writes a checkpoint of the published shapes with random weights.
//! `cargo run --release --example synthesize -- --help` lists the flags.

use std::process::ExitCode;

fn main() -> ExitCode {
    slotstream_examples::main(slotstream_examples::synthesize::run)
}
