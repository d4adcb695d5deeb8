//! Shows a pool at work, slot by slot. `cargo run --release --example pool_view -- --help` lists
//! the flags.

use std::process::ExitCode;

fn main() -> ExitCode {
    slotstream_examples::main(slotstream_examples::pool_view::run)
}
