#!/usr/bin/env bash
# What forecasters are worth on a real disk: a model of random weights in the real shapes generates
# with each of them in turn, ROUNDS times, from a container by direct reads, with a third of its
# records in slots. All cases must give the same tokens. With RECEIPT, writes what it found to that
# file, too.
#
# Needs Linux, Rust and Python 3, and 13 GB of disk below SCRATCH (default: target/lookahead) for
# a model of 4 layers and its container, which go at the end; or, as MODEL, the folder of one that
# `synthesize` wrote, with its container beside it (MODEL.container). MEASURE is put before what is
# timed.
#
#     [MODEL=DIR] [MEASURE=COMMAND] benches/lookahead/disk.sh [ROUNDS [RECEIPT [SCRATCH]]]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../comparison.sh"

begin "${1:-3}" "${2:-}" "${3:-}" target/lookahead
temporary
examples generate repack synthesize
model=${MODEL:-}
if [[ -z $model ]]; then
    model=$scratch/large
    "$programs/synthesize" --layers 4 --vocab 32768 --no-ngram --out "$model"
    "$programs/repack" --model "$model" --out "$model.container"
fi
${MEASURE:-} python3 benches/lookahead/disk.py "$programs/generate" "$model" "$model.container" \
    "$scratch" "$rounds" "$commit" "$receipt"
