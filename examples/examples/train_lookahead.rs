//! Trains a correction of forecasts. `cargo run --release --example train_lookahead -- --help`
//! lists the flags.

use std::process::ExitCode;

fn main() -> ExitCode {
    slotstream_examples::main(slotstream_examples::train_lookahead::run)
}
