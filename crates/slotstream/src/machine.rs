//! What the system says about memory. Every answer may be absent.

mod facts;
mod group;

use std::fs;

pub use facts::{Budget, GpuMemory, Machine, MetalGpu, NoGpu};
pub use group::GroupLimit;

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
    let available = system_available_bytes()?;
    Some(GroupLimit::of_this_process().map_or(available, |group| group.room.min(available)))
}

/// Bytes of memory that the system has in all.
#[must_use]
pub fn total_bytes() -> Option<u64> {
    field(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")
}

/// Bytes that the whole system could give, whatever a cgroup allows this process.
fn system_available_bytes() -> Option<u64> {
    field(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

fn status(name: &str) -> Option<u64> {
    field(&fs::read_to_string("/proc/self/status").ok()?, name)
}

/// A line `name   123 kB`.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
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
