"""Compares our readers with fio: see compare.sh."""

import json
import os
import shutil
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import receipt as receipts  # noqa: E402

STRIDE = 2_768_896  # of a record in a container
RECORDS = 480  # of a file: whole parts for 8 and for 32 threads
FILES = 16
LEAST = 1_000_000_000  # bytes of one measurement
DEPTHS = (8, 32)
ENGINES = ("psync", "libaio", "io_uring")
READERS = ("direct", "uring")
WAYS = ("record", "pieces")
# The nine pieces of a record: three of 819,200 bytes and six of 51,200.
SIZES = {"record": [f"--bs={STRIDE}"], "pieces": ["--bssplit=819200/33:51200/67"]}
# Buffers in huge pages, as our slots are. One more cell of each depth shows what that is worth.
HUGE = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def lay_out(folder):
    """Writes the files that are not there yet, each whole or not at all."""
    os.makedirs(folder, exist_ok=True)
    paths = [os.path.join(folder, f"scratch.{number:02}") for number in range(FILES)]
    size = STRIDE * RECORDS
    missing = [p for p in paths if not os.path.exists(p) or os.path.getsize(p) != size]
    free = shutil.disk_usage(folder).free
    if len(missing) * size > free:
        sys.exit(f"{folder} has {free / 1e9:.1f} GB free, {len(missing) * size / 1e9:.1f} are needed")
    for path in missing:
        print(f"writing {path}", flush=True)
        part = path + ".part"
        run_fio(part, ["--rw=write", "--ioengine=psync", f"--bs={STRIDE}", f"--size={size}",
                       "--refill_buffers", "--end_fsync=1"], seed=paths.index(path))
        os.rename(part, path)
    return paths


def run_fio(path, options, seed, extra=HUGE):
    """What fio says of one job."""
    command = ["fio", "--name=compare", f"--filename={path}", "--direct=1", "--thread",
               "--group_reporting", "--randrepeat=0", f"--randseed={seed}",
               "--output-format=json", *options]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **extra})
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr or done.stdout}")
    # Notes may come before the object.
    return json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]


def of_fio(path, way, engine, depth, seed, extra=HUGE):
    """GB/s and processor seconds a GB of one measurement of fio."""
    options = ["--rw=randread", f"--ioengine={engine}", *SIZES[way]]
    if engine == "psync":
        # Threads share no map of what was read: each has a part of the file.
        part = RECORDS // depth * STRIDE
        options += [f"--numjobs={depth}", f"--size={part}", f"--offset_increment={part}"]
    else:
        options += [f"--iodepth={depth}", f"--size={RECORDS * STRIDE}"]
    job = run_fio(path, options, seed, extra)
    read = job["read"]
    assert read["io_bytes"] >= LEAST, read["io_bytes"]
    # Percent of the time of all threads, which is in milliseconds.
    processor = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1e3
    return read["io_bytes"] / read["runtime"] / 1e6, processor / (read["io_bytes"] / 1e9)


def of_ours(program, path, way, reader, depth, seed):
    """The same of one of our readers."""
    command = [program, "--file", path, "--reader", reader, "--way", way, "--depth", str(depth),
               "--rounds", "1", "--bytes", str(LEAST + STRIDE), "--seed", str(seed), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    report = json.loads(done.stdout.splitlines()[-1])
    [row], [mode] = report["rows"], report["readers"]
    assert mode["mode"] == reader, mode
    assert not row["cached"], "a cache has served a part"
    return row["gb_s"], row["processor_s_per_gb"]


def cells(program):
    """Every measurement of a round: its name and what makes it."""
    found = []
    for way in WAYS:
        for depth in DEPTHS:
            for engine in ENGINES:
                found.append((f"fio {engine}, {way}, depth {depth}",
                              lambda path, seed, a=(way, engine, depth): of_fio(path, *a, seed)))
            for reader in READERS:
                found.append((f"{reader}, {way}, depth {depth}",
                              lambda path, seed, a=(way, reader, depth):
                              of_ours(program, path, *a, seed)))
    for depth in DEPTHS:
        found.append((f"fio io_uring in plain pages, record, depth {depth}",
                      lambda path, seed, depth=depth:
                      of_fio(path, "record", "io_uring", depth, seed, {})))
    return found


def measure(program, paths, rounds):
    """GB/s and processor seconds a GB of each cell and round."""
    todo, speeds, costs = cells(program), {}, {}
    count = 0
    for number in range(rounds):
        # Another begins each round, and half of the rounds run backwards.
        turn = number * 7 % len(todo)
        order = todo[turn:] + todo[:turn]
        for name, cell in order if number % 2 == 0 else reversed(order):
            speed, cost = cell(paths[count % FILES], 1 + count)
            speeds.setdefault(name, []).append(speed)
            costs.setdefault(name, []).append(cost)
            count += 1
        print(f"round {number + 1} of {rounds}", flush=True)
    return speeds, costs


def spread(values):
    return [min(values), max(values)]


def ratios(speeds):
    """Ours to fio, round by round, where fio is the engine with the best median."""
    found = {}
    for way in WAYS:
        for depth in DEPTHS:
            fios = [f"fio {engine}, {{}}, depth {depth}" for engine in ENGINES]
            for against in ("record", way)[: 1 if way == "record" else 2]:
                best = max((name.format(against) for name in fios),
                           key=lambda name: statistics.median(speeds[name]))
                for reader in READERS:
                    name = f"{reader}, {way}, depth {depth}"
                    each = [a / b for a, b in zip(speeds[name], speeds[best])]
                    low, middle, high = statistics.quantiles(each, n=4) if len(each) > 1 else each * 3
                    found[f"{name} to {best}"] = {
                        "median": middle, "quartiles": [low, high], "spread": spread(each),
                        "of medians": statistics.median(speeds[name])
                        / statistics.median(speeds[best]),
                    }
    return found


def receipt(folder, commit, rounds, load, speeds, costs):
    version = subprocess.run(["fio", "--version"], capture_output=True, text=True)
    return {
        "name": "disk",
        "command": f"benches/fio/compare.sh {rounds}",
        "commit": commit,
        "machine": receipts.machine(folder),
        "settings": {
            "unit": "GB/s",
            "rounds": "all cells one after the other in every round, in a rotated order",
            "fio": version.stdout.strip(),
            "huge pages": "our slots are, fio's buffers by GLIBC_TUNABLES",
            "files": f"{FILES} of {RECORDS * STRIDE} bytes, another for each measurement",
            "bytes of a measurement": f"{LEAST} at least",
            "load": f"{load:.1f} before, {os.getloadavg()[0]:.1f} after, in the last minute",
        },
        "rounds": rounds,
        "median": {name: statistics.median(each) for name, each in speeds.items()},
        "spread": {name: spread(each) for name, each in speeds.items()},
        "figures": {
            "processor s a GB": {n: statistics.median(each) for n, each in costs.items()},
            "processor s a GB, spread": {n: spread(each) for n, each in costs.items()},
            "ratio of each round": ratios(speeds),
        },
    }


def show(result):
    figures = result["figures"]
    print(f"{'GB/s':46} median   least    most  processor s a GB")
    for name, median in sorted(result["median"].items()):
        least, most = result["spread"][name]
        cost = figures["processor s a GB"][name]
        print(f"{name:46} {median:6.3f}  {least:6.3f}  {most:6.3f}  {cost:.4f}")
    print("\nratio of each round: median, quartiles; ratio of medians")
    for name, ratio in figures["ratio of each round"].items():
        low, high = ratio["quartiles"]
        print(f"{name:70} {ratio['median']:.3f}  {low:.3f} to {high:.3f}  {ratio['of medians']:.3f}")


def main():
    program, folder, rounds, commit, path = sys.argv[1:6]
    paths = lay_out(folder)
    load = os.getloadavg()[0]
    speeds, costs = measure(program, paths, int(rounds))
    result = receipts.rounded(receipt(folder, commit, int(rounds), load, speeds, costs))
    show(result)
    if path:
        receipts.write(path, result)


if __name__ == "__main__":
    main()
