//! Checks the Metal path on a Mac. `cargo run --release --example metal_selfcheck -- --help` lists
//! the flags.

use std::process::ExitCode;

fn main() -> ExitCode {
    slotstream_examples::main(slotstream_examples::metal_selfcheck::run)
}
