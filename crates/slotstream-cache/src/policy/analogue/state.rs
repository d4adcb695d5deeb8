//! The history and the frequencies as bytes.
//!
//! Little-endian: the eight bytes of [`MAGIC`], the version (u32), layers, experts, top-k (u16
//! each), 0 (u16), the window, the number of tokens (u32 each), the half-life (f64); then for each
//! record, layer-major, its frequency (u32, in 2^-26); then for each token, the oldest first, its
//! id (u64, all ones where unknown), how many tokens further its successor is (u32, 0 without one)
//! and for each layer `top_k` experts (u16), behind them the number of experts of a layer.

use std::collections::BTreeSet;

use slotstream_core::{BindError, Geometry};

use super::Analogue;
use super::fixed::ONE;
use super::history::{History, Token};

const MAGIC: [u8; 8] = *b"slst-ana";
const VERSION: u32 = 1;
const HEADER: usize = 36;

/// The state of `analogue`; `None` before it was bound.
pub(super) fn export(analogue: &Analogue) -> Option<Vec<u8>> {
    let (geometry, history) = (analogue.geometry?, &analogue.history);
    let count = history.tokens().count();
    let mut state = Vec::with_capacity(HEADER + size(&geometry, count)?);
    state.extend(header(analogue, u32::try_from(count).ok()?)?);
    state.extend(analogue.frequency.iter().flat_map(|frequency| frequency.to_le_bytes()));
    for token in history.tokens() {
        let further = history.successor(token).map_or(0, |next| next - token);
        state.extend(history.id(token).map_or(u64::MAX, u64::from).to_le_bytes());
        state.extend(u32::try_from(further).ok()?.to_le_bytes());
        for layer in 0..geometry.layers() {
            state.extend(history.whole_row(token, layer).iter().flat_map(|id| id.to_le_bytes()));
        }
    }
    Some(state)
}

/// Bytes behind the header.
fn size(geometry: &Geometry, tokens: usize) -> Option<usize> {
    tokens.checked_mul(token_size(geometry))?.checked_add(4 * geometry.records())
}

fn token_size(geometry: &Geometry) -> usize {
    12 + 2 * geometry.layers() * geometry.top_k()
}

/// What a state of so many tokens begins with.
fn header(analogue: &Analogue, tokens: u32) -> Option<[u8; HEADER]> {
    let geometry = analogue.geometry?;
    let numbers = [geometry.layers(), geometry.experts(), geometry.top_k(), 0];
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    for (at, number) in numbers.into_iter().enumerate() {
        header[12 + 2 * at..][..2].copy_from_slice(&u16::try_from(number).ok()?.to_le_bytes());
    }
    let window = u32::try_from(analogue.settings.window).ok()?;
    header[20..24].copy_from_slice(&window.to_le_bytes());
    header[24..28].copy_from_slice(&tokens.to_le_bytes());
    header[28..].copy_from_slice(&analogue.settings.half_life.to_le_bytes());
    Some(header)
}

/// Takes `state` over, or nothing of it.
pub(super) fn import(analogue: &mut Analogue, state: &[u8]) -> Result<(), BindError> {
    let read = read(analogue, state);
    let (frequency, history) = read.ok_or(BindError::state(
        "one of the same version, geometry, window and half-life of analogue",
    ))?;
    analogue.forget();
    analogue.frequency = frequency;
    analogue.history = history;
    analogue.residents.all_changed();
    Ok(())
}

/// The frequencies and the history in `state`, if that is what it is.
fn read(analogue: &Analogue, state: &[u8]) -> Option<(Vec<u32>, History)> {
    let geometry = analogue.geometry?;
    let (given, rest) = state.split_first_chunk::<HEADER>()?;
    let count = u32::from_le_bytes(*given[24..].first_chunk()?);
    if header(analogue, count)? != *given
        || u64::from(count) > analogue.settings.window
        || rest.len() != size(&geometry, usize::try_from(count).ok()?)?
    {
        return None;
    }
    let (frequencies, tokens) = rest.split_at_checked(4 * geometry.records())?;
    let frequencies = frequencies.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
    let frequency: Vec<u32> = frequencies.collect();
    if frequency.iter().any(|frequency| u64::from(*frequency) > ONE) {
        return None;
    }
    let mut history = History::new(&geometry, u32::try_from(analogue.settings.window).ok()?);
    for bytes in tokens.chunks_exact(token_size(&geometry)) {
        let id = u64::from_le_bytes(*bytes.first_chunk()?);
        let id = if id == u64::MAX { None } else { Some(u32::try_from(id).ok()?) };
        let token = history.push(id, None, None);
        rows(&mut history, token, &geometry, bytes.get(12..)?)?;
    }
    for (token, bytes) in history.tokens().zip(tokens.chunks_exact(token_size(&geometry))) {
        let further = u32::from_le_bytes(*bytes[8..].first_chunk()?);
        let next = token + Token::from(further);
        if further > 0 {
            history.tokens().contains(&next).then(|| history.follow(token, next))?;
        }
    }
    Some((frequency, history))
}

/// Takes over what a token used.
fn rows(history: &mut History, token: Token, geometry: &Geometry, bytes: &[u8]) -> Option<()> {
    let size = 2 * geometry.top_k();
    for (layer, row) in bytes.chunks_exact(size).enumerate() {
        let experts = row.as_chunks().0.iter().map(|bytes| u16::from_le_bytes(*bytes));
        let (mut seen, mut ended) = (BTreeSet::new(), false);
        for expert in experts {
            let known = usize::from(expert) < geometry.experts();
            let lawful = if known { !ended && seen.insert(expert) } else { true };
            ended |= !known;
            if !lawful || usize::from(expert) > geometry.experts() {
                return None;
            }
            if known {
                history.used(token, layer, expert);
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use slotstream_core::{
        EvictionPolicy, ExpertIdx, LayerIdx, Origin, PassId, Phase, Routing, SessionId, SlotId,
        Step,
    };

    use super::*;

    fn bound() -> Analogue {
        let mut analogue = Analogue::with(6, 16.0);
        analogue.bind(&Geometry::new(2, 5, 2).expect("legal"), 4).expect("any size");
        analogue
    }

    /// Nine tokens of two sessions, of which six are remembered.
    fn used() -> Analogue {
        let mut analogue = bound();
        for token in 0..9_u16 {
            let (pass, session) = (PassId::new(token.into()), SessionId::new(u64::from(token % 2)));
            let tokens = [u32::from(token % 3)];
            let step = Step { pass, phase: Phase::Decode, session, position: 0, tokens: &tokens };
            analogue.on_step(&step);
            for layer in 0..2 {
                let ids = [token % 5, (token + layer + 1) % 5].map(ExpertIdx::new);
                let layer = LayerIdx::new(layer);
                analogue.on_routing(&Routing::new(&step, layer, 2, &ids, &[]));
            }
        }
        analogue
    }

    #[test]
    fn history_and_frequencies_survive() {
        let before = used();
        let state = before.export().expect("it is bound");
        let mut after = bound();
        let key = slotstream_core::ExpertKey::new(LayerIdx::new(1), ExpertIdx::new(3));
        after.on_insert(SlotId::new(0), key, Origin::WarmStart);
        after.import(&state).expect("its own");
        assert_eq!(after.frequency, before.frequency);
        assert_eq!(after.export().as_ref(), Some(&state));
        // What was resident still is.
        assert_eq!(after.residents.slot(1, 3), SlotId::new(0));
        for (old, new) in before.history.tokens().zip(after.history.tokens()) {
            for layer in 0..2 {
                assert_eq!(before.history.row(old, layer), after.history.row(new, layer));
            }
        }
    }

    #[test]
    fn foreign_bytes_are_refused() {
        let state = used().export().expect("it is bound");
        let fresh = bound();
        let refused = |bytes: &[u8]| {
            let mut analogue = fresh.clone();
            let error = analogue.import(bytes).expect_err("foreign");
            assert_eq!(analogue, fresh, "nothing was taken over");
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
        let first = HEADER + 4 * 10;
        // A frequency above one, an id too large, a successor too far, an unknown expert, one twice.
        for (at, byte) in [(HEADER + 3, 0xff), (first + 4, 1), (first + 8, 7), (first + 12, 6)] {
            let mut bytes = state.clone();
            bytes[at] = byte;
            refused(&bytes);
        }
        let mut bytes = state.clone();
        bytes.copy_within(first + 12..first + 14, first + 14);
        refused(&bytes);
        assert!(Analogue::new().import(&state).is_err());
        assert_eq!(Analogue::new().export(), None);
    }
}
