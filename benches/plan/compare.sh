#!/usr/bin/env bash
# Compares what is planned and predicted with what happens: the memory plan with the peak of the
# process, also in a memory cgroup, and the speed that `doctor` predicts with the one that `generate`
# has, also with a throttled disk. A synthesized model of the real shapes and the bundled one, all
# cases in turn, ROUNDS times. With RECEIPT, writes what it found to that file, too.
#
# Needs Linux, Rust, Python 3, 3 GB of disk below SCRATCH (default: target/plan), and cgroups that may
# be made: root, as a rule. Without them those cases are left out. What it writes below SCRATCH goes
# at the end; with MODEL a synthesized model that is there already is used. ONLY=memory or ONLY=speed
# leaves out the others, NAME is the receipt's.
#
#     benches/plan/compare.sh [ROUNDS [RECEIPT [SCRATCH [MODEL]]]]
set -euo pipefail

fail() {
    printf 'compare.sh: %s\n' "$1" >&2
    exit 1
}

rounds=${1:-5} receipt=${2:-} scratch=${3:-} model=${4:-}
[[ $rounds =~ ^[1-9][0-9]*$ ]] || fail "the number of rounds is '$rounds', not a whole number of at least 1"
[[ -z $receipt || $receipt == /* ]] || receipt=$PWD/$receipt
[[ -z $scratch || $scratch == /* ]] || scratch=$PWD/$scratch
[[ -z $model || $model == /* ]] || model=$PWD/$model
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

for tool in cargo python3 git; do
    command -v "$tool" >/dev/null || fail "$tool is missing"
done
mkdir -p "${scratch:=$PWD/target/plan}"
scratch=$(mktemp -d "$scratch/XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

cargo build --quiet --release -p slotstream-examples \
    --example generate --example doctor --example synthesize
programs=$PWD/target/release/examples
if [[ -z $model ]]; then
    model=$scratch/large
    "$programs/synthesize" --layers 2 --vocab 32768 --no-ngram --out "$model"
fi

commit=$(git rev-parse --short=12 HEAD)
python3 benches/plan/compare.py "$programs" "$model" "$rounds" "$commit" "$receipt"
