//! Measures a disk in the ways in which the engine reads. `cargo run --release --example probe_ssd
//! -- --help` lists the flags.

use std::process::ExitCode;

fn main() -> ExitCode {
    slotstream_examples::main(slotstream_examples::probe_ssd::run)
}
