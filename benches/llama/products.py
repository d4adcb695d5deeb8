"""Runs the bench `kernels` and llama.cpp's products in turn: see compare.sh."""

import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import receipt as receipts  # noqa: E402


def ours(bench):
    """Each case's figure: ours, a plain read of the same bytes, and candle."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/kernels.json"
        one_thread = {"RAYON_NUM_THREADS": "1", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
        subprocess.run([bench, "--rounds", "1", "--json", path, "affine"], check=True,
                       stdout=subprocess.DEVNULL, env={**os.environ, **one_thread})
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    return {name.removeprefix("affine "): median for name, (_, median, _) in found.items()}


def theirs(folder):
    done = subprocess.run([f"{folder}/products"], check=True, stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    found = json.loads(done.stdout)
    return {name.replace(" plain", "/llama.cpp plain").replace(" repacked", "/llama.cpp repacked"): value
            for name, value in found.items()}


def main():
    bench, folder, rounds, commit, receipt = sys.argv[1:]
    rows, loads = {}, []
    for round_ in range(int(rounds)):
        loads.append(os.getloadavg()[0])
        for name, value in {**ours(bench), **theirs(folder)}.items():
            rows.setdefault(name, []).append({"speed": value})
        print(f"round {round_ + 1} of {rounds}, load {os.getloadavg()[0]:.1f}", flush=True)
        if receipt:
            receipts.write(receipt, whole(rows, commit, loads))
    spread = receipts.each(rows, lambda values: [min(values), max(values)])
    for name, row in receipts.each(rows, statistics.median).items():
        low, high = spread[name]["speed"]
        print(f"{name:44} {row['speed']:8.2f} ({low:.2f} to {high:.2f})")


def whole(rows, commit, loads):
    return {
        "name": "llama-products",
        "command": f"benches/llama/compare.sh products {len(loads)}",
        "commit": commit,
        "machine": receipts.machine(),
        "settings": {
            "llama.cpp": "of llama-cpp-python 0.3.36, GGML_NATIVE, compiled by "
                         f"{os.environ.get('CXX', 'c++')}; Q4_0, weights of 256 MiB",
            "unit": "GB of weights a second with one row, GFLOP/s with several, by the processor's time",
            "load_average": loads,
            "conditions": os.environ.get("CONDITIONS", "as it was"),
        },
        "rounds": len(loads),
        "median": receipts.each(rows, statistics.median),
        "spread": receipts.each(rows, lambda values: [min(values), max(values)]),
        "figures": receipts.each(rows, list),
    }


if __name__ == "__main__":
    main()
