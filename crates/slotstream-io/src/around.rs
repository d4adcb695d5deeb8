//! Reads around the page cache: straight into the buffer where it lies as such reads want it,
//! through a bounce page of whole blocks where it does not. Apart from the system, so that its
//! refusals can be made up in tests.

use std::io;

use slotstream_core::Alignment;

use crate::dio::is_refusal;
use crate::retry::{Stop, read_full, read_some};
use crate::{IoError, ScratchPool};

/// Two ways to the same bytes.
pub(crate) trait TwoWays {
    /// One read around the cache: memory, offset and length are aligned.
    fn direct(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;
    /// One read through the cache.
    fn plain(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;
}

/// Why a read around the cache did not bring its bytes.
#[derive(Debug)]
pub(crate) enum Missed {
    /// The read failed.
    Stop(Stop),
    /// Such reads are refused altogether: the cache has to do.
    Refused(io::Error),
    /// No memory for a bounce page.
    Memory(IoError),
}

/// One read of the system that brings a part of a crooked request, in whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Where it begins in the file: a whole block.
    pub(crate) at: u64,
    /// Bytes to read: whole blocks, and no more than a page.
    pub(crate) len: usize,
    /// Bytes of it that come before the request.
    pub(crate) skip: usize,
    /// Bytes of it that belong to the request.
    pub(crate) take: usize,
}

impl Step {
    /// The step that follows the first `done` of `wanted` bytes from `offset` on. A page is some
    /// whole blocks.
    pub(crate) fn next(block: u64, page: usize, offset: u64, wanted: usize, done: usize) -> Self {
        let from = offset + done as u64;
        let at = from - from % block;
        let skip = (from - at) as usize;
        let rest = wanted - done;
        // An extent ends below 2^63: no overflow.
        let blocks = (skip as u64 + rest as u64).next_multiple_of(block);
        let len = usize::try_from(blocks).map_or(page, |len| len.min(page));
        Self { at, len, skip, take: rest.min(len - skip) }
    }
}

/// Whether a request may go straight into its buffer.
pub(crate) fn is_straight(alignment: Alignment, buffer: &[u8], offset: u64) -> bool {
    buffer.as_ptr().addr().is_multiple_of(alignment.memory)
        && offset.is_multiple_of(alignment.offset)
        && (buffer.len() as u64).is_multiple_of(alignment.length)
}

/// Fills `buffer` from position `offset`, which lies in the file with all its bytes.
pub(crate) fn read_around(
    ways: &impl TwoWays,
    alignment: Alignment,
    pages: &ScratchPool,
    buffer: &mut [u8],
    offset: u64,
) -> Result<(), Missed> {
    if is_straight(alignment, buffer, offset) {
        straight(ways, buffer, offset)
    } else {
        bounced(ways, alignment.offset, pages, buffer, offset)
    }
}

fn straight(ways: &impl TwoWays, buffer: &mut [u8], offset: u64) -> Result<(), Missed> {
    let mut done = 0;
    while done < buffer.len() {
        // At most `MAX_COUNT` bytes, which is whole blocks.
        let asked = (buffer.len() - done).min(crate::retry::MAX_COUNT);
        let part = &mut buffer[done..done + asked];
        let got = read_some(part, offset + done as u64, |rest, at| ways.direct(rest, at))
            .map_err(|error| missed(error, done))?;
        done += got;
        if got < asked {
            return finish(buffer, offset, done, |rest, at| ways.plain(rest, at));
        }
    }
    Ok(())
}

fn bounced(
    ways: &impl TwoWays,
    block: u64,
    pages: &ScratchPool,
    buffer: &mut [u8],
    offset: u64,
) -> Result<(), Missed> {
    let mut page = pages.take().map_err(Missed::Memory)?;
    let mut done = 0;
    while done < buffer.len() {
        let step = Step::next(block, page.len(), offset, buffer.len(), done);
        let got = read_some(&mut page[..step.len], step.at, |rest, at| ways.direct(rest, at))
            .map_err(|error| missed(error, done))?;
        let brought = got.saturating_sub(step.skip).min(step.take);
        buffer[done..done + brought].copy_from_slice(&page[step.skip..step.skip + brought]);
        done += brought;
        if brought < step.take {
            return finish(buffer, offset, done, |rest, at| ways.plain(rest, at));
        }
    }
    Ok(())
}

/// Reads what is left after the first `done` bytes through the cache. A direct read comes short
/// at the end of the file, or, rarely, in the middle of a block, where no direct read can go on.
/// The page cache knows both.
pub(crate) fn finish(
    buffer: &mut [u8],
    offset: u64,
    done: usize,
    plain: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> Result<(), Missed> {
    let before = done as u64;
    read_full(&mut buffer[done..], offset + before, plain).map_err(|stop| {
        Missed::Stop(match stop {
            Stop::End { got } => Stop::End { got: before + got },
            Stop::Failed { got, source } => Stop::Failed { got: before + got, source },
        })
    })
}

fn missed(error: io::Error, done: usize) -> Missed {
    if is_refusal(&error) {
        Missed::Refused(error)
    } else {
        Missed::Stop(Stop::Failed { got: done as u64, source: error })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;

    use proptest::prelude::*;
    use rustix::io::Errno;

    use super::*;

    const ALIGNMENT: Alignment = Alignment { memory: 64, offset: 512, length: 512 };
    const SIZE: u64 = 20_011;

    fn byte(at: u64) -> u8 {
        (at % 251) as u8
    }

    /// A file of [`SIZE`] bytes that refuses what is not aligned; direct reads act as scripted.
    #[derive(Default)]
    struct Disk {
        script: RefCell<VecDeque<io::Result<usize>>>,
        plain_bytes: RefCell<usize>,
        fails_plain: bool,
    }

    fn fill(buffer: &mut [u8], at: u64) -> usize {
        let there = SIZE.saturating_sub(at).min(buffer.len() as u64) as usize;
        buffer[..there].iter_mut().zip(at..).for_each(|(to, at)| *to = byte(at));
        there
    }

    impl TwoWays for Disk {
        fn direct(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
            assert!(is_straight(ALIGNMENT, buffer, at) && !buffer.is_empty(), "{at}");
            match self.script.borrow_mut().pop_front() {
                Some(Ok(most)) => Ok(fill(buffer, at).min(most)),
                Some(Err(error)) => Err(error),
                None => Ok(fill(buffer, at)),
            }
        }

        fn plain(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
            if self.fails_plain {
                return Err(Errno::IO.into());
            }
            let got = fill(buffer, at);
            *self.plain_bytes.borrow_mut() += got;
            Ok(got)
        }
    }

    fn read(disk: &Disk, offset: u64, len: usize, skew: usize) -> (Result<(), Missed>, Vec<u8>) {
        let pages = ScratchPool::new(1024, 1).unwrap();
        let mut memory = crate::AlignedBuf::zeroed(len + skew).unwrap();
        let result = read_around(disk, ALIGNMENT, &pages, &mut memory[skew..], offset);
        assert_eq!(pages.available(), 1);
        (result, memory[skew..].to_vec())
    }

    fn right(bytes: &[u8], offset: u64) -> bool {
        bytes.iter().zip(offset..).all(|(found, at)| *found == byte(at))
    }

    proptest! {
        #[test]
        fn any_request_inside_the_file_is_filled(
            offset in 0..SIZE, len in 1..SIZE, skew in 0_usize..200,
            shorts in prop::collection::vec(0_usize..3000, 0..4),
        ) {
            let len = len.min(SIZE - offset) as usize;
            let disk = Disk::default();
            disk.script.borrow_mut().extend(shorts.into_iter().map(Ok));
            let (result, bytes) = read(&disk, offset, len, skew);
            prop_assert!(result.is_ok());
            prop_assert!(right(&bytes, offset));
        }

        #[test]
        fn steps_are_whole_blocks_and_cover_the_request(
            power in 0_u32..14, pages in 2_usize..9, offset in 0_u64..1 << 62, len in 1_usize..200_000,
        ) {
            let block = 1_u64 << power;
            let page = pages << power;
            let mut done = 0;
            let mut before: Option<Step> = None;
            while done < len {
                let step = Step::next(block, page, offset, len, done);
                prop_assert!(step.at.is_multiple_of(block));
                prop_assert!((step.len as u64).is_multiple_of(block) && step.len <= page);
                prop_assert!(step.take > 0 && step.skip + step.take <= step.len);
                prop_assert_eq!(step.at + step.skip as u64, offset + done as u64);
                // No block is read twice.
                prop_assert!(before.is_none_or(|b| b.at + b.len as u64 == step.at));
                before = Some(step);
                done += step.take;
            }
            prop_assert_eq!(done, len);
            let last = before.unwrap();
            prop_assert_eq!(last.at + last.len as u64, (offset + len as u64).next_multiple_of(block));
        }
    }

    #[test]
    fn what_lies_as_it_should_goes_straight() {
        let disk = Disk::default();
        // One page holds 1,024 bytes: a bounced read of 8,192 would take eight.
        disk.script.borrow_mut().push_back(Ok(usize::MAX));
        let (result, bytes) = read(&disk, 512, 8192, 64);
        assert!(result.is_ok() && right(&bytes, 512));
        assert!(disk.script.borrow().is_empty());
        assert_eq!(*disk.plain_bytes.borrow(), 0);
    }

    #[test]
    fn interrupts_are_repeated_and_errors_carry_what_had_come() {
        for skew in [0, 1] {
            let disk = Disk::default();
            let script = [Err(Errno::INTR.into()), Ok(usize::MAX), Err(Errno::IO.into())];
            disk.script.borrow_mut().extend(script);
            let (result, bytes) = read(&disk, 512, 2048, skew);
            match (skew, result) {
                // The first read brought all.
                (0, Ok(())) => assert!(right(&bytes, 512)),
                (1, Err(Missed::Stop(Stop::Failed { got: 1024, .. }))) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_refusal_is_told_apart_from_a_failure() {
        for errno in [Errno::INVAL, Errno::OPNOTSUPP] {
            let disk = Disk::default();
            disk.script.borrow_mut().push_back(Err(errno.into()));
            assert!(matches!(read(&disk, 3, 10, 0).0, Err(Missed::Refused(_))));
        }
        let disk = Disk { fails_plain: true, ..Disk::default() };
        disk.script.borrow_mut().push_back(Ok(100));
        let failed = read(&disk, 512, 1024, 0).0;
        assert!(matches!(failed, Err(Missed::Stop(Stop::Failed { got: 100, .. }))), "{failed:?}");
    }

    #[test]
    fn the_end_is_found_by_the_plain_way() {
        let disk = Disk::default();
        let failed = read(&disk, SIZE - 10, 20, 0).0;
        assert!(matches!(failed, Err(Missed::Stop(Stop::End { got: 10 }))), "{failed:?}");
    }
}
