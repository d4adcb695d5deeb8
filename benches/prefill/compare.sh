#!/usr/bin/env bash
# Reads prompts of 16 to 512 tokens through the pool and in sweeps, and prints tokens a second and
# the bytes that were read: the bundled model, and a synthesized model of the real shapes from shards
# and from a container. All cases in turn, ROUNDS times; they must give the same token. With RECEIPT,
# writes what it found to that file, too.
#
# Needs Linux, Rust, Python 3, and 6 GB of disk below SCRATCH (default: target/prefill). What it writes
# there goes at the end.
#
#     benches/prefill/compare.sh [ROUNDS [RECEIPT [SCRATCH]]]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../comparison.sh"

begin "${1:-5}" "${2:-}" "${3:-}" target/prefill
temporary
examples generate repack synthesize
"$programs/synthesize" --layers 2 --vocab 32768 --no-ngram --out "$scratch/large"
"$programs/repack" --model "$scratch/large" --out "$scratch/large.container"

python3 benches/prefill/compare.py "$programs/generate" "$scratch" "$rounds" "$commit" "$receipt"
