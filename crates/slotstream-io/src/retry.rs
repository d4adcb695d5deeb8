//! The loop around one positional read of the system, apart from the system so that its rare
//! turns can be tested.

use std::io;

/// Largest count handed to the system at once: macOS refuses more than `INT_MAX`, Linux moves
/// at most `0x7fff_f000` bytes.
pub(crate) const MAX_COUNT: usize = 1 << 30;

/// Why a read ended before its buffer was full.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The file has no byte after the `got` that arrived.
    End { got: u64 },
    /// The system failed after `got` bytes.
    Failed { got: u64, source: io::Error },
}

/// A source that claims to have written beyond the buffer it was given.
#[derive(Debug, thiserror::Error)]
#[error("the system reported {reported} bytes for a read of at most {asked}")]
struct Overrun {
    reported: usize,
    asked: usize,
}

/// Fills `buffer` from position `offset` of a source: interrupted reads are repeated, short ones
/// continued, nothing else is.
///
/// `pread(rest, at)` reads up to `rest.len()` bytes at position `at` and says how many; 0 is the
/// end of the file.
pub(crate) fn read_full(
    buffer: &mut [u8],
    offset: u64,
    mut pread: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> Result<(), Stop> {
    let mut got = 0;
    while got < buffer.len() {
        let done = got as u64;
        match read_some(&mut buffer[got..], offset + done, &mut pread) {
            Ok(0) => return Err(Stop::End { got: done }),
            Ok(n) => got += n,
            Err(source) => return Err(Stop::Failed { got: done, source }),
        }
    }
    Ok(())
}

/// One read of at most [`MAX_COUNT`] bytes, repeated while it is interrupted. The count is never
/// above what was asked for.
pub(crate) fn read_some(
    buffer: &mut [u8],
    at: u64,
    mut pread: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<usize> {
    let asked = buffer.len().min(MAX_COUNT);
    loop {
        match pread(&mut buffer[..asked], at) {
            Ok(n) if n <= asked => return Ok(n),
            Ok(reported) => {
                let overrun = Overrun { reported, asked };
                return Err(io::Error::new(io::ErrorKind::InvalidData, overrun));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(source),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    enum Act {
        Give(usize),
        Interrupt,
        Fail(io::ErrorKind),
        Claim(usize),
    }

    /// Byte `i` of the source has value `i % 251`. Acts as scripted, then gives all that is asked.
    fn run(len: usize, offset: u64, script: Vec<Act>) -> (Result<(), Stop>, Vec<u8>, usize) {
        let mut script = VecDeque::from(script);
        let mut buffer = vec![0xEE; len];
        let mut calls = 0;
        let result = read_full(&mut buffer, offset, |rest, at| {
            calls += 1;
            let count = match script.pop_front().unwrap_or(Act::Give(usize::MAX)) {
                Act::Give(n) => n.min(rest.len()),
                Act::Interrupt => return Err(rustix::io::Errno::INTR.into()),
                Act::Fail(kind) => return Err(kind.into()),
                Act::Claim(n) => return Ok(n),
            };
            for (i, byte) in rest[..count].iter_mut().enumerate() {
                *byte = ((at + i as u64) % 251) as u8;
            }
            Ok(count)
        });
        (result, buffer, calls)
    }

    fn expected(len: usize, offset: u64) -> Vec<u8> {
        (0..len as u64).map(|i| ((offset + i) % 251) as u8).collect()
    }

    #[test]
    fn a_storm_of_interrupts_and_short_counts_loses_no_byte() {
        let mut script = Vec::new();
        for i in 0..1000 {
            script.push(Act::Interrupt);
            script.push(if i % 3 == 0 { Act::Give(1) } else { Act::Interrupt });
        }
        let (result, bytes, calls) = run(5000, 77, script);
        assert!(result.is_ok());
        assert_eq!(bytes, expected(5000, 77));
        assert_eq!(calls, 2001);
    }

    /// One byte at a time, and thousands of interrupts before each.
    #[test]
    fn a_storm_before_every_byte_is_survived() {
        const STORM: usize = 5000;
        let mut script = Vec::new();
        for _ in 0..64 {
            script.extend((0..STORM).map(|_| Act::Interrupt));
            script.push(Act::Give(1));
        }
        let (result, bytes, calls) = run(64, u64::from(u32::MAX), script);
        assert!(result.is_ok());
        assert_eq!(bytes, expected(64, u64::from(u32::MAX)));
        assert_eq!(calls, 64 * (STORM + 1));
    }

    /// An error, or the end, in the middle of a storm is still seen, with the right count.
    #[test]
    fn a_storm_hides_nothing() {
        let storm = || (0..5000).map(|_| Act::Interrupt);
        let before = || storm().chain([Act::Give(1)]).chain(storm()).chain([Act::Give(1)]);
        let script = before().chain(storm()).chain([Act::Fail(io::ErrorKind::Other)]);
        let failed = run(10, 0, script.collect()).0;
        assert!(matches!(failed, Err(Stop::Failed { got: 2, .. })), "{failed:?}");
        let script = before().chain(storm()).chain([Act::Give(0)]);
        assert!(matches!(run(10, 0, script.collect()).0, Err(Stop::End { got: 2 })));
    }

    #[test]
    fn zero_is_the_end() {
        let (result, bytes, _) = run(100, 5, vec![Act::Give(30), Act::Interrupt, Act::Give(0)]);
        assert!(matches!(result, Err(Stop::End { got: 30 })));
        assert_eq!(bytes[..30], expected(30, 5));
    }

    #[test]
    fn other_errors_end_the_read_with_the_count() {
        let script = vec![Act::Give(7), Act::Fail(io::ErrorKind::PermissionDenied)];
        match run(100, 0, script).0 {
            Err(Stop::Failed { got: 7, source }) => {
                assert_eq!(source.kind(), io::ErrorKind::PermissionDenied);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_count_above_the_request_is_an_error() {
        let (result, _, calls) = run(100, 0, vec![Act::Give(40), Act::Claim(61)]);
        match result {
            Err(Stop::Failed { got: 40, source }) => {
                assert_eq!(source.kind(), io::ErrorKind::InvalidData);
                assert!(source.to_string().contains("61 bytes for a read of at most 60"));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(calls, 2);
    }

    #[test]
    fn an_empty_buffer_asks_nobody() {
        let (result, _, calls) = run(0, u64::MAX, vec![Act::Claim(1)]);
        assert!(result.is_ok());
        assert_eq!(calls, 0);
    }
}
