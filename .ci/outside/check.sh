#!/usr/bin/env bash
# Packs every crate as for publishing, looks into the packages, and builds, tests and runs the
# crates beside this script, which know nothing but the packages, in a folder outside of the
# checkout.
#
#   .ci/outside/check.sh FOLDER
#
# FOLDER is made. The target folder, the versions of third-party crates and the profiles are those
# of the workspace, so that only the crates of slotstream are compiled again. Needs the third-party
# crates downloaded (`cargo fetch`) and no network.
set -euo pipefail
scratch=$(realpath -m "${1:?usage: $0 FOLDER}")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
readonly MOST_BYTES=$((1 << 20))
target=${CARGO_TARGET_DIR:-$root/target}

fail() {
    printf 'outside: %s\n' "$*" >&2
    exit 1
}

# Packs without the verification of cargo, which would compile everything in other profiles; the
# packages are compiled below.
pack() {
    rm -rf "$scratch"
    mkdir -p "$scratch/unpacked"
    cargo package --workspace --exclude slotstream-examples --exclude slotstream-benches \
        --exclude slotstream-fuzz --exclude slotstream-emulator \
        --exclude slotstream-kernel-cases --no-verify --allow-dirty \
        --offline --target-dir "$scratch/packed" 2>&1 |
        grep -v -e '^warning: ignoring test' -e '^warning: manifest has no documentation' \
            -e '^ *|$' -e '= note: see https://doc.rust-lang.org/cargo/reference/manifest'
    local package
    for package in "$scratch"/packed/package/*.crate; do
        # With today's times: those inside are constant, and cargo would see no change.
        tar -xmzf "$package" -C "$scratch/unpacked"
    done
}

# A package says what it is, holds its README and the licence, and no model.
look_into() {
    local package=$1 folder=$2 size file
    size=$(stat -c %s "$package")
    ((size <= MOST_BYTES)) || fail "$(basename "$package") has $size bytes, more than $MOST_BYTES"
    for file in README.md LICENSE Cargo.toml Cargo.lock src/lib.rs; do
        [[ -s $folder/$file ]] || fail "$(basename "$package") has no $file"
    done
    cmp -s "$folder/LICENSE" LICENSE || fail "$(basename "$package") has another licence"
    grep -qx 'rust-version = "1.95"' "$folder/Cargo.toml" ||
        fail "$(basename "$package") does not say which Rust it needs"
    file=$(find "$folder" -type f \( -name '*.safetensors' -o -name '*.gguf' -o -name '*.bin' \
        -o -name '*.gz' -o -name 'tokenizer*.json' -o -size +256k \) -print -quit)
    [[ -z $file ]] || fail "$(basename "$package") must not hold $file"
    printf 'outside: %s: %d files, %d bytes packed\n' "$(basename "$package")" \
        "$(find "$folder" -type f | wc -l)" "$size"
}

look_into_all() {
    local folder name packages=0 crates
    crates=$(find crates -mindepth 2 -maxdepth 2 -name Cargo.toml | wc -l)
    for folder in "$scratch"/unpacked/*; do
        name=$(basename "$folder")
        look_into "$scratch/packed/package/$name.crate" "$folder"
        packages=$((packages + 1))
    done
    ((packages == crates)) || fail "$packages packages of $crates crates"
}

# The packages of slotstream that a package's manifest needs, itself included, tests aside.
needs() {
    local manifest name
    for manifest in "$scratch/unpacked/$1"-[0-9]*/Cargo.toml; do
        printf '%s\n' "$1"
        for name in $(sed -n 's/^\[dependencies\.\(slotstream.*\)\]$/\1/p' "$manifest"); do
            needs "$name"
        done
    done
}

# Cargo's configuration for a crate: what stands for the registry, and the workspace's profiles.
configure() {
    local crate=$1 name
    shift
    mkdir -p "$scratch/$crate/.cargo"
    {
        printf '[build]\ntarget-dir = "%s"\n\n[patch.crates-io]\n' "$target"
        for name in $(for name in "$@"; do needs "$name"; done | sort -u); do
            printf '%s = { path = "%s" }\n' "$name" "$(echo "$scratch/unpacked/$name"-[0-9]*)"
        done
        printf '\n'
        awk '/^\[/ { ours = /^\[profile\./ } ours' Cargo.toml
    } >"$scratch/$crate/.cargo/config.toml"
}

# copy CRATE PACKAGE...: copies a crate that may use these packages.
copy() {
    cp -r ".ci/outside/$1" "$scratch/$1"
    configure "$@"
    # The copy lets cargo choose the same versions; what is not needed falls out of it.
    cp Cargo.lock "$scratch/$1/Cargo.lock"
}

# The tests of the workspace ask for features of third-party crates (libc, syn, getrandom) that a
# stranger's program does not. With the same ones candle need not be compiled a second time.
ask_for_the_same_features() {
    cat >>"$scratch/$1/Cargo.toml" <<'END'

[dev-dependencies.clap]
version = "4"
features = ["derive"]

[dev-dependencies.signal-hook]
version = "0.3"

[dev-dependencies.proptest]
version = "1"
default-features = false
features = ["std"]
END
}

# Builds and tests a copied crate.
try_out() {
    (cd "$scratch/$1" && cargo test --offline) 2>&1 | tee "$scratch/$1.log"
    printf 'outside: %s: %d third-party crates compiled\n' "$1" \
        "$(grep -c '^ *Compiling [^(]*$' "$scratch/$1.log" || true)"
}

# What the example generates is what the program that embeds slotstream must give.
tokens_of_the_example() {
    cargo run --quiet --release --example generate -- --stats json --quiet --max-tokens 32 |
        sed -n 's/.*"tokens": *\[\([^]]*\)\].*/\1/p'
}

rustfmt --edition 2024 --config-path "$root" --check .ci/outside/*/{src,tests}/*.rs
pack
look_into_all
for part in policy reader forecaster; do
    copy "$part" slotstream-core slotstream-testkit
    try_out "$part"
done

MODEL=$root/examples/models/tiny-moe
TOKENS=$(tokens_of_the_example)
export MODEL TOKENS
[[ -n $TOKENS ]] || fail 'the example printed no tokens'
copy embed slotstream
ask_for_the_same_features embed
try_out embed
