#!/usr/bin/env bash
# Replays the same keys under CLOCK here and in libCacheSim (its own C loop, `process_trace`), in
# the same run, and prints misses and millions of lookups a second. Fails when the misses differ.
# With RECEIPT, writes what it found to that file, too.
#
# Needs Rust, Python 3 with venv, and PyPI for the package `libcachesim`, of which there are wheels
# for Linux and macOS. What it installs and writes lies in a temporary folder and goes at the end,
# except what cargo builds. Run it from anywhere.
#
#     benches/libcachesim/compare.sh [ROUNDS [RECEIPT]]
set -euo pipefail

fail() {
    printf 'compare.sh: %s\n' "$1" >&2
    exit 1
}

rounds=${1:-5} receipt=${2:-}
[[ $rounds =~ ^[1-9][0-9]*$ ]] || fail "the number of rounds is '$rounds', not a whole number of at least 1"
[[ -z $receipt || $receipt == /* ]] || receipt=$PWD/$receipt
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

for tool in cargo python3 git; do
    command -v "$tool" >/dev/null || fail "$tool is missing"
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

python3 -m venv "$scratch/venv" ||
    fail 'python3 cannot make a virtual environment; on Debian and Ubuntu install python3-venv'
"$scratch/venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: \
    libcachesim==0.3.5 ||
    fail 'pip cannot install libcachesim 0.3.5: PyPI is out of reach, or has no wheel of it for this system'

# The program itself, so that nothing of cargo is measured.
program=$(cargo bench --quiet -p slotstream-benches --bench keys --no-run --message-format=json |
    python3 -c 'import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message["target"]["name"] == "keys":
        print(message["executable"])')
[[ -x $program ]] || fail 'cargo did not build the bench "keys"'
"$program" write "$scratch/keys"

commit=$(git rev-parse --short=12 HEAD)
"$scratch/venv/bin/python" benches/libcachesim/compare.py "$program" "$scratch/keys" "$rounds" \
    "$commit" "$receipt"
