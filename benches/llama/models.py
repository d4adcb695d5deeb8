"""Runs slotstream and llama.cpp in turn: see compare.sh."""

import json
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import receipt as receipts  # noqa: E402
from gguf_model import CHOSEN, EXPERTS, tensors  # noqa: E402
from memory import MemoryGroup, evict  # noqa: E402

GROUP = MemoryGroup("slotstream-llama")
THREADS = 2
LAYERS, VOCABULARY = 8, 32768
# A third of the bytes of the routed experts, which are equal in both models.
LIMIT = LAYERS * EXPERTS * 2_764_800 // 3
RESIDENT = {"prompt": 512, "tokens": 32}
LIMITED = {"prompt": 16, "tokens": 16}
# The usual read-ahead of a disk on Linux, in KiB.
USUAL_AHEAD = 128


def streamed(program, folder, arithmetic):
    prompt = ",".join(str(37 * i % VOCABULARY) for i in range(1, LIMITED["prompt"] + 1))
    return [program, "--model", f"{folder}/model", "--container", f"{folder}/model.container",
            "--prompt-ids", prompt, "--max-tokens", str(LIMITED["tokens"] + 1), "--ignore-eos",
            "--threads", str(THREADS), "--context", "1024", "--arithmetic", arithmetic,
            "--memory", str(LIMIT), "--reader", "direct", "--stats", "json", "--quiet"]


def flops_per_token():
    """Of the products of a token: two for each weight. The embedding is no product, and the head is
    left out, since a prompt needs it once."""
    weights = 0
    for name, shape, _ in tensors(LAYERS, VOCABULARY):
        if len(shape) > 1 and name not in ("token_embd", "output"):
            chosen = CHOSEN if len(shape) == 3 else 1
            weights += chosen * shape[-2] * shape[-1]
    return 2 * weights


def theirs(folder, loading, run):
    return [f"{folder}/decode", f"{folder}/gguf/model.gguf", str(THREADS), str(run["prompt"]),
            str(run["tokens"]), loading]


def resident(program, folder):
    """Name and command of each case with all weights in memory."""
    for arithmetic, flags in (("exact", []), ("fast", ["--fast"])):
        yield f"slotstream {arithmetic}", [
            program, "--model", f"{folder}/model", "--threads", str(THREADS),
            "--prompt", str(RESIDENT["prompt"]), "--tokens", str(RESIDENT["tokens"]), *flags]
    for loading in ("mmap", "repacked"):
        yield f"llama.cpp {loading}", theirs(folder, loading, RESIDENT)


def limited(program, folder, ahead):
    """Name, command and read-ahead of each case in the cgroup."""
    for arithmetic in ("exact", "fast"):
        yield f"slotstream {arithmetic}", streamed(program, folder, arithmetic), None
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
        sys.exit(f"models.py: {command[0]} ended with {done.returncode}")
    return json.loads(text.splitlines()[-1])


def figures(found):
    """What both say, by one name."""
    both = {key: found[key] for key in ("decode_tok_s", "prefill_tok_s", "load_s")}
    both["prefill_gflop_s"] = found["prefill_tok_s"] * flops_per_token() / 1e9
    if "decode" not in found:
        return {**both, "bytes_per_token": found["bytes_per_token"]}
    decode = found["decode"]
    return {
        **both,
        "bytes_per_token": decode["bytes_issued"] / decode["tokens"],
        "slots": found["slots"],
        "hit_rate": decode["hit_rate"],
        "io_wait_s_per_token": decode["io_wait_s"] / decode["tokens"],
    }


def main():
    generate, bench, folder, rounds, commit, receipt = sys.argv[1:]
    ahead = ReadAhead(folder)
    group = GROUP.limit(LIMIT)
    rows, loads, tokens = {}, [], {}
    for round_ in range(int(rounds)):
        loads.append(os.getloadavg()[0])
        for name, command in resident(bench, folder):
            rows.setdefault(f"resident, {name}", []).append(figures(start(command, False)))
        for name, command, kib in limited(generate, folder, ahead) if group else []:
            evict([f"{folder}/model", f"{folder}/model.container", f"{folder}/gguf"])
            if kib:
                ahead.set(kib)
            try:
                found = start(command, True)
            finally:
                if kib:
                    ahead.set(ahead.found)
            rows.setdefault(f"limited, {name}", []).append(figures(found))
            same(tokens, name, found)
        print(f"round {round_ + 1} of {rounds}, load {os.getloadavg()[0]:.1f}", flush=True)
        # After each round: whoever has to stop keeps what is there.
        if receipt:
            receipts.write(receipt, whole(rows, commit, loads, folder, ahead))
    show(rows)


def same(tokens, name, found):
    """Ends the run where slotstream does not give the tokens of the round before."""
    if tokens.setdefault(name, found.get("tokens")) != found.get("tokens"):
        sys.exit(f"models.py: other tokens by {name}")


def whole(rows, commit, loads, folder, ahead):
    return {
        "name": "llama-models",
        "command": f"benches/llama/compare.sh models {len(loads)}",
        "commit": commit,
        "machine": receipts.machine(folder),
        "settings": {
            "models": "8 layers of the published shapes, vocabulary 32,768, no n-gram table; "
                      "synthesize --top-tenth 0.1 (affine 4-bit, a container) and random Q4_0",
            "llama.cpp": "of llama-cpp-python 0.3.36, GGML_NATIVE, OpenMP, compiled by "
                         + os.environ.get("CXX", "c++"),
            "threads": THREADS,
            "resident": RESIDENT,
            "limited": {**LIMITED, "memory_cgroup_bytes": LIMIT},
            "read_ahead_kib": {"found": ahead.found, "usual": USUAL_AHEAD},
            "load_average": loads,
            "conditions": os.environ.get("CONDITIONS", "as it was"),
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
              f"{row['prefill_tok_s']:.1f} ({row['prefill_gflop_s']:.1f} GFLOP/s), {row['bytes_per_token'] / 1e6:,.0f} MB read a token")


try:
    main()
finally:
    GROUP.remove()
