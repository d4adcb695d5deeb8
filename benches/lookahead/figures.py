"""What runs say of forecasters, and what these were worth."""

import json
import os
import statistics
import subprocess
import sys


def run(program, flags):
    """The object on the last line that a program prints."""
    done = subprocess.run([program, *flags], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        name = os.path.basename(program)
        sys.exit(f"{name} {' '.join(flags)} ended with {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def total(runs, *path):
    """The sum of a figure over runs."""
    def pick(run):
        for name in path:
            run = run[name]
        return run
    return sum(map(pick, runs))


def figures(runs, record):
    """A token's, of all runs together, with records of this many bytes."""
    tokens = total(runs, "decode", "passes")
    ahead = {key: total(runs, "lookahead", "total", key)
             for key in ["misses", "issued", "on_time", "late", "expired", "cancelled",
                         "wasted_bytes", "wait_s"]}
    return {
        "tok_s": tokens / total(runs, "decode", "time_s"),
        "wait_ms": 1e3 * total(runs, "decode", "io_wait_s") / tokens,
        # Of records: those that a layer missed, read ahead or not, and those that none wanted.
        "bytes": (record * ahead["misses"] + ahead["wasted_bytes"]) / tokens,
        "wasted_bytes": ahead.pop("wasted_bytes") / tokens,
        "expert_wait_ms": 1e3 * ahead.pop("wait_s") / tokens,
        **{key: value / tokens for key, value in ahead.items()},
    }


def by_layer(runs):
    """On time, late and wasted records a token, by target layer."""
    tokens = total(runs, "decode", "passes")
    layers = [run["lookahead"]["layers"] for run in runs]
    sums = {key: [sum(own[at][key] for own in layers) / tokens for at in range(len(layers[0]))]
            for key in ["on_time", "late", "expired", "cancelled"]}
    wasted = [a + b for a, b in zip(sums.pop("expired"), sums.pop("cancelled"))]
    return {**sums, "wasted": wasted}


def worth(runs, none, oracle):
    """Shares of what `none` of the same round waited and read; medians over rounds."""
    rounds = list(zip(runs, none, oracle))
    return {key: statistics.median(pick(*three) for three in rounds) for key, pick in {
        "stall removed": lambda run, none, _: 1 - run["wait_ms"] / none["wait_ms"],
        "of the oracle's": lambda run, none, best: (none["wait_ms"] - run["wait_ms"])
        / (none["wait_ms"] - best["wait_ms"]),
        "extra bytes": lambda run, none, _: run["bytes"] / none["bytes"] - 1,
        "speed to none": lambda run, none, _: run["tok_s"] / none["tok_s"],
    }.items()}


def cells(row, gain):
    """Of a table: shares of what reading ahead was worth, and records of a token."""
    shares = [f"{100 * gain[key]:.1f}%" for key in ["stall removed", "of the oracle's", "extra bytes"]]
    return " | ".join(shares + [f"{row[key]:.1f}" for key in ["on_time", "late", "expired"]])
