//! Generates text. `cargo run --release --example generate -- --help` lists the flags.

use std::process::ExitCode;

fn main() -> ExitCode {
    slotstream_examples::main(slotstream_examples::generate::run)
}
