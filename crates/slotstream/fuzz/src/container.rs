//! Headers of containers.

use std::path::Path;

use slotstream::checkpoint::container::{ContainerError, ContainerHeader, Content};

/// Words of the format.
pub(crate) const WORDS: &[&[u8]] = &[
    b"\x89SLCT\r\n\x1a\x01\x00\x01\x00",
    b"\x89SLCT\r\n\x1a\x01\x00\x02\x00",
    b"model-00001.safetensors",
    b"\x17\x00",
    b"\x01\x00",
    b"\x00\x40\x00\x00",
    b"\xff\xff",
    b"\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\x04\x00\x40\x00",
    b"\x04\x00\x20\x00",
    b"\x08\x00\x80\x00",
];

/// Regions of a file start at multiples of this.
const PAGE: usize = 16 << 10;

/// The bytes as they are, and with length, padding, checksum and size of the file set right: few
/// changes get by them. Inputs end where the padding begins.
pub(crate) fn container(bytes: &[u8]) -> String {
    let plain = outcome(bytes, bytes.len() as u64);
    let Some(header) = repaired(bytes) else { return plain };
    let file_len = header[48..56].try_into().map(u64::from_le_bytes).unwrap_or_default();
    format!("{plain}; repaired: {}", outcome(&header, file_len))
}

fn repaired(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut header = bytes.to_vec();
    header.resize(bytes.len().max(1).next_multiple_of(PAGE), 0);
    let len = u32::try_from(header.len()).ok()?;
    header[16..20].copy_from_slice(&len.to_le_bytes());
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&header[..20]);
    checksum.update(&header[24..]);
    header[20..24].copy_from_slice(&checksum.finalize().to_le_bytes());
    Some(header)
}

fn outcome(bytes: &[u8], file_len: u64) -> String {
    let header = match ContainerHeader::from_bytes(Path::new("experts.slots"), bytes, file_len) {
        Ok(header) => header,
        Err(error) => return words(&error),
    };
    let (table, data) = (header.table_offset(), header.data_offset());
    assert_eq!(table, bytes.len() as u64);
    assert!(table + 4 + 4 * header.content.blocks() <= data, "the table lies in the data");
    let page = PAGE as u64;
    assert!(data.is_multiple_of(page) && header.file_len().is_multiple_of(page));
    let needed = match &header.content {
        Content::Experts { geometry, layout, .. } => {
            u128::from(geometry.records() as u64) * layout.stride() as u128
        }
        Content::Ngram { rows, layout, .. } => u128::from(*rows) * layout.stride() as u128,
        _ => panic!("another content"),
    };
    assert!(u128::from(header.file_len() - data) >= needed, "the data do not fit the file");
    assert!(!header.complete || header.file_len() == file_len);
    "accepted".to_owned()
}

/// Variant and field of an error.
fn words(error: &ContainerError) -> String {
    let debug = format!("{error:?}");
    let variant = debug.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    match error {
        ContainerError::Field { field, .. } => format!("{variant} {field}"),
        _ => variant.to_owned(),
    }
}
