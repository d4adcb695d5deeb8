"""Runs `generate` with prompts of several lengths, swept and through the pool: see compare.sh."""

import json
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import receipt as receipts  # noqa: E402

TINY = "examples/models/tiny-moe"
ROWS = [64, 128, 256, 512]
# How a prompt is read.
WAYS = {
    "pool, passes of 64": ["--chunk", "64"],
    "pool, one pass": ["--chunk", "512"],
    "sweep": ["--prefill-sweep", "1", "--chunk", "512"],
}


def run(program, model, flags):
    done = subprocess.run(
        [program, "--stats", "json", "--quiet", "--ignore-eos", "--model", model, *flags],
        stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def prompt_of_text(program):
    """512 tokens that the bundled model wrote, its own prompt first."""
    found = run(program, TINY, ["--max-tokens", "512"])
    return found["tokens"][:512]


def cases(program, scratch):
    """Name and arguments."""
    text = prompt_of_text(program)
    made = [17 * i % 30000 for i in range(1, 513)]
    large, container = f"{scratch}/large", f"{scratch}/large.container"
    models = {
        "tiny": (TINY, "none", text, "67", "buffered"),
        "shards": (large, "none", made, "102", "direct"),
        "container": (large, container, made, "102", "direct"),
    }
    for name, (folder, place, ids, slots, reader) in models.items():
        for rows in ROWS:
            for way, flags in WAYS.items():
                prompt = ",".join(map(str, ids[:rows]))
                yield f"{name}, {rows}, {way}", folder, [
                    "--container", place, "--reader", reader, "--slots", slots, "--context", "1024",
                    "--max-tokens", "1", "--prompt-ids", prompt, *flags]


def measure(program, scratch, rounds):
    rows, tokens, loads = {}, {}, []
    every = list(cases(program, scratch))
    for round_ in range(rounds):
        loads.append(os.getloadavg()[0])
        for name, folder, flags in every:
            found = run(program, folder, flags)
            same = ", ".join(name.split(", ")[:2])
            if tokens.setdefault(same, found["tokens"]) != found["tokens"]:
                sys.exit(f"compare.py: other tokens by {name}")
            rows.setdefault(name, []).append(
                {"tok_s": found["prefill_tok_s"], "mb_read": found["prefill"]["bytes_read"] / 1e6})
        print(f"round {round_ + 1} of {rounds}, load {os.getloadavg()[0]:.1f}", flush=True)
    return rows, loads


def main():
    program, scratch, rounds, commit, path = sys.argv[1:]
    rows, loads = measure(program, scratch, int(rounds))
    whole = {
        "name": "prefill-speed",
        "command": f"benches/prefill/compare.sh {rounds}",
        "commit": commit,
        "machine": receipts.machine(scratch),
        "settings": {
            "large": "synthesize --layers 2 --vocab 32768 --no-ngram: 1,024 records of 2,764,800 "
                     "bytes, 102 slots, reader direct, made-up ids",
            "tiny": "the bundled model, 67 slots, page cache warm, tokens that it wrote itself",
            "load_average": loads,
        },
        "rounds": int(rounds),
        "median": receipts.each(rows, statistics.median),
        "spread": receipts.each(rows, lambda values: [min(values), max(values)]),
    }
    whole["figures"] = {"speed to that of the pool in one pass": ratios(whole["median"])}
    for name, row in whole["median"].items():
        low, high = whole["spread"][name]["tok_s"]
        print(f"{name:32} {row['tok_s']:8.1f} tok/s ({low:.1f} to {high:.1f}), {row['mb_read']:.1f} MB")
    if path:
        receipts.write(path, whole)


def ratios(median):
    found = {}
    for name, row in median.items():
        model, tokens, _ = name.split(", ", 2)
        found[name] = row["tok_s"] / median[f"{model}, {tokens}, pool, one pass"]["tok_s"]
    return found


if __name__ == "__main__":
    main()
