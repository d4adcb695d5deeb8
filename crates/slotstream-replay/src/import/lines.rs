//! Lines of a text, of bounded length.

use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

use crate::trace::TraceError;

/// Longest line.
const LONGEST: u64 = 16 << 20;

/// The lines of a text, numbered from 1.
pub(super) struct Lines {
    read: Box<dyn BufRead>,
    place: Place,
    bytes: Vec<u8>,
    offset: u64,
}

/// A line, for errors.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) line: u64,
}

impl Place {
    /// The error of a field of this line.
    pub(super) fn bad<T>(
        &self,
        field: &str,
        expected: impl Into<String>,
        found: &str,
    ) -> Result<T, TraceError> {
        let found = found.chars().take(40).collect();
        let (path, line) = (self.path.clone(), self.line);
        Err(TraceError::Line { path, line, field: field.into(), expected: expected.into(), found })
    }

    /// A number of at most `most`.
    pub(super) fn number(&self, field: &str, text: &str, most: u64) -> Result<u64, TraceError> {
        match text.parse() {
            Ok(number) if number <= most => Ok(number),
            _ => self.bad(field, format!("a number from 0 to {most}"), text),
        }
    }

    /// An index of a layer or an expert.
    pub(super) fn index(&self, field: &str, text: &str) -> Result<u16, TraceError> {
        // The numbers of a geometry are u16, so an index is less than the largest of them.
        let most = u16::MAX - 1;
        Ok(self.number(field, text, most.into())? as u16)
    }
}

impl Lines {
    pub(super) fn new(read: Box<dyn BufRead>, path: &Path) -> Self {
        let place = Place { path: path.into(), line: 0 };
        Self { read, place, bytes: Vec::new(), offset: 0 }
    }

    /// The next line without its end, and where it is.
    pub(super) fn next(&mut self) -> Result<Option<(&str, &Place)>, TraceError> {
        self.bytes.clear();
        let line = self.read.by_ref().take(LONGEST + 1).read_until(b'\n', &mut self.bytes);
        let len = line.map_err(|e| TraceError::io(&self.place.path, "reading", self.offset, e))?;
        if len == 0 {
            return Ok(None);
        }
        self.offset += len as u64;
        self.place.line += 1;
        if len as u64 > LONGEST {
            return self.place.bad("line", format!("at most {LONGEST} bytes"), "more");
        }
        match std::str::from_utf8(&self.bytes) {
            Ok(line) => {
                let line = line.strip_suffix('\n').unwrap_or(line);
                Ok(Some((line.strip_suffix('\r').unwrap_or(line), &self.place)))
            }
            Err(error) => self.place.bad("line", "UTF-8", &error.to_string()),
        }
    }

    pub(super) const fn place(&self) -> &Place {
        &self.place
    }
}
