//! Reproduces the tables of the article about the original. `cargo run --release --example article
//! -- --help` lists the tables and the flags.

use std::process::ExitCode;

fn main() -> ExitCode {
    slotstream_examples::main(slotstream_examples::article::run)
}
