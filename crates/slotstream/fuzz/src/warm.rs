//! Files of a warm start.

use slotstream::warm::{WarmError, WarmSet};

/// Words of the format.
pub(crate) const WORDS: &[&[u8]] = &[
    b"slst-wrm\x01\0\0\0",
    b"\x03\0\x08\0\x02\0\0\0",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"analogue",
    b"lru",
    b"\0\0\0\0",
    b"\x02\0\x07\0",
];

/// Bytes of the checksum at the end.
const CHECKSUM: usize = 4;

/// The bytes as they are, and with the checksum set right: few changes get by it.
pub(crate) fn warm(bytes: &[u8]) -> String {
    let plain = outcome(bytes);
    let Some(len) = bytes.len().checked_sub(CHECKSUM) else { return plain };
    let mut repaired = bytes[..len].to_vec();
    repaired.extend(crc32fast::hash(&repaired).to_le_bytes());
    format!("{plain}; repaired: {}", outcome(&repaired))
}

fn outcome(bytes: &[u8]) -> String {
    match WarmSet::from_bytes(bytes) {
        Ok(set) => {
            assert_eq!(set.to_bytes(), bytes, "what is read is written again as it was");
            let mut records = set.records.clone();
            records.sort_unstable();
            records.dedup();
            assert_eq!(records.len(), set.records.len(), "a record twice");
            assert!(records.iter().all(|key| set.geometry.index(*key).is_some()));
            "accepted".to_owned()
        }
        Err(WarmError::Damaged { what, .. }) => what.to_owned(),
        Err(WarmError::Version { .. }) => "version".to_owned(),
        Err(error) => panic!("bytes are not the reason of {error:?}"),
    }
}
