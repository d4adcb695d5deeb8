//! One ring, and the memory that the kernel may write to while reads of it are in flight.
//!
//! The border of what is unsafe here: outside of this file a buffer goes in by value
//! ([`Flight::launch`]) and comes back by value ([`Flight::wait`]), and in between nobody has it.

#![expect(unsafe_code, reason = "the kernel writes to memory that no borrow shows")]

use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::os::fd::RawFd;
use std::time::Duration;

use io_uring::{IoUring, opcode, types};

use crate::ScratchPage;
use crate::errno::errno_name;

/// Reads of one ring at once.
pub(super) const DEPTH: usize = 64;

/// What a read needs while it is in flight: the place of its bytes and, for a read that bounces,
/// the page that they come to first.
pub(super) struct Memory<'b> {
    pub(super) buffer: &'b mut [u8],
    pub(super) page: Option<ScratchPage>,
}

/// A [`Memory`] in flight, as addresses: a reference would claim that nobody else writes to it.
pub(super) struct Held<'b> {
    address: *mut u8,
    len: usize,
    page: Option<ScratchPage>,
    borrow: PhantomData<&'b mut [u8]>,
}

impl<'b> Held<'b> {
    fn new(memory: Memory<'b>) -> Self {
        let Memory { buffer, page } = memory;
        Self { address: buffer.as_mut_ptr(), len: buffer.len(), page, borrow: PhantomData }
    }

    /// Where the kernel is to write: `part` of the page, or of the buffer without one. `None`
    /// when that is not inside.
    fn target(&mut self, part: Range<usize>) -> Option<(*mut u8, u32)> {
        let len = u32::try_from(part.len()).ok()?;
        let (base, whole) = match &mut self.page {
            Some(page) => (page.as_mut_ptr(), page.len()),
            None => (self.address, self.len),
        };
        (part.start <= part.end && part.end <= whole).then(|| (base.wrapping_add(part.start), len))
    }

    /// The memory again, when its read has completed or was never begun.
    fn back(self) -> Memory<'b> {
        // SAFETY: address and length are those of a `&'b mut [u8]` that `new` took by value, so
        // it is valid for 'b and nobody else has a reference to it. `Flight` calls this only when
        // no read into it is in flight: before it pushed one, or after its completion.
        let buffer = unsafe { std::slice::from_raw_parts_mut(self.address, self.len) };
        Memory { buffer, page: self.page }
    }
}

/// Places for the reads in flight of one call.
pub(super) type Places<'b> = [Option<Held<'b>>; DEPTH];

/// A ring with its registered files.
pub(super) struct Ring(IoUring);

/// A read that has completed.
pub(super) struct Completed<'b> {
    pub(super) place: usize,
    /// Bytes, or an error's number, negated.
    pub(super) result: i32,
    pub(super) memory: Memory<'b>,
}

impl Ring {
    /// A ring that reads `files` by their index, which stay open as long as it lives, and that
    /// has shown that it works.
    pub(super) fn new(files: &[RawFd]) -> Result<Self, String> {
        let refuse = |call: &'static str| {
            move |error: io::Error| format!("{call} failed with {}", errno_name(&error))
        };
        let mut ring = IoUring::new(DEPTH as u32).map_err(refuse("io_uring_setup"))?;
        ring.submitter().register_files(files).map_err(refuse("io_uring_register"))?;
        let nothing = opcode::Nop::new().build();
        // SAFETY: a no-op refers to no memory.
        let pushed = unsafe { ring.submission().push(&nothing) };
        pushed.map_err(|error| error.to_string())?;
        ring.submit_and_wait(1).map_err(refuse("io_uring_enter"))?;
        let done = ring.completion().next();
        match done {
            Some(done) if done.result() >= 0 => Ok(Self(ring)),
            other => Err(format!("a no-op brought {other:?}")),
        }
    }

    /// Lends a [`Flight`] to `body`. Whatever `body` does, when this returns or unwinds nothing
    /// is in flight, and every place is empty.
    pub(super) fn scope<'b, T>(
        &mut self,
        places: &mut Places<'b>,
        body: impl FnOnce(&mut Flight<'_, 'b>) -> T,
    ) -> T {
        // `body` gets a reference and no value: it cannot keep the drop from running.
        body(&mut Flight { ring: &mut self.0, places, flying: 0 })
    }
}

/// The reads in flight of one call.
pub(super) struct Flight<'f, 'b> {
    ring: &'f mut IoUring,
    places: &'f mut Places<'b>,
    /// Reads that were pushed and whose completions have not been seen.
    flying: usize,
}

impl<'b> Flight<'_, 'b> {
    /// Reads in flight.
    pub(super) fn flying(&self) -> usize {
        self.flying
    }

    /// Begins a read of file `file` from position `at` into `part` of the memory. Gives the
    /// memory back when the place is taken, the part is not inside, or the queue is full.
    pub(super) fn launch(
        &mut self,
        place: usize,
        file: u32,
        memory: Memory<'b>,
        part: Range<usize>,
        at: u64,
    ) -> Result<(), Memory<'b>> {
        let mut held = Held::new(memory);
        let Some(empty @ None) = self.places.get_mut(place) else { return Err(held.back()) };
        let Some((address, len)) = held.target(part) else { return Err(held.back()) };
        let read = opcode::Read::new(types::Fixed(file), address, len)
            .offset(at)
            .build()
            .user_data(place as u64);
        // SAFETY: `target` found `len` bytes at `address` inside of what `held` owns: a page of
        // its own, whose heap memory stays where it is when the page is moved, or the bytes of an
        // exclusive borrow of 'b. `held` lies in `places` from here on and is neither dropped nor
        // turned back into a reference before `wait` has seen this read's completion: only
        // `wait` takes things out of a place, and only that of a completion. `places` itself
        // outlives the flight, whose drop waits for every read that was pushed; the flight is
        // never owned by anybody but `Ring::scope`, so its drop always runs. The file is
        // registered.
        let pushed = unsafe { self.ring.submission().push(&read) };
        if pushed.is_err() {
            return Err(held.back());
        }
        *empty = Some(held);
        self.flying += 1;
        Ok(())
    }

    /// The next completion; `None` when nothing is in flight. Hands the reads that were launched
    /// to the kernel first.
    pub(super) fn wait(&mut self) -> Option<Completed<'b>> {
        while self.flying > 0 {
            self.enter();
            let Some(entry) = self.ring.completion().next() else { continue };
            self.flying -= 1;
            // Every read that was pushed has a place.
            let place = usize::try_from(entry.user_data()).unwrap_or(usize::MAX);
            let held = self.places.get_mut(place).and_then(Option::take);
            if let Some(held) = held {
                let (result, memory) = (entry.result(), held.back());
                return Some(Completed { place, result, memory });
            }
        }
        None
    }

    /// Submits what was pushed, and waits unless a completion is there already.
    ///
    /// An error ends nothing: what was pushed may be in flight, and its memory cannot be given
    /// back. `Ring::new` has seen that the call is allowed, so that what is left are lacks that
    /// pass (EAGAIN, EBUSY, EINTR). Waiting for ever would be better than memory that changes.
    fn enter(&mut self) {
        let there = !self.ring.completion().is_empty();
        let idle = self.ring.submission().is_empty();
        let result = match (there, idle) {
            (true, true) => return,
            (true, false) => self.ring.submit(),
            (false, _) => self.ring.submit_and_wait(1),
        };
        if result.is_err_and(|error| error.kind() != io::ErrorKind::Interrupted) {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

impl Drop for Flight<'_, '_> {
    fn drop(&mut self) {
        while self.wait().is_some() {}
    }
}
