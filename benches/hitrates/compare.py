"""Runs `generate` at several hit rates in turn: see compare.sh."""

import csv
import io
import json
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import receipt as receipts  # noqa: E402

RECORDS = 8 * 512
HIT_RATES = [0.0, 0.5, 0.8, 0.9, 0.95]
POLICY = "clock"
LOOKAHEAD = ["none", "boundary-1", "mixture", "oracle:{trace}"]
# The smallest pool for a chunk of 64 tokens of these shapes.
FLOOR = 107
TOKENS = 64


def run(programs, scratch, slots, *flags):
    prompt = ",".join(str(37 * i % 32768) for i in range(1, 257))
    command = [f"{programs}/generate", "--model", f"{scratch}/model", "--container",
               f"{scratch}/model.container", "--reader", "direct", "--policy", POLICY,
               "--slots", str(slots), "--chunk", "64", "--context", "512", "--prompt-ids", prompt,
               "--max-tokens", str(TOKENS + 1), "--ignore-eos", "--stats", "json", "--quiet", *flags]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"compare.py: generate with {slots} slots ended with {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def sizes(programs, scratch):
    """For each hit rate the pool whose replay comes nearest."""
    tried = sorted({round(FLOOR * (RECORDS / FLOOR) ** (i / 60)) for i in range(61)})
    command = [f"{programs}/replay", "--trace", f"{scratch}/trace", "--policy", POLICY,
               "--format", "csv", "--slots", ",".join(map(str, tried))]
    text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    found = [(int(row["slots"]), float(row["hit_rate"])) for row in csv.DictReader(io.StringIO(text))]
    return {rate: min(found, key=lambda size: abs(size[1] - rate))[0] for rate in HIT_RATES}


def figures(found, computing):
    decode = found["decode"]
    token = decode["time_s"] / decode["tokens"]
    reading = decode["read_s"] / decode["tokens"]
    return {
        "slots": found["slots"],
        "hit_rate": decode["hit_rate"],
        "ms_per_token": 1e3 * token,
        "computing_ms": 1e3 * computing,
        "reading_ms": 1e3 * reading,
        "waiting_ms": 1e3 * decode["io_wait_s"] / decode["tokens"],
        "bytes_per_token": decode["bytes_issued"] / decode["tokens"],
        "to_the_larger": token / max(computing, reading),
        "to_the_sum": token / (computing + reading),
    }


def main():
    programs, scratch, rounds, commit, receipt = sys.argv[1:]
    first = run(programs, scratch, RECORDS, "--trace", f"{scratch}/trace")
    pools = sizes(programs, scratch)
    rows, loads = {}, []
    for round_ in range(int(rounds)):
        loads.append(os.getloadavg()[0])
        for rate, slots in pools.items():
            # Just before, since a shared machine changes its pace. Few records are in no slot after the
            # prompt; their reads do not count.
            decode = run(programs, scratch, RECORDS)["decode"]
            computing = (decode["time_s"] - decode["io_wait_s"]) / decode["tokens"]
            for lookahead in LOOKAHEAD:
                name = lookahead.format(trace=f"{scratch}/trace")
                found = run(programs, scratch, slots, "--lookahead", name)
                if found["tokens"] != first["tokens"]:
                    sys.exit(f"compare.py: other tokens with {slots} slots and --lookahead {name}")
                case = f"{rate}, {lookahead.partition(':')[0]}"
                rows.setdefault(case, []).append(figures(found, computing))
        print(f"round {round_ + 1} of {rounds}, load {os.getloadavg()[0]:.1f}", flush=True)
        if receipt:
            receipts.write(receipt, whole(rows, commit, loads, scratch))
    show(rows)


def whole(rows, commit, loads, scratch):
    return {
        "name": "hit-rates",
        "command": f"benches/hitrates/compare.sh {len(loads)}",
        "commit": commit,
        "machine": receipts.machine(scratch),
        "settings": {
            "model": "synthesize --layers 8 --vocab 32768 --no-ngram, repacked",
            "run": f"{POLICY}, direct, 256 prompt tokens, {TOKENS} generated, a thread a core",
            "load_average": loads,
            "conditions": os.environ.get("CONDITIONS", "as it was"),
        },
        "rounds": len(loads),
        "median": receipts.each(rows, statistics.median),
        "spread": receipts.each(rows, lambda values: [min(values), max(values)]),
        "figures": receipts.each(rows, list),
    }


def show(rows):
    for case, row in receipts.each(rows, statistics.median).items():
        print(f"{case:18} {row['slots']:5.0f} slots, hit rate {row['hit_rate']:.3f}: "
              f"{row['ms_per_token']:6.1f} ms a token, computing {row['computing_ms']:.1f}, reading "
              f"{row['reading_ms']:.1f}, waiting {row['waiting_ms']:.1f}: "
              f"{row['to_the_larger']:.2f} of the larger")


if __name__ == "__main__":
    main()
