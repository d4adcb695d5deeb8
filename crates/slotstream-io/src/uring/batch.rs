//! One batch over one ring.

use std::io;

use rustix::io::Errno;
use slotstream_core::{Alignment, Extent, ReadError, ReadRequest};

use super::ring::{Completed, DEPTH, Flight, Memory};
use crate::around::{Missed, Step, finish, is_straight};
use crate::dio::is_refusal;
use crate::files::requested;
use crate::retry::{MAX_COUNT, Stop};
use crate::{DirectReader, IoError, ScratchPage};

/// How often the kernel may say "again" to one step before it is read without the ring.
const PATIENCE: u32 = 16;

type Landed<'a> = &'a mut dyn FnMut(usize, Result<(), ReadError>);

/// A request between two steps, or in one.
#[derive(Clone, Copy)]
struct Running {
    index: usize,
    extent: Extent,
    /// Bytes that have arrived.
    done: usize,
    /// The step in flight.
    step: Step,
    again: u32,
}

/// What a completion means.
#[derive(Debug)]
enum Verdict {
    /// So many bytes came; the next step may follow.
    Came(usize),
    /// So many came, and no step can follow where they end.
    CameShort(usize),
    /// The same step once more.
    Again,
    /// Such reads are refused altogether.
    Refused(io::Error),
    Failed(io::Error),
}

impl Verdict {
    /// Of a read of `asked` bytes in whole `block`s.
    fn of(result: i32, asked: usize, block: u64) -> Self {
        match u32::try_from(result) {
            Ok(got) => {
                // A kernel that claims more than it was asked for is believed no further.
                let got = (got as usize).min(asked);
                let whole = got > 0 && (got as u64).is_multiple_of(block);
                if whole || got == asked { Self::Came(got) } else { Self::CameShort(got) }
            }
            Err(_) => {
                let error = io::Error::from_raw_os_error(result.wrapping_neg());
                match Errno::from_io_error(&error) {
                    Some(Errno::INTR | Errno::AGAIN | Errno::CANCELED) => Self::Again,
                    _ if is_refusal(&error) => Self::Refused(error),
                    _ => Self::Failed(error),
                }
            }
        }
    }
}

/// The state of one call.
pub(super) struct Batch<'s, 'f, 'b> {
    reader: &'s DirectReader,
    flight: &'s mut Flight<'f, 'b>,
    alignment: Alignment,
    direct: bool,
    running: [Option<Running>; DEPTH],
}

impl<'s, 'f, 'b> Batch<'s, 'f, 'b> {
    /// `direct` is the alignment of the registered descriptors, if they are direct ones.
    pub(super) fn new(
        reader: &'s DirectReader,
        direct: Option<Alignment>,
        flight: &'s mut Flight<'f, 'b>,
    ) -> Self {
        let alignment = direct.unwrap_or(Alignment::NONE);
        Self { reader, flight, alignment, direct: direct.is_some(), running: [None; DEPTH] }
    }

    /// Reads all requests.
    pub(super) fn run(&mut self, requests: &'b mut [ReadRequest<'_>], landed: Landed<'_>) {
        let mut waiting = requests.iter_mut().enumerate().peekable();
        loop {
            while let Some(place) = self.place()
                && let Some((_, request)) = waiting.peek()
            {
                let page = match self.page(request) {
                    Ok(Some(page)) => page,
                    // Pages come back with the completions of this very batch.
                    Ok(None) => break,
                    Err(error) => {
                        let error = ReadError::other(&request.extent, error);
                        if let Some((index, _)) = waiting.next() {
                            landed(index, Err(error));
                        }
                        continue;
                    }
                };
                if let Some((index, request)) = waiting.next() {
                    let memory = Memory { buffer: &mut *request.buffer, page };
                    self.begin(place, index, request.extent, memory, landed);
                }
            }
            let Some(completed) = self.flight.wait() else {
                if waiting.peek().is_none() {
                    return;
                }
                continue;
            };
            self.completed(completed, landed);
        }
    }

    /// A place that no request has.
    fn place(&self) -> Option<usize> {
        self.running.iter().position(Option::is_none)
    }

    /// The bounce page of a request, if it needs one; `None` for "not yet".
    fn page(&self, request: &ReadRequest<'_>) -> Result<Option<Option<ScratchPage>>, IoError> {
        let ReadRequest { extent, buffer } = request;
        if buffer.is_empty() || is_straight(self.alignment, buffer, extent.offset()) {
            return Ok(Some(None));
        }
        // Nobody who holds a page waits for another: this thread waits only while it has none.
        match self.reader.pages().try_take()? {
            None if self.flight.flying() > 0 => Ok(None),
            None => self.reader.pages().take().map(|page| Some(Some(page))),
            page => Ok(Some(page)),
        }
    }

    fn begin(
        &mut self,
        place: usize,
        index: usize,
        extent: Extent,
        memory: Memory<'b>,
        landed: Landed<'_>,
    ) {
        match requested(self.reader.files(), &extent, memory.buffer) {
            Err(error) => landed(index, Err(error)),
            Ok(_) if extent.is_empty() => landed(index, Ok(())),
            Ok(_) => {
                let step = Step { at: 0, len: 0, skip: 0, take: 0 };
                let running = Running { index, extent, done: 0, step, again: 0 };
                self.launch(place, running, memory, landed);
            }
        }
    }

    /// Sends the next step of a request off; lands it without the ring if the ring will not.
    fn launch(
        &mut self,
        place: usize,
        mut running: Running,
        memory: Memory<'b>,
        landed: Landed<'_>,
    ) {
        let Running { extent, done, .. } = running;
        let wanted = memory.buffer.len();
        let (step, part) = match &memory.page {
            Some(page) => {
                let block = self.alignment.offset;
                let step = Step::next(block, page.len(), extent.offset(), wanted, done);
                (step, 0..step.len)
            }
            None => {
                let len = (wanted - done).min(MAX_COUNT);
                let at = extent.offset() + done as u64;
                (Step { at, len, skip: 0, take: len }, done..done + len)
            }
        };
        running.step = step;
        let file = u32::from(extent.file().get());
        match self.flight.launch(place, file, memory, part, step.at) {
            Ok(()) => self.running[place] = Some(running),
            Err(memory) => landed(running.index, self.finish(&running, memory)),
        }
    }

    fn completed(&mut self, completed: Completed<'b>, landed: Landed<'_>) {
        let Completed { place, result, mut memory } = completed;
        let Some(mut running) = self.running[place].take() else { return };
        match Verdict::of(result, running.step.len, self.alignment.offset) {
            Verdict::Came(got) => {
                running.take(got, &mut memory);
                if running.done < memory.buffer.len() {
                    self.launch(place, running, memory, landed);
                } else {
                    landed(running.index, self.compare(&running, memory));
                }
            }
            Verdict::CameShort(got) => {
                running.take(got, &mut memory);
                landed(running.index, self.finish(&running, memory));
            }
            Verdict::Again if running.again < PATIENCE => {
                running.again += 1;
                self.launch(place, running, memory, landed);
            }
            Verdict::Again => landed(running.index, self.finish(&running, memory)),
            Verdict::Refused(error) if self.direct => {
                if let Some(file) = self.reader.files().get(running.extent.file().index()) {
                    self.reader.refused(file, &error);
                }
                landed(running.index, self.finish(&running, memory));
            }
            Verdict::Refused(source) | Verdict::Failed(source) => {
                drop(memory);
                let stop = Stop::Failed { got: running.done as u64, source };
                landed(running.index, self.outcome(&running.extent, Err(Missed::Stop(stop))));
            }
        }
    }

    /// Reads what is left without the ring.
    fn finish(&self, running: &Running, memory: Memory<'b>) -> Result<(), ReadError> {
        let Memory { buffer, page } = memory;
        drop(page);
        let Running { extent, done, .. } = *running;
        let file = requested(self.reader.files(), &extent, buffer)?;
        let rest = finish(buffer, extent.offset(), done, |rest, at| file.pread(rest, at));
        self.outcome(&extent, rest)
    }

    /// All bytes came through the ring.
    fn compare(&self, running: &Running, memory: Memory<'b>) -> Result<(), ReadError> {
        let Memory { buffer, page } = memory;
        if self.direct { self.reader.compare(&running.extent, buffer, page) } else { Ok(()) }
    }

    fn outcome(&self, extent: &Extent, rest: Result<(), Missed>) -> Result<(), ReadError> {
        rest.map_err(|missed| match self.reader.files().get(extent.file().index()) {
            Some(file) => self.reader.error(file, extent, missed),
            None => ReadError::unknown_file(extent.file(), self.reader.files().len()),
        })
    }
}

impl Running {
    /// `got` bytes of the step came: takes those that belong to the request from the page, if
    /// there is one, and counts them.
    fn take(&mut self, got: usize, memory: &mut Memory<'_>) {
        let Step { skip, take, .. } = self.step;
        let brought = got.saturating_sub(skip).min(take);
        if let Some(page) = &memory.page {
            memory.buffer[self.done..self.done + brought]
                .copy_from_slice(&page[skip..skip + brought]);
        }
        self.done += brought;
        self.again = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_completions_mean() {
        let of = |result| Verdict::of(result, 4096, 512);
        assert!(matches!(of(4096), Verdict::Came(4096)));
        assert!(matches!(of(9000), Verdict::Came(4096)));
        assert!(matches!(of(1024), Verdict::Came(1024)), "whole blocks: the rest can follow");
        assert!(matches!(of(1000), Verdict::CameShort(1000)));
        assert!(matches!(of(0), Verdict::CameShort(0)), "the end of the file");
        let errno = |errno: Errno| of(-errno.raw_os_error());
        for again in [Errno::INTR, Errno::AGAIN, Errno::CANCELED] {
            assert!(matches!(errno(again), Verdict::Again));
        }
        assert!(matches!(errno(Errno::INVAL), Verdict::Refused(_)));
        assert!(matches!(errno(Errno::IO), Verdict::Failed(e) if e.raw_os_error() == Some(5)));
        assert!(matches!(of(i32::MIN), Verdict::Failed(_)));
        // Through the page cache every count is whole.
        assert!(matches!(Verdict::of(7, 4096, 1), Verdict::Came(7)));
    }

    #[test]
    fn bytes_of_a_page_find_their_place() {
        let pages = crate::ScratchPool::new(4096, 1).unwrap();
        let mut page = pages.take().unwrap();
        page.iter_mut().zip(0_u16..).for_each(|(byte, i)| *byte = (i % 251) as u8);
        let mut buffer = [0; 100];
        let mut memory = Memory { buffer: &mut buffer, page: Some(page) };
        let extent = Extent::new(slotstream_core::FileId::new(0), 10, 100).unwrap();
        let step = Step::next(64, 128, 10, 100, 0);
        let mut running = Running { index: 0, extent, done: 0, step, again: 3 };
        running.take(64, &mut memory);
        assert_eq!((running.done, running.again), (54, 0));
        running.step = Step::next(64, 128, 10, 100, 54);
        assert_eq!(running.step, Step { at: 64, len: 64, skip: 0, take: 46 });
        running.take(64, &mut memory);
        assert_eq!(running.done, 100);
        assert_eq!(buffer[..54], std::array::from_fn::<u8, 54, _>(|i| 10 + i as u8));
        assert_eq!(buffer[54..], std::array::from_fn::<u8, 46, _>(|i| i as u8));
    }
}
