"""Runs `doctor` and `generate` in turn: see compare.sh."""

import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import receipt as receipts  # noqa: E402
from memory import ROOT, MemoryGroup, evict  # noqa: E402

MEMORY = MemoryGroup("slotstream-plan")
# Beside the plan in the cgroup: what the kernel keeps for the process.
BESIDE = 48 << 20
# What an engine may use in some cases.
BUDGET = 1_500_000_000
# Bytes a second of the throttled disk.
SLOW = 250_000_000
# GB/s of the simulated one.
SIMULATED = 0.5


class DiskGroup:
    """A blkio cgroup of version 1 that slows down reads from the disk below a folder."""

    folder = f"{ROOT}/blkio/slotstream-plan"

    def limit(self, below, bytes_a_second):
        """Whether there is a group with this limit now."""
        device = os.stat(below).st_dev
        try:
            os.makedirs(self.folder, exist_ok=True)
            with open(f"{self.folder}/blkio.throttle.read_bps_device", "w", encoding="ascii") as file:
                file.write(f"{os.major(device)}:{os.minor(device)} {bytes_a_second}")
            return True
        except OSError as error:
            print(f"no blkio cgroup ({error}): no throttled disk", flush=True)
            return False

    def enter(self):
        """Puts the calling process into the group."""
        with open(f"{self.folder}/cgroup.procs", "w", encoding="ascii") as members:
            members.write(str(os.getpid()))

    def remove(self):
        if os.path.isdir(self.folder):
            os.rmdir(self.folder)


DISK = DiskGroup()


def shape(model):
    """Layers and experts of a layer."""
    with open(f"{model}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    text = config.get("text_config", config)
    return text["num_hidden_layers"], text["num_experts"]


def run(program, flags, group=None):
    child = subprocess.run([program, *flags], capture_output=True, text=True,
                           preexec_fn=group.enter if group else None)
    if child.returncode != 0:
        sys.exit(f"compare.py: {' '.join([program, *flags])} ended with {child.returncode}:\n"
                 f"{child.stderr}")
    return json.loads(child.stdout.splitlines()[-1])


def ids(number, below):
    return ",".join(str(17 * i % below) for i in range(1, number + 1))


def speeds(programs, model, group=None, disk=("--reader", "direct"), told=("--reader", "direct")):
    """What `generate` has on `disk`, and what `doctor` predicts when it is `told` of one: by its own
    assumption of the hit rate, and by the trace of that run."""
    engine = ["--model", model, "--slots", third(model), "--context", "1024", "--lock", "off"]
    with tempfile.TemporaryDirectory() as folder:
        trace = f"{folder}/run.trace"
        measured = run(f"{programs}/generate", [
            *engine, *disk, "--quiet", "--ignore-eos", "--prompt-ids", ids(32, 30000),
            "--max-tokens", "65", "--temperature", "1", "--trace", trace,
        ], group)
        evict([model])
        doctor = [*engine, *told, "--json", "--no-table"]
        assumed = run(f"{programs}/doctor", doctor, group)
        evict([model])
        traced = run(f"{programs}/doctor", [*doctor, "--trace", trace], group)
    prediction, decode = traced["prediction"], measured["decode"]
    return {
        "measured_tok_s": measured["decode_tok_s"],
        "measured_hit_rate": measured["hit_rate"],
        "measured_wait_ms": 1e3 * decode["io_wait_s"] / decode["tokens"],
        "traced_tok_s": prediction["tok_s"],
        "traced_low": prediction["low"],
        "traced_high": prediction["high"],
        "traced_hit_rate": traced["hits"]["rate"],
        "traced_wait_ms": 1e3 * prediction["wait_s"],
        "traced_ratio": prediction["tok_s"] / measured["decode_tok_s"],
        "assumed_tok_s": assumed["prediction"]["tok_s"],
        "assumed_low": assumed["prediction"]["low"],
        "assumed_high": assumed["prediction"]["high"],
        "assumed_hit_rate": assumed["hits"]["rate"],
    }


def third(model):
    layers, experts = shape(model)
    return str(layers * experts // 3)


def memory(programs, flags, group=None):
    """The plan and the peak of a run whose pool and context are full at the end."""
    found = run(f"{programs}/generate", ["--quiet", "--ignore-eos", *flags], group)
    plan, peak = found["plan_bytes"], found["peak_rss_bytes"]
    return {"plan_bytes": plan, "peak_bytes": peak, "gap_bytes": plan - peak,
            "gap_share": (plan - peak) / plan}


def cases(programs, model):
    """Name and what makes the figures, by kind."""
    # The context is full at the end; the pool long before.
    full = ["--prompt-ids", ids(600, 30000), "--max-tokens", "40", "--context", "640"]
    large = ["--model", model, "--reader", "direct", *full]
    tiny = ["--prompt-ids", ids(4000, 4000), "--max-tokens", "96"]
    budget = ["--memory", str(BUDGET)]
    yield ("memory", "synthesized, a third of the records",
           lambda: memory(programs, [*large, "--slots", third(model)]))
    yield "memory", "synthesized, 1500 MB", lambda: memory(programs, [*large, *budget])
    if MEMORY.limit(BUDGET + BESIDE):
        yield ("memory", "synthesized, 1500 MB, in a cgroup",
               lambda: memory(programs, [*large, *budget], MEMORY))
    yield "memory", "bundled, 18 slots", lambda: memory(programs, [*tiny, "--slots", "18"])
    yield "memory", "bundled, 30%", lambda: memory(programs, tiny)
    yield "memory", "bundled, all records", lambda: memory(programs, [*tiny, "--slots", "672"])
    yield "speed", "this disk", lambda: speeds(programs, model)
    simulated = ("--throttle", f"latency=100us,gbs={SIMULATED}")
    yield ("speed", f"simulated, {SIMULATED} GB/s",
           lambda: speeds(programs, model, None, simulated, ("--sim-disk-gb-s", str(SIMULATED))))
    if DISK.limit(model, SLOW):
        yield "speed", "throttled disk", lambda: speeds(programs, model, DISK)


def main():
    programs, model, rounds, commit, receipt = sys.argv[1:]
    only = os.environ.get("ONLY", "memory speed").split()
    every = [case for case in cases(programs, model) if case[0] in only]
    rows = {kind: {} for kind in only}
    loads = []
    for round_ in range(int(rounds)):
        loads.append(os.getloadavg()[0])
        for kind, name, measure in every:
            evict([model])
            rows[kind].setdefault(name, []).append(measure())
        print(f"round {round_ + 1} of {rounds}, load {os.getloadavg()[0]:.1f}", flush=True)
        # After each round: whoever has to stop keeps what is there.
        write(rows, receipt, head(commit, loads, model))
    show(rows)


def head(commit, loads, model):
    return {
        "name": os.environ.get("NAME", "plan"),
        "command": f"benches/plan/compare.sh {len(loads)}",
        "commit": commit,
        "machine": receipts.machine(model),
        "settings": {
            "synthesized": f"synthesize --layers {shape(model)[0]} --vocab 32768 --no-ngram: "
                           f"{shape(model)[0] * shape(model)[1]} records of 2,764,800 bytes, "
                           "--reader direct, default threads and policy",
            "memory": "context of 640 tokens (bundled: 4,096) full at the end of the run; peak "
                      "is VmHWM, files that are mapped included",
            "cgroup": f"memory limit {BUDGET} + {BESIDE} bytes, page cache included",
            "speed": "a third of the records in slots, 32 prompt tokens, 65 drawn at temperature 1; generate before "
                     "doctor",
            "simulated": f"generate --throttle latency=100us,gbs={SIMULATED}, doctor --sim-disk-gb-s "
                         f"{SIMULATED}",
            "throttled": f"blkio cgroup, {SLOW} bytes a second, for doctor and generate",
            "load_average": loads,
        },
        "conditions": os.environ.get("CONDITIONS", "other work on the machine was not stopped"),
        "rounds": len(loads),
    }


def write(rows, receipt, whole):
    if receipt:
        whole["median"] = {kind: receipts.each(found, statistics.median)
                           for kind, found in rows.items()}
        whole["spread"] = {kind: receipts.each(found, lambda values: [min(values), max(values)])
                           for kind, found in rows.items()}
        whole["figures"] = {kind: receipts.each(found, list) for kind, found in rows.items()}
        receipts.write(receipt, whole)


def show(rows):
    for name, row in receipts.each(rows.get("memory", {}), statistics.median).items():
        print(f"{name:36} peak {row['peak_bytes']:,.0f} of {row['plan_bytes']:,.0f}, "
              f"{row['gap_bytes']:,.0f} below ({100 * row['gap_share']:.2f}%)")
    for name, row in receipts.each(rows.get("speed", {}), statistics.median).items():
        print(f"{name:36} {row['measured_tok_s']:.2f} measured, {row['traced_tok_s']:.2f} by its "
              f"trace (ratio {row['traced_ratio']:.2f}), {row['assumed_tok_s']:.2f} assumed")


try:
    main()
finally:
    MEMORY.remove()
    DISK.remove()
