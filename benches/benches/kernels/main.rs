//! Matrix products and experts over weights that do not fit the last level cache, beside a plain
//! read of the same bytes and candle's quantized products.
//!
//! The cases run in turn, again and again, so that what else the machine does meets all of them;
//! each gets the median over the rounds, with the quartiles. It is measured in processor time,
//! which two threads share, and for two threads by the clock too. Products of one row and experts
//! of one row are reported in GB (1e9) of weights a second, words, scales and biases; products of
//! several rows in GFLOP/s.
//!
//! ```sh
//! RAYON_NUM_THREADS=1 GLIBC_TUNABLES=glibc.malloc.hugetlb=1 \
//!     cargo bench -p slotstream-benches --bench kernels -- [--rounds N] [--json FILE] [FILTER]
//! ```
//! The first variable keeps candle to one thread, without it candle is left out; the second puts
//! its weights into huge pages, as ours are.

mod candle;
mod measure;
mod ours;
mod weights;

use std::error::Error;

use measure::Cases;

/// Rows of the products of several rows.
const ROWS: [usize; 4] = [8, 16, 64, 512];

/// Rows and columns of an expert's matrices.
const SHAPES: [(usize, usize); 2] = [(640, 2560), (2560, 640)];

/// Rows and columns of a hyper-connection mix's matrices, which only decoding finds slow.
const MIXES: [(usize, usize); 2] = [(320, 10_240), (10_240, 320)];

fn main() -> Result<(), Box<dyn Error>> {
    let (mut rounds, mut json, mut filter) = (7, None, String::new());
    // Cargo adds a flag of its own.
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--rounds" => rounds = arguments.next().ok_or("--rounds N")?.parse()?,
            "--json" => json = Some(arguments.next().ok_or("--json FILE")?),
            _ => filter = argument,
        }
    }
    let mut cases = Cases::new(filter);
    for (n, k) in SHAPES {
        let weights = ours::add_matvec(&mut cases, n, k);
        ours::add_matmul(&mut cases, &weights, &ROWS);
        ours::note_errors(&mut cases, &weights);
    }
    for (n, k) in MIXES {
        ours::add_matvec(&mut cases, n, k);
    }
    ours::add_experts(&mut cases)?;
    ours::add_bf16(&mut cases, 2560, 2560);
    candle::add(&mut cases, &SHAPES, &ROWS)?;
    cases.run(rounds, json.as_deref())
}
