"""Runs `generate` with each reader in turn: see compare.sh."""

import json
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import receipt as receipts  # noqa: E402
from memory import MemoryGroup, evict  # noqa: E402

GROUP = MemoryGroup("slotstream-readers")
# Beside the plan, for the page cache and the rest, when it is to be small.
SMALL_CACHE = 400 << 20
READERS = [
    ("buffered", 8), ("direct", 8), ("direct", 64), ("uring", 8), ("uring", 1), ("mmap", 8),
]
# Where the page cache may hold the files.
CACHED = [("buffered", 8), ("direct", 8)]


def cases(models):
    """Name, arguments, files, and whether the page cache is small."""
    for model, (folder, container, own) in models.items():
        for source, place in [("shards", "none"), ("container", container)]:
            for cache in ["warm"] if model == "tiny" else ["small", "large"]:
                for reader, lanes in CACHED if cache == "large" else READERS:
                    flags = ["--model", folder, "--container", place, "--reader", reader,
                             "--lanes", str(lanes), *own]
                    files = [folder] if place == "none" else [folder, container]
                    yield f"{model} {source} {cache} {reader} {lanes}", flags, files, cache


def run(program, flags, group):
    child = subprocess.Popen(
        [program, "--stats", "json", "--quiet", "--ignore-eos", "--policy", "clock", *flags],
        stdout=subprocess.PIPE, text=True, preexec_fn=GROUP.enter if group else None)
    text = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"compare.py: {' '.join(flags)} ended with {child.returncode}")
    found = json.loads(text.splitlines()[-1])
    found["cpu_s"] = usage.ru_utime + usage.ru_stime
    return found


def figures(found):
    decode = found["decode"]
    return {
        "decode_tok_s": found["decode_tok_s"],
        "io_wait_share": found["io_wait_share"],
        "read_gb_s": decode["read_gb_s"],
        # Of the whole run, loading included.
        "cpu_s": found["cpu_s"],
        "bytes_per_token": decode["bytes_read"] / decode["tokens"],
        "issued_per_token": decode["bytes_issued"] / decode["tokens"],
    }


def main():
    program, scratch, rounds, commit, receipt = sys.argv[1:]
    prompt = ",".join(str(17 * i % 30000) for i in range(1, 9))
    large = ["--slots", "341", "--max-tokens", "17", "--context", "256", "--prompt-ids", prompt]
    tiny = ["--max-tokens", "128"]
    models = {
        "large": (f"{scratch}/large", f"{scratch}/large.container", large),
        "tiny": ("examples/models/tiny-moe", f"{scratch}/tiny.container", tiny),
    }
    first = run(program, ["--model", models["large"][0], "--container", "none", *large], False)
    limit = first["plan_bytes"] + SMALL_CACHE
    limited = GROUP.limit(limit)
    every = [case for case in cases(models) if limited or case[3] != "small"]
    rows = {name: [] for name, *_ in every}
    tokens = {}
    loads = []
    for round_ in range(int(rounds)):
        loads.append(os.getloadavg()[0])
        for name, flags, files, cache in every:
            if cache == "small":
                evict(files)
            found = run(program, flags, cache == "small")
            if tokens.setdefault(name.split()[0], found["tokens"]) != found["tokens"]:
                sys.exit(f"compare.py: other tokens by {name}")
            rows[name].append(figures(found))
        print(f"round {round_ + 1} of {rounds}, load {os.getloadavg()[0]:.1f}", flush=True)
        # After each round: whoever has to stop keeps what is there.
        write(rows, receipt, head(commit, limit, loads, scratch))
    show(rows)


def head(commit, limit, loads, scratch):
    return {
        "name": "reader-decode",
        "command": f"benches/readers/compare.sh {len(loads)}",
        "commit": commit,
        "machine": receipts.machine(scratch),
        "settings": {
            "large": "synthesize --layers 2 --vocab 32768 --no-ngram: 1,024 records of 2,764,800 "
                     "bytes, 341 slots, 8 prompt tokens, 17 generated",
            "tiny": "the bundled model, 30% of the records, 128 generated, page cache warm",
            "small_cache": f"memory cgroup of {limit} bytes: the plan and {SMALL_CACHE >> 20} MiB;"
                           " files out of the page cache before each run",
            "large_cache": "no limit, files read before",
            "load_average": loads,
        },
        "rounds": len(loads),
    }


def write(rows, receipt, whole):
    if receipt:
        whole["median"] = receipts.each(rows, statistics.median)
        whole["spread"] = receipts.each(rows, lambda values: [min(values), max(values)])
        whole["figures"] = receipts.each(rows, list)
        receipts.write(receipt, whole)


def show(rows):
    spread = receipts.each(rows, lambda values: [min(values), max(values)])
    for name, row in receipts.each(rows, statistics.median).items():
        low, high = spread[name]["decode_tok_s"]
        print(f"{name:36} {row['decode_tok_s']:7.2f} tok/s ({low:.2f} to {high:.2f}), wait "
              f"{100 * row['io_wait_share']:5.1f}%, {row['read_gb_s']:.2f} GB/s, {row['cpu_s']:.2f} "
              f"s cpu, {row['bytes_per_token']:,.0f} read, {row['issued_per_token']:,.0f} issued")


try:
    main()
finally:
    GROUP.remove()
