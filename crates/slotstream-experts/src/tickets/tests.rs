//! Every order of everything that can befall tickets, up to a number of steps.

use std::collections::HashSet;

use slotstream_cache::{Claim, Ensured, Found, Lru, SlotState};
use slotstream_core::{ExpertIdx, Phase};

use super::*;

/// What happens next. Records are of layer 1, which is demanded once a pass; a demand of layer 0
/// comes in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Reserve(u16),
    /// The read that began first, or last, ends well or not.
    Land {
        last: bool,
        failed: bool,
    },
    /// A call of this layer begins.
    Demand(u16, &'static [u16]),
    /// The running call is given up: what it waits for is called off.
    GiveUp,
    /// A layer has passed.
    Expire(u16),
    /// All tickets are to end.
    Retire,
    Resize(usize),
    Clear,
}

const STEPS: &[Step] = &[
    Step::Reserve(0),
    Step::Reserve(1),
    Step::Land { last: false, failed: false },
    Step::Land { last: true, failed: false },
    Step::Land { last: false, failed: true },
    Step::Land { last: true, failed: true },
    Step::Demand(1, &[0]),
    Step::Demand(1, &[1, 2]),
    Step::Demand(0, &[0, 1]),
    Step::GiveUp,
    Step::Expire(1),
    Step::Retire,
    Step::Resize(2),
    Step::Resize(3),
    Step::Clear,
];

/// A read that is queued or running: it may write to its slot at any moment.
#[derive(Debug)]
struct Read {
    id: u64,
    slot: SlotId,
    cancel: CancelToken,
}

/// The machine, and what stands around it: reads, and a call with the claims that it waits for.
struct World {
    pool: SlotPool,
    tickets: Tickets,
    reads: Vec<Read>,
    call: bool,
    late: Vec<(u64, Claim)>,
    /// How tickets ended.
    ends: HashSet<&'static str>,
}

fn key(layer: u16, expert: u16) -> ExpertKey {
    ExpertKey::new(LayerIdx::new(layer), ExpertIdx::new(expert))
}

impl World {
    fn new() -> Self {
        let geometry = Geometry::new(2, 3, 1).expect("legal");
        let policy: Box<dyn slotstream_core::EvictionPolicy> = Box::new(Lru::new());
        let pool = SlotPool::unfloored(geometry, 3, policy).expect("legal");
        let limits = Speculation { keep: Some(0), ..Speculation::default() };
        let (reads, late, ends) = (Vec::new(), Vec::new(), HashSet::new());
        Self { pool, tickets: Tickets::new(limits), reads, call: false, late, ends }
    }

    /// Takes a step; `false` when it cannot be taken now.
    fn take(&mut self, step: Step) -> bool {
        match step {
            Step::Reserve(expert) => self.reserve(key(1, expert)),
            Step::Land { last, failed } => {
                // One read has no first and last.
                self.reads.len() > usize::from(last) && {
                    self.land(if last { self.reads.len() - 1 } else { 0 }, failed);
                    true
                }
            }
            Step::Demand(layer, experts) => !self.call && self.demand(layer, experts),
            Step::GiveUp => {
                let waits = self.call;
                for (id, _) in &self.late {
                    let read = self.reads.iter().find(|read| read.id == *id);
                    read.expect("a late record is being read").cancel.cancel();
                }
                waits
            }
            Step::Expire(layer) => !self.call && self.retire(Some(layer)),
            Step::Retire => !self.call && self.retire(None),
            Step::Resize(slots) => {
                // A provider joins first.
                let idle = !self.call && self.tickets.is_empty() && self.pool.slots() != slots;
                idle && {
                    self.pool.resize(slots).expect("nothing is claimed");
                    true
                }
            }
            Step::Clear => {
                // A provider ends its call and joins first.
                let idle = !self.call && self.tickets.is_empty() && self.pool.resident_count() > 0;
                idle && {
                    self.pool.clear();
                    true
                }
            }
        }
    }

    fn reserve(&mut self, key: ExpertKey) -> bool {
        let due = Due { pass: PassId::new(1), layer: key.layer() };
        match self.tickets.reserve(&mut self.pool, key, due) {
            Ok(Reserved { id, slot, cancel, .. }) => {
                self.reads.push(Read { id, slot, cancel });
                true
            }
            Err(Refused::There | Refused::Full) => false,
            Err(refused) => panic!("{refused:?}"),
        }
    }

    fn land(&mut self, at: usize, failed: bool) {
        let Read { id, cancel, .. } = self.reads.remove(at);
        let failed = failed || cancel.is_cancelled();
        if let Some(at) = self.late.iter().position(|(late, _)| *late == id) {
            let (_, claim) = self.late.remove(at);
            let ended = if failed {
                self.ends.insert("late, failed");
                self.pool.abort(claim, Abort::ReadFailed)
            } else {
                self.ends.insert("late");
                self.pool.publish(claim)
            };
            ended.expect("its own claim");
        } else {
            self.tickets.landed(id, failed, 9);
        }
        self.end_call();
    }

    /// Ends the running call when nothing of it is left; between calls what is over is settled.
    fn end_call(&mut self) {
        if self.call && self.late.is_empty() {
            self.pool.release();
            self.call = false;
        }
        if !self.call {
            let mut gone = Vec::new();
            self.tickets.settle(&mut self.pool, &mut gone).expect("their own claims");
            let end = |gone: Gone| match (gone.failed, gone.bytes) {
                (true, _) => "failed",
                (false, 9) => "discarded",
                _ => "expired",
            };
            self.ends.extend(gone.into_iter().map(end));
        }
    }

    fn demand(&mut self, layer: u16, experts: &[u16]) -> bool {
        if experts.len() > self.pool.capacity() {
            return false;
        }
        let ids: Vec<ExpertIdx> = experts.iter().map(|e| ExpertIdx::new(*e)).collect();
        let mut out = Ensured::new();
        let layer = LayerIdx::new(layer);
        self.pool.ensure(layer, &ids, Phase::Decode, &mut out).expect("there is room");
        for entry in out.entries().iter().filter(|entry| entry.found == Found::Adopted) {
            let key = ExpertKey::new(layer, entry.expert);
            let adopted = self.tickets.adopt(&mut self.pool, key).expect("its own claim");
            match adopted.expect("the pool adopts what has a ticket") {
                Adopted::Ready(slot) => {
                    assert_eq!((slot, self.pool.key(slot)), (entry.slot, Some(key)));
                    self.ends.insert("adopted");
                }
                Adopted::Late { id, claim, .. } => {
                    assert_eq!(claim.slot(), entry.slot);
                    self.late.push((id, claim));
                }
                Adopted::Again { .. } => panic!("what is over is settled before a call"),
            }
        }
        self.pool.publish_all(&mut out).expect("its own claims");
        self.call = true;
        self.end_call();
        true
    }

    fn retire(&mut self, upto: Option<u16>) -> bool {
        let now = upto.map(|layer| Due { pass: PassId::new(1), layer: LayerIdx::new(layer) });
        let live = self.tickets.live.len();
        self.tickets.retire(|_, due| now.is_none_or(|now| due <= now), 1);
        self.end_call();
        live > 0
    }

    /// No slot has two owners: what is being read is claimed for it and for nobody else.
    fn check(&self) {
        self.pool.validate().expect("the tables agree");
        let mut slots = HashSet::new();
        for read in &self.reads {
            assert!(slots.insert(read.slot), "two reads write to {}", read.slot);
            let state = self.pool.state(read.slot);
            let claimed = matches!(state, Some(SlotState::Claimed { .. }));
            assert!(claimed, "a read writes to {}, which is {state:?}", read.slot);
        }
        let reads = |t: &&Ticket| !matches!(t.state, State::Reading | State::Retired);
        for ticket in self.tickets.live.iter().filter(reads) {
            assert!(slots.insert(ticket.claim.slot()), "a slot is ready and being read");
        }
        assert_eq!(self.pool.open_claims(), slots.len(), "a claimed slot has no owner");
        assert_eq!(self.tickets.outstanding() + self.late.len(), self.reads.len());
    }

    /// When all that runs has ended, every slot is free or holds a record.
    fn wind_up(&mut self) {
        while !self.reads.is_empty() {
            self.land(0, false);
            self.check();
        }
        self.retire(None);
        self.check();
        assert!(self.tickets.is_empty() && !self.call);
        assert_eq!(self.pool.open_claims(), 0, "a slot is lost");
    }
}

/// Takes the steps one after another; `None` when the last one cannot be taken.
fn play(steps: &[Step]) -> Option<World> {
    let mut world = World::new();
    for step in steps {
        if !world.take(*step) {
            return None;
        }
        world.check();
    }
    Some(world)
}

fn explore(steps: &mut Vec<Step>, depth: usize, ends: &mut HashSet<&'static str>) -> u64 {
    let Some(mut world) = play(steps) else { return 0 };
    world.wind_up();
    ends.extend(world.ends);
    let mut orders = 1;
    if depth > 0 {
        for step in STEPS {
            steps.push(*step);
            orders += explore(steps, depth - 1, ends);
            steps.pop();
        }
    }
    orders
}

#[test]
fn no_order_loses_a_slot_or_gives_it_to_two() {
    let mut ends = HashSet::new();
    let depth = if cfg!(debug_assertions) { 6 } else { 7 };
    let orders = explore(&mut Vec::new(), depth, &mut ends);
    println!("{orders} orders of up to {depth} steps");
    assert!(orders > 50_000, "only {orders} orders were explored");
    let mut ends: Vec<_> = ends.into_iter().collect();
    ends.sort_unstable();
    assert_eq!(ends, ["adopted", "discarded", "expired", "failed", "late", "late, failed"]);
}

#[test]
fn bounds_hold() {
    let geometry = Geometry::new(2, 8, 2).expect("legal");
    let pool = |slots| {
        let policy: Box<dyn slotstream_core::EvictionPolicy> = Box::new(Lru::new());
        SlotPool::unfloored(geometry, slots, policy).expect("legal")
    };
    let reserved = |limits: Speculation, slots: usize| {
        let (mut pool, mut tickets) = (pool(slots), Tickets::new(limits));
        let keys = (0..2).flat_map(|layer| (0..8).map(move |expert| key(layer, expert)));
        let mut reserve = |key: ExpertKey| {
            let due = Due { pass: PassId::new(1), layer: key.layer() };
            tickets.reserve(&mut pool, key, due).is_ok()
        };
        keys.filter(|key| reserve(*key)).count()
    };
    assert_eq!(reserved(Speculation::default(), 16), 14, "a route stays free");
    assert_eq!(reserved(Speculation { keep: Some(0), ..Speculation::default() }, 16), 16);
    assert_eq!(reserved(Speculation { per_layer: 3, ..Speculation::default() }, 16), 6);
    assert_eq!(reserved(Speculation { in_flight: 5, ..Speculation::default() }, 16), 5);
    assert_eq!(reserved(Speculation::off(), 16), 0);
    assert_eq!(reserved(Speculation::default(), 2), 0);
}

/// A forecast takes no slot of a record that was forecast.
#[test]
fn a_forecast_displaces_no_other() {
    let geometry = Geometry::new(2, 3, 1).expect("legal");
    let policy: Box<dyn slotstream_core::EvictionPolicy> = Box::new(Lru::new());
    let mut pool = SlotPool::unfloored(geometry, 2, policy).expect("legal");
    let mut out = Ensured::new();
    for expert in [0, 1] {
        let experts = [ExpertIdx::new(expert)];
        pool.ensure(LayerIdx::new(1), &experts, Phase::Decode, &mut out).expect("there is room");
        pool.publish_all(&mut out).expect("its own claims");
        pool.release();
    }
    let limits = Speculation { keep: Some(0), ..Speculation::default() };
    let mut tickets = Tickets::new(limits);
    let predict = |expert| slotstream_core::Prediction {
        key: key(1, expert),
        confidence: 1.0,
        needed_by: slotstream_core::Deadline { passes_ahead: 0, layer: LayerIdx::new(1) },
    };
    // The oldest one is forecast, so the other one goes.
    pool.forecast(&[predict(0), predict(2)]).expect("lawful");
    let due = Due { pass: PassId::new(1), layer: LayerIdx::new(1) };
    let reserved = tickets.reserve(&mut pool, key(1, 2), due).expect("there is room");
    assert!(pool.is_resident(key(1, 0)) && !pool.is_resident(key(1, 1)));
    pool.validate().expect("the tables agree");
    // Nothing is left that may go.
    let refused = tickets.reserve(&mut pool, key(1, 1), due);
    assert!(matches!(refused, Err(Refused::Full)), "{refused:?}");
    pool.validate().expect("the tables agree");
    tickets.withdraw(&mut pool, reserved.id).expect("its own claim");
    assert_eq!(pool.open_claims(), 0);
}
