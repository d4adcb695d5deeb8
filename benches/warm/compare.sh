#!/usr/bin/env bash
# Counts how often the first 100 generated tokens find their experts with and without a warm start, and
# how long reading them back takes. A first run over one text leaves a file; a later run goes on with the
# same text, or with another one. Texts are pages of `docs/` and a source file. All cases in turn, ROUNDS
# times; with and without must give the same tokens. With RECEIPT, writes what it found to that file, too.
#
# Needs Rust and Python 3. What it writes below SCRATCH (default: target/warm) goes at the end.
#
#     benches/warm/compare.sh [ROUNDS [RECEIPT [SCRATCH]]]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../comparison.sh"

begin "${1:-1}" "${2:-}" "${3:-}" target/warm
temporary
examples generate

python3 benches/warm/compare.py "$programs/generate" "$scratch" "$rounds" "$commit" "$receipt"
