#!/usr/bin/env bash
# Replays the same keys under CLOCK here and in libCacheSim (its own C loop, `process_trace`), in
# the same run, and prints misses and millions of lookups a second. Fails when the misses differ.
# Needs Rust, Python with venv and the package registries. Run it from anywhere.
#
#     benches/libcachesim/compare.sh [ROUNDS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

rounds=${1:-5}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install --quiet libcachesim==0.3.5
cargo bench --quiet -p slotstream-benches --bench keys -- write "$scratch/keys"
# The program itself, so that nothing of cargo is measured.
program=$(cargo bench --quiet -p slotstream-benches --bench keys --no-run --message-format=json |
    python3 -c 'import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message["target"]["name"] == "keys":
        print(message["executable"])')
"$scratch/venv/bin/python" benches/libcachesim/compare.py "$program" "$scratch/keys" "$rounds"
