//! A job as `runtime.cpp` reads it: little-endian u64, texts and arrays after their lengths.

use slotstream_kernels::metal::{BufferId, Dispatch, Memory, View};

/// The order in which lanes, simdgroups and threadgroups run between barriers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// The lowest first.
    Normal,
    /// The highest first.
    Reversed,
    /// At random, another order after each barrier.
    Random {
        /// Which one.
        seed: u64,
    },
}

pub(crate) fn encode(
    memory: &Memory,
    launches: &[Dispatch<BufferId>],
    results: &[View<BufferId>],
    order: Order,
) -> Vec<u8> {
    let mut job = Job::default();
    let (mode, seed) = match order {
        Order::Normal => (0, 0),
        Order::Reversed => (1, 0),
        Order::Random { seed } => (2, seed),
    };
    job.number(mode).number(seed as usize);
    job.number(memory.buffers().len());
    for buffer in memory.buffers() {
        job.number(buffer.len).number(buffer.pieces.len());
        for (at, bytes) in &buffer.pieces {
            job.number(*at).array(bytes);
        }
    }
    job.number(memory.addresses().len());
    for address in memory.addresses() {
        job.number(address.table.index()).number(address.at);
        job.number(address.target.index()).number(address.offset);
    }
    job.number(launches.len());
    for launch in launches {
        job.array(launch.kernel().as_bytes());
        job.number(launch.binds().len());
        for bind in launch.binds() {
            job.number(bind.view.buffer.index()).number(bind.view.offset);
        }
        job.array(launch.constants());
        for count in launch.grid() {
            job.number(count as usize);
        }
        job.number(launch.threads() as usize).number(launch.threadgroup_memory() as usize);
    }
    job.number(results.len());
    for result in results {
        job.number(result.buffer.index()).number(result.offset).number(result.len);
    }
    job.0
}

#[derive(Default)]
struct Job(Vec<u8>);

impl Job {
    fn number(&mut self, number: usize) -> &mut Self {
        self.0.extend_from_slice(&(number as u64).to_le_bytes());
        self
    }

    fn array(&mut self, bytes: &[u8]) -> &mut Self {
        self.number(bytes.len());
        self.0.extend_from_slice(bytes);
        self
    }
}
