//! The op set with SIMD and threads.

mod error;
mod isa;

pub use error::CpuError;
pub use isa::InstructionSet;

use crate::Kernels;

/// The op set on the CPU: SIMD chosen at run time, work spread over `threads` threads.
#[derive(Debug)]
pub struct Cpu {
    isa: InstructionSet,
    threads: usize,
}

impl Cpu {
    /// The best instruction set of this machine on `threads` threads, the caller's included.
    ///
    /// # Errors
    /// [`CpuError`] when `threads` is 0 or threads cannot be started.
    pub fn new(threads: usize) -> Result<Self, CpuError> {
        Self::with_instruction_set(threads, InstructionSet::detect())
    }

    /// A particular instruction set; for tests and measurements.
    ///
    /// # Errors
    /// As [`new`](Self::new), and when this machine lacks the instruction set.
    pub fn with_instruction_set(threads: usize, isa: InstructionSet) -> Result<Self, CpuError> {
        if threads == 0 {
            return Err(CpuError::NoThreads);
        }
        if !isa.is_available() {
            return Err(CpuError::Unavailable { wanted: isa, best: InstructionSet::detect() });
        }
        Ok(Self { isa, threads })
    }
}

impl Kernels for Cpu {
    fn name(&self) -> String {
        format!("{} x {}", self.isa, self.threads)
    }
}
