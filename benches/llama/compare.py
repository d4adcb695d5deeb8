"""Runs slotstream and llama.cpp in turn: see compare.sh."""

import json
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import receipt as receipts  # noqa: E402
from memory import MemoryGroup, evict  # noqa: E402

GROUP = MemoryGroup("slotstream-llama")
THREADS = 2
# Bytes of the routed experts, equal in both models, and a third of them.
EXPERTS = 8 * 512 * 2_764_800
LIMIT = EXPERTS // 3
# What a prompt of 512 tokens leaves out of 512 experts, ten a token, is nothing.
RESIDENT = {"prompt": 512, "tokens": 32}
LIMITED = {"prompt": 16, "tokens": 16}
# The usual read-ahead of a disk on Linux, in KiB.
USUAL_AHEAD = 128


def ours(program, folder, arithmetic, run, *flags):
    prompt = ",".join(str(37 * i % 32768) for i in range(1, run["prompt"] + 1))
    return [program, "--model", f"{folder}/model", "--container", f"{folder}/model.container",
            "--prompt-ids", prompt, "--max-tokens", str(run["tokens"] + 1), "--ignore-eos",
            "--threads", str(THREADS), "--context", "1024", "--arithmetic", arithmetic,
            "--stats", "json", "--quiet", *flags]


def theirs(folder, loading, run):
    return [f"{folder}/decode", f"{folder}/gguf/model.gguf", str(THREADS), str(run["prompt"]),
            str(run["tokens"]), loading]


def resident(program, folder):
    """Name and command of each case with all weights in memory."""
    for arithmetic in ("exact", "fast"):
        yield f"slotstream {arithmetic}", ours(
            program, folder, arithmetic, RESIDENT, "--slots", "4096", "--reader", "buffered")
    for loading in ("mmap", "repacked"):
        yield f"llama.cpp {loading}", theirs(folder, loading, RESIDENT)


def limited(program, folder, ahead):
    """Name, command and read-ahead of each case in the cgroup."""
    for arithmetic in ("exact", "fast"):
        yield f"slotstream {arithmetic}", ours(
            program, folder, arithmetic, LIMITED, "--memory", str(LIMIT), "--reader", "direct"), None
    yield "llama.cpp mmap", theirs(folder, "mmap", LIMITED), None
    yield "llama.cpp random", theirs(folder, "random", LIMITED), None
    if ahead.usual():
        yield "llama.cpp usual read-ahead", theirs(folder, "mmap", LIMITED), USUAL_AHEAD


class ReadAhead:
    """The read-ahead of the disk below a folder."""

    def __init__(self, folder):
        device = os.stat(folder).st_dev
        self.path = f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb"
        try:
            with open(self.path, encoding="ascii") as file:
                self.found = int(file.read())
        except (OSError, ValueError):
            self.found = None

    def usual(self):
        """Whether the usual read-ahead can be set where it is not set yet."""
        return self.found is not None and self.found != USUAL_AHEAD and os.access(self.path, os.W_OK)

    def set(self, kib):
        with open(self.path, "w", encoding="ascii") as file:
            file.write(str(kib))


def start(command, group):
    done = subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                            preexec_fn=GROUP.enter if group else None)
    text = done.stdout.read()
    if done.wait() != 0:
        sys.exit(f"compare.py: {command[0]} ended with {done.returncode}")
    return json.loads(text.splitlines()[-1])


def figures(found):
    """What both say, by one name."""
    if "decode" not in found:
        return {key: found[key] for key in
                ("decode_tok_s", "prefill_tok_s", "bytes_per_token", "load_s")}
    decode = found["decode"]
    return {
        "decode_tok_s": found["decode_tok_s"],
        "prefill_tok_s": found["prefill_tok_s"],
        "bytes_per_token": decode["bytes_issued"] / decode["tokens"],
        "load_s": found["load_s"],
        "slots": found["slots"],
        "hit_rate": decode["hit_rate"],
        "io_wait_s_per_token": decode["io_wait_s"] / decode["tokens"],
    }


def main():
    program, folder, rounds, commit, receipt = sys.argv[1:]
    ahead = ReadAhead(folder)
    group = GROUP.limit(LIMIT)
    rows, loads, tokens = {}, [], {}
    for round_ in range(int(rounds)):
        loads.append(os.getloadavg()[0])
        for name, command in resident(program, folder):
            found = start(command, False)
            rows.setdefault(f"resident, {name}", []).append(figures(found))
            same(tokens, name, found)
        for name, command, kib in limited(program, folder, ahead) if group else []:
            evict([f"{folder}/model", f"{folder}/model.container", f"{folder}/gguf"])
            if kib:
                ahead.set(kib)
            try:
                found = start(command, True)
            finally:
                if kib:
                    ahead.set(ahead.found)
            rows.setdefault(f"limited, {name}", []).append(figures(found))
        print(f"round {round_ + 1} of {rounds}, load {os.getloadavg()[0]:.1f}", flush=True)
        # After each round: whoever has to stop keeps what is there.
        if receipt:
            receipts.write(receipt, whole(rows, commit, loads, folder, ahead))
    show(rows)


def same(tokens, name, found):
    """Ends the run where slotstream does not give the tokens of the round before."""
    if tokens.setdefault(name, found.get("tokens")) != found.get("tokens"):
        sys.exit(f"compare.py: other tokens by {name}")


def whole(rows, commit, loads, folder, ahead):
    return {
        "name": "llama",
        "command": f"benches/llama/compare.sh {len(loads)}",
        "commit": commit,
        "machine": receipts.machine(folder),
        "settings": {
            "models": "8 layers of the published shapes, vocabulary 32,768, no n-gram table; "
                      "synthesize --top-tenth 0.1 (affine 4-bit, a container) and random Q4_0",
            "llama.cpp": "of llama-cpp-python 0.3.36, GGML_NATIVE, OpenMP",
            "threads": THREADS,
            "resident": RESIDENT,
            "limited": {**LIMITED, "memory_cgroup_bytes": LIMIT},
            "read_ahead_kib": {"found": ahead.found, "usual": USUAL_AHEAD},
            "load_average": loads,
        },
        "rounds": len(loads),
        "median": receipts.each(rows, statistics.median),
        "spread": receipts.each(rows, lambda values: [min(values), max(values)]),
        "figures": receipts.each(rows, list),
    }


def show(rows):
    spread = receipts.each(rows, lambda values: [min(values), max(values)])
    for name, row in receipts.each(rows, statistics.median).items():
        low, high = spread[name]["decode_tok_s"]
        print(f"{name:38} {row['decode_tok_s']:7.2f} tok/s ({low:.2f} to {high:.2f}), prefill "
              f"{row['prefill_tok_s']:.1f}, {row['bytes_per_token'] / 1e6:,.0f} MB read a token")


try:
    main()
finally:
    GROUP.remove()
