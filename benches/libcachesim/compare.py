"""Compares CLOCK here and in libCacheSim: see compare.sh."""

import json
import os
import statistics
import subprocess
import sys
import time

import libcachesim

SLOTS = 7509
# Buckets of libCacheSim's hash table, as a power of two: its default, and the fastest for 7,509
# objects.
HASH_POWERS = (24, 15)


def here(program, keys):
    """Misses and speeds of one round here, by keys a call."""
    command = [program, "run", keys, str(SLOTS), "1"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    rows = [line.split() for line in lines]
    return {int(row[0]): (int(row[1]), float(row[2])) for row in rows}


def there(keys, lookups, power):
    """Misses and speed of one round of libCacheSim."""
    reader = libcachesim.TraceReader(keys, libcachesim.TraceType.ORACLE_GENERAL_TRACE)
    cache = libcachesim.Clock(SLOTS, hashpower=power, init_freq=1)
    begun = time.perf_counter()
    ratio, _ = cache.process_trace(reader)
    seconds = time.perf_counter() - begun
    return round(ratio * lookups), lookups / seconds / 1e6


def main():
    program, keys, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    lookups = os.path.getsize(keys) // 24
    misses, speeds = {}, {}

    def note(name, result):
        misses[name] = result[0]
        speeds.setdefault(name, []).append(result[1])

    for _ in range(rounds):
        for call, result in here(program, keys).items():
            note(f"slotstream, {call} a call", result)
        for power in HASH_POWERS:
            note(f"libCacheSim, hash power {power}", there(keys, lookups, power))
    print(f"{lookups} lookups, {SLOTS} slots, {rounds} rounds: million lookups a second")
    for name, found in speeds.items():
        median, best = statistics.median(found), max(found)
        print(f"{name:30} median {median:6.2f}  best {best:6.2f}  misses {misses[name]}")
    single, ten = "slotstream, 1 a call", "slotstream, 10 a call"
    theirs = f"libCacheSim, hash power {HASH_POWERS[1]}"
    ratios = {
        "1 a call": max(speeds[single]) / max(speeds[theirs]),
        "10 a call": max(speeds[ten]) / max(speeds[theirs]),
    }
    print("here to libCacheSim, best rounds:", {k: round(v, 2) for k, v in ratios.items()})
    print(json.dumps({"lookups": lookups, "misses": misses, "speeds": speeds}))
    if misses[single] != misses[theirs]:
        sys.exit("the misses differ")


if __name__ == "__main__":
    main()
