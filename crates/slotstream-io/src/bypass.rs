//! Keeping the system's page cache out of the way, as far as each system lets us.

use std::fs::File;
use std::io;

use crate::errno::errno_name;

/// A system that does not do what was asked.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// The call, and the error's name or another reason.
    pub(crate) why: String,
}

impl Refusal {
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    pub(crate) fn of(call: &str, error: &io::Error) -> Self {
        Self { why: format!("{call} failed with {}", errno_name(error)) }
    }
}

pub(crate) use system::*;

#[cfg(target_os = "linux")]
mod system {
    use std::num::NonZeroU64;

    use rustix::fs::{Advice as Hint, fadvise, fstatfs};

    use super::*;

    /// What [`bypass`] does when nothing refuses.
    pub(crate) const HOW: &str = "read-ahead is off (POSIX_FADV_RANDOM) and the pages of each \
                                  read are dropped after it (POSIX_FADV_DONTNEED); pages that the \
                                  cache held before are still used";

    /// Why `Auto` is what it is on this system.
    pub(crate) const AUTO: &str = "auto: on Linux the page cache uses memory that is free and \
                                   gives it back when it is needed";

    /// Whether `Auto` is uncached.
    pub(crate) const AUTO_BYPASSES: bool = false;

    /// Pages are dropped whole; 64 KiB covers the page sizes of all Linux machines.
    const PAGE: u64 = 64 * 1024;

    const MEMORY_FILE_SYSTEMS: [(u64, &str); 2] = [(0x0102_1994, "tmpfs"), (0x8584_58f6, "ramfs")];

    /// Refuses a file that has no disk below it: its page cache is all there is.
    pub(crate) fn on_a_disk(file: &File) -> Result<(), Refusal> {
        let kind = fstatfs(file).map_err(|e| Refusal::of("fstatfs", &e.into()))?.f_type as u64;
        match MEMORY_FILE_SYSTEMS.iter().find(|(magic, _)| *magic == kind) {
            Some((_, name)) => Err(Refusal { why: format!("the file lies in memory ({name})") }),
            None => Ok(()),
        }
    }

    /// Turns read-ahead off and asks whether pages can be dropped.
    pub(crate) fn bypass(file: &File) -> Result<(), Refusal> {
        on_a_disk(file)?;
        advise(file, 0, 0, Hint::Random).map_err(|e| Refusal::of("POSIX_FADV_RANDOM", &e))?;
        after_read(file, 0, 1)
    }

    /// Takes [`bypass`] back.
    pub(crate) fn restore(file: &File) {
        // A hint that is refused changes nothing.
        let _ = advise(file, 0, 0, Hint::Normal);
    }

    /// Drops the pages that a read brought in.
    pub(crate) fn after_read(file: &File, offset: u64, len: u64) -> Result<(), Refusal> {
        let start = offset - offset % PAGE;
        let end = offset.saturating_add(len).checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
        advise(file, start, (end - start).min(i64::MAX as u64 - start), Hint::DontNeed)
            .map_err(|e| Refusal::of("POSIX_FADV_DONTNEED", &e))
    }

    /// Passes a hint on. A refusal means nothing.
    pub(crate) fn hint(file: &File, offset: u64, len: u64, advice: slotstream_core::Advice) {
        let hint = match advice {
            slotstream_core::Advice::WillNeed => Hint::WillNeed,
            slotstream_core::Advice::DontNeed => Hint::DontNeed,
            slotstream_core::Advice::Random => Hint::Random,
            slotstream_core::Advice::Sequential => Hint::Sequential,
            _ => return,
        };
        let _ = advise(file, offset, len, hint);
    }

    /// `len` 0 means up to the end of the file.
    fn advise(file: &File, offset: u64, len: u64, hint: Hint) -> io::Result<()> {
        fadvise(file, offset, NonZeroU64::new(len), hint).map_err(io::Error::from)
    }
}

#[cfg(target_os = "macos")]
mod system {
    use rustix::fs::{fcntl_nocache, fcntl_rdadvise};

    use super::*;

    /// What [`bypass`] does when nothing refuses.
    pub(crate) const HOW: &str = "reads do not fill the buffer cache (F_NOCACHE) and read-ahead \
                                  is off (F_RDAHEAD); pages that it held before are still used";

    /// Why `Auto` is what it is on this system.
    pub(crate) const AUTO: &str =
        "auto: on macOS the buffer cache competes with the slots for unified memory";

    /// Whether `Auto` is uncached.
    pub(crate) const AUTO_BYPASSES: bool = true;

    /// Takes the file out of the buffer cache and turns read-ahead off.
    pub(crate) fn bypass(file: &File) -> Result<(), Refusal> {
        fcntl_nocache(file, true).map_err(|e| Refusal::of("F_NOCACHE", &e.into()))?;
        read_ahead(file, false).map_err(|e| Refusal::of("F_RDAHEAD", &e))
    }

    /// Takes [`bypass`] back.
    pub(crate) fn restore(file: &File) {
        // What was refused once may be refused again; then nothing had been changed.
        let _ = fcntl_nocache(file, false);
        let _ = read_ahead(file, true);
    }

    /// Nothing is left to do after a read.
    pub(crate) fn after_read(_: &File, _: u64, _: u64) -> Result<(), Refusal> {
        Ok(())
    }

    /// Passes a hint on. A refusal means nothing.
    pub(crate) fn hint(file: &File, offset: u64, len: u64, advice: slotstream_core::Advice) {
        if advice == slotstream_core::Advice::WillNeed {
            let _ = fcntl_rdadvise(file, offset, len);
        }
    }

    #[expect(unsafe_code, reason = "rustix has no F_RDAHEAD")]
    fn read_ahead(file: &File, on: bool) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        // SAFETY: the descriptor is open for as long as `file` is borrowed, and F_RDAHEAD takes
        // one int and touches no memory of this process.
        let code = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_RDAHEAD, libc::c_int::from(on)) };
        if code == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
mod system {
    use super::*;

    /// What [`bypass`] does when nothing refuses.
    pub(crate) const HOW: &str = "";

    /// Why `Auto` is what it is on this system.
    pub(crate) const AUTO: &str = "auto: no way around the cache is known on this system";

    /// Whether `Auto` is uncached.
    pub(crate) const AUTO_BYPASSES: bool = false;

    /// Always refused.
    pub(crate) fn bypass(_: &File) -> Result<(), Refusal> {
        Err(Refusal {
            why: format!("no way around the cache is known on {}", std::env::consts::OS),
        })
    }

    pub(crate) fn restore(_: &File) {}

    pub(crate) fn after_read(_: &File, _: u64, _: u64) -> Result<(), Refusal> {
        Ok(())
    }

    pub(crate) fn hint(_: &File, _: u64, _: u64, _: slotstream_core::Advice) {}
}
