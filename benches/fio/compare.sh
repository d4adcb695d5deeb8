#!/usr/bin/env bash
# Reads records and pieces of records with this workspace's readers (`probe_ssd`) and with fio, one
# after the other in every round, with direct I/O, of the same sizes at the same depths, and
# prints GB/s, processor time and the ratio of each round. With RECEIPT, writes what it found to
# that file, too.
#
# Needs Rust, Python 3, fio and 21.3 GB of room. The files to read, 16 of random bytes, are written
# once into FOLDER (target/fio when it is left out); a run that finds them reads them again, one
# that was interrupted goes on. Remove the folder when you are done. No two measurements in a row
# read the same file, and none reads a byte twice. Run it from anywhere on Linux.
#
#     benches/fio/compare.sh [ROUNDS [RECEIPT [FOLDER]]]
set -euo pipefail

fail() {
    printf 'compare.sh: %s\n' "$1" >&2
    exit 1
}

rounds=${1:-20} receipt=${2:-} folder=${3:-}
[[ $rounds =~ ^[1-9][0-9]*$ ]] || fail "the number of rounds is '$rounds', not a whole number of at least 1"
[[ -z $receipt || $receipt == /* ]] || receipt=$PWD/$receipt
[[ -z $folder || $folder == /* ]] || folder=$PWD/$folder
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=${folder:-$PWD/target/fio}

for tool in cargo python3 git; do
    command -v "$tool" >/dev/null || fail "$tool is missing"
done
command -v fio >/dev/null || fail 'fio is missing: apt-get install fio'

# The program itself, so that nothing of cargo is measured.
program=$(cargo build --release --quiet -p slotstream-examples --no-default-features \
    --example probe_ssd --message-format=json |
    python3 -c 'import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message["target"]["name"] == "probe_ssd":
        print(message["executable"])')
[[ -x $program ]] || fail 'cargo did not build the example "probe_ssd"'

commit=$(git rev-parse --short=12 HEAD)
python3 benches/fio/compare.py "$program" "$folder" "$rounds" "$commit" "$receipt"
