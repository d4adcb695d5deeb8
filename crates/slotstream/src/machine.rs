//! What the system says about memory. Every answer may be absent.

use std::fs;

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

fn status(name: &str) -> Option<u64> {
    field(&fs::read_to_string("/proc/self/status").ok()?, name)
}

/// A line `name   123 kB`.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// What the process's own cgroup (either version) still allows.
fn cgroup_room() -> Option<u64> {
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let pairs = [
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ];
    let room = |(limit, used): (&str, &str)| Some(number(limit)?.saturating_sub(number(used)?));
    pairs.into_iter().filter_map(room).min()
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
}
