//! What a plan needs to know of a machine.

use std::fmt::Debug;

use super::GroupLimit;

/// Memory of a GPU that shares the machine's. A device behind this trait says how much of it one
/// process may use.
pub trait GpuMemory: Debug {
    /// Bytes that the device recommends as a process's working set (Metal's
    /// `recommendedMaxWorkingSetSize`); `None` where there is no such limit.
    fn working_set(&self) -> Option<u64>;
}

/// No GPU: everything is the system's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "there is nothing in it")]
pub struct NoGpu;

impl GpuMemory for NoGpu {
    fn working_set(&self) -> Option<u64> {
        None
    }
}

/// The default GPU of this Mac; elsewhere, none. It is asked each time, and not opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "there is nothing in it")]
pub struct MetalGpu;

impl GpuMemory for MetalGpu {
    fn working_set(&self) -> Option<u64> {
        #[cfg(target_os = "macos")]
        let bytes = slotstream_candle::recommended_working_set();
        #[cfg(not(target_os = "macos"))]
        let bytes = None;
        bytes
    }
}

/// What a machine has, as far as memory goes; what the system does not say is `None`.
///
/// ```
/// use slotstream::machine::Machine;
///
/// // 70% of its memory, unless more of it is in use.
/// let laptop = Machine::simulated(16 << 30);
/// assert_eq!(laptop.budget().map(|budget| budget.bytes >> 20), Some(11_468));
/// let busy = laptop.with_available(6 << 30);
/// assert_eq!(busy.budget().map(|budget| budget.bytes >> 20), Some(4_300));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Machine {
    /// Bytes of memory.
    pub total: Option<u64>,
    /// Bytes that the system could give, whatever a cgroup says.
    pub available: Option<u64>,
    /// The limit of the process's cgroup.
    pub group: Option<GroupLimit>,
    /// Bytes that the GPU recommends for a process.
    pub working_set: Option<u64>,
    /// Bytes that this process has resident.
    pub process: u64,
}

/// Bytes that a process may use on a machine, and why so many.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Budget {
    /// Bytes, what the process has already included.
    pub bytes: u64,
    /// The figure that decides, in words.
    pub why: String,
}

/// What a GPU's working set leaves to others.
const BESIDE_THE_GPU: u64 = 2 << 30;

impl Machine {
    /// This machine and this process, now.
    #[must_use]
    pub fn detect(gpu: &dyn GpuMemory) -> Self {
        Self {
            total: super::total_bytes(),
            available: super::system_available_bytes(),
            group: GroupLimit::of_this_process(),
            working_set: gpu.working_set(),
            process: super::resident_bytes().unwrap_or(0),
        }
    }

    /// Another machine with `total` bytes of memory, of which nothing else is known.
    #[must_use]
    pub const fn simulated(total: u64) -> Self {
        Self { total: Some(total), available: None, group: None, working_set: None, process: 0 }
    }

    /// The same with so many bytes available.
    #[must_use]
    pub const fn with_available(mut self, bytes: u64) -> Self {
        self.available = Some(bytes);
        self
    }

    /// The same with this working set of a GPU.
    #[must_use]
    pub const fn with_working_set(mut self, bytes: u64) -> Self {
        self.working_set = Some(bytes);
        self
    }

    /// The same with a process that has so many bytes resident.
    #[must_use]
    pub const fn with_process(mut self, bytes: u64) -> Self {
        self.process = bytes;
        self
    }

    /// Bytes of files that the system could keep in memory beside a process that uses `planned`
    /// bytes in all, those that it has resident included.
    #[must_use]
    pub fn room_beside(&self, planned: u64) -> Option<u64> {
        let more = planned.saturating_sub(self.process);
        let room = self.group.map(|group| group.room);
        let free = self.available.or(self.total)?;
        Some(room.map_or(free, |room| room.min(free)).saturating_sub(more))
    }

    /// What an engine may use unless told otherwise: the least of 70% of the memory, 70% of what
    /// is available and of what the cgroup leaves (each beside what the process has), and the
    /// GPU's working set less 2 GiB. `None` where nothing is known.
    #[must_use]
    pub fn budget(&self) -> Option<Budget> {
        let most = |bytes: u64| bytes / 10 * 7;
        let beside = |bytes: u64| self.process.saturating_add(most(bytes));
        let total = self.total.map(|total| (most(total), total, "70% of the memory"));
        let available = self.available.map(|bytes| {
            (beside(bytes), bytes, "the process and 70% of the memory that is available")
        });
        let group = self.group.map(|group| {
            (beside(group.room), group.room, "the process and 70% of what its cgroup leaves")
        });
        let gpu = self.working_set.map(|bytes| {
            (bytes.saturating_sub(BESIDE_THE_GPU), bytes, "the GPU's working set less 2 GiB")
        });
        let least = [total, available, group, gpu].into_iter().flatten().min_by_key(|row| row.0);
        least.map(|(bytes, of, what)| Budget { bytes, why: format!("{what} ({of} bytes)") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_fact_decides() {
        let machine = Machine::simulated(100).with_process(5);
        assert_eq!(machine.budget().map(|budget| budget.bytes), Some(70));
        let machine = machine.with_available(50);
        let budget = machine.budget().expect("known");
        assert_eq!(budget.bytes, 5 + 35);
        assert!(budget.why.contains("available (50 bytes)"), "{}", budget.why);
        let group = GroupLimit { limit: 30, room: 20 };
        let machine = Machine { group: Some(group), ..machine };
        let budget = machine.budget().expect("known");
        assert_eq!(budget.bytes, 5 + 14);
        assert!(budget.why.contains("cgroup"), "{}", budget.why);
        let machine = machine.with_working_set(1 << 30);
        let budget = machine.budget().expect("known");
        assert_eq!(budget.bytes, 0, "a working set that others need");
        assert_eq!(machine.room_beside(15), Some(10), "20 in the group, 10 more are planned");
        assert_eq!(Machine::default().budget(), None);
        assert_eq!(Machine::default().room_beside(0), None);
    }

    #[derive(Debug)]
    struct Gpu(u64);

    impl GpuMemory for Gpu {
        fn working_set(&self) -> Option<u64> {
            Some(self.0)
        }
    }

    #[test]
    fn a_gpu_is_asked() {
        assert_eq!(Machine::detect(&Gpu(7)).working_set, Some(7));
        assert_eq!(Machine::detect(&NoGpu).working_set, None);
    }
}
