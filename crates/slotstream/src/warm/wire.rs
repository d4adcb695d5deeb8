//! The file: see `docs/formats.md`.

use slotstream_checkpoint::container::Digest;
use slotstream_core::{ExpertIdx, ExpertKey, Geometry, LayerIdx};

use super::{WarmError, WarmSet};

pub(super) const MAGIC: [u8; 8] = *b"slst-wrm";
/// The version that is written and read.
const VERSION: u32 = 1;
/// Bytes before the policy's name.
const HEADER: usize = 68;
/// Bytes behind everything else.
const CHECKSUM: usize = 4;
/// A state's length where there is none.
const NO_STATE: u64 = u64::MAX;
/// Longest name of a policy in bytes.
const NAME: usize = 4096;

pub(super) fn write(set: &WarmSet) -> Vec<u8> {
    let state = set.state.as_deref();
    let mut bytes = Vec::with_capacity(
        HEADER + set.policy.len() + state.map_or(0, <[u8]>::len) + 4 * set.records.len() + CHECKSUM,
    );
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    // A name that is longer is nobody's; what is left of it fits no policy, so its state is not taken.
    let name = &set.policy.as_bytes()[..set.policy.floor_char_boundary(NAME)];
    bytes.extend((name.len() as u32).to_le_bytes());
    bytes.extend(set.model.bytes());
    let geometry = &set.geometry;
    for number in [geometry.layers(), geometry.experts(), geometry.top_k(), 0] {
        bytes.extend((number as u16).to_le_bytes());
    }
    bytes.extend(state.map_or(NO_STATE, |state| state.len() as u64).to_le_bytes());
    bytes.extend((set.records.len() as u32).to_le_bytes());
    bytes.extend(name);
    bytes.extend(state.unwrap_or_default());
    for key in &set.records {
        bytes.extend(key.layer().get().to_le_bytes());
        bytes.extend(key.expert().get().to_le_bytes());
    }
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    bytes
}

pub(super) fn read(bytes: &[u8]) -> Result<WarmSet, WarmError> {
    let damaged = |what| WarmError::Damaged { what };
    let short = || damaged("it is too short");
    let (header, rest) = bytes.split_first_chunk::<HEADER>().ok_or_else(short)?;
    let (magic, header) = header.split_at(8);
    if magic != MAGIC {
        return Err(damaged("it does not begin with slst-wrm"));
    }
    let mut fields = Fields(header);
    let found = u32::from_le_bytes(fields.next().ok_or_else(short)?);
    if found != VERSION {
        return Err(WarmError::Version { found, expected: VERSION });
    }
    let (body, checksum) = rest.split_last_chunk::<CHECKSUM>().ok_or_else(short)?;
    if u32::from_le_bytes(*checksum) != crc32fast::hash(&bytes[..bytes.len() - CHECKSUM]) {
        return Err(damaged("its checksum is another one"));
    }
    let name = u32::from_le_bytes(fields.next().ok_or_else(short)?);
    let model = Digest::new(fields.next().ok_or_else(short)?);
    let mut number = || fields.next().map(u16::from_le_bytes).ok_or_else(short);
    let [layers, experts, top_k, zero] = [number()?, number()?, number()?, number()?];
    let state = u64::from_le_bytes(fields.next().ok_or_else(short)?);
    let records = u32::from_le_bytes(fields.next().ok_or_else(short)?);
    let geometry = Geometry::new(layers, experts, top_k)
        .ok()
        .filter(|_| zero == 0)
        .ok_or_else(|| damaged("its layers, experts and top-k are no model's"))?;
    let parts = split(body, name, state, records);
    let (name, state, records) = parts.ok_or_else(|| damaged("its parts have other lengths"))?;
    let policy = std::str::from_utf8(name).map_err(|_| damaged("the policy's name is no text"))?;
    Ok(WarmSet {
        model,
        geometry,
        policy: policy.to_owned(),
        state: state.map(<[u8]>::to_vec),
        records: keys(records, &geometry)
            .ok_or_else(|| damaged("a record is named twice, or is none of the model's"))?,
    })
}

/// Fields one after another.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn next<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }
}

type Parts<'a> = (&'a [u8], Option<&'a [u8]>, &'a [u8]);

/// Name, state and records, if their lengths add up to the body's.
fn split(body: &[u8], name: u32, state: u64, records: u32) -> Option<Parts<'_>> {
    let name = usize::try_from(name).ok().filter(|len| *len <= NAME)?;
    let (name, rest) = body.split_at_checked(name)?;
    let (state, rest) = if state == NO_STATE {
        (None, rest)
    } else {
        let (state, rest) = rest.split_at_checked(usize::try_from(state).ok()?)?;
        (Some(state), rest)
    };
    let expected = usize::try_from(records).ok()?.checked_mul(4)?;
    (rest.len() == expected).then_some((name, state, rest))
}

/// Each record once, all of them of this model. Room is taken for what is there, not for what the
/// geometry says.
fn keys(bytes: &[u8], geometry: &Geometry) -> Option<Vec<ExpertKey>> {
    let key = |[a, b, c, d]: &[u8; 4]| {
        let layer = LayerIdx::new(u16::from_le_bytes([*a, *b]));
        let key = ExpertKey::new(layer, ExpertIdx::new(u16::from_le_bytes([*c, *d])));
        geometry.index(key).map(|_| key)
    };
    let keys: Vec<ExpertKey> = bytes.as_chunks().0.iter().map(key).collect::<Option<_>>()?;
    let mut sorted = keys.clone();
    sorted.sort_unstable();
    sorted.is_sorted_by(|a, b| a < b).then_some(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set() -> WarmSet {
        let key = |layer, expert| ExpertKey::new(LayerIdx::new(layer), ExpertIdx::new(expert));
        WarmSet {
            model: Digest::new(std::array::from_fn(|at| at as u8)),
            geometry: Geometry::new(3, 8, 2).expect("legal"),
            policy: "lfu:half-life=64".into(),
            state: Some(vec![1, 2, 3]),
            records: vec![key(2, 7), key(0, 0), key(1, 3)],
        }
    }

    fn what(bytes: &[u8]) -> String {
        read(bytes).expect_err("no such file").to_string()
    }

    /// Changes bytes and sets the checksum right.
    fn changed(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = write(&set());
        bytes.truncate(bytes.len() - CHECKSUM);
        change(&mut bytes);
        let checksum = crc32fast::hash(&bytes);
        bytes.extend(checksum.to_le_bytes());
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        for set in [
            set(),
            WarmSet { state: None, ..set() },
            WarmSet { state: Some(Vec::new()), records: Vec::new(), ..set() },
        ] {
            let bytes = set.to_bytes();
            assert_eq!(WarmSet::from_bytes(&bytes).expect("just written"), set);
        }
        let bytes = set().to_bytes();
        assert_eq!(bytes.len(), 68 + 16 + 3 + 12 + 4);
        assert_eq!(bytes[..16], *b"slst-wrm\x01\0\0\0\x10\0\0\0");
    }

    #[test]
    fn any_other_byte_is_refused() {
        let bytes = set().to_bytes();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut other = bytes.clone();
                other[at] ^= 1 << bit;
                assert!(WarmSet::from_bytes(&other).is_err(), "bit {bit} of byte {at}");
            }
        }
        for len in 0..bytes.len() {
            assert!(WarmSet::from_bytes(&bytes[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn malformed_files_are_named() {
        let cases: [(&str, Vec<u8>); 12] = [
            ("too short", Vec::new()),
            ("too short", write(&set())[..67].to_vec()),
            ("does not begin", changed(|b| b[0] = b'S')),
            ("has version 2", changed(|b| b[8] = 2)),
            ("other lengths", changed(|b| b[12] = 17)),
            ("other lengths", changed(|b| b[12..16].copy_from_slice(&u32::MAX.to_le_bytes()))),
            ("no model's", changed(|b| b[48] = 0)),
            ("no model's", changed(|b| b[54] = 1)),
            ("other lengths", changed(|b| b[56..64].copy_from_slice(&(1_u64 << 63).to_le_bytes()))),
            ("other lengths", changed(|b| b[64..68].copy_from_slice(&u32::MAX.to_le_bytes()))),
            ("no text", changed(|b| b[68] = 0xff)),
            ("other lengths", changed(|b| b.push(0))),
        ];
        for (said, bytes) in cases {
            assert!(what(&bytes).contains(said), "{said}: {}", what(&bytes));
        }
        let first = 68 + 16 + 3;
        let twice = changed(|b| b.copy_within(first..first + 4, first + 4));
        let unknown = changed(|b| b[first] = 3);
        for bytes in [twice, unknown] {
            assert!(what(&bytes).contains("named twice, or is none"), "{}", what(&bytes));
        }
    }
}
