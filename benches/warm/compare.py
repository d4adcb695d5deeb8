"""Runs `generate` with and without a warm start: see compare.sh."""

import json
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import receipt as receipts  # noqa: E402

# What a prompt is made of: the first so many bytes of a text, and the next ones.
PART = 1200
TOKENS = 100
# The text that the first run reads, and the one that the later run reads.
PAIRS = {
    "prose, its next page": ("docs/embedding.md", "docs/embedding.md"),
    "code, its next page": ("examples/src/doctor.rs", "examples/src/doctor.rs"),
    "prose, then code": ("docs/embedding.md", "examples/src/doctor.rs"),
}
POOLS = {"10%": 67, "30%": 201}
POLICIES = ["analogue", "lru"]


def run(program, text, flags):
    with open(os.environ["SCRATCH_FILE"], "w", encoding="utf-8") as file:
        file.write(text)
    command = [program, "--quiet", "--ignore-eos", "--max-tokens", str(TOKENS), "--temperature", "0.8",
               "--prompt-file", os.environ["SCRATCH_FILE"], "--lock", "off", *flags]
    child = subprocess.run(command, capture_output=True, text=True)
    if child.returncode != 0:
        sys.exit(f"compare.py: {' '.join(command)} ended with {child.returncode}:\n{child.stderr}")
    return json.loads(child.stdout.splitlines()[-1])


def text(path, part):
    with open(path, encoding="utf-8") as file:
        whole = file.read()
    return whole[part * PART:(part + 1) * PART]


def case(program, scratch, pair, slots, policy):
    file = f"{scratch}/{slots}-{policy}.warm"
    if os.path.exists(file):
        os.remove(file)
    engine = ["--slots", str(slots), "--policy", policy]
    first, later = PAIRS[pair]
    run(program, text(first, 0), [*engine, "--warm-start", file])
    prompt = text(later, 1)
    cold = run(program, prompt, engine)
    warm = run(program, prompt, [*engine, "--warm-start", file])
    if cold["tokens"] != warm["tokens"]:
        sys.exit(f"compare.py: other tokens after a warm start: {pair}, {slots} slots, {policy}")
    began = warm["warm_start"]
    # All phases: what the prompt reads is what a warm start saves first.
    return {
        "cold_hit_rate": cold["hit_rate"],
        "warm_hit_rate": warm["hit_rate"],
        "cold_prompt_hit_rate": cold["prefill"]["hit_rate"],
        "warm_prompt_hit_rate": warm["prefill"]["hit_rate"],
        "cold_bytes": cold["bytes_read"],
        "warm_bytes": warm["bytes_read"],
        "sweep_bytes": began["bytes"],
        "sweep_reads": began["reads"],
        "sweep_s": began["seconds"],
    }


def main():
    program, scratch, rounds, commit, receipt = sys.argv[1:]
    os.environ["SCRATCH_FILE"] = f"{scratch}/prompt.txt"
    rows = {}
    for _ in range(int(rounds)):
        for pair in PAIRS:
            for pool, slots in POOLS.items():
                for policy in POLICIES:
                    name = f"{pair}, {pool}, {policy}"
                    rows.setdefault(name, []).append(case(program, scratch, pair, slots, policy))
    for name, row in receipts.each(rows, statistics.median).items():
        print(f"{name:36} decode {row['cold_hit_rate']:.3f} -> {row['warm_hit_rate']:.3f}, prompt "
              f"{row['cold_prompt_hit_rate']:.3f} -> {row['warm_prompt_hit_rate']:.3f}, read "
              f"{row['cold_bytes']:,.0f} -> {row['warm_bytes']:,.0f} + {row['sweep_bytes']:,.0f}")
    if receipt:
        receipts.write(receipt, {
            "name": "warm-start",
            "command": f"benches/warm/compare.sh {rounds}",
            "commit": commit,
            "machine": receipts.machine("."),
            "settings": {
                "model": "bundled, 672 records",
                "texts": f"{PART} bytes of a text for the first run, the next {PART} of the same or of "
                         "another text for the later one",
                "tokens": f"{TOKENS} drawn at temperature 0.8, the same with and without",
                "hit_rate": "decoding alone: distinct (layer, expert) of a pass that were resident",
            },
            "conditions": "hit rates and bytes do not depend on the machine or on other work; seconds do",
            "rounds": int(rounds),
            "median": receipts.each(rows, statistics.median),
            "spread": receipts.each(rows, lambda values: [min(values), max(values)]),
        })


main()
