"""Compares CLOCK here and in libCacheSim: see compare.sh."""

import os
import statistics
import subprocess
import sys
import time

import libcachesim

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import receipt as receipts  # noqa: E402

SLOTS = 7509
DEFAULT_POWER = 24
# Buckets of libCacheSim's hash table, as a power of two: its default, and those around the number
# of objects, of which the fastest is compared with.
HASH_POWERS = (DEFAULT_POWER, 16, 15, 14, 13)
CALLS = ("1 a call", "10 a call")


def here(program, keys):
    """Of one round here, by keys a call: misses and two speeds, by the clock and the processor."""
    command = [program, "run", keys, str(SLOTS)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    for call, misses, clock, processor in map(str.split, lines):
        yield f"{call} a call", int(misses), float(clock), float(processor)


def there(keys, lookups, power):
    """Misses and both speeds of one round of libCacheSim."""
    reader = libcachesim.TraceReader(keys, libcachesim.TraceType.ORACLE_GENERAL_TRACE)
    cache = libcachesim.Clock(SLOTS, hashpower=power, init_freq=1)
    begun, used = time.perf_counter(), time.process_time()
    ratio, _ = cache.process_trace(reader)
    used, elapsed = time.process_time() - used, time.perf_counter() - begun
    return round(ratio * lookups), lookups / elapsed / 1e6, lookups / used / 1e6


def measure(program, keys, lookups, rounds):
    """Misses and all speeds by name, one after the other in every round."""
    misses, clock, processor = {}, {}, {}

    def note(name, missed, by_clock, by_processor):
        misses[name] = missed
        clock.setdefault(name, []).append(by_clock)
        processor.setdefault(name, []).append(by_processor)

    for _ in range(rounds):
        for result in here(program, keys):
            note(*result)
        for power in HASH_POWERS:
            note(f"libCacheSim, 2^{power} buckets", *there(keys, lookups, power))
    return misses, clock, processor


def receipt(commit, lookups, rounds, misses, clock, processor):
    median = {name: statistics.median(speeds) for name, speeds in processor.items()}
    others = {name: speed for name, speed in median.items() if name not in CALLS}
    fastest = max(others, key=others.get)
    best = {name: max(speeds) for name, speeds in processor.items()}
    ratios = {call: median[call] / median[fastest] for call in CALLS}
    of_best = {call: best[call] / max(best[name] for name in others) for call in CALLS}
    return {
        "name": "libcachesim",
        "command": f"benches/libcachesim/compare.sh {rounds}",
        "commit": commit,
        "machine": receipts.machine(),
        "settings": {
            "unit": "million lookups a second of processor time",
            "rounds": "all cases one after the other in every round",
            "policy": "clock; Clock with an initial frequency of 1",
            "libcachesim": libcachesim.__version__,
            "load": f"{os.getloadavg()[0]:.1f} processes in the last minute",
        },
        "rounds": rounds,
        "median": median,
        "spread": {name: [min(speeds), max(speeds)] for name, speeds in processor.items()},
        "figures": {
            "lookups": lookups,
            "slots": SLOTS,
            "misses": misses,
            "best": best,
            "by the clock, median": {n: statistics.median(speeds) for n, speeds in clock.items()},
            "by the clock, best": {name: max(speeds) for name, speeds in clock.items()},
            "fastest of libCacheSim": fastest,
            "ratio of medians to it": ratios,
            "ratio of best rounds": of_best,
        },
    }


def main():
    program, keys, rounds, commit, path = sys.argv[1:6]
    lookups = os.path.getsize(keys) // 24
    misses, clock, processor = measure(program, keys, lookups, int(rounds))
    result = receipt(commit, lookups, int(rounds), misses, clock, processor)
    print(f"{lookups} lookups, {SLOTS} slots, {rounds} rounds")
    print("million lookups a second of processor time, and by the clock")
    figures = result["figures"]
    for name, median in result["median"].items():
        by_clock = figures["by the clock, median"][name]
        print(
            f"{name:27} median {median:6.2f}  best {figures['best'][name]:6.2f}"
            f"  by the clock {by_clock:6.2f}  misses {misses[name]}"
        )
    for call, ratio in figures["ratio of medians to it"].items():
        print(f"{call}: {ratio:.2f} times {figures['fastest of libCacheSim']}")
    if path:
        receipts.write(path, result)
    if len({misses[name] for name in misses if name != "10 a call"}) > 1:
        sys.exit("the misses differ")


if __name__ == "__main__":
    main()
