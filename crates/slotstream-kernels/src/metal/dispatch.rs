//! What a kernel launch is made of, and the limits that every launch keeps.

use super::{Library, PlanError};

/// Threads of a threadgroup, at most.
pub const MAX_THREADS: u32 = 1024;
/// Bytes of threadgroup memory, at most.
pub const MAX_THREADGROUP_MEMORY: u32 = 32 * 1024;
/// Buffers of a kernel, constants included, at most: their indexes end at 30.
pub const MAX_BUFFERS: usize = 31;
/// Bytes of constants, at most: what `setBytes` takes.
pub const MAX_CONSTANTS: usize = 4096;
/// Threads of a simdgroup. Threadgroups consist of whole ones.
pub const SIMD: u32 = 32;

/// A range of bytes of a buffer. `B` is whatever names a buffer where the plan is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a plain triple")]
pub struct View<B> {
    /// The buffer.
    pub buffer: B,
    /// First byte.
    pub offset: usize,
    /// Bytes.
    pub len: usize,
}

impl<B> View<B> {
    /// `len` bytes of `buffer` from `offset` on.
    #[must_use]
    pub const fn new(buffer: B, offset: usize, len: usize) -> Self {
        Self { buffer, offset, len }
    }
}

impl<B> View<B> {
    /// The same view if it is long enough for `count` elements of `size` bytes, and aligned.
    pub(super) fn check(
        self,
        argument: &'static str,
        count: usize,
        size: usize,
    ) -> Result<Self, PlanError> {
        let wanted = count.saturating_mul(size);
        if self.len < wanted {
            return Err(PlanError::Length { argument, wanted, got: self.len });
        }
        if !self.offset.is_multiple_of(size.min(8)) {
            return Err(PlanError::Alignment {
                argument,
                offset: self.offset,
                wanted: size.min(8),
            });
        }
        Ok(self)
    }

    /// Room for `count` f32.
    pub(super) fn floats(self, argument: &'static str, count: usize) -> Result<Self, PlanError> {
        self.check(argument, count, 4)
    }

    /// Room for `count` u32.
    pub(super) fn words(self, argument: &'static str, count: usize) -> Result<Self, PlanError> {
        self.check(argument, count, 4)
    }

    /// Room for `count` addresses.
    pub(super) fn addresses(self, argument: &'static str, count: usize) -> Result<Self, PlanError> {
        self.check(argument, count, 8)
    }
}

/// What a kernel does with a buffer. Whoever encodes the plan puts a barrier between a launch
/// that writes a buffer and the next one that touches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "there is nothing else to do with memory")]
pub enum Direction {
    /// Only reads it.
    In,
    /// Writes it, reads nothing that was there before.
    Out,
    /// Reads and writes it.
    InOut,
}

/// One buffer of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a plain pair")]
pub struct Bind<B> {
    /// The bytes.
    pub view: View<B>,
    /// What the kernel does with them.
    pub direction: Direction,
}

/// One kernel launch: everything that an encoder must set, in plain numbers.
///
/// Buffer `i` of the kernel is `binds()[i]`; the constants, where there are any, come after the
/// last of them; threadgroup memory, where there is any, has index 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispatch<B> {
    library: &'static Library,
    kernel: &'static str,
    binds: Vec<Bind<B>>,
    constants: Vec<u8>,
    grid: [u32; 3],
    threads: u32,
    threadgroup_memory: u32,
}

impl<B> Dispatch<B> {
    /// Starts a plan of one threadgroup of one simdgroup.
    #[must_use]
    pub fn new(library: &'static Library, kernel: &'static str) -> Self {
        let (binds, constants) = (Vec::new(), Vec::new());
        let grid = [1; 3];
        Self { library, kernel, binds, constants, grid, threads: SIMD, threadgroup_memory: 0 }
    }

    /// The next buffer is read.
    #[must_use]
    pub fn input(self, view: View<B>) -> Self {
        self.bind(view, Direction::In)
    }

    /// The next buffer is written.
    #[must_use]
    pub fn output(self, view: View<B>) -> Self {
        self.bind(view, Direction::Out)
    }

    /// The next buffer is read and written.
    #[must_use]
    pub fn update(self, view: View<B>) -> Self {
        self.bind(view, Direction::InOut)
    }

    fn bind(mut self, view: View<B>, direction: Direction) -> Self {
        self.binds.push(Bind { view, direction });
        self
    }

    /// The bytes of the constants.
    #[must_use]
    pub fn with_constants(mut self, constants: Vec<u8>) -> Self {
        self.constants = constants;
        self
    }

    /// Bytes of threadgroup memory.
    #[must_use]
    pub fn with_threadgroup_memory(mut self, bytes: usize) -> Self {
        // What does not fit is past the limit, too.
        self.threadgroup_memory = u32::try_from(bytes.next_multiple_of(16)).unwrap_or(u32::MAX);
        self
    }

    /// `grid` threadgroups of `threads` threads: the finished plan.
    ///
    /// # Errors
    /// [`PlanError::Limit`] when the launch is beyond what a device takes.
    pub fn launch(mut self, grid: [usize; 3], threads: u32) -> Result<Self, PlanError> {
        let buffers = self.binds.len() + usize::from(!self.constants.is_empty());
        limit("buffers", buffers, 0, MAX_BUFFERS)?;
        limit("bytes of constants", self.constants.len(), 0, MAX_CONSTANTS)?;
        let memory = self.threadgroup_memory as usize;
        limit("bytes of threadgroup memory", memory, 0, MAX_THREADGROUP_MEMORY as usize)?;
        limit("threads", threads as usize, SIMD as usize, MAX_THREADS as usize)?;
        if !threads.is_multiple_of(SIMD) {
            return Err(PlanError::Simdgroups { threads });
        }
        // The position of a thread in the grid is a u32.
        let most = [u32::MAX / threads, u32::MAX, u32::MAX];
        for ((to, count), most) in self.grid.iter_mut().zip(grid).zip(most) {
            *to = limit("threadgroups", count, 1, most as usize)?;
        }
        self.threads = threads;
        Ok(self)
    }

    /// The same launch with its buffers named otherwise.
    #[must_use]
    pub fn map<C>(self, mut name: impl FnMut(B) -> C) -> Dispatch<C> {
        let bind = |Bind { view: View { buffer, offset, len }, direction }: Bind<B>| Bind {
            view: View { buffer: name(buffer), offset, len },
            direction,
        };
        Dispatch {
            library: self.library,
            kernel: self.kernel,
            binds: self.binds.into_iter().map(bind).collect(),
            constants: self.constants,
            grid: self.grid,
            threads: self.threads,
            threadgroup_memory: self.threadgroup_memory,
        }
    }

    /// The library that holds the kernel.
    #[must_use]
    pub const fn library(&self) -> &'static Library {
        self.library
    }

    /// The kernel's name.
    #[must_use]
    pub const fn kernel(&self) -> &'static str {
        self.kernel
    }

    /// The buffers, by index.
    #[must_use]
    pub fn binds(&self) -> &[Bind<B>] {
        &self.binds
    }

    /// The constants, bound after the last buffer.
    #[must_use]
    pub fn constants(&self) -> &[u8] {
        &self.constants
    }

    /// Threadgroups in x, y and z.
    #[must_use]
    pub const fn grid(&self) -> [u32; 3] {
        self.grid
    }

    /// Threads of a threadgroup, all in x.
    #[must_use]
    pub const fn threads(&self) -> u32 {
        self.threads
    }

    /// Bytes of threadgroup memory.
    #[must_use]
    pub const fn threadgroup_memory(&self) -> u32 {
        self.threadgroup_memory
    }
}

fn limit(what: &'static str, got: usize, least: usize, most: usize) -> Result<u32, PlanError> {
    match u32::try_from(got) {
        Ok(count) if (least..=most).contains(&got) => Ok(count),
        _ => Err(PlanError::Limit { what, got, least, most }),
    }
}

/// A number of elements as the u32 that kernels count with.
pub(super) fn count(what: &'static str, got: usize) -> Result<u32, PlanError> {
    limit(what, got, 0, u32::MAX as usize)
}
