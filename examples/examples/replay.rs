//! Replays traces under eviction policies. `cargo run --release --example replay -- --help` lists
//! the flags.

use std::process::ExitCode;

fn main() -> ExitCode {
    slotstream_examples::main(slotstream_examples::replay::run)
}
