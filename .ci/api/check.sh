#!/usr/bin/env bash
# The public API of the crates without candle names no type of another crate but those that its
# manifest lists under `package.metadata.cargo_check_external_types`; for core nothing but the
# standard library.
#
# The tool reads rustdoc's JSON, whose form changes from one Rust to the next: this version of it
# reads the form of Rust 1.95 and says so when it meets another one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
target=${CARGO_TARGET_DIR:-$root/target}
readonly TOOL=cargo-check-external-types VERSION=0.5.0
readonly CRATES=(core io cache replay checkpoint ngram kernels testkit)

fail() {
    printf 'api: %s\n' "$*" >&2
    exit 1
}

# Unoptimised and without debug information: it is compiled more than it is run.
CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --locked --debug --version "=$VERSION" "$TOOL" \
    --root "$target/tools" --target-dir "$target/tools-build"

export CARGO_TARGET_DIR=$target RUSTDOC=$root/.ci/api/rustdoc

# external_types FOLDER: examines the package there.
external_types() {
    (cd "$1" && "$target/tools/bin/$TOOL" check-external-types 2>&1)
}

# First the tool itself: every leak of a crate that leaks must be found.
leaks() {
    local report leak leaks=0
    if report=$(external_types .ci/api/leak); then
        fail "the tool finds nothing in a crate that leaks:"$'\n'"$report"
    fi
    while read -r leak; do
        leaks=$((leaks + 1))
        grep -qE "\`leak::$leak(\`|::)" <<<"$report" ||
            fail "the tool does not find leak::$leak:"$'\n'"$report"
    done < <(sed -n 's|^.*// leaks: ||p' .ci/api/leak/src/lib.rs)
    ((leaks >= 10)) || fail "only $leaks leaks were tried"
    if grep -qE '`leak::(Sound|sound)' <<<"$report"; then
        fail "the tool finds a leak where there is none:"$'\n'"$report"
    fi
    printf 'api: the tool finds all %d leaks of a crate that leaks\n' "$leaks"
}

leaks
for crate in "${CRATES[@]}"; do
    report=$(external_types "crates/slotstream-$crate") ||
        fail "slotstream-$crate:"$'\n'"$report"
    if grep -q "wasn't referenced" <<<"$report"; then
        fail "slotstream-$crate allows more than it needs:"$'\n'"$report"
    fi
    printf 'api: slotstream-%s: nothing foreign but what its manifest allows\n' "$crate"
done
