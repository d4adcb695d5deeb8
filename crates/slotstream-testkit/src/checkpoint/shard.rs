//! Writes one safetensors file.

use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

use serde_json::{Map, Value, json};
use slotstream_checkpoint::Dtype;

use super::WriteError;

/// A tensor of a file that is being written.
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a str,
    pub(crate) dtype: Dtype,
    pub(crate) shape: &'a [u64],
    pub(crate) len: u64,
}

/// Writes length, header and payload. `fill(i, file)` writes the bytes of entry `i`, all of them
/// or none: what it leaves out stays a hole.
pub(crate) fn write_shard(
    path: &Path,
    entries: &[Entry<'_>],
    odd_start: bool,
    mut fill: impl FnMut(usize, &mut dyn Write) -> std::io::Result<()>,
) -> Result<(), WriteError> {
    let mut header = Map::new();
    let mut end = 0;
    for entry in entries {
        let begin = end;
        end += entry.len;
        let value = json!({
            "dtype": entry.dtype.name(), "shape": entry.shape, "data_offsets": [begin, end],
        });
        header.insert(entry.name.to_owned(), value);
    }
    let mut text = Value::Object(header).to_string();
    // The format allows spaces after the header; an even length makes the data start even.
    if odd_start && text.len().is_multiple_of(2) {
        text.push(' ');
    }
    let start = 8 + text.len() as u64;
    let mut write = || -> std::io::Result<()> {
        let file = File::create(path)?;
        file.set_len(start + end)?;
        let mut file = BufWriter::with_capacity(1 << 20, file);
        file.write_all(&(text.len() as u64).to_le_bytes())?;
        file.write_all(text.as_bytes())?;
        let mut at = start;
        for (i, entry) in entries.iter().enumerate() {
            file.seek(SeekFrom::Start(at))?;
            fill(i, &mut file)?;
            at += entry.len;
        }
        file.flush()
    };
    write().map_err(|e| WriteError::io(path, "write", e))
}
