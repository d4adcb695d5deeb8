#!/usr/bin/env bash
# Forecast-aware eviction in the laboratory: records what a real forecaster says of five documents,
# replays it under policies as they are and with what was forecast spared, and beside it the optimum.
# Counts only; nothing is timed. With RECEIPT, writes what it found to that file, too.
#
# Needs Rust and Python 3. What it writes below SCRATCH (default: target/lookahead) goes at the end.
#
#     benches/lookahead/eviction.sh [RECEIPT [SCRATCH]]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../comparison.sh"

begin 1 "${1:-}" "${2:-}" target/lookahead
temporary
examples perplexity replay
python3 benches/lookahead/eviction.py "$programs" "$scratch" "$commit" "$receipt"
