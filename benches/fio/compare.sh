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
source "$(dirname "${BASH_SOURCE[0]}")/../comparison.sh"

begin "${1:-20}" "${2:-}" "${3:-}" target/fio
command -v fio >/dev/null || fail 'fio is missing: apt-get install fio'

probe=$(program build --release -p slotstream-examples --no-default-features --example probe_ssd)
python3 benches/fio/compare.py "$probe" "$scratch" "$rounds" "$commit" "$receipt"
