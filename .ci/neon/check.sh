#!/usr/bin/env bash
# Runs the tests of the kernels on a 64-bit Arm processor, emulated by qemu: the NEON code of `cpu/`
# against `reference/`, with and without the dot product instructions.
#
#   .ci/neon/check.sh
#
# Needs cargo, Python with venv, apt where there is no qemu-aarch64; the network once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=../cross/tools.sh
source .ci/cross/tools.sh
readonly TARGET=aarch64-unknown-linux-musl

need_qemu() {
    if command -v qemu-aarch64 >/dev/null; then return; fi
    local root=()
    if ((EUID != 0)); then root=(sudo); fi
    "${root[@]}" apt-get update
    "${root[@]}" apt-get install --yes --no-install-recommends qemu-user
}

need_qemu
need_std "$TARGET"
if ((${#build_std[@]} == 0)); then
    # The linker that comes with Rust; the target brings its own C library.
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER=rust-lld
else
    need_zig
    compiler "$tools/arm-ld" aarch64-linux-musl -static
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER=$tools/arm-ld
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_RUSTFLAGS='-C link-self-contained=no'
fi

# run PROCESSOR FILTERS...: a processor without SVE, which is not used.
run() {
    printf 'neon: %s\n' "$1"
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_RUNNER="qemu-aarch64 -cpu $1" \
        cargo test "${build_std[@]}" -p slotstream-kernels --lib --test it --target "$TARGET" \
        -- "${@:2}"
}
# The oldest processor has no dot products, the newer one has: only the fast arithmetic asks.
SLOTSTREAM_EXPECTS=neon run cortex-a53
SLOTSTREAM_EXPECTS=neon+dots run cortex-a76 fast int8 expected
