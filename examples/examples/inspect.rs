//! Shows what a model folder holds. `cargo run --release --example inspect -- --help` lists the flags.

use std::process::ExitCode;

fn main() -> ExitCode {
    slotstream_examples::main(slotstream_examples::inspect::run)
}
