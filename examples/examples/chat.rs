//! A conversation with a model. `cargo run --release --example chat -- --help` lists the flags.

use std::process::ExitCode;

fn main() -> ExitCode {
    slotstream_examples::main(slotstream_examples::chat::run)
}
