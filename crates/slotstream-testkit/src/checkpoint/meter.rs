//! How far writing is, and whether it goes on.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;

use super::WriteError;

/// Bytes between two reports.
const EVERY: u64 = 1 << 20;

/// Counts payload and asks whether to go on.
pub(crate) struct Meter<'a> {
    progress: &'a mut dyn FnMut(u64) -> ControlFlow<()>,
    written: u64,
    reported: u64,
    broken: bool,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(progress: &'a mut dyn FnMut(u64) -> ControlFlow<()>) -> Self {
        Self { progress, written: 0, reported: 0, broken: false }
    }

    /// Lets `fill` write to `out`, counted.
    pub(crate) fn watch(
        &mut self,
        out: &mut dyn Write,
        fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        fill(&mut Watched { meter: self, out })?;
        self.report()
    }

    /// What ended the writing: whoever watched, or the system.
    pub(crate) fn cause(&self, folder: &Path, error: WriteError) -> WriteError {
        if self.broken { WriteError::Cancelled { path: folder.into() } } else { error }
    }

    fn report(&mut self) -> io::Result<()> {
        self.reported = self.written;
        if (self.progress)(self.written).is_break() {
            self.broken = true;
            return Err(io::Error::other("given up"));
        }
        Ok(())
    }
}

struct Watched<'m, 'a, 'o> {
    meter: &'m mut Meter<'a>,
    out: &'o mut dyn Write,
}

impl Write for Watched<'_, '_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.meter.written += written as u64;
        if self.meter.written - self.meter.reported >= EVERY {
            self.meter.report()?;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
