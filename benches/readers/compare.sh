#!/usr/bin/env bash
# Decodes with each reader, from the shards and from a container, and prints what it cost: the
# bundled model with a warm page cache, and a synthesized model of the real shapes with a page cache
# that is much smaller than the files, and with one that may hold them. All cases in turn, ROUNDS
# times; they must give the same tokens. With RECEIPT, writes what it found to that file, too.
#
# Needs Linux, Rust, Python 3, 6 GB of disk below SCRATCH (default: target/readers), and for the
# small page cache a memory cgroup that may be made: root, as a rule. Without one those
# cases are left out. What it writes below SCRATCH goes at the end.
#
#     benches/readers/compare.sh [ROUNDS [RECEIPT [SCRATCH]]]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../comparison.sh"

begin "${1:-5}" "${2:-}" "${3:-}" target/readers
temporary
examples generate repack synthesize
"$programs/synthesize" --layers 2 --vocab 32768 --no-ngram --out "$scratch/large"
"$programs/repack" --model "$scratch/large" --out "$scratch/large.container"
"$programs/repack" --model examples/models/tiny-moe --out "$scratch/tiny.container"

python3 benches/readers/compare.py "$programs/generate" "$scratch" "$rounds" "$commit" "$receipt"
