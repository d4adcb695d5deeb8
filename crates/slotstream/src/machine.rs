//! What the system says about memory. Every answer may be absent.

use std::fs;
use std::path::Path;

/// Bytes that this process has resident now.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    status("VmRSS:")
}

/// The most bytes that this process ever had resident.
#[must_use]
pub fn peak_resident_bytes() -> Option<u64> {
    status("VmHWM:")
}

/// Bytes that the system could give to this process: what is available, or less under a cgroup
/// limit.
#[must_use]
pub fn available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let available = field(&text, "MemAvailable:")?;
    Some(cgroup_room().map_or(available, |room| room.min(available)))
}

/// Bytes of files that the system could keep in memory beside a process that uses `planned` bytes
/// in all, those that it has resident now included.
#[must_use]
pub fn room_beside(planned: u64) -> Option<u64> {
    let more = planned.saturating_sub(resident_bytes().unwrap_or(0));
    Some(available_bytes()?.saturating_sub(more))
}

fn status(name: &str) -> Option<u64> {
    field(&fs::read_to_string("/proc/self/status").ok()?, name)
}

/// A line `name   123 kB`.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// What the process's cgroup and the groups above it still allow, in either version.
fn cgroup_room() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    groups.lines().filter_map(|line| room_of(Path::new("/sys/fs/cgroup"), line)).min()
}

/// The room of one line `number:controllers:/path` of `/proc/self/cgroup`. In a container the path
/// may not exist below the mount; the groups that do exist count.
fn room_of(mount: &Path, line: &str) -> Option<u64> {
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
            Some(number(&group.join(limit))?.saturating_sub(held))
        })
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_kilobyte_fields() {
        let text = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\tnone kB\n";
        assert_eq!(field(text, "VmHWM:"), Some(2 << 20));
        assert_eq!(field(text, "VmRSS:"), None);
        assert_eq!(field(text, "VmSwap:"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_peak_is_no_less_than_now() {
        let now = resident_bytes().expect("linux");
        assert!(peak_resident_bytes().expect("linux") >= now / 2 && now > 0);
        assert!(available_bytes().expect("linux") > 0);
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
