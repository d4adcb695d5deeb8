//! Recordings of requests, and what is done with those that are accepted.

use slotstream_replay::{
    ExactReplay, Modelled, Recording, Requests, Table, TableWriter, TraceError, TraceFormat,
    TraceReader,
};

/// Words of the formats.
pub(crate) const WORDS: &[&[u8]] = &[
    b"\x89SLTR\r\n\x1a",
    b"\x1f\x8b\x08",
    b"# layers 3 experts 10 top_k 2\n",
    b"# token_ids 1 2 3\n",
    b"pass,layer,row,rank,expert,weight\n",
    b"0,0,0,0,1\n",
    b"{\"pass\":0,\"layer\":0,\"experts\":[[1,2]]}\n",
    b"{\"geometry\":{\"layers\":3,\"experts\":10,\"top_k\":2}}\n",
    b"0 0 1 2\n",
    b"65534",
    b"\n",
    b"\x10",
    b"\x15",
    b"\x1b",
    b"\x1c",
];

/// A replay's tables are as large as the geometry: of larger ones it is not the subject here.
const MOST_RECORDS: usize = 1 << 16;

/// The bytes as they are, and with the checksums of a trace set right: few changes get by them.
pub(crate) fn trace(bytes: &[u8]) -> String {
    let plain = outcome(bytes.to_vec());
    match repaired(bytes) {
        Some(repaired) => format!("{plain}; repaired: {}", outcome(repaired)),
        None => plain,
    }
}

fn outcome(bytes: Vec<u8>) -> String {
    let recording = match Recording::from_bytes("trace", bytes.clone()) {
        Ok(recording) => recording,
        Err(error) => return words(&error),
    };
    let format = recording.format().name();
    let result = match recording.requests() {
        Ok(requests) => {
            assert_eq!(requests.rejected(), 0);
            comes_back(&recording, &requests);
            "accepted".to_owned()
        }
        Err(error) => words(&error),
    };
    if recording.format() == TraceFormat::Native {
        return format!("{format} {result}, {}", replayed(&bytes, recording));
    }
    format!("{format} {result}")
}

/// What was accepted can be written as a table and is then the same.
fn comes_back(recording: &Recording, requests: &Requests) {
    let mut lines = Vec::new();
    let mut table = TableWriter::new(&mut lines, Table::Jsonl);
    recording.play(&mut table).expect("was accepted before");
    let visits = table.finish().expect("memory takes it");
    if visits == 0 {
        return;
    }
    // A trace may hold passes of which no layer was visited, and one pass after another with the
    // same number; a table holds neither.
    let again = Recording::from_bytes_as("again", lines, TraceFormat::Jsonl);
    let again = match again.and_then(|again| again.requests()) {
        Ok(again) => again,
        Err(TraceError::Line { field, .. }) if field == "pass" || field == "rows" => return,
        Err(error) => panic!("{error}"),
    };
    assert_eq!(again.lookups(), requests.lookups());
}

/// Replays a trace of the format, whole or not.
fn replayed(bytes: &[u8], recording: Recording) -> String {
    let header = recording.header().clone();
    if header.geometry.records() > MOST_RECORDS {
        return "too large".to_owned();
    }
    let recording = recording.lenient(true);
    let mut modelled = Modelled::new(&header, 5, slotstream::cache::Lru::new(), 3);
    if let Ok(modelled) = &mut modelled {
        recording.play(modelled).expect("lenient");
        modelled.pool().validate().expect("consistent");
    }
    let exact = ExactReplay::recorded(&header).and_then(|mut replay| {
        let played = TraceReader::new(bytes, "trace")?.lenient(true).play(&mut replay)?;
        replay.pool().validate().expect("consistent");
        replay.verify(&played)
    });
    exact.map_or_else(|error| words(&error), |_| "replayed".to_owned())
}

/// Variant and field of an error.
fn words(error: &TraceError) -> String {
    let debug = format!("{error:?}");
    let variant = debug.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    let field = match error {
        TraceError::Field { field, .. } => field,
        TraceError::Line { field, .. } => field.as_str(),
        _ => "",
    };
    format!("{variant} {field}")
}

/// A trace with right checksums; `None` when it is none, or has them already.
fn repaired(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut fixed = bytes.to_vec();
    if !bytes.starts_with(b"\x89SLTR\r\n\x1a") {
        return None;
    }
    let length = |at: usize| {
        let word = bytes.get(at..)?.first_chunk::<4>()?;
        usize::try_from(u32::from_le_bytes(*word)).ok()
    };
    let mut at = 20;
    let end = at + length(12)?.min(bytes.len().saturating_sub(at));
    let mut sum = crc32fast::Hasher::new();
    sum.update(bytes.get(..16)?);
    sum.update(bytes.get(at..end)?);
    fixed.get_mut(16..20)?.copy_from_slice(&sum.finalize().to_le_bytes());
    at = end;
    while let Some(len) = length(at) {
        let Some(payload) = bytes.get(at + 8..(at + 8).saturating_add(len)) else { break };
        let sum = crc32fast::hash(payload);
        fixed.get_mut(at + 4..at + 8)?.copy_from_slice(&sum.to_le_bytes());
        at += 8 + len;
    }
    (fixed != bytes).then_some(fixed)
}
