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

fail() {
    printf 'compare.sh: %s\n' "$1" >&2
    exit 1
}

rounds=${1:-5} receipt=${2:-} scratch=${3:-}
[[ $rounds =~ ^[1-9][0-9]*$ ]] || fail "the number of rounds is '$rounds', not a whole number of at least 1"
[[ -z $receipt || $receipt == /* ]] || receipt=$PWD/$receipt
[[ -z $scratch || $scratch == /* ]] || scratch=$PWD/$scratch
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

for tool in cargo python3 git; do
    command -v "$tool" >/dev/null || fail "$tool is missing"
done
mkdir -p "${scratch:=$PWD/target/prefill}"
scratch=$(mktemp -d "$scratch/XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

cargo build --quiet --release -p slotstream-examples \
    --example generate --example repack --example synthesize
programs=$PWD/target/release/examples
"$programs/synthesize" --layers 2 --vocab 32768 --no-ngram --out "$scratch/large"
"$programs/repack" --model "$scratch/large" --out "$scratch/large.container"

commit=$(git rev-parse --short=12 HEAD)
python3 benches/prefill/compare.py "$programs/generate" "$scratch" "$rounds" "$commit" "$receipt"
