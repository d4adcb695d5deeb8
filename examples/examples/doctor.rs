//! Says whether a model runs here, and about how fast. `cargo run --release --example doctor -- --help` lists the flags.

use std::process::ExitCode;

fn main() -> ExitCode {
    slotstream_examples::main(slotstream_examples::doctor::run)
}
