//! Passes of several rows, forecasts, resizes and clears, played to a pool.

use proptest::prelude::*;
use slotstream_cache::Abort::ReadFailed;
use slotstream_cache::{Ensured, SlotPool};
use slotstream_core::*;

use crate::support::{experts, geometry, key, layer, step};

const LAYERS: u16 = 3;
const EXPERTS: u16 = 10;
const TOP_K: usize = 3;

/// Two policies that hear the same and must always choose the same victim.
#[derive(Debug)]
pub(crate) struct Twins<A, B>(pub(crate) A, pub(crate) B);

impl<A: EvictionPolicy, B: EvictionPolicy> EvictionPolicy for Twins<A, B> {
    fn on_insert(&mut self, slot: SlotId, key: ExpertKey, origin: Origin) {
        self.0.on_insert(slot, key, origin);
        self.1.on_insert(slot, key, origin);
    }
    fn on_hit(&mut self, slot: SlotId, key: ExpertKey) {
        self.0.on_hit(slot, key);
        self.1.on_hit(slot, key);
    }
    fn choose_victim(&mut self, incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        let victim = self.0.choose_victim(incoming, view);
        let other = self.1.choose_victim(incoming, view);
        assert_eq!(victim, other, "for {incoming:?} in {view:?} by {self:?}");
        victim
    }
    fn bind(&mut self, geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        self.0.bind(geometry, slots)?;
        self.1.bind(geometry, slots)
    }
    fn on_resize(&mut self, slots: usize) {
        self.0.on_resize(slots);
        self.1.on_resize(slots);
    }
    fn on_miss(&mut self, key: ExpertKey) {
        self.0.on_miss(key);
        self.1.on_miss(key);
    }
    fn on_remove(&mut self, slot: SlotId, key: ExpertKey, cause: RemoveCause) {
        self.0.on_remove(slot, key, cause);
        self.1.on_remove(slot, key, cause);
    }
    fn on_routing(&mut self, routing: &Routing<'_>) {
        self.0.on_routing(routing);
        self.1.on_routing(routing);
    }
    fn on_step(&mut self, step: &Step<'_>) {
        self.0.on_step(step);
        self.1.on_step(step);
    }
    fn reset(&mut self) {
        self.0.reset();
        self.1.reset();
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Event {
    Step,
    Layer(Call),
    Forecast(u16, u16),
    Hot(u16, u16),
    Resize(usize),
    Clear,
}

/// A layer's turn in a pass.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    layer: u16,
    rows: Vec<Vec<u16>>,
    /// Its routing is told.
    told: bool,
    /// Nothing is demanded of the pool.
    sweep: bool,
    /// Reads into even slots fail.
    fails: bool,
}

pub(crate) fn events() -> impl Strategy<Value = Vec<Event>> {
    let row = || {
        // The first experts are popular, so that something is hit.
        let ids = prop_oneof![(0..5_u16).boxed(), (0..EXPERTS).boxed()];
        proptest::collection::vec(ids, 8).prop_map(|mut ids| {
            ids.extend(0..EXPERTS);
            let mut row = Vec::new();
            for id in ids {
                if !row.contains(&id) && row.len() < TOP_K {
                    row.push(id);
                }
            }
            row
        })
    };
    let call = (
        0..LAYERS,
        prop_oneof![4 => proptest::collection::vec(row(), 1), 1 => proptest::collection::vec(row(), 1..6)],
        proptest::bool::weighted(0.8),
        proptest::bool::weighted(0.05),
        proptest::bool::weighted(0.1),
    );
    let event = prop_oneof![
        20 => call.prop_map(|(layer, rows, told, sweep, fails)| {
            Event::Layer(Call { layer, rows, told, sweep: sweep && told, fails })
        }),
        8 => Just(Event::Step),
        2 => (0..LAYERS, 0..EXPERTS).prop_map(|(layer, id)| Event::Forecast(layer, id)),
        1 => (0..LAYERS, 0..EXPERTS).prop_map(|(layer, id)| Event::Hot(layer, id)),
        1 => (6..20_usize).prop_map(Event::Resize),
        1 => Just(Event::Clear),
    ];
    proptest::collection::vec(event, 1..150)
}

/// Plays `events` to a pool of 11 slots.
pub(crate) fn play(events: &[Event], policy: impl EvictionPolicy) {
    let pool = SlotPool::new(geometry(LAYERS, EXPERTS, TOP_K as u16), 11, policy).unwrap();
    Player { pool, tickets: Vec::new(), pass: 0 }.all(events);
}

/// Plays `events` as if every layer were the first.
pub(crate) fn play_one_layer(events: &[Event], policy: impl EvictionPolicy) {
    let pool = SlotPool::new(geometry(1, EXPERTS, TOP_K as u16), 7, policy).unwrap();
    let mut events = events.to_vec();
    for event in &mut events {
        match event {
            Event::Layer(Call { layer, .. }) | Event::Forecast(layer, _) | Event::Hot(layer, _) => {
                *layer = 0;
            }
            _ => {}
        }
    }
    Player { pool, tickets: Vec::new(), pass: 0 }.all(&events);
}

struct Player<P: EvictionPolicy> {
    pool: SlotPool<P>,
    tickets: Vec<slotstream_cache::Claim>,
    pass: u64,
}

impl<P: EvictionPolicy> Player<P> {
    fn all(&mut self, events: &[Event]) {
        for event in events {
            match event {
                Event::Step => {
                    self.pass += 1;
                    self.pool.begin_step(&step(self.pass, &[])).unwrap();
                }
                Event::Layer(call) => self.call(call),
                Event::Forecast(of, id) => {
                    self.tickets.extend(self.pool.claim(key(*of, *id), Origin::Prefetch));
                }
                Event::Hot(of, id) => {
                    if let Ok(claim) = self.pool.claim(key(*of, *id), Origin::PromptHot) {
                        self.pool.publish(claim).unwrap();
                    }
                }
                // Refused while a forecast's slot would go.
                Event::Resize(slots) => drop(self.pool.resize(*slots)),
                Event::Clear => {
                    self.pool.clear();
                    self.tickets.clear();
                }
            }
            // Reads of forecasts end now and then: adopted ones are published, others given up.
            if self.tickets.len() > 3 {
                for ticket in self.tickets.drain(..) {
                    let _ = self.pool.publish(ticket);
                }
            }
            self.pool.validate().unwrap();
        }
    }

    fn call(&mut self, call: &Call) {
        let tokens = vec![7; call.rows.len()];
        if call.told {
            let ids: Vec<ExpertIdx> = call.rows.iter().flat_map(|row| experts(row)).collect();
            let routing =
                Routing::new(&step(self.pass, &tokens), layer(call.layer), TOP_K, &ids, &[]);
            self.pool.routing(&routing).unwrap();
        }
        if call.sweep {
            return;
        }
        let mut distinct: Vec<u16> = Vec::new();
        for id in call.rows.iter().flatten() {
            if !distinct.contains(id) {
                distinct.push(*id);
            }
        }
        let fits = distinct.len() <= self.pool.capacity();
        if !fits {
            distinct.sort_unstable();
        }
        let distinct = experts(&distinct);
        let waves: Vec<Vec<ExpertIdx>> = if fits {
            vec![distinct]
        } else {
            self.pool.waves(&distinct).unwrap().map(<[ExpertIdx]>::to_vec).collect()
        };
        for wave in waves {
            self.wave(call, &wave);
        }
    }

    fn wave(&mut self, call: &Call, wave: &[ExpertIdx]) {
        let mut out = Ensured::new();
        self.pool.ensure(layer(call.layer), wave, Phase::Decode, &mut out).unwrap();
        for claim in out.take_claims() {
            let even = claim.slot().get().is_multiple_of(2);
            let done = if call.fails && even {
                self.pool.abort(claim, ReadFailed)
            } else {
                self.pool.publish(claim)
            };
            done.unwrap();
        }
        self.pool.release();
    }
}
