//! The frequencies as bytes.
//!
//! Little-endian: the eight bytes of [`MAGIC`], the version (u32), layers, experts (u16 each),
//! the half-life (f64), then for each record, layer-major, its level now (i64, see `level`).

use slotstream_core::BindError;

use super::level::Level;
use super::{Lfu, Record};

const MAGIC: [u8; 8] = *b"slst-lfu";
const VERSION: u32 = 1;
const HEADER: usize = 24;

/// The state of `lfu`; `None` before it was bound.
pub(super) fn export(lfu: &Lfu) -> Option<Vec<u8>> {
    let geometry = lfu.geometry?;
    let mut state = Vec::with_capacity(HEADER + 8 * geometry.records());
    state.extend(header(lfu)?);
    for (index, record) in lfu.records.iter().enumerate() {
        let tokens = lfu.tokens.get(index / geometry.experts())?;
        let level = record.level.fallen(lfu.fall, tokens - record.tokens);
        state.extend(level.bits().to_le_bytes());
    }
    Some(state)
}

/// What a state of `lfu` begins with.
fn header(lfu: &Lfu) -> Option<[u8; HEADER]> {
    let geometry = lfu.geometry?;
    let (layers, experts) = (u16::try_from(geometry.layers()), u16::try_from(geometry.experts()));
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..14].copy_from_slice(&layers.ok()?.to_le_bytes());
    header[14..16].copy_from_slice(&experts.ok()?.to_le_bytes());
    header[16..].copy_from_slice(&lfu.half_life().to_le_bytes());
    Some(header)
}

/// Takes `state` over, or nothing of it.
pub(super) fn import(lfu: &mut Lfu, state: &[u8]) -> Result<(), BindError> {
    let foreign = BindError::state("one of the same version, geometry and half-life of lfu");
    let Some((header_given, levels)) = state.split_first_chunk() else { return Err(foreign) };
    let (levels, rest) = levels.as_chunks();
    if header(lfu).as_ref() != Some(header_given)
        || levels.len() != lfu.records.len()
        || !rest.is_empty()
    {
        return Err(foreign);
    }
    let level = |bytes: &[u8; 8]| Level::from_bits(i64::from_le_bytes(*bytes));
    if !levels.iter().all(|bytes| level(bytes).is_some()) {
        return Err(BindError::state("levels that a frequency can have"));
    }
    let experts = lfu.records.len() / lfu.tokens.len().max(1);
    for (index, bytes) in levels.iter().enumerate() {
        let tokens = lfu.tokens[index / experts];
        let slot = lfu.records[index].slot;
        lfu.records[index] = Record { level: level(bytes).unwrap_or(Level::NEVER), tokens, slot };
    }
    lfu.rank_anew();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotstream_core::{
        EvictionPolicy, ExpertIdx, ExpertKey, Geometry, LayerIdx, Origin, SlotId,
    };

    fn bound(half_life: f64) -> Lfu {
        let mut lfu = Lfu::with_half_life(half_life);
        lfu.bind(&Geometry::new(2, 5, 1).expect("legal"), 4).expect("any size");
        lfu
    }

    fn key(layer: u16, expert: u16) -> ExpertKey {
        ExpertKey::new(LayerIdx::new(layer), ExpertIdx::new(expert))
    }

    fn used() -> Lfu {
        let mut lfu = bound(16.0);
        for (slot, expert) in [0, 1, 2, 1, 1, 4].into_iter().enumerate() {
            lfu.on_miss(key(slot as u16 % 2, expert));
        }
        lfu
    }

    #[test]
    fn frequencies_survive() {
        let before = used();
        let state = before.export().expect("it is bound");
        let mut after = bound(16.0);
        // Records that are resident already take their places.
        after.on_insert(SlotId::new(0), key(1, 1), Origin::WarmStart);
        after.on_insert(SlotId::new(1), key(0, 3), Origin::WarmStart);
        after.import(&state).expect("its own");
        for layer in 0..2 {
            for expert in 0..5 {
                let key = key(layer, expert);
                assert_eq!(before.frequency(key), after.frequency(key), "{key}");
            }
        }
        assert_eq!(after.export(), Some(state));
        let rank = |layer| after.resident.least(layer).expect("resident").0;
        assert_eq!(rank(0), i64::MIN);
        assert!(rank(1) > 0);
    }

    #[test]
    fn foreign_bytes_are_refused() {
        let state = used().export().expect("it is bound");
        let fresh = bound(16.0);
        let refused = |bytes: &[u8]| {
            let mut lfu = fresh.clone();
            let error = lfu.import(bytes).expect_err("foreign");
            assert_eq!(lfu, fresh, "nothing was taken over");
            assert!(matches!(error, BindError::State { .. }));
        };
        for len in 0..state.len() {
            refused(&state[..len]);
        }
        for at in 0..HEADER {
            let mut bytes = state.clone();
            bytes[at] ^= 1;
            refused(&bytes);
        }
        refused(&[&state[..], &[0]].concat());
        refused(&[&state[..], &[0; 8]].concat());
        let mut bytes = state.clone();
        bytes[HEADER..][..8].copy_from_slice(&i64::MAX.to_le_bytes());
        refused(&bytes);
        assert_eq!(Lfu::new().import(&state).is_err(), Lfu::new().export().is_none());
        assert!(bound(8.0).import(&state).is_err());
    }
}
