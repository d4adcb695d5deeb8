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
mkdir -p "${scratch:=$PWD/target/readers}"
scratch=$(mktemp -d "$scratch/XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

cargo build --quiet --release -p slotstream-examples \
    --example generate --example repack --example synthesize
programs=$PWD/target/release/examples
"$programs/synthesize" --layers 2 --vocab 32768 --no-ngram --out "$scratch/large"
"$programs/repack" --model "$scratch/large" --out "$scratch/large.container"
"$programs/repack" --model examples/models/tiny-moe --out "$scratch/tiny.container"

commit=$(git rev-parse --short=12 HEAD)
python3 benches/readers/compare.py "$programs/generate" "$scratch" "$rounds" "$commit" "$receipt"
