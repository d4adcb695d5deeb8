//! Limits of memory cgroups, in either version.

use std::fs;
use std::path::Path;

/// What the process's cgroup, or the tightest of the groups above it, still allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupLimit {
    /// Bytes that all processes of the group may use together.
    pub limit: u64,
    /// Bytes of it that are left; pages of files count as free, since they go when memory is
    /// wanted.
    pub room: u64,
}

impl GroupLimit {
    /// The group that leaves this process the least; `None` where none has a limit.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let limits = groups.lines().filter_map(|line| group_of(Path::new("/sys/fs/cgroup"), line));
        limits.min_by_key(|group| group.room)
    }
}

/// Version 1 writes a number near this where there is no limit.
const UNLIMITED: u64 = 1 << 62;

/// The tightest limit of one line `number:controllers:/path` of `/proc/self/cgroup`. In a container
/// the path may not exist below the mount; the groups that do exist count.
fn group_of(mount: &Path, line: &str) -> Option<GroupLimit> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    let (base, limit, used, cache) = match controllers {
        "" => (mount.to_path_buf(), "memory.max", "memory.current", ""),
        list if list.split(',').any(|name| name == "memory") => {
            (mount.join("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
        }
        _ => return None,
    };
    // Pages of files count as used and go when memory is wanted.
    let cached = |group: &Path| -> u64 {
        let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let names = [format!("{cache}inactive_file "), format!("{cache}active_file ")];
        let number = |line: &str| {
            names.iter().find_map(|name| line.strip_prefix(name.as_str()))?.trim().parse().ok()
        };
        stat.lines().filter_map(number).fold(0, u64::saturating_add)
    };
    let number = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    Path::new(path)
        .ancestors()
        .filter_map(|group| {
            let group = base.join(group.strip_prefix("/").unwrap_or(group));
            let held = number(&group.join(used))?.saturating_sub(cached(&group));
            let limit = number(&group.join(limit)).filter(|limit| *limit < UNLIMITED)?;
            Some(GroupLimit { limit, room: limit.saturating_sub(held) })
        })
        .min_by_key(|group| group.room)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room_of(mount: &Path, line: &str) -> Option<u64> {
        group_of(mount, line).map(|group| group.room)
    }

    #[test]
    fn the_tightest_group_above_counts() {
        let mount = tempfile::tempdir().expect("a temporary folder");
        let write = |group: &str, limit: &str, used: &str, values: [&str; 2]| {
            let folder = mount.path().join(group);
            fs::create_dir_all(&folder).expect("creates");
            fs::write(folder.join(limit), values[0]).expect("writes");
            fs::write(folder.join(used), values[1]).expect("writes");
        };
        let [limit, used] = ["memory.max", "memory.current"];
        write("a", limit, used, ["1000\n", "400\n"]);
        write("a/b", limit, used, ["max\n", "100\n"]);
        assert_eq!(room_of(mount.path(), "0::/a/b"), Some(600));
        assert_eq!(room_of(mount.path(), "0::/elsewhere"), None);
        let [limit, used] = ["memory.limit_in_bytes", "memory.usage_in_bytes"];
        write("memory/c", limit, used, ["50", "80"]);
        assert_eq!(room_of(mount.path(), "7:cpu,memory:/c"), Some(0));
        write("memory/c", limit, "memory.stat", ["50", "total_inactive_file 40\ncache 9\n"]);
        assert_eq!(room_of(mount.path(), "7:cpu,memory:/c"), Some(10), "80 used, 40 of files");
        let pages = "inactive_file 100\nactive_file 50\nfile 999\ntotal_active_file 7\n";
        write("a", "memory.max", "memory.stat", ["1000\n", pages]);
        assert_eq!(room_of(mount.path(), "0::/a"), Some(750));
        assert_eq!(room_of(mount.path(), "7:cpu:/c"), None);
        assert_eq!(room_of(mount.path(), "nonsense"), None);
    }
}
