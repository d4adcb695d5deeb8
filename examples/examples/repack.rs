//! Makes a container of a checkpoint: one read a record, one read a row.
//! `cargo run --release --example repack -- --help` lists the flags.

use std::process::ExitCode;

fn main() -> ExitCode {
    slotstream_examples::main(slotstream_examples::repack::run)
}
