//! Damaged, cut and invented traces: an error each, and what lies before the fault is readable.

use std::error::Error;

use slotstream_core::{ErrorKind, Geometry};
use slotstream_replay::{Requests, TraceError, TraceReader};

use crate::engine::WILD;
use crate::exact::record;

const MAGIC: &[u8] = b"\x89SLTR\r\n\x1a";

fn read(bytes: &[u8], lenient: bool) -> Result<(u64, Option<TraceError>), TraceError> {
    let reader = TraceReader::new(bytes, "made-up")?.lenient(lenient);
    let mut requests = Requests::new(reader.header().geometry);
    let played = reader.play(&mut requests)?;
    assert_eq!(requests.passes().len() as u64, played.totals.passes);
    assert!(played.whole_passes <= played.totals.passes);
    assert_eq!(played.end.is_some(), played.fault.is_none());
    Ok((played.whole_passes, played.fault))
}

/// A header with these numbers, checksum included.
#[derive(Clone)]
struct Header {
    version: u16,
    flags: u16,
    shape: [u16; 3],
    logits: u16,
    slots: u32,
    floor: u32,
    policy: Vec<u8>,
    tail: Vec<u8>,
    longer: u32,
}

fn legal_header() -> Header {
    Header {
        version: 1,
        flags: 3,
        shape: [2, 8, 2],
        logits: 3,
        slots: 8,
        floor: 4,
        policy: b"lru".to_vec(),
        tail: Vec::new(),
        longer: 0,
    }
}

impl Header {
    fn bytes(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        for number in self.shape.into_iter().chain([self.logits]) {
            payload.extend(number.to_le_bytes());
        }
        payload.extend(27_648_u64.to_le_bytes());
        payload.extend(self.slots.to_le_bytes());
        payload.extend(self.floor.to_le_bytes());
        payload.extend((self.policy.len() as u16).to_le_bytes());
        payload.extend(&self.policy);
        payload.extend([0; 4]);
        payload.extend(&self.tail);
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.version.to_le_bytes());
        bytes.extend(self.flags.to_le_bytes());
        bytes.extend((payload.len() as u32 + self.longer).to_le_bytes());
        let mut sum = crc32fast::Hasher::new();
        sum.update(&bytes);
        sum.update(&payload);
        bytes.extend(sum.finalize().to_le_bytes());
        bytes.extend(payload);
        bytes
    }
}

/// A block of this kind and number.
fn block(kind: u8, number: u32, payload: &[u8]) -> Vec<u8> {
    let mut inner = vec![kind];
    inner.extend(number.to_le_bytes());
    inner.extend(payload);
    let mut bytes = (inner.len() as u32).to_le_bytes().to_vec();
    bytes.extend(crc32fast::hash(&inner).to_le_bytes());
    bytes.extend(inner);
    bytes
}

fn totals(passes: u64, routings: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for total in [passes, routings, 0, 0] {
        bytes.extend(total.to_le_bytes());
    }
    bytes.push(0);
    bytes
}

/// A decode pass of one row.
fn step() -> Vec<u8> {
    let mut bytes = vec![1, 1];
    bytes.extend([0; 24]);
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend(7_u32.to_le_bytes());
    bytes
}

/// A routing of layer 1 to experts 3 and 5.
fn routing() -> Vec<u8> {
    vec![2, 0, 1, 0, 3, 0, 5, 0]
}

/// A file with the legal header and one block of events.
fn file(events: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = legal_header().bytes();
    bytes.extend(block(1, 0, &events.concat()));
    bytes
}

/// The field that reading these bytes finds fault with.
fn field(bytes: &[u8]) -> (&'static str, u64) {
    let error = read(bytes, false).expect_err("not legal");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.source().is_none() && error.to_string().starts_with("made-up: byte "), "{error}");
    match error {
        TraceError::Field { field, offset, .. } => (field, offset),
        other => panic!("{other}"),
    }
}

#[test]
fn the_builders_of_these_tests_are_right() {
    let mut bytes = file(&[step(), routing(), step()]);
    bytes.extend(block(2, 1, &totals(2, 1)));
    let (passes, fault) = read(&bytes, false).expect("legal");
    assert_eq!((passes, fault.is_none()), (2, true));
}

#[test]
fn every_field_of_the_header() {
    let legal = legal_header();
    type Change = fn(&mut Header);
    let cases: &[(&str, Change)] = &[
        ("geometry", |h| h.shape[0] = 0),
        ("geometry", |h| h.shape[1] = 0),
        ("geometry", |h| h.shape[2] = 0),
        ("geometry", |h| h.shape[2] = 9),
        ("logits", |h| h.logits = 9),
        ("logits", |h| h.logits = 0),
        ("logits", |h| h.flags = 1),
        ("flags", |h| h.flags = 4),
        ("slots", |h| h.slots = 17),
        ("slots", |h| h.slots = u32::MAX),
        ("floor", |h| h.floor = 9),
        ("policy", |h| h.policy = vec![0xff]),
        ("header", |h| h.tail = vec![0]),
        ("header length", |h| h.longer = 1 << 20),
        ("header length", |h| h.longer = u32::MAX - 100),
    ];
    for (name, change) in cases {
        let mut header = legal.clone();
        change(&mut header);
        assert_eq!(field(&header.bytes()).0, *name);
    }
    for version in [0, 2, u16::MAX] {
        let header = Header { version, ..legal.clone() };
        let error = read(&header.bytes(), false).expect_err("another version");
        let told = format!("version {version}: this build reads version 1");
        assert!(error.to_string().contains(&told), "{error}");
        assert_eq!(error.kind(), ErrorKind::User);
    }
    // A text whose length goes beyond the payload.
    let mut bytes = legal.bytes();
    let at = 20 + 24;
    bytes[at..at + 2].copy_from_slice(&u16::MAX.to_le_bytes());
    let mut sum = crc32fast::Hasher::new();
    sum.update(&bytes[..16]);
    sum.update(&bytes[20..]);
    bytes[16..20].copy_from_slice(&sum.finalize().to_le_bytes());
    assert_eq!(field(&bytes), ("policy", at as u64 + 2));
}

#[test]
fn every_field_of_a_block() {
    let head = legal_header().bytes();
    let with = |blocks: &[Vec<u8>]| [head.clone(), blocks.concat()].concat();
    for len in [0, 5, (16 << 20) + 1, u32::MAX] {
        let mut bytes = head.clone();
        bytes.extend(u32::to_le_bytes(len));
        bytes.extend([0; 64]);
        assert_eq!(field(&bytes), ("block length", head.len() as u64), "{len}");
    }
    // As long as a block may be, and not there: nothing is reserved for it.
    let mut bytes = head.clone();
    bytes.extend((16_u32 << 20).to_le_bytes());
    bytes.extend([0; 64]);
    let error = read(&bytes, false).expect_err("cut");
    assert!(matches!(error, TraceError::Truncated { block: Some(0), passes: 0, .. }), "{error}");
    assert_eq!(field(&with(&[block(0, 0, &step())])).0, "block kind");
    assert_eq!(field(&with(&[block(3, 0, &step())])).0, "block kind");
    assert_eq!(field(&with(&[block(1, 1, &step())])).0, "block number");
    let twice = [block(1, 0, &step()), block(1, 0, &step())];
    assert_eq!(field(&with(&twice)).0, "block number");
    let gap = [block(1, 0, &step()), block(2, 2, &totals(1, 0))];
    assert_eq!(field(&with(&gap)).0, "block number");
    let wrong = [block(1, 0, &step()), block(2, 1, &totals(2, 0))];
    assert_eq!(field(&with(&wrong)).0, "totals");
    let long = [block(1, 0, &step()), block(2, 1, &[totals(1, 0), vec![0]].concat())];
    assert_eq!(field(&with(&long)).0, "end mark");
    let more = [block(1, 0, &step()), block(2, 1, &totals(1, 0)), vec![0]];
    assert_eq!(field(&with(&more)).0, "end mark");
    let mut pool = totals(1, 0);
    pool[32] = 2;
    assert_eq!(field(&with(&[block(1, 0, &step()), block(2, 1, &pool)])).0, "pool");
    pool[32] = 1;
    assert_eq!(field(&with(&[block(1, 0, &step()), block(2, 1, &pool)])).0, "pool slots");
}

#[test]
fn every_field_of_an_event() {
    let base = legal_header().bytes().len() as u64 + 8 + 5;
    let after_step = base + step().len() as u64;
    let forecast = |tap: u8, key: [u16; 2], confidence: f32, layer: u16| {
        let mut bytes = vec![3, tap, 0, 0];
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend(key.into_iter().flat_map(u16::to_le_bytes));
        bytes.extend(confidence.to_le_bytes());
        bytes.extend(0_u32.to_le_bytes());
        bytes.extend(layer.to_le_bytes());
        bytes
    };
    let changed = |at: usize, byte: u8, mut event: Vec<u8>| {
        event[at] = byte;
        event
    };
    let cases: &[(Vec<u8>, &str, u64)] = &[
        (vec![0], "event tag", 0),
        (vec![4], "event tag", 0),
        (vec![15], "event tag", 0),
        (vec![31], "event tag", 0),
        (vec![255], "event tag", 0),
        (changed(1, 2, step()), "phase", 1),
        (changed(26, 2, step()), "tokens", 30),
        (changed(29, 255, step()), "tokens", 30),
        (changed(1, 4, routing()), "routing flags", 1),
        (changed(1, 1, routing()), "weights", 8),
        (changed(1, 2, routing()), "logits", 8),
        (changed(2, 2, routing()), "layer", 2),
        (changed(6, 8, routing()), "expert id", 6),
        (routing()[..6].to_vec(), "expert ids", 4),
        (forecast(2, [0, 0], 0.5, 0), "tap", 1),
        (forecast(0, [2, 0], 0.5, 0), "layer", 8),
        (forecast(0, [0, 8], 0.5, 0), "expert", 10),
        (forecast(0, [0, 0], 1.5, 0), "confidence", 12),
        (forecast(0, [0, 0], f32::NAN, 0), "confidence", 12),
        (forecast(0, [0, 0], 0.5, 2), "deadline's layer", 20),
        (changed(4, 255, forecast(0, [0, 0], 0.5, 0)), "layer", 22),
        (vec![16, 16, 0, 0, 0, 0, 0, 0, 0], "slot", 1),
        (vec![16, 0, 0, 0, 0, 2, 0, 0, 0], "layer", 5),
        (vec![18, 0, 0, 8, 0], "expert", 3),
        (vec![21, 0, 0, 0, 0, 0, 0, 0, 0, 4], "origin", 9),
        (vec![22, 0, 0, 0, 0], "slots", 1),
        (vec![22, 17, 0, 0, 0], "slots", 1),
        (vec![23, 2, 0, 0, 0, 0, 0], "layer", 1),
        (vec![26, 2, 0], "layer", 1),
        (vec![27, 0, 0, 1], "waves", 3),
    ];
    for (event, name, at) in cases {
        assert_eq!(field(&file(&[step(), event.clone()])), (*name, after_step + at), "{event:?}");
    }
    let logit = [changed(1, 2, routing()), [8, 0, 0, 0, 0, 0].repeat(3)].concat();
    assert_eq!(field(&file(&[step(), logit])), ("logit's expert", after_step + 8));
    assert_eq!(field(&file(&[routing()])), ("event", base + 1));
    let no_rows = step()[..26].iter().copied().chain([0; 4]).collect();
    assert_eq!(field(&file(&[no_rows, routing()])).0, "event");
}

/// A few rows of a file whose experts are many would become gigabytes of logits.
#[test]
fn few_bytes_never_become_much_memory() {
    let header = Header { shape: [1, 65_535, 1], logits: 1, slots: 4, floor: 4, ..legal_header() };
    let rows = 100_000_u32;
    let mut events = step()[..26].to_vec();
    events.extend(rows.to_le_bytes());
    events.resize(events.len() + 4 * rows as usize, 0);
    events.extend([2, 2, 0, 0]);
    events.resize(events.len() + 8 * rows as usize, 0);
    let bytes = [header.bytes(), block(1, 0, &events)].concat();
    let held = allocation_counter::measure(|| assert_eq!(field(&bytes).0, "logits"));
    assert!(held.bytes_max < 16 << 20, "{} bytes", held.bytes_max);
}

#[test]
fn a_trace_cut_anywhere() {
    let (bytes, ..) = record("lru", 7, (2, WILD), 400, true);
    let whole = Geometry::new(3, 10, 2).expect("legal");
    let mut reached = 0;
    for len in (0..bytes.len()).filter(|len| *len < 2_000 || len % 61 == 0) {
        let error = read(&bytes[..len], false).expect_err("cut");
        match error {
            TraceError::NotRecorded { .. } => assert_eq!(len, 0),
            TraceError::Truncated { .. } => assert!(len > 0),
            other => panic!("{len}: {other}"),
        }
        let Ok(reader) = TraceReader::new(&bytes[..len], "cut") else { continue };
        assert_eq!(reader.header().geometry, whole);
        let (passes, fault) = read(&bytes[..len], true).expect("lenient");
        assert!(passes >= reached && fault.is_some(), "{len}: {passes}, {reached} before");
        reached = passes;
    }
    assert!(reached > 300, "{reached}");
    assert_eq!(read(&bytes, false).expect("whole").0, 400);
}

#[test]
fn every_flipped_bit_is_found() {
    let (bytes, ..) = record("lru", 7, (2, WILD), 12, true);
    let mut kinds = std::collections::BTreeSet::new();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            let error = read(&damaged, false).expect_err("damaged");
            let debug = format!("{error:?}");
            kinds.insert(debug.split(' ').next().map(str::to_owned));
            if let Ok((_, fault)) = read(&damaged, true) {
                assert!(fault.is_some(), "byte {at} bit {bit}");
            }
        }
    }
    assert_eq!(kinds.len(), 5, "{kinds:?}");
}
