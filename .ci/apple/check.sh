#!/usr/bin/env bash
# Checks the workspace with tests and examples for Apple silicon, warnings denied, and links one
# example into a program for macOS; on Linux, so that code for Macs is compiled with every change.
# Nothing of it is run. See docs/metal.md.
#
#   .ci/apple/check.sh [link]
#
# It links with `link` alone, which takes minutes more.
#
# Needs cargo, Python with venv; the network once. Stubs of Apple's frameworks lie
# beside this script: names of symbols and nothing else.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=../cross/tools.sh
source .ci/cross/tools.sh
readonly TARGET=aarch64-apple-darwin STUBS=$PWD/.ci/apple/stubs EXAMPLE=generate

need_zig
need_std "$TARGET"
compiler "$tools/apple-cc" aarch64-macos.15.0 -g0
# rustc sees by the name that it is a compiler and no bare linker.
compiler "$tools/apple-clang" aarch64-macos.15.0 -F "$STUBS" -L "$STUBS"
export CC_aarch64_apple_darwin=$tools/apple-cc
export CARGO_TARGET_AARCH64_APPLE_DARWIN_LINKER=$tools/apple-clang
# Nobody looks for Xcode.
export SDKROOT=/nonexistent

# Not clippy: what it says of sizes differs from target to target.
export CARGO_TARGET_AARCH64_APPLE_DARWIN_RUSTFLAGS='-D warnings'
cargo check "${build_std[@]}" --workspace --all-targets --target "$TARGET"
if [[ ${1:-} != link ]]; then
    printf 'apple: checked\n'
    exit 0
fi
# Nobody runs it: without optimisation it is compiled in a third of the time.
cargo build "${build_std[@]}" --target "$TARGET" --example "$EXAMPLE" \
    --config 'profile.dev.opt-level=0' --config 'profile.dev.debug=false' \
    --config 'profile.dev.package."*".opt-level=0' \
    --config 'profile.dev.package.slotstream-core.opt-level=0' \
    --config 'profile.dev.package.slotstream-kernels.opt-level=0'

program=${CARGO_TARGET_DIR:-target}/$TARGET/debug/examples/$EXAMPLE
magic=$(od -An -tx1 -N8 "$program" | tr -d ' ')
# A 64-bit Mach-O file, and the processor it is for.
if [[ $magic != cffaedfe0c000001 ]]; then
    printf 'apple: %s begins with %s: no program for Apple silicon\n' "$program" "$magic" >&2
    exit 1
fi
printf 'apple: checked, and linked %s (%d bytes)\n' "$program" "$(stat -c %s "$program")"
