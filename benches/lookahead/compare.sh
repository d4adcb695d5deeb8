#!/usr/bin/env bash
# What forecasters are worth. Trains the correction on this repository's documents and sources, reads
# held-out text with every forecaster, and then generates with each while every read takes as long as
# on the model of a disk on which a record takes 0.1, 0.3 and 1.0 of what a layer computes. All cases
# in turn, ROUNDS times; they must give the same tokens. With RECEIPT, writes what it found to that
# file, too, and draws agreement by layer beside it (RECEIPT.svg).
#
# Needs Linux, Rust, Python 3, and 700 MB of disk below SCRATCH (default: target/lookahead). What it
# writes there goes at the end. MEASURE is put before what is timed.
#
#     [MEASURE=COMMAND] benches/lookahead/compare.sh [ROUNDS [RECEIPT [SCRATCH]]]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../comparison.sh"

begin "${1:-3}" "${2:-}" "${3:-}" target/lookahead
temporary
examples generate perplexity repack train_lookahead
"$programs/repack" --model examples/models/tiny-moe --out "$scratch/tiny.container"
# Nothing of the texts that are measured with: every sixth file, so that each crate has a part.
mapfile -t texts < <(git ls-files 'docs/*.md' 'crates/*/src/*.rs' | awk 'NR % 6 == 0')
"$programs/train_lookahead" --rank 32 --tokens 512 --json --scratch "$scratch" \
    --slots 672 --out "$scratch/correction.safetensors" "${texts[@]}" | tail -n 1 >"$scratch/trained.json"

python3 benches/lookahead/compare.py read "$programs" "$scratch"
${MEASURE:-} python3 benches/lookahead/compare.py measure "$programs" "$scratch" "$rounds" "$commit" "$receipt"
if [[ $receipt ]]; then
    cargo run --quiet --release -p slotstream-benches --example plot_lookahead -- "$receipt" "$receipt.svg"
fi
