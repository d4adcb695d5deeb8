//! How short memory is, and who says so.

use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};

use crate::machine;

/// How short memory is at a moment, as far as somebody knows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Pressure {
    /// Share of the last seconds, 0 to 1, for which a task waited for memory.
    pub stall: Option<f64>,
    /// Bytes that this process could still get.
    pub available: Option<u64>,
    /// Bytes of memory that it shares with others: the machine's, or its cgroup's limit.
    pub total: Option<u64>,
}

impl Pressure {
    /// Nothing is known.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`stall`](Self::stall).
    #[must_use]
    pub const fn with_stall(mut self, share: f64) -> Self {
        self.stall = Some(share);
        self
    }

    /// Sets [`available`](Self::available).
    #[must_use]
    pub const fn with_available(mut self, bytes: u64) -> Self {
        self.available = Some(bytes);
        self
    }

    /// Sets [`total`](Self::total).
    #[must_use]
    pub const fn with_total(mut self, bytes: u64) -> Self {
        self.total = Some(bytes);
        self
    }

    /// Whether it says neither how long tasks waited nor what is available.
    #[must_use]
    pub const fn is_silent(&self) -> bool {
        self.stall.is_none() && self.available.is_none()
    }
}

/// Somebody who knows how short memory is.
pub trait PressureSource: Send + Debug {
    /// How short it is now. What is not known is `None`.
    fn sample(&mut self) -> Pressure;

    /// What it asks, in a few words.
    fn name(&self) -> String;
}

/// What the system offers; `None` where that is nothing.
#[must_use]
pub fn system_pressure() -> Option<Box<dyn PressureSource>> {
    match std::env::consts::OS {
        "linux" => Some(Box::new(LinuxPressure::new())),
        "macos" => Some(Box::new(super::MacPressure::new())),
        _ => None,
    }
}

/// Linux: pressure stall information (of the process's cgroup in version 2, else of the whole
/// system), and the memory that is available within the tightest limit of its cgroups, of either
/// version. Kernels without pressure stall information say nothing of waiting.
#[derive(Clone, Debug)]
pub struct LinuxPressure {
    stalls: Option<PathBuf>,
}

impl Default for LinuxPressure {
    fn default() -> Self {
        Self::new()
    }
}

impl LinuxPressure {
    /// Finds out what this system offers.
    #[must_use]
    pub fn new() -> Self {
        Self::at(Path::new("/"))
    }

    /// The same below another root, for tests.
    fn at(root: &Path) -> Self {
        let group = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        let group = group.lines().find_map(|line| line.strip_prefix("0::/")).map(|path| {
            let mounts = ["sys/fs/cgroup", "sys/fs/cgroup/unified"];
            mounts.map(|mount| root.join(mount).join(path).join("memory.pressure"))
        });
        let system = root.join("proc/pressure/memory");
        let places = group.into_iter().flatten().chain([system]);
        let says = |path: &PathBuf| fs::read_to_string(path).is_ok_and(|t| stall(&t).is_some());
        Self { stalls: { places }.find(says) }
    }
}

impl PressureSource for LinuxPressure {
    fn sample(&mut self) -> Pressure {
        let stall = self.stalls.as_ref().and_then(|path| stall(&fs::read_to_string(path).ok()?));
        let group = machine::GroupLimit::of_this_process();
        let total = [machine::total_bytes(), group.map(|group| group.limit)];
        Pressure {
            stall,
            available: machine::available_bytes(),
            total: total.into_iter().flatten().min(),
        }
    }

    fn name(&self) -> String {
        match &self.stalls {
            Some(path) => format!("{} and available memory", path.display()),
            None => "available memory".to_owned(),
        }
    }
}

/// The share of the last ten seconds for which some task waited: `some avg10=1.23 ...`, in percent.
fn stall(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let percent = line.split_whitespace().find_map(|field| field.strip_prefix("avg10="))?;
    percent
        .parse()
        .ok()
        .filter(|share| (0.0..=100.0).contains(share))
        .map(|share: f64| share / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_seconds_of_some_task() {
        let text = "some avg10=12.50 avg60=3.00 avg300=0.00 total=1\nfull avg10=99.00 total=1\n";
        assert_eq!(stall(text), Some(0.125));
        for wrong in ["", "full avg10=1.00", "some avg60=1.00", "some avg10=x", "some avg10=101"] {
            assert_eq!(stall(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_group_says_more_than_the_system() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("below the root")).expect("creates");
            fs::write(path, text).expect("writes");
        };
        let found = || {
            let source = LinuxPressure::at(root.path());
            let path = source.stalls?;
            Some(path.strip_prefix(root.path()).expect("below").display().to_string())
        };
        assert_eq!(found(), None);
        write("proc/pressure/memory", "some avg10=1.00\n");
        assert_eq!(found().as_deref(), Some("proc/pressure/memory"));
        write("proc/self/cgroup", "4:memory:/x\n0::/a/b\n");
        assert_eq!(found().as_deref(), Some("proc/pressure/memory"), "no such group");
        write("sys/fs/cgroup/unified/a/b/memory.pressure", "some avg10=2.00\n");
        let group = "sys/fs/cgroup/unified/a/b/memory.pressure";
        assert_eq!(found().as_deref(), Some(group));
        write("sys/fs/cgroup/a/b/memory.pressure", "some avg10=2.00\n");
        assert_eq!(found().as_deref(), Some("sys/fs/cgroup/a/b/memory.pressure"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_system_says_what_is_available() {
        let mut source = system_pressure().expect("linux");
        let pressure = source.sample();
        assert!(pressure.available.expect("known") > 0 && !pressure.is_silent());
        assert!(pressure.total.expect("known") >= pressure.available.expect("known") / 2);
        assert!(source.name().contains("available"), "{}", source.name());
    }
}
