# What the comparisons have in common; each sources this first, with its own arguments in place.
# Leaves the working directory at the root of the repository.

fail() {
    printf 'compare.sh: %s\n' "$1" >&2
    exit 1
}

# An absolute path, or nothing.
absolute() {
    [[ -z $1 || $1 == /* ]] && printf '%s' "$1" || printf '%s' "$PWD/$1"
}

# begin ROUNDS RECEIPT SCRATCH DEFAULT: sets rounds, receipt, scratch (below the root where it is not
# given: DEFAULT) and commit.
begin() {
    rounds=$1
    [[ $rounds =~ ^[1-9][0-9]*$ ]] || fail "the number of rounds is '$rounds', not a whole number of at least 1"
    receipt=$(absolute "$2") scratch=$(absolute "$3")
    cd "$(dirname "${BASH_SOURCE[0]}")/.."
    scratch=${scratch:-$PWD/$4}
    local tool
    for tool in cargo python3 git; do
        command -v "$tool" >/dev/null || fail "$tool is missing"
    done
    commit=$(git rev-parse --short=12 HEAD)
}

# A folder below $scratch that goes at the end.
temporary() {
    mkdir -p "$scratch"
    scratch=$(mktemp -d "$scratch/XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

# The program that cargo makes with these arguments, itself, so that nothing of cargo is measured.
program() {
    cargo "$@" --quiet --message-format=json | python3 -c 'import json, sys
found = [message["executable"] for message in map(json.loads, sys.stdin) if message.get("executable")]
print(found[-1])'
}

# Examples that run models, in $programs.
examples() {
    local name names=()
    for name in "$@"; do names+=(--example "$name"); done
    cargo build --quiet --release -p slotstream-examples "${names[@]}"
    programs=$PWD/target/release/examples
}
