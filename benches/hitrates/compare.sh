#!/usr/bin/env bash
# Decodes at hit rates of 0, 0.5, 0.8, 0.9 and 0.95, without reading ahead, by forecasts and by an oracle,
# and compares the time of a token with the larger of what computing alone takes (all records in slots)
# and what reading alone takes (the time in which a read was in flight): eight layers of the published
# shapes whose routers prefer some experts, from a container, by direct reads. Sizes of the pool are found
# by replaying the recorded routes, which are what the oracle knows, too. All cases in turn, ROUNDS times.
# With RECEIPT, writes what it found to that file, too.
#
# Needs Linux, Rust, Python 3, 23 GB of disk below SCRATCH (default: target/hitrates) and 14 GB of memory.
# What it writes below SCRATCH goes at the end.
#
#     benches/hitrates/compare.sh [ROUNDS [RECEIPT [SCRATCH]]]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../comparison.sh"

begin "${1:-5}" "${2:-}" "${3:-}" target/hitrates
temporary
examples generate repack replay synthesize
"$programs/synthesize" --layers 8 --vocab 32768 --no-ngram --out "$scratch/model"
"$programs/repack" --model "$scratch/model" --out "$scratch/model.container"

python3 benches/hitrates/compare.py "$programs" "$scratch" "$rounds" "$commit" "$receipt"
