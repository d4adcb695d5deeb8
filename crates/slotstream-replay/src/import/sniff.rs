//! Which format a file has.

use std::io::Read;
use std::path::Path;

use super::TraceFormat;
use super::oracle::{RECORD, next_request, object_and_size};
use super::source::Source;
use crate::trace::{MAGIC, TraceError, shown};

/// Bytes that are looked at.
const LOOK: u64 = 4096;

/// The format that the first bytes of a file tell.
pub(super) fn format_of(source: &Source, path: &Path) -> Result<TraceFormat, TraceError> {
    let mut start = Vec::new();
    let looked = source.open(path)?.take(LOOK).read_to_end(&mut start);
    looked.map_err(|e| TraceError::io(path, "reading", 0, e))?;
    let whole = (start.len() as u64) < LOOK;
    match guess(&start, whole) {
        Some(format) => Ok(format),
        None if start.is_empty() => Err(TraceError::Empty { path: path.into() }),
        None => Err(TraceError::UnknownFormat { path: path.into(), found: shown(&start) }),
    }
}

fn guess(start: &[u8], whole: bool) -> Option<TraceFormat> {
    // A cut that falls into the magic number is a cut trace.
    if start.starts_with(&MAGIC) || (!start.is_empty() && MAGIC.starts_with(start)) {
        return Some(TraceFormat::Native);
    }
    let control = |byte: &u8| *byte < 0x20 && !byte.is_ascii_whitespace();
    if start.iter().any(control) {
        return is_oracle(start, whole).then_some(TraceFormat::OracleGeneral);
    }
    // A character may be cut at the end.
    let text = String::from_utf8_lossy(start);
    let mut comments = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix('#') {
            comments.push(comment.trim());
        } else if !line.is_empty() {
            return guess_text(&comments, line);
        }
    }
    // Comments alone so far: the long line of token ids of a text trace.
    is_text(&comments).then_some(TraceFormat::Text)
}

fn is_text(comments: &[&str]) -> bool {
    comments.iter().any(|comment| {
        comment.starts_with(super::text::TOKEN_IDS) || comment.starts_with("tokens ")
    })
}

fn guess_text(comments: &[&str], first: &str) -> Option<TraceFormat> {
    if first.starts_with('{') {
        return Some(TraceFormat::Jsonl);
    }
    if first.contains(',') && first.split(',').any(|name| name.trim() == "expert") {
        return Some(TraceFormat::Csv);
    }
    let words = first.split_ascii_whitespace().count();
    if words >= 3 && (is_text(comments) || first.split_ascii_whitespace().all(is_number)) {
        return Some(TraceFormat::Text);
    }
    (words == 1).then_some(TraceFormat::Keys)
}

fn is_number(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whole records, and next requests that can be: none, or one that comes later.
fn is_oracle(start: &[u8], whole: bool) -> bool {
    let (records, rest) = start.as_chunks::<RECORD>();
    let lawful = |(number, record): (usize, &[u8; RECORD])| {
        let (_, size) = object_and_size(record);
        let next = next_request(record);
        size == 0 || next == -1 || next > number as i64
    };
    !records.is_empty() && (!whole || rest.is_empty()) && records.iter().enumerate().all(lawful)
}
