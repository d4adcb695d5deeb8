//! libCacheSim's oracleGeneral records: 24 bytes without padding, little-endian: u32 time, u64
//! object, u32 size, i64 number of the object's next request, counted from 1 (-1: none).
//!
//! As libCacheSim does, requests of size 0 are left out. The next request is not trusted: who
//! needs it looks ahead.

use std::io::{BufRead, Read};
use std::path::Path;

use slotstream_core::EventSink;

use super::keys::Keys;
use super::lines::Place;
use super::survey::Declared;
use crate::trace::TraceError;

/// Bytes of a record.
pub(crate) const RECORD: usize = 24;

/// Object and size of a record.
pub(crate) fn object_and_size(record: &[u8; RECORD]) -> (u64, u32) {
    let (object, size) = (record[4..].first_chunk(), record[12..].first_chunk());
    let object = object.map_or(0, |bytes| u64::from_le_bytes(*bytes));
    (object, size.map_or(0, |bytes| u32::from_le_bytes(*bytes)))
}

/// When the object is requested next.
pub(crate) fn next_request(record: &[u8; RECORD]) -> i64 {
    record[16..].first_chunk().map_or(-1, |bytes| i64::from_le_bytes(*bytes))
}

pub(super) fn read(
    mut read: Box<dyn BufRead>,
    path: &Path,
    sink: &mut dyn EventSink,
) -> Result<Declared, TraceError> {
    let mut keys: Keys<'_, u64> = Keys::new(sink);
    let mut bytes = Vec::with_capacity(RECORD);
    for number in 1.. {
        bytes.clear();
        let got = read.by_ref().take(RECORD as u64).read_to_end(&mut bytes);
        let offset = (number - 1) * RECORD as u64;
        got.map_err(|e| TraceError::io(path, "reading", offset, e))?;
        let Some(record) = bytes.first_chunk::<RECORD>() else {
            if bytes.is_empty() {
                break;
            }
            let place = Place { path: path.into(), line: number };
            let found = format!("{} bytes", bytes.len());
            return place.bad("record", "24 bytes", &found);
        };
        let (object, size) = object_and_size(record);
        if size > 0 {
            keys.request(path, &object)?;
        }
    }
    Ok(Declared::default())
}
