//! Corrections of forecasts: the sidecar beside a model.

use std::path::Path;

use slotstream::checkpoint::{CheckpointError, Header};
use slotstream::core::Geometry;
use slotstream::lookahead::{Correction, CorrectionError};

/// Words of the format.
pub(crate) const WORDS: &[&[u8]] = &[
    b"slotstream-correction-v1",
    b"slotstream-tap-correction-v1",
    b"\"schema\":",
    b"\"tap\":\"attention\",",
    b"\"identity\":\"\",",
    b"\"targets\":",
    b"\"delta\":",
    b"\"mu\":",
    b"\"a\":",
    b"\"b\":",
    b"\"F16\"",
    b"\"F32\"",
    b"\"I32\"",
    b"\"shape\":[0,1099511627776,1099511627776]",
    b"\"shape\":[1]",
    b"\"data_offsets\":[0,0]",
    b"\x01\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\x00\x7c",
];

/// Longest data that an input is repaired with.
const MOST_DATA: u64 = 1 << 20;

/// The bytes as they are, and with the lengths of header and data set right: few changes get by
/// them.
pub(crate) fn correction(bytes: &[u8]) -> String {
    let plain = outcome(bytes);
    match repaired(bytes) {
        Some(repaired) => format!("{plain}; repaired: {}", outcome(&repaired)),
        None => plain,
    }
}

fn outcome(bytes: &[u8]) -> String {
    let correction = match Correction::from_bytes(bytes) {
        Ok(correction) => correction,
        Err(error) => return words(&error),
    };
    let (shape, mut low) = (correction.shape(), Vec::new());
    let mut targets = 0;
    for layer in correction.targets() {
        let one = correction.target(layer).expect("it is listed");
        let mut logits = vec![1.0; shape.experts];
        one.apply(&vec![0.5; shape.hidden], &mut logits, &mut low);
        assert_eq!(logits.len(), shape.experts);
        targets += 1;
    }
    // Of every target all numbers lie in the file, of at least two bytes each.
    assert!(correction.bytes() <= 2 * bytes.len() as u64, "{} bytes", correction.bytes());
    let geometry = Geometry::new(3, 4, 2).expect("legal");
    let fits = correction.check(&geometry, 3, "routers sha256:ab").is_ok();
    match correction.to_bytes() {
        // What is too large for the file's numbers is refused, and comes back otherwise.
        Ok(written) => {
            let read = Correction::from_bytes(&written).expect("what was written is read");
            assert_eq!((read.shape(), read.targets().count()), (shape, targets));
            let again = read.to_bytes().expect("it was finite before");
            assert_eq!(Correction::from_bytes(&again).expect("and again"), read);
        }
        Err(CorrectionError::NotFinite { .. }) => {}
        Err(error) => panic!("{error}"),
    }
    format!("accepted, {}", if fits { "fits" } else { "of another model" })
}

/// Variant and tensor of an error.
fn words(error: &CorrectionError) -> String {
    let debug = format!("{error:?}");
    let variant = debug.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    match error {
        CorrectionError::Missing { tensor, .. }
        | CorrectionError::Tensor { tensor, .. }
        | CorrectionError::Length { tensor, .. }
        | CorrectionError::NotFinite { tensor, .. } => format!("{variant} {tensor}"),
        CorrectionError::Metadata { key, .. } => format!("{variant} {key}"),
        _ => variant.to_owned(),
    }
}

/// A file whose length field ends where its JSON does, with data as long as that asks for; `None`
/// where there is no JSON, or it asks for too much.
fn repaired(bytes: &[u8]) -> Option<Vec<u8>> {
    let json = bytes.get(8..)?;
    let mut values = serde_json::Deserializer::from_slice(json).into_iter::<serde_json::Value>();
    values.next()?.ok()?;
    let (header, data) = json.split_at(values.byte_offset());
    let asked = match Header::from_json(Path::new("a.safetensors"), header, 0) {
        Err(
            CheckpointError::TrailingBytes { expected, .. }
            | CheckpointError::Truncated { expected, .. },
        ) => expected.saturating_sub(8 + header.len() as u64),
        _ => 0,
    };
    let asked = usize::try_from(asked.min(MOST_DATA)).ok()?;
    let spaces = data.iter().take_while(|byte| **byte == b' ').count();
    let mut fixed = (header.len() as u64).to_le_bytes().to_vec();
    fixed.extend_from_slice(header);
    fixed.extend(data[spaces..].iter().copied().chain(std::iter::repeat(0)).take(asked));
    (fixed != bytes).then_some(fixed)
}
