"""Replays recorded forecasts under policies that spare what they name: see eviction.sh."""

import sys

import compare
from compare import receipts
from figures import run

# One layer ahead, two layers ahead, and four, of a recording of the same run.
FORECASTERS = {"attention-tap": "attention-tap", "boundary-2": "boundary-2",
               "oracle, 4 ahead": "oracle:ahead=4:TRACE"}
POLICIES = ["clock", "lru", "analogue"]
# Slots: three and four and a half tokens' routes would be 216 and 324.
SLOTS = [134, 201, 336]
LATENCY, READ = 1, 512


def record(programs, scratch, name, forecaster):
    """A trace of each document, one token a pass, with what was forecast."""
    paths = []
    for document, ids in compare.documents().items():
        window, path = f"{scratch}/one.safetensors", f"{scratch}/{name}-{document}.trace"
        compare.write_windows(window, [ids], READ)
        run(f"{programs}/perplexity", [
            "--windows", window, "--chunk", "1", "--slots", "201", "--quiet", "--threads", "1",
            "--lookahead", forecaster.replace("TRACE", f"{scratch}/none-{document}.trace"),
            "--lookahead-always", "--trace", path])
        paths.append(path)
    return paths


def replayed(programs, paths, policies, flags=()):
    """Rows and what became of forecasts, each by policy and slots, summed over the traces."""
    slots = ",".join(map(str, SLOTS))
    found = {}
    for path in paths:
        whole = run(f"{programs}/replay", [
            "--trace", path, "--policy", ",".join(policies), "--slots", slots, "--format", "json",
            "--phase", "all", *flags])
        rows = list(whole["rows"])
        for section in whole["sections"]:
            if section["name"] == "what became of forecast records":
                rows += section["rows"]
        for row in rows:
            sums = found.setdefault((row["policy"], row["slots"]), {})
            for key in ["lookups", "misses", "adopted", "late", "expired", "reserved"]:
                # The figures of records come before what became of forecasts.
                if isinstance(row.get(key), int) and not (key == "adopted" and "lookups" in row):
                    sums[key] = sums.get(key, 0) + row[key]
    return found


def main():
    programs, scratch, commit, receipt = sys.argv[1:]
    rows, tokens = {}, READ * len(compare.DOCUMENTS)
    # The recorded policy in a pool of the recorded size is replayed with what was recorded, so that
    # what there is without forecasts comes from a run without.
    none = record(programs, scratch, "none", "none")
    plain, best = replayed(programs, none, POLICIES), replayed(programs, none, ["opt"])
    for name, forecaster in FORECASTERS.items():
        paths = record(programs, scratch, name.split(",")[0], forecaster)
        both = [prefix + policy for policy in POLICIES for prefix in ["", "forecast-aware:"]]
        ahead = replayed(programs, paths, both, ["--latency", str(LATENCY)])
        for slots in SLOTS:
            least = best["opt", slots]["misses"]
            for policy in POLICIES:
                rows[f"{name}, {slots} slots, {policy}"] = {
                    "optimum": least / tokens,
                    "without forecasts": plain[policy, slots]["misses"] / tokens,
                    **cost(ahead[policy, slots], tokens, ""),
                    **cost(ahead[f"forecast-aware:{policy}", slots], tokens, "aware "),
                }
    for name, row in rows.items():
        print(f"| {name} | " + " | ".join(f"{value:.2f}" for value in row.values()) + " |")
    if receipt:
        receipts.write(receipt, {
            "name": "lookahead-eviction",
            "command": "benches/lookahead/eviction.sh",
            "commit": commit,
            "machine": receipts.machine(scratch),
            "settings": {
                "traces": f"the first {READ} tokens of each of {', '.join(compare.DOCUMENTS)}, one "
                          "token a pass, with what the forecaster said",
                "replay": f"modelled: a forecast record arrives {LATENCY} layer visit later",
                "figures": "records a token: misses (adopted ones included), those that no forecast "
                           "had reserved, and those that expired",
            },
            "rounds": 1,
            "median": rows,
            "spread": {name: [0, 0] for name in rows},
            "figures": {"tokens": tokens, "timed": "nothing: counts alone"},
        })


def cost(found, tokens, prefix):
    adopted = found["adopted"] + found["late"]
    return {
        f"{prefix}misses": found["misses"] / tokens,
        f"{prefix}unforeseen": (found["misses"] - adopted) / tokens,
        f"{prefix}expired": found["expired"] / tokens,
    }


if __name__ == "__main__":
    main()
