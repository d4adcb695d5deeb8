"""What the receipts of the comparisons have in common."""

import json
import os
import platform
import subprocess


def machine(folder=None):
    """What was measured on, with the disk below `folder`; only on Linux in full."""
    cpu, memory = platform.processor() or platform.machine(), "unknown"
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
        cpu = names[0] if names else cpu
        memory = f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f} GB"
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory": memory,
        "os": f"{platform.system()} {platform.release()}",
        "disk": disk(folder) if folder else "not used",
    }


def disk(folder):
    """Device and file system below a folder."""
    shown = subprocess.run(["df", "-T", folder], capture_output=True, text=True).stdout.split()
    # Eight words of the head, then device and type.
    return f"{shown[8]}, {shown[9]}" if len(shown) > 9 else "unknown"


def each(rows, pick):
    """For every row, what `pick` makes of the list of each figure."""
    return {name: {key: pick([one[key] for one in found]) for key in found[0]}
            for name, found in rows.items()}


def write(path, whole):
    """Writes a receipt with six decimals of every number."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps(rounded(whole), indent=1) + "\n")


def rounded(value):
    """Six decimals of every number."""
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return round(value, 6) if isinstance(value, float) else value
