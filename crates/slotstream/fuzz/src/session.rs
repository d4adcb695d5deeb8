//! Files of sessions.

use std::path::Path;
use std::sync::LazyLock;

use slotstream::checkpoint::TextConfig;
use slotstream::qwen::State;
use slotstream::session_file::{SessionFileError, verify};

/// Words of the format.
pub(crate) const WORDS: &[&[u8]] = &[
    b"\x89SLSE\r\n\x1a\x01\x00\x00\x00",
    b"exact cpu 2",
    b"\x00\x00\x80\x3f",
    b"\x00\x00\xc0\x7f",
    b"\x08\x00\x00\x00\x00\x00\x00\x00",
    b"\x80\x00\x00\x00\x00\x00\x00\x00",
    b"\xff\xff\xff\xff\x00\x00\x00\x00",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x00\x00\x00\x01\x00\x00\x00\x00",
];

/// The model that files are of: two small layers, one of each kind.
static CONFIG: LazyLock<TextConfig> = LazyLock::new(|| {
    let json = include_bytes!("session.json");
    TextConfig::from_json(Path::new("session.json"), json).expect("a config")
});

/// Magic, version, flags, length of the payload, checksum.
const FIXED: usize = 20;

/// The bytes as they are, and with lengths and checksums set right: few changes get by them.
pub(crate) fn session(bytes: &[u8]) -> String {
    let plain = outcome(bytes);
    match repaired(bytes) {
        Some(bytes) => format!("{plain}; repaired: {}", outcome(&bytes)),
        None => plain,
    }
}

fn repaired(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = bytes.to_vec();
    let payload = u32::from_le_bytes(bytes.get(12..16)?.try_into().ok()?) as usize;
    let end = FIXED.checked_add(payload).filter(|end| payload >= 256 && *end <= bytes.len())?;
    let number = |bytes: &[u8], at: usize| {
        let number = bytes[FIXED + at..].first_chunk().copied().map(u64::from_le_bytes);
        number.and_then(|number| usize::try_from(number).ok())
    };
    // More than this are refused by their number.
    let some = |count: Option<usize>| count.filter(|count| *count < 4096);
    let (tokens, position) = (some(number(&bytes, 144))?, some(number(&bytes, 152))?);
    let (logits, note) = (some(number(&bytes, 168))?, some(number(&bytes, 248))?);
    let parts = State::parts(&CONFIG, position);
    let parts = parts.iter().map(slotstream::qwen::StatePart::values).filter(|values| *values > 0);
    let mut at = end;
    for (number, words) in
        (1_u32..).zip([tokens, logits, note.div_ceil(4)].into_iter().chain(parts))
    {
        let section = at..at + 4 * words;
        bytes.resize(bytes.len().max(section.end + 4), 0);
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(&number.to_le_bytes());
        checksum.update(&bytes[section.clone()]);
        bytes[section.end..section.end + 4].copy_from_slice(&checksum.finalize().to_le_bytes());
        at = section.end + 4;
    }
    bytes.truncate(at);
    bytes[FIXED + 136..FIXED + 144].copy_from_slice(&(at as u64).to_le_bytes());
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&bytes[..16]);
    checksum.update(&bytes[FIXED..end]);
    let checksum = checksum.finalize();
    bytes[16..FIXED].copy_from_slice(&checksum.to_le_bytes());
    Some(bytes)
}

fn outcome(bytes: &[u8]) -> String {
    let path = Path::new("own.session");
    let header = match verify(path, &CONFIG, bytes, bytes.len() as u64) {
        Ok(header) => header,
        Err(error) => return words(&error),
    };
    assert_eq!(header.file_len, bytes.len() as u64);
    assert!(header.position <= header.tokens && header.prompt_end <= header.tokens);
    assert!(header.tokens <= CONFIG.max_position_embeddings);
    assert!(header.logits == 0 || header.logits == CONFIG.vocab_size);
    assert!(header.sampling.validate().is_ok() && header.draws != [0; 4]);
    "accepted".to_owned()
}

/// Variant and field of an error.
fn words(error: &SessionFileError) -> String {
    let debug = format!("{error:?}");
    let variant = debug.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    match error {
        SessionFileError::Field { field, .. } => format!("{variant} {field}"),
        SessionFileError::Checksum { section, .. } => format!("{variant} {section}"),
        _ => variant.to_owned(),
    }
}
