//! Damages checkpoints on purpose.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

use super::WriteError;
use super::spec::write_json;

/// Copies the files of a folder, links followed, into a new or existing folder.
///
/// # Errors
/// [`WriteError::Io`].
pub fn copy_folder(from: &Path, to: &Path) -> Result<(), WriteError> {
    fs::create_dir_all(to).map_err(|e| WriteError::io(to, "create", e))?;
    let list = fs::read_dir(from).map_err(|e| WriteError::io(from, "list", e))?;
    for entry in list {
        let path = entry.map_err(|e| WriteError::io(from, "list", e))?.path();
        if let Some(name) = path.file_name().filter(|_| path.is_file()) {
            let bytes = fs::read(&path).map_err(|e| WriteError::io(&path, "read", e))?;
            // Written anew rather than copied, so that a read-only source gives a writable copy.
            let target = to.join(name);
            fs::write(&target, bytes).map_err(|e| WriteError::io(&target, "write", e))?;
        }
    }
    Ok(())
}

/// Changes a JSON file, such as a config or an index.
///
/// # Errors
/// [`WriteError::Io`], [`WriteError::Json`].
pub fn edit_json(path: &Path, edit: impl FnOnce(&mut Value)) -> Result<(), WriteError> {
    let bytes = fs::read(path).map_err(|e| WriteError::io(path, "read", e))?;
    let mut value = serde_json::from_slice(&bytes).map_err(|e| WriteError::json(path, e))?;
    edit(&mut value);
    write_json(path, &value)
}

/// Changes the header of a safetensors file; the payload stays as it is. The file is held in
/// memory, so this is for small ones.
///
/// # Errors
/// [`WriteError::Io`], [`WriteError::Json`].
pub fn edit_header(
    path: &Path,
    edit: impl FnOnce(&mut Map<String, Value>),
) -> Result<(), WriteError> {
    let (header, payload) = split(path)?;
    let mut map = serde_json::from_slice(&header).map_err(|e| WriteError::json(path, e))?;
    edit(&mut map);
    join(path, Value::Object(map).to_string().as_bytes(), &payload)
}

/// Puts other bytes in place of the header's JSON, with their right length before them; the
/// payload stays as it is.
///
/// # Errors
/// [`WriteError::Io`].
pub fn replace_header(path: &Path, header: &[u8]) -> Result<(), WriteError> {
    let (_, payload) = split(path)?;
    join(path, header, &payload)
}

/// Overwrites the length of a header and nothing else.
///
/// # Errors
/// [`WriteError::Io`].
pub fn set_header_length(path: &Path, length: u64) -> Result<(), WriteError> {
    let mut bytes = fs::read(path).map_err(|e| WriteError::io(path, "read", e))?;
    bytes.splice(..8.min(bytes.len()), length.to_le_bytes());
    fs::write(path, bytes).map_err(|e| WriteError::io(path, "write", e))
}

/// Cuts bytes off the end of a file.
///
/// # Errors
/// [`WriteError::Io`].
pub fn cut_off(path: &Path, bytes: u64) -> Result<(), WriteError> {
    let fail = |e| WriteError::io(path, "shorten", e);
    let file = fs::OpenOptions::new().write(true).open(path).map_err(fail)?;
    let len = file.metadata().map_err(fail)?.len();
    file.set_len(len.saturating_sub(bytes)).map_err(fail)
}

/// Header and payload of a file.
fn split(path: &Path) -> Result<(Vec<u8>, Vec<u8>), WriteError> {
    let bytes = fs::read(path).map_err(|e| WriteError::io(path, "read", e))?;
    let short = || WriteError::io(path, "split", std::io::ErrorKind::UnexpectedEof.into());
    let (length, rest) = bytes.split_first_chunk::<8>().ok_or_else(short)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| short())?;
    let (header, payload) = rest.split_at_checked(length).ok_or_else(short)?;
    Ok((header.to_vec(), payload.to_vec()))
}

fn join(path: &Path, header: &[u8], payload: &[u8]) -> Result<(), WriteError> {
    let length = (header.len() as u64).to_le_bytes();
    let bytes = [&length, header, payload].concat();
    fs::write(path, bytes).map_err(|e| WriteError::io(path, "write", e))
}
