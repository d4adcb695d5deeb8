"""Reads and generates with every forecaster in turn: see compare.sh."""

import gzip
import json
import os
import statistics
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import figures  # noqa: E402
import receipt as receipts  # noqa: E402

FIXTURES = "crates/slotstream-qwen/tests/fixtures/tiny-moe"
# What is measured with: nothing was trained on them, and nothing tuned.
DOCUMENTS = ["api-docs-std-net", "book-nomicon", "code-rust-compiler", "mix-four-domains",
             "prose-austen"]
# Of these the prompts of what is generated are taken.
PROMPTED = ["book-nomicon", "code-rust-compiler", "prose-austen"]
RECORDS, SLOTS, LAYERS, RECORD = 672, 201, 12, 27_648
RATIOS = [0.1, 0.3, 1.0]
# Shares of a record's time and what reads at once gain, as on the disk that `--throttle apple`
# imitates.
LATENCY, GAIN = 0.182, 1.4955
# Of each document: tokens that are read, and those of the prompt of what is generated.
READ, PROMPT, TOKENS = 256, 96, 40
PLAIN = ["boundary-1", "boundary-2", "attention-tap", "previous-token", "markov", "co-occurrence",
         "mixture"]


def forecasters(scratch):
    """Name, as `--lookahead` has it."""
    correction = f"{scratch}/correction.safetensors"
    found = {name: name for name in PLAIN}
    found["corrected"] = f"corrected:{correction}"
    # Surer, and so fewer.
    found["boundary-1, threshold 0.07"] = "boundary-1:threshold=0.07"
    found["attention-tap, threshold 0.1"] = "attention-tap:threshold=0.1"
    found["mixture, threshold 0.65"] = "mixture:threshold=0.65"
    return {"none": "none", **found, "oracle": f"oracle:{scratch}/TRACE"}


def documents():
    """Token ids of the documents, by name."""
    found = {}
    for name in DOCUMENTS:
        with gzip.open(f"{FIXTURES}/traces/{name}.txt.gz", "rt", encoding="utf-8") as file:
            line = next(line for line in file if line.startswith("# token_ids "))
        found[name] = [int(word) for word in line.split()[2:]]
    return found


def write_windows(path, texts, read=READ):
    data = b"".join(struct.pack(f"<{read}i", *text[:read]) for text in texts)
    header = json.dumps({"windows": {"dtype": "I32", "shape": [len(texts), read],
                                     "data_offsets": [0, len(data)]}}).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + data)


class Bench:
    def __init__(self, programs, scratch):
        self.programs, self.scratch, self.prompts = programs, scratch, [documents()[name] for name in PROMPTED]
        self.common = ["--quiet", "--container", f"{scratch}/tiny.container", "--threads", "1",
                       "--context", "1024", "--lookahead-always"]

    def run(self, name, flags):
        return figures.run(f"{self.programs}/{name}", [*self.common, *flags])

    def read(self, forecaster, flags=()):
        """One token a pass, as in decoding; nothing is slowed down."""
        return self.run("perplexity", ["--windows", f"{self.scratch}/windows.safetensors",
                                       "--chunk", "1", "--slots", str(SLOTS), "--lookahead",
                                       forecaster.replace("TRACE", "read.trace"), *flags])

    def generate(self, forecaster, slots, flags=()):
        """The same prompts, each with a pool of its own."""
        found = []
        for at, text in enumerate(text[:PROMPT] for text in self.prompts):
            own = [flag.replace("TRACE", f"{at}.trace") for flag in flags]
            found.append(self.run("generate", [
                "--prompt-ids", ",".join(map(str, text)), "--max-tokens", str(TOKENS),
                "--ignore-eos", "--temperature", "0.8", "--seed", "7", "--slots", str(slots),
                "--lookahead", forecaster.replace("TRACE", f"{at}.trace"), *own]))
        return found


def throttle(layer_s, ratio):
    """A record alone takes `ratio` of a layer."""
    record = ratio * layer_s
    alone = RECORD / ((1 - LATENCY) * record) / 1e9
    return f"latency={1e6 * LATENCY * record:.3f}us,gbs={alone:.6f},deep={GAIN * alone:.6f}"


def agreement(bench, names):
    """By forecaster: agreement and recall of misses, over all layers and for each."""
    bench.read("none", ["--trace", f"{bench.scratch}/read.trace"])
    found, nll = {}, set()
    for name, forecaster in names.items():
        run = bench.read(forecaster)
        nll.add(run["mean_nll"])
        if name != "none":
            layers, whole = run["lookahead"]["layers"], run["lookahead"]["total"]
            found[name] = {key: {"all": whole[key], "layers": [one[key] for one in layers]}
                           for key in ["agreement", "recall", "precision"]}
    if len(nll) != 1:
        sys.exit("compare.py: forecasters change the perplexity")
    return found


def worth(rows):
    """By case, against `none` and `oracle` of the same ratio."""
    found = {}
    for name, runs in rows.items():
        ratio = name.split(", ")[0]
        found[name] = figures.worth(runs, rows[f"{ratio}, none"], rows[f"{ratio}, oracle"])
    return found


def measure(bench, names, rounds):
    layer_s = statistics.median(map(layer_time, [bench.generate("none", RECORDS) for _ in range(3)]))
    bench.generate("none", SLOTS, ["--trace", f"{bench.scratch}/TRACE"])
    disks = {ratio: throttle(layer_s, ratio) for ratio in RATIOS}
    rows, layers, tokens, drift, loads = {}, {}, [], [], []
    for round_ in range(rounds):
        loads.append(os.getloadavg()[0])
        drift.append(1e6 * layer_time(bench.generate("none", RECORDS)))
        for ratio, disk in disks.items():
            for name, forecaster in names.items():
                runs = bench.generate(forecaster, SLOTS, ["--throttle", disk])
                tokens.append([run["tokens"] for run in runs])
                if tokens[-1] != tokens[0]:
                    sys.exit(f"compare.py: other tokens by {name}")
                rows.setdefault(f"{ratio}, {name}", []).append(figures.figures(runs, RECORD))
                layers[f"{ratio}, {name}"] = figures.by_layer(runs)
        print(f"round {round_ + 1} of {rounds}, load {os.getloadavg()[0]:.1f}", flush=True)
    settings = {"layer_us": 1e6 * layer_s, "layer_us_each_round": drift, "load_average": loads,
                "disks": {str(ratio): disk for ratio, disk in disks.items()}}
    return rows, layers, settings


def layer_time(runs):
    """Seconds of a layer without its reads; what a token takes beside layers is in it."""
    time = figures.total(runs, "decode", "time_s") - figures.total(runs, "decode", "io_wait_s")
    return time / figures.total(runs, "decode", "passes") / LAYERS


def show(whole):
    """The tables of docs/lookahead.md."""
    for ratio in RATIOS:
        print(f"\nratio {ratio}")
        for name, row in whole["median"].items():
            case, gain = name.split(", ", 1)[1], whole["figures"]["worth"][name]
            if name.startswith(f"{ratio}, "):
                print(f"| `{case}` | {row['tok_s']:.1f} | {gain['speed to none']:.2f} | "
                      f"{row['wait_ms']:.2f} | {figures.cells(row, gain)} | "
                      f"{row['cancelled']:.2f} | {row['wasted_bytes']:,.0f} |")
    for key in ["agreement", "recall"]:
        print(f"\n{key}")
        for name, found in whole["figures"]["held out"].items():
            cells = ["-" if x is None else f"{x:.2f}" for x in found[key]["layers"]]
            print(f"| `{name}` | {found[key]['all']:.3f} | {' | '.join(cells)} |")


def main():
    what, programs, scratch, *rest = sys.argv[1:]
    bench, names = Bench(programs, scratch), forecasters(scratch)
    if what == "read":
        write_windows(f"{scratch}/windows.safetensors", list(documents().values()))
        with open(f"{scratch}/read.json", "w", encoding="utf-8") as file:
            json.dump(agreement(bench, names), file)
        return
    rounds, commit, path = rest
    rows, layers, settings = measure(bench, names, int(rounds))
    held_out, trained = (load(f"{scratch}/{name}.json") for name in ["read", "trained"])
    whole = {
        **head(commit, int(rounds), scratch, settings),
        "median": receipts.each(rows, statistics.median),
        "spread": receipts.each(rows, lambda values: [min(values), max(values)]),
        "figures": {"worth": worth(rows), "held out": held_out,
                    "by layer, last round": layers,
                    "training": {key: trained[key] for key in
                                 ["documents", "held_out", "tokens", "rank", "before", "after",
                                  "bytes"]}},
    }
    show(whole)
    if path:
        receipts.write(path, whole)


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def head(commit, rounds, scratch, settings):
    return {
        "name": "lookahead",
        "command": f"benches/lookahead/compare.sh {rounds}",
        "commit": commit,
        "machine": receipts.machine(scratch),
        "settings": {
            "model": f"the bundled one from a container, {SLOTS} of {RECORDS} slots, one thread "
                     f"computes, 8 lanes; prompts of {PROMPT} tokens of {', '.join(PROMPTED)}, "
                     f"{TOKENS} "
                     "sampled each; figures are a token's, of all prompts together",
            "disk": "simulated (--throttle): a record alone takes the ratio of a layer's time, "
                    "latency and gain of reads at once in the proportions of apple",
            "held_out": f"the first {READ} tokens of each document, a pass each, "
                        "no simulated disk",
            "conditions": os.environ.get("CONDITIONS", "as it was"),
            **settings,
        },
        "rounds": rounds,
    }


if __name__ == "__main__":
    main()
