"""Runs `generate` with and without a warm start: see compare.sh."""

import json
import os
import statistics
import subprocess
import sys
from itertools import product

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import receipt as receipts  # noqa: E402

# What the first run reads: so many bytes of a text. The later one reads the next ones, as many or few.
PART = 1200
LATER = {"long": 1200, "short": 24}
TOKENS = 100
# The text that the first run reads, and the one that the later run reads.
PAIRS = {
    "same": ("examples/src/doctor.rs", "examples/src/doctor.rs"),
    "other": ("docs/embedding.md", "examples/src/doctor.rs"),
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


def text(path, begin, length):
    with open(path, encoding="utf-8") as file:
        return file.read()[begin:begin + length]


def case(program, scratch, pair, later_bytes, slots, policy):
    file = f"{scratch}/{slots}-{policy}.warm"
    if os.path.exists(file):
        os.remove(file)
    engine = ["--slots", str(slots), "--policy", policy]
    first, later = PAIRS[pair]
    run(program, text(first, 0, PART), [*engine, "--warm-start", file])
    prompt = text(later, PART, later_bytes)
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
            for (prompt, later), (pool, slots), policy in product(LATER.items(), POOLS.items(), POLICIES):
                name = f"{pair} text, {prompt} prompt, {pool}, {policy}"
                found = case(program, scratch, pair, later, slots, policy)
                rows.setdefault(name, []).append(found)
    for name, row in receipts.each(rows, statistics.median).items():
        print(f"{name:40} decode {row['cold_hit_rate']:.3f} -> {row['warm_hit_rate']:.3f}, prompt "
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
                "texts": f"{PART} bytes of a text for the first run, the next {PART} (long) or 24 (short) "
                         "of the same or of another text for the later one",
                "tokens": f"{TOKENS} drawn at temperature 0.8, the same with and without",
                "hit_rate": "decoding alone: distinct (layer, expert) of a pass that were resident",
            },
            "conditions": "hit rates and bytes do not depend on the machine or on other work; seconds do",
            "rounds": int(rounds),
            "median": receipts.each(rows, statistics.median),
            "spread": receipts.each(rows, lambda values: [min(values), max(values)]),
            "figures": receipts.each(rows, list),
        })


main()
