//! Readers and the lane queue: moves the bytes of an extent into a landing place.
//!
//! - [`PositionalReader`] reads files by position, through the page cache or around it, and says
//!   which of the two it really does ([`RecordReader::effective`]); [`DirectReader`] reads from
//!   the disk into the buffer, [`UringReader`] many requests at once from one thread;
//!   [`MemReader`] serves files from memory. [`open_reader`] opens any of them by name
//!   ([`ReaderKind`]). [`MmapReader`] is there to be compared with, and unsafe to open.
//! - [`MirrorReader`] reads copies on several disks as one. [`Throttled`] lets a reader appear as
//!   slow as another disk, [`Counted`] keeps books, [`Checked`] compares what it reads with
//!   checksums.
//! - [`LaneQueue`] carries out owned jobs on threads of its own, demand before speculation.
//! - [`AlignedBuf`] and [`ScratchPool`] are memory for bytes that cannot go straight to their
//!   place.
//!
//! This crate knows no tensors, no experts and no caching. It does not retry a failed read (only
//! an interrupted one, and a mirror on another copy), verifies content only in [`Checked`], and
//! never writes a file. Readers of your own need `slotstream-core` alone; the lane queue takes
//! them as they are.
//!
//! # Example
//! ```
//! use std::sync::{Arc, mpsc};
//! use slotstream_core::{Extent, FileId, Job, ReadClass, ReadQueue};
//! use slotstream_io::{LaneQueue, ReaderKind, ScratchPool, open_reader};
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("shard.bin");
//! std::fs::write(&path, b"..the bytes of a record..")?;
//!
//! let reader = open_reader(ReaderKind::Auto, &[path])?;
//! let queue = LaneQueue::new(Arc::clone(&reader), 4)?;
//! let pool = ScratchPool::new(4096, 8)?;
//! let (sender, receiver) = mpsc::channel();
//! let landing = pool.take()?.into_landing(21, move |page, result| {
//!     let _ = sender.send(result.map(|()| page[..21].to_vec()));
//! });
//! queue.submit(ReadClass::Demand, vec![Job::new(Extent::new(FileId::new(0), 2, 21)?, landing)]);
//! assert_eq!(receiver.recv()??, b"the bytes of a record");
//! assert_eq!(queue.counters().bytes_read, 21);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`RecordReader::effective`]: slotstream_core::RecordReader::effective
#![deny(unsafe_code)]

#[cfg(not(unix))]
compile_error!(
    "slotstream-io reads files by position with the calls of Unix (Linux and macOS): build it \
     there, or in the Windows Subsystem for Linux"
);

#[cfg(unix)]
mod aligned;
#[cfg(unix)]
mod around;
#[cfg(unix)]
mod bypass;
#[cfg(unix)]
mod checked;
#[cfg(unix)]
mod counted;
#[cfg(unix)]
mod decorator;
#[cfg(unix)]
mod dio;
#[cfg(unix)]
mod direct;
#[cfg(unix)]
mod errno;
#[cfg(unix)]
mod error;
#[cfg(unix)]
mod files;
#[cfg(unix)]
mod kind;
#[cfg(unix)]
mod lanes;
#[cfg(unix)]
mod mapped;
#[cfg(unix)]
mod memory;
#[cfg(unix)]
mod mirror;
#[cfg(unix)]
mod positional;
#[cfg(unix)]
mod retry;
#[cfg(unix)]
mod scratch;
#[cfg(unix)]
mod slab;
#[cfg(unix)]
mod sync;
#[cfg(unix)]
mod throttled;
#[cfg(unix)]
mod uring;

#[cfg(unix)]
pub use aligned::AlignedBuf;
#[cfg(unix)]
pub use checked::{Checked, ChecksumTable};
#[cfg(unix)]
pub use counted::{Counted, ReadCounts};
#[cfg(unix)]
pub use direct::{DirectOptions, DirectReader};
#[cfg(unix)]
pub use error::IoError;
#[cfg(unix)]
pub use kind::{ReaderChoice, ReaderKind, open_reader};
#[cfg(unix)]
pub use lanes::LaneQueue;
#[cfg(unix)]
pub use mapped::MmapReader;
#[cfg(unix)]
pub use memory::{LoadProgress, MemReader};
#[cfg(unix)]
pub use mirror::{CopyShare, MirrorReader};
#[cfg(unix)]
pub use positional::{PositionalOptions, PositionalReader, ReadMode};
#[cfg(unix)]
pub use scratch::{ScratchPage, ScratchPool};
#[cfg(unix)]
pub use throttled::{Throttle, Throttled};
#[cfg(unix)]
pub use uring::{UringOptions, UringReader};
