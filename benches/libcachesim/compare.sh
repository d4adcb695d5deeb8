#!/usr/bin/env bash
# Replays the same keys under CLOCK here and in libCacheSim (its own C loop, `process_trace`), in
# the same run, and prints misses and millions of lookups a second. Fails when the misses differ.
# With RECEIPT, writes what it found to that file, too.
#
# Needs Rust, Python 3 with venv, and PyPI for the package `libcachesim`, of which there are wheels
# for Linux and macOS. What it installs and writes lies below target/libcachesim and goes at the end.
# Run it from anywhere.
#
#     benches/libcachesim/compare.sh [ROUNDS [RECEIPT]]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../comparison.sh"

begin "${1:-5}" "${2:-}" '' target/libcachesim
temporary

python3 -m venv "$scratch/venv" ||
    fail 'python3 cannot make a virtual environment; on Debian and Ubuntu install python3-venv'
"$scratch/venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: \
    libcachesim==0.3.5 ||
    fail 'pip cannot install libcachesim 0.3.5: PyPI is out of reach, or has no wheel of it for this system'

keys=$(program bench -p slotstream-benches --bench keys --no-run)
"$keys" write "$scratch/keys"
"$scratch/venv/bin/python" benches/libcachesim/compare.py "$keys" "$scratch/keys" "$rounds" \
    "$commit" "$receipt"
