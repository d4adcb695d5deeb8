//! Where bytes come from, more than once.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::bufread::MultiGzDecoder;

use crate::trace::TraceError;

/// First bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A file, or bytes in memory.
pub(super) enum Source {
    File(PathBuf),
    Bytes(Arc<[u8]>),
}

impl Source {
    /// The bytes from the start, unpacked.
    pub(super) fn open(&self, path: &Path) -> Result<Box<dyn BufRead>, TraceError> {
        let mut read: Box<dyn BufRead> = match self {
            Self::File(path) => {
                let file = File::open(path).map_err(|e| TraceError::io(path, "opening", 0, e))?;
                Box::new(BufReader::new(file))
            }
            Self::Bytes(bytes) => Box::new(Cursor::new(Arc::clone(bytes))),
        };
        let mut first = Vec::new();
        let looked = read.by_ref().take(2).read_to_end(&mut first);
        looked.map_err(|e| TraceError::io(path, "reading", 0, e))?;
        let packed = first == GZIP;
        let whole = Cursor::new(first).chain(read);
        if packed {
            return Ok(Box::new(BufReader::new(MultiGzDecoder::new(whole))));
        }
        Ok(Box::new(whole))
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "File({})", path.display()),
            Self::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
        }
    }
}
