//! A pool at one moment.

use slotstream_cache::{Clock, SlotPool, SlotState};
use slotstream_core::{EvictionPolicy, Phase, SlotId};
use slotstream_replay::Call;

/// What a policy can show of its own state.
pub(super) trait Marks {
    /// Whether a slot's reference bit is set.
    fn referenced(&self, _slot: SlotId) -> bool {
        false
    }

    /// Where the hand stands.
    fn hand(&self) -> Option<usize> {
        None
    }
}

impl Marks for Clock {
    fn referenced(&self, slot: SlotId) -> bool {
        Self::referenced(self).get(slot.index()).copied().unwrap_or(false)
    }

    fn hand(&self) -> Option<usize> {
        Some(Self::hand(self))
    }
}

impl Marks for Box<dyn EvictionPolicy + '_> {}

/// Everything that is drawn.
#[derive(Debug)]
pub(super) struct Frame {
    /// What happens.
    pub(super) title: String,
    pub(super) slots: Vec<Slot>,
    pub(super) hand: Option<usize>,
    pub(super) layers: usize,
}

/// A slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// The layer that owns it; none when it is free.
    pub(super) layer: Option<usize>,
    pub(super) state: State,
    pub(super) referenced: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing happens to it.
    Idle,
    /// The running call uses it.
    Pinned,
    /// A record is being read into it.
    InFlight,
}

impl Frame {
    pub(super) fn new<P: EvictionPolicy + Marks>(
        call: &Call<'_>,
        pool: &SlotPool<P>,
        (hits, lookups): (u64, u64),
    ) -> Self {
        let found = call.entries.iter().filter(|entry| entry.is_hit()).count();
        let phase = if call.step.phase == Phase::Decode { "decode" } else { "prefill" };
        let title = format!(
            "pass {} ({phase}), layer {}: {found} hits, {} misses; {} in {} slots, hit rate so far {:.1}%",
            call.step.pass.get(),
            call.layer.get(),
            call.entries.len() - found,
            pool.policy().name(),
            pool.slots(),
            100.0 * hits as f64 / lookups.max(1) as f64,
        );
        let slots = pool.states().map(|(slot, state)| {
            let referenced = pool.policy().referenced(slot);
            let (layer, state) = match state {
                SlotState::Resident { key, pinned } => {
                    (Some(key.layer().index()), if pinned { State::Pinned } else { State::Idle })
                }
                SlotState::Claimed { key, .. } => (Some(key.layer().index()), State::InFlight),
                _ => (None, State::Idle),
            };
            Slot { layer, state, referenced }
        });
        Self {
            title,
            slots: slots.collect(),
            hand: pool.policy().hand(),
            layers: pool.geometry().layers(),
        }
    }
}

/// A layer's colour: neighbours are told apart by brightness, distant ones by hue.
pub(super) fn colour(layer: usize, layers: usize) -> (u8, u8, u8) {
    let hue = layer as f64 / layers.max(1) as f64 * 6.0;
    let bright = if layer.is_multiple_of(2) { 0.92 } else { 0.70 };
    let part = |shift: f64| {
        let turn = (hue + shift).rem_euclid(6.0);
        let share = (2.0 - (turn - 3.0).abs()).clamp(0.0, 1.0);
        // Pastel, so that black text is read on it.
        ((0.45 + 0.55 * share) * bright * 255.0) as u8
    };
    (part(3.0), part(1.0), part(5.0))
}
