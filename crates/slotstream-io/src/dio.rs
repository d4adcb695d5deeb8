//! Descriptors whose reads go around the page cache, and what such reads have to be multiples of.

use std::fs::File;
use std::path::Path;

use rustix::io::Errno;
use slotstream_core::{Alignment, SLOT_ALIGNMENT};

use crate::bypass::Refusal;
use crate::errno::errno_name;
use crate::files::OpenFile;
use crate::retry::read_some;
use crate::{AlignedBuf, IoError};

pub(crate) use system::HOW;

/// Opens the file of `plain` once more, for direct reads, and finds what they must be multiples
/// of.
pub(crate) fn open(plain: &OpenFile) -> Result<(File, Alignment), Refusal> {
    let file = system::open(&plain.path, &plain.file)?;
    match plain.is_also(&file) {
        Ok(true) => {}
        Ok(false) => return Err(Refusal { why: "the file changed while it was opened".into() }),
        Err(error) => return Err(Refusal::of("fstat", &error)),
    }
    let mut last = None;
    for alignment in candidates(system::stated(&file)) {
        match probe(&file, plain.size(), alignment) {
            Ok(()) => return Ok((file, alignment)),
            Err(refusal) => last = Some(refusal),
        }
    }
    Err(last.unwrap_or_else(|| Refusal { why: "no alignment suits our buffers".into() }))
}

/// Whether a direct read that failed so will fail again: the request itself was refused.
pub(crate) fn is_refusal(error: &std::io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS))
}

/// What the file system states, in bytes of memory and of offset; else what disks ask for. Only
/// what [`AlignedBuf`] can fulfil.
fn candidates(stated: Option<(u32, u32)>) -> impl Iterator<Item = Alignment> {
    const USUAL: [(u32, u32); 3] = [(512, 512), (4096, 4096), (16_384, 16_384)];
    let usual = USUAL.into_iter().filter(move |_| stated.is_none());
    stated.into_iter().chain(usual).filter_map(|(memory, offset)| {
        let lawful = |n: u32| n.is_power_of_two() && n as usize <= SLOT_ALIGNMENT;
        (lawful(memory) && lawful(offset)).then_some(Alignment {
            memory: memory as usize,
            offset: offset.into(),
            length: offset.into(),
        })
    })
}

/// Reads the shortest piece that `alignment` allows, from the most crooked place that it allows.
fn probe(file: &File, size: u64, alignment: Alignment) -> Result<(), Refusal> {
    let refuse = |error: IoError| Refusal { why: error.to_string() };
    let len = alignment.length as usize;
    let mut memory = AlignedBuf::zeroed(alignment.memory + len).map_err(refuse)?;
    let at = if size > alignment.offset { alignment.offset } else { 0 };
    let got = read_some(&mut memory[alignment.memory..], at, |rest, at| {
        rustix::io::pread(file, rest, at).map_err(std::io::Error::from)
    });
    match got {
        Ok(got) if got as u64 == alignment.length.min(size - at) => Ok(()),
        Ok(got) => Err(Refusal { why: format!("a direct read of {len} bytes brought {got}") }),
        Err(error) => {
            let name = errno_name(&error);
            Err(Refusal { why: format!("a direct read of {len} bytes failed with {name}") })
        }
    }
}

#[cfg(target_os = "linux")]
mod system {
    use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, statx};

    use super::*;
    use crate::bypass;

    /// What a direct descriptor is.
    pub(crate) const HOW: &str = "O_DIRECT";

    pub(super) fn open(path: &Path, plain: &File) -> Result<File, Refusal> {
        // Such file systems may accept the flag, and then copy from the page cache all the same.
        bypass::on_a_disk(plain)?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::DIRECT;
        let refuse = |errno: Errno| Refusal::of("open with O_DIRECT", &errno.into());
        let file = loop {
            match rustix::fs::open(path, flags, Mode::empty()) {
                Ok(descriptor) => break File::from(descriptor),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(refuse(errno)),
            }
        };
        // NONBLOCK was for a path that leads to a pipe by now. Some kernels would let reads of a
        // ring fail where they could wait.
        rustix::fs::fcntl_setfl(&file, OFlags::DIRECT).map_err(refuse)?;
        Ok(file)
    }

    /// `dio_mem_align` and `dio_offset_align` (Linux 6.1); `None` where they are not stated.
    pub(super) fn stated(file: &File) -> Option<(u32, u32)> {
        let found = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
        let stated = found.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
        (stated && found.stx_dio_offset_align != 0)
            .then_some((found.stx_dio_mem_align, found.stx_dio_offset_align))
    }
}

#[cfg(target_os = "macos")]
mod system {
    use super::*;
    use crate::bypass;

    /// What a direct descriptor is.
    pub(crate) const HOW: &str = "F_NOCACHE, whole pages";

    pub(super) fn open(path: &Path, _plain: &File) -> Result<File, Refusal> {
        let file = File::open(path).map_err(|error| Refusal::of("open", &error))?;
        bypass::bypass(&file)?;
        Ok(file)
    }

    /// Any read is accepted; only whole pages go past the buffer cache without a copy.
    pub(super) fn stated(_: &File) -> Option<(u32, u32)> {
        Some((SLOT_ALIGNMENT as u32, SLOT_ALIGNMENT as u32))
    }
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
mod system {
    use super::*;

    /// What a direct descriptor is.
    pub(crate) const HOW: &str = "";

    pub(super) fn open(_: &Path, _: &File) -> Result<File, Refusal> {
        Err(Refusal { why: format!("no direct reads are known on {}", std::env::consts::OS) })
    }

    pub(super) fn stated(_: &File) -> Option<(u32, u32)> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(stated: Option<(u32, u32)>) -> Vec<(usize, u64, u64)> {
        candidates(stated).map(|a| (a.memory, a.offset, a.length)).collect()
    }

    #[test]
    fn what_is_stated_is_the_only_candidate_and_what_nobody_can_fulfil_is_none() {
        assert_eq!(offsets(Some((4, 512))), [(4, 512, 512)]);
        for impossible in [(32_768, 512), (512, 1 << 20), (0, 512), (512, 3)] {
            assert_eq!(offsets(Some(impossible)), []);
        }
        assert_eq!(offsets(None).len(), 3);
        assert!(offsets(None).is_sorted());
    }
}
