#!/usr/bin/env bash
# Rebuilds the tokenizer of Qwen3.8 and checks ours against it, and our chat template with Jinja2.
#
#     .ci/tokenizer/check.sh FOLDER
#
# FOLDER takes a virtual environment of Python and the tokenizer (25 MB); nothing is installed
# elsewhere. Needs Python 3.11 or later with venv, and PyPI.
set -euo pipefail

if (($# != 1)); then
    echo "usage: $0 FOLDER" >&2
    exit 2
fi
mkdir -p "$1"
folder=$(cd "$1" && pwd)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
data=$here/../../crates/slotstream/tests/data
readonly folder here data TESTS=6

python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip install --quiet --disable-pip-version-check --retries 5 \
    --no-deps --require-hashes --requirement "$here/requirements.txt"

"$python" "$here/rebuild.py" "$folder/qwen3.8"
"$python" "$here/render_chat.py"
# The goldens of templates in general are still what Jinja2 makes of them.
"$python" "$data/template/goldens.py" | cmp - "$data/template/goldens.json"

# All packages, as in the other runs of the tests, so that nothing is compiled twice.
cd "$here/../.."
SLOTSTREAM_TOKENIZER=$folder/qwen3.8 cargo test --workspace --test it -- \
    --ignored --nocapture real_tokenizer | tee "$folder/tests"
passed=0
while read -r count; do passed=$((passed + count)); done \
    < <(sed -n 's/^test result: ok\. \([0-9]*\) passed.*/\1/p' "$folder/tests")
if ((passed != TESTS)); then
    echo "$passed tests of the tokenizer ran instead of $TESTS" >&2
    exit 1
fi
