"""Runs `generate` with each reader in turn: see compare.sh."""

import json
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import receipt as receipts  # noqa: E402

GROUP = "/sys/fs/cgroup/memory/slotstream-readers"
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


def evict(folders):
    for folder in folders:
        for entry in os.scandir(folder):
            if entry.is_file() and entry.stat().st_size > 1 << 20:
                file = os.open(entry.path, os.O_RDONLY)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(file)


def enter_group():
    with open(f"{GROUP}/tasks", "w") as tasks:
        tasks.write("0")


def run(program, flags, group):
    child = subprocess.Popen(
        [program, "--stats", "json", "--quiet", "--ignore-eos", "--policy", "clock", *flags],
        stdout=subprocess.PIPE, text=True, preexec_fn=enter_group if group else None)
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


def limit_group(bytes_):
    """Whether there is a group with this limit now."""
    try:
        os.makedirs(GROUP, exist_ok=True)
        with open(f"{GROUP}/memory.limit_in_bytes", "w") as limit:
            limit.write(str(bytes_))
        return True
    except OSError as error:
        print(f"compare.py: no memory cgroup ({error}): no cases with a small cache")
        return False


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
    limited = limit_group(limit)
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


def each(rows, pick):
    return {name: {key: pick([one[key] for one in found]) for key in found[0]}
            for name, found in rows.items()}


def write(rows, receipt, whole):
    if receipt:
        whole["median"] = each(rows, statistics.median)
        whole["spread"] = each(rows, lambda values: [min(values), max(values)])
        whole["figures"] = each(rows, list)
        receipts.write(receipt, whole)


def show(rows):
    spread = each(rows, lambda values: [min(values), max(values)])
    for name, row in each(rows, statistics.median).items():
        low, high = spread[name]["decode_tok_s"]
        print(f"{name:36} {row['decode_tok_s']:7.2f} tok/s ({low:.2f} to {high:.2f}), wait "
              f"{100 * row['io_wait_share']:5.1f}%, {row['read_gb_s']:.2f} GB/s, {row['cpu_s']:.2f} "
              f"s cpu, {row['bytes_per_token']:,.0f} read, {row['issued_per_token']:,.0f} issued")


try:
    main()
finally:
    if os.path.isdir(GROUP):
        try:
            os.rmdir(GROUP)
        except OSError as error:
            print(f"compare.py: {GROUP} is left: {error}")
