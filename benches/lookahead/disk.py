"""Generates with every forecaster from a real disk: see disk.sh."""

import json
import os
import statistics
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import figures  # noqa: E402
import receipt as receipts  # noqa: E402

PROMPT, TOKENS, LANES = 8, 12, 8
FORECASTERS = {
    "none": "none",
    "boundary-1": "boundary-1",
    "boundary-2": "boundary-2",
    "attention-tap": "attention-tap",
    "previous-token": "previous-token",
    "markov": "markov",
    "co-occurrence": "co-occurrence",
    "mixture": "mixture",
    "boundary-1, threshold 0.07": "boundary-1:threshold=0.07",
    "mixture, threshold 0.65": "mixture:threshold=0.65",
    "oracle": "oracle:TRACE",
}


class Disk:
    def __init__(self, program, model, container, scratch, slots):
        self.program, self.trace = program, f"{scratch}/disk.trace"
        self.flags = ["--model", model, "--container", container, "--reader", "direct",
                      "--lanes", str(LANES), "--context", "256", "--slots", str(slots),
                      "--prompt-ids", ",".join(str(17 * i) for i in range(1, PROMPT + 1)),
                      "--max-tokens", str(TOKENS), "--lookahead-always", "--quiet",
                      "--ignore-eos", "--stats", "json"]

    def run(self, forecaster, flags=()):
        own = ["--lookahead", forecaster.replace("TRACE", self.trace), *flags]
        return figures.run(self.program, [*self.flags, *own])


def measure(disk, rounds, record):
    first = disk.run("none", ["--trace", disk.trace])
    rows, by_layer, loads = {}, {}, []
    for round_ in range(rounds):
        loads.append(os.getloadavg()[0])
        for name, forecaster in FORECASTERS.items():
            run = disk.run(forecaster)
            if run["tokens"] != first["tokens"]:
                sys.exit(f"disk.py: other tokens by {name}")
            found = figures.figures([run], record)
            found["token_ms"] = 1e3 / found["tok_s"]
            found["read_gb_s"] = run["decode"]["read_gb_s"]
            rows.setdefault(name, []).append(found)
            by_layer[name] = figures.by_layer([run])
        print(f"round {round_ + 1} of {rounds}, load {os.getloadavg()[0]:.1f}", flush=True)
    return rows, by_layer, loads, first


def worth(rows):
    """By forecaster, against `none` and `oracle`."""
    return {name: figures.worth(runs, rows["none"], rows["oracle"]) for name, runs in rows.items()}


def show(median, gain, by_layer):
    for name, row in median.items():
        print(f"| `{name}` | {row['token_ms']:.1f} | {gain[name]['speed to none']:.2f} | "
              f"{row['wait_ms']:.1f} | {figures.cells(row, gain[name])} |")
    for kind in ["on_time", "late", "wasted"]:
        print(f"\n{kind}")
        for name, found in by_layer.items():
            print(f"| `{name}` | {' | '.join(f'{x:.1f}' for x in found[kind])} |")


def main():
    program, model, container, scratch, rounds, commit, receipt = sys.argv[1:]
    with open(f"{model}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    config = config.get("text_config", config)
    layers = config["num_hidden_layers"]
    disk = Disk(program, model, container, scratch, layers * config["num_experts"] // 3)
    rows, by_layer, loads, first = measure(disk, int(rounds), 2_764_800)
    whole = {
        "name": "lookahead-disk",
        "command": f"benches/lookahead/disk.sh {rounds}",
        "commit": commit,
        "machine": receipts.machine(container),
        "settings": {
            "model": f"random weights, {layers} layers of the real shapes, from a container, direct "
                     f"reads, {LANES} lanes; {first['slots']} of {first['records']} slots; a prompt "
                     f"of {PROMPT} tokens, {TOKENS} generated; figures are a token's",
            "reader": first["reader_mode"],
            "threads": first.get("threads"),
            "conditions": os.environ.get("CONDITIONS", "as it was"),
            "load_average": loads,
        },
        "rounds": int(rounds),
        "median": receipts.each(rows, statistics.median),
        "spread": receipts.each(rows, lambda values: [min(values), max(values)]),
        "figures": {"worth": worth(rows), "by layer, last round": by_layer},
    }
    show(whole["median"], whole["figures"]["worth"], by_layer)
    if receipt:
        receipts.write(receipt, whole)


if __name__ == "__main__":
    main()
