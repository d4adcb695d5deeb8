#!/usr/bin/env bash
# Checks the workspace with tests and examples for Apple silicon, warnings denied; on Linux, so that
# code for Macs is compiled with every change. Nothing of it is run. See docs/metal.md.
#
#   .ci/apple/check.sh [link|planted|all]
#
# With `link` also links one example into a program for macOS. With `planted` only sees whether a wrong
# type in code for macOS alone is found, in a copy. With `all` does all three.
#
# Needs cargo, Python with venv, git for `planted`; the network once. Stubs of Apple's frameworks lie
# beside this script: names of symbols and nothing else.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=../cross/tools.sh
source .ci/cross/tools.sh
readonly TARGET=aarch64-apple-darwin STUBS=$PWD/.ci/apple/stubs EXAMPLE=generate
readonly WHAT=${1:-check}

case $WHAT in check | link | planted | all) ;; *)
    printf 'apple: %s: expected link, planted or all\n' "$WHAT" >&2
    exit 2
    ;;
esac

need_zig
need_std "$TARGET"
compiler "$tools/apple-cc" aarch64-macos.15.0 -g0
# rustc sees by the name that it is a compiler and no bare linker.
compiler "$tools/apple-clang" aarch64-macos.15.0 -F "$STUBS" -L "$STUBS"
export CC_aarch64_apple_darwin=$tools/apple-cc
export CARGO_TARGET_AARCH64_APPLE_DARWIN_LINKER=$tools/apple-clang
# Nobody looks for Xcode.
export SDKROOT=/nonexistent
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}

# Not clippy: what it says of sizes differs from target to target.
export CARGO_TARGET_AARCH64_APPLE_DARWIN_RUSTFLAGS='-D warnings'

check() {
    cargo check "${build_std[@]}" --workspace --all-targets --target "$TARGET" &&
        printf 'apple: checked\n'
}

link() {
    # Nobody runs it: without optimisation it is compiled in a third of the time.
    cargo build "${build_std[@]}" --target "$TARGET" --example "$EXAMPLE" \
        --config 'profile.dev.opt-level=0' --config 'profile.dev.debug=false' \
        --config 'profile.dev.package."*".opt-level=0' \
        --config 'profile.dev.package.slotstream-core.opt-level=0' \
        --config 'profile.dev.package.slotstream-kernels.opt-level=0'
    local program=$CARGO_TARGET_DIR/$TARGET/debug/examples/$EXAMPLE magic
    magic=$(od -An -tx1 -N8 "$program" | tr -d ' ')
    # A 64-bit Mach-O file, and the processor it is for.
    if [[ $magic != cffaedfe0c000001 ]]; then
        printf 'apple: %s begins with %s: no program for Apple silicon\n' "$program" "$magic" >&2
        exit 1
    fi
    printf 'apple: linked %s (%d bytes)\n' "$program" "$(stat -c %s "$program")"
}

planted() {
    local copy
    copy=$(mktemp -d)
    # shellcheck disable=SC2064
    trap "rm -rf '$copy'" EXIT
    git ls-files -z --cached --others --exclude-standard | tar --null -T - -cf - --ignore-failed-read |
        tar -xf - -C "$copy"
    printf 'const PLANTED: u32 = "no number";\n' >>"$copy/crates/slotstream-candle/src/metal.rs"
    if (cd "$copy" && check) >"$copy/log" 2>&1; then
        printf 'apple: a wrong type in code for macOS was not found\n' >&2
        exit 1
    fi
    # It must be this error, and no other; it is in the library and once more in its tests.
    grep -A 4 '^error' "$copy/log"
    if ! grep -q '^error\[E0308\]' "$copy/log" || grep '^error\[' "$copy/log" | grep -qv E0308; then
        printf 'apple: the check failed, and not of the planted error\n' >&2
        exit 1
    fi
    printf 'apple: the planted error was found\n'
}

if [[ $WHAT != planted ]]; then check; fi
if [[ $WHAT == link || $WHAT == all ]]; then link; fi
if [[ $WHAT == planted || $WHAT == all ]]; then planted; fi
