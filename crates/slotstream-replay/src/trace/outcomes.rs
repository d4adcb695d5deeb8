//! Outcomes as bytes.

use slotstream_core::{ExpertIdx, ExpertKey, Geometry, LayerIdx, Origin, Outcome, SlotId};

use super::cursor::{Bad, Cursor, Put};

/// Tag of the first outcome; those below are requests.
pub(super) const FIRST: u8 = 16;

const RESERVED: u8 = FIRST;
const ADOPTED: u8 = FIRST + 1;
const LATE: u8 = FIRST + 2;
const CANCELLED: u8 = FIRST + 3;
const EXPIRED: u8 = FIRST + 4;
const FAILED: u8 = FIRST + 5;
const RESIZED: u8 = FIRST + 6;
const SWEPT: u8 = FIRST + 7;
const ADMITTED: u8 = FIRST + 8;
const WITHDRAWN: u8 = FIRST + 9;
const REFUSED: u8 = FIRST + 10;
const ENDED: u8 = FIRST + 11;
const CLEARED: u8 = FIRST + 12;
const COUNTERS_RESET: u8 = FIRST + 13;
const NOT_ADMITTED: u8 = FIRST + 14;

/// By number in the file.
const ORIGINS: [Origin; 4] =
    [Origin::Demand, Origin::Prefetch, Origin::PromptHot, Origin::WarmStart];

fn put_key(out: &mut Vec<u8>, key: ExpertKey) {
    out.put_u16(key.layer().get());
    out.put_u16(key.expert().get());
}

fn put_place(out: &mut Vec<u8>, tag: u8, slot: SlotId, key: ExpertKey) {
    out.put_u8(tag);
    out.put_u32(slot.get());
    put_key(out, key);
}

fn put_origin(out: &mut Vec<u8>, origin: Origin) -> bool {
    let number = ORIGINS.iter().position(|known| *known == origin);
    out.put_u8(number.map_or(u8::MAX, |number| number as u8));
    number.is_some()
}

/// Appends an outcome; `false` when this version of the format has no bytes for it.
pub(super) fn encode(out: &mut Vec<u8>, outcome: &Outcome) -> bool {
    let mut put_claim = |tag, slot, key, origin| {
        put_place(out, tag, slot, key);
        put_origin(out, origin)
    };
    match *outcome {
        Outcome::Failed { slot, key, origin } => return put_claim(FAILED, slot, key, origin),
        Outcome::Admitted { slot, key, origin } => return put_claim(ADMITTED, slot, key, origin),
        Outcome::Withdrawn { slot, key, origin } => return put_claim(WITHDRAWN, slot, key, origin),
        Outcome::Reserved { slot, key } => put_place(out, RESERVED, slot, key),
        Outcome::Adopted { slot, key } => put_place(out, ADOPTED, slot, key),
        Outcome::Late { key } => {
            out.put_u8(LATE);
            put_key(out, key);
        }
        Outcome::Cancelled { key } => {
            out.put_u8(CANCELLED);
            put_key(out, key);
        }
        Outcome::Expired { key } => {
            out.put_u8(EXPIRED);
            put_key(out, key);
        }
        Outcome::Resized { slots } => {
            out.put_u8(RESIZED);
            out.put_u32(u32::try_from(slots).unwrap_or(u32::MAX));
        }
        Outcome::Swept { layer, records } => {
            out.put_u8(SWEPT);
            out.put_u16(layer.get());
            out.put_u32(u32::try_from(records).unwrap_or(u32::MAX));
        }
        Outcome::Refused { layer } => {
            out.put_u8(REFUSED);
            out.put_u16(layer.get());
        }
        Outcome::Ended { layer, waves } => {
            out.put_u8(ENDED);
            out.put_u16(layer.get());
            out.put_u32(u32::try_from(waves).unwrap_or(u32::MAX));
        }
        Outcome::NotAdmitted { key, origin } => {
            out.put_u8(NOT_ADMITTED);
            put_key(out, key);
            return put_origin(out, origin);
        }
        Outcome::Cleared => out.put_u8(CLEARED),
        Outcome::CountersReset => out.put_u8(COUNTERS_RESET),
        _ => return false,
    }
    true
}

fn layer(read: &mut Cursor<'_>, geometry: &Geometry) -> Result<LayerIdx, Bad> {
    Ok(LayerIdx::new(read.index("layer", geometry.layers())?))
}

/// A record of the geometry.
pub(super) fn key(read: &mut Cursor<'_>, geometry: &Geometry) -> Result<ExpertKey, Bad> {
    let layer = layer(read, geometry)?;
    Ok(ExpertKey::new(layer, ExpertIdx::new(read.index("expert", geometry.experts())?)))
}

fn place(read: &mut Cursor<'_>, geometry: &Geometry) -> Result<(SlotId, ExpertKey), Bad> {
    let at = read.at();
    let slot = read.u32("slot")?;
    // A pool never has more slots than there are records.
    if slot as usize >= geometry.records() {
        let expected = format!("less than {}", geometry.records());
        return Cursor::bad(at, "slot", expected, slot.to_string());
    }
    Ok((SlotId::new(slot), key(read, geometry)?))
}

fn origin(read: &mut Cursor<'_>) -> Result<Origin, Bad> {
    let at = read.at();
    let number = read.u8("origin")?;
    match ORIGINS.get(usize::from(number)) {
        Some(origin) => Ok(*origin),
        None => Cursor::bad(at, "origin", "0 to 3", number.to_string()),
    }
}

/// Reads the outcome whose tag, at `at`, was read.
pub(super) fn decode(
    read: &mut Cursor<'_>,
    (at, tag): (usize, u8),
    geometry: &Geometry,
) -> Result<Outcome, Bad> {
    Ok(match tag {
        RESERVED | ADOPTED | FAILED | ADMITTED | WITHDRAWN => {
            let (slot, key) = place(read, geometry)?;
            match tag {
                RESERVED => Outcome::Reserved { slot, key },
                ADOPTED => Outcome::Adopted { slot, key },
                FAILED => Outcome::Failed { slot, key, origin: origin(read)? },
                ADMITTED => Outcome::Admitted { slot, key, origin: origin(read)? },
                _ => Outcome::Withdrawn { slot, key, origin: origin(read)? },
            }
        }
        LATE => Outcome::Late { key: key(read, geometry)? },
        CANCELLED => Outcome::Cancelled { key: key(read, geometry)? },
        EXPIRED => Outcome::Expired { key: key(read, geometry)? },
        RESIZED => {
            let at = read.at();
            let slots = read.u32("slots")? as usize;
            if slots == 0 || slots > geometry.records() {
                let expected = format!("1 to {}", geometry.records());
                return Cursor::bad(at, "slots", expected, slots.to_string());
            }
            Outcome::Resized { slots }
        }
        SWEPT => Outcome::Swept {
            layer: layer(read, geometry)?,
            records: read.u32("swept records")? as usize,
        },
        REFUSED => Outcome::Refused { layer: layer(read, geometry)? },
        ENDED => {
            Outcome::Ended { layer: layer(read, geometry)?, waves: read.u32("waves")? as usize }
        }
        CLEARED => Outcome::Cleared,
        COUNTERS_RESET => Outcome::CountersReset,
        NOT_ADMITTED => Outcome::NotAdmitted { key: key(read, geometry)?, origin: origin(read)? },
        _ => {
            let expected = format!("1 to 3, or {FIRST} to {NOT_ADMITTED}");
            return Cursor::bad(at, "event tag", expected, tag.to_string());
        }
    })
}
