#!/usr/bin/env bash
# Decodes at hit rates of 0, 0.5, 0.8, 0.9 and 0.95, and compares the time of a token with the larger
# of what computing alone takes (all records in slots) and what reading alone takes (the time in which
# a read was in flight): four layers of the published shapes whose routers prefer some experts, from a
# container, by direct reads. Sizes of the pool are found by replaying the recorded routes. All cases
# in turn, ROUNDS times. With RECEIPT, writes what it found to that file, too.
#
# Needs Linux, Rust, Python 3, 12 GB of disk below SCRATCH (default: target/hitrates) and 8 GB of memory.
# What it writes below SCRATCH goes at the end. Further FLAGS go to every run of `generate`.
#
#     benches/hitrates/compare.sh [ROUNDS [RECEIPT [SCRATCH [FLAGS...]]]]
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
mkdir -p "${scratch:=$PWD/target/hitrates}"
scratch=$(mktemp -d "$scratch/XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

cargo build --quiet --release -p slotstream-examples \
    --example generate --example repack --example replay --example synthesize
programs=$PWD/target/release/examples
"$programs/synthesize" --layers 4 --vocab 32768 --no-ngram --out "$scratch/model"
"$programs/repack" --model "$scratch/model" --out "$scratch/model.container"

commit=$(git rev-parse --short=12 HEAD)
python3 benches/hitrates/compare.py "$programs" "$scratch" "$rounds" "$commit" "$receipt" "${@:4}"
