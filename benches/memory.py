"""What the comparisons do to the page cache and to the memory that a program may use."""

import os

ROOT = "/sys/fs/cgroup"


def evict(folders):
    """Takes the large files of folders out of the page cache."""
    for folder in folders:
        for entry in os.scandir(folder):
            if entry.is_file() and entry.stat().st_size > 1 << 20:
                file = os.open(entry.path, os.O_RDONLY)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(file)


class MemoryGroup:
    """A memory cgroup, version 1 or 2; making one takes root, as a rule. Children started with `enter` as their `preexec_fn` share a limit that counts page cache, too."""

    def __init__(self, name):
        first = os.path.isdir(f"{ROOT}/memory")
        self.folder = f"{ROOT}/memory/{name}" if first else f"{ROOT}/{name}"
        self.limit_file = "memory.limit_in_bytes" if first else "memory.max"
        self.members = "tasks" if first else "cgroup.procs"

    def limit(self, bytes_):
        """Whether there is a group with this limit now."""
        try:
            os.makedirs(self.folder, exist_ok=True)
            with open(f"{self.folder}/{self.limit_file}", "w", encoding="ascii") as limit:
                limit.write(str(bytes_))
            return True
        except OSError as error:
            print(f"no memory cgroup ({error}): the cases that need one are left out", flush=True)
            return False

    def enter(self):
        """Puts the calling process into the group."""
        with open(f"{self.folder}/{self.members}", "w", encoding="ascii") as members:
            members.write("0" if self.members == "tasks" else str(os.getpid()))

    def remove(self):
        if os.path.isdir(self.folder):
            try:
                os.rmdir(self.folder)
            except OSError as error:
                print(f"{self.folder} is left: {error}")
