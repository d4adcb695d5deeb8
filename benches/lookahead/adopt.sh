#!/usr/bin/env bash
# What adopting a record costs that was read ahead, beside finding it resident and missing it: see
# adopt.rs. With RECEIPT, writes what it found to that file, too.
#
# Needs Rust and Python 3. MEASURE is put before what is timed.
#
#     [MEASURE=COMMAND] benches/lookahead/adopt.sh [ROUNDS [RECEIPT]]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../comparison.sh"

begin "${1:-5}" "${2:-}" '' target/lookahead
adopt=$(program build --release -p slotstream-benches --example adopt)
# shellcheck disable=SC2016
${MEASURE:-} bash -c 'for ((i = 0; i < $1; i++)); do "$0"; done' "$adopt" "$rounds" |
    python3 -c '
import json, os, statistics, sys
sys.path.insert(0, "benches")
import receipt as receipts
runs = [json.loads(line) for line in sys.stdin]
rows = {name: [run[name] for run in runs] for name in runs[0]}
whole = {
    "name": "adopting",
    "command": f"benches/lookahead/adopt.sh {len(runs)}",
    "commit": sys.argv[1],
    "machine": receipts.machine(),
    "settings": {
        "set": "median over 20,000 demands of a layer of ten records, in a pool of 64 slots; by bytes of a record",
        "conditions": os.environ.get("CONDITIONS", "as it was"),
    },
    "rounds": len(runs),
    "median": receipts.each(rows, statistics.median),
    "spread": receipts.each(rows, lambda values: [min(values), max(values)]),
    "figures": {"more than a resident record, ns": {
        name: statistics.median(run["adopted_ns"] - run["resident_ns"] for run in found)
        for name, found in rows.items()}},
}
print(json.dumps(receipts.rounded(whole["median"]), indent=1))
if sys.argv[2]:
    receipts.write(sys.argv[2], whole)
' "$commit" "$receipt"
