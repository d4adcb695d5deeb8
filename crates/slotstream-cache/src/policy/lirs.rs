//! LIRS: the distance between the last two uses.

use slotstream_core::{
    BindError, EvictionPolicy, ExpertKey, Geometry, Incoming, Origin, RemoveCause, SlotId, SlotView,
};

use super::lists::Lists;
use super::options::{Options, SHARE, Setting, check, part, spelled};

/// The low inter-reference recency set (S. Jiang, X. Zhang, *LIRS: An Efficient Low
/// Inter-Reference Recency Set Replacement Policy to Improve Buffer Cache Performance*,
/// SIGMETRICS 2002). Most slots belong to records that were used twice within a short distance
/// (LIR). The others (HIR), a small share, wait in a queue, whose oldest is the victim. A stack
/// orders the LIR records by their last use and, above the oldest of them, whatever else was used
/// since, even where it has lost its slot. A record of the stack that is used again was used
/// within the distance of the oldest LIR record, and takes its place: that one joins the queue.
///
/// The paper's stack may grow with the number of records; this one has a [bound](Self::with),
/// above which the record goes that lost its slot first, as in libCacheSim. Where nothing in the
/// queue is evictable, the LIR record lowest in the stack that can be had goes.
///
/// Events take constant time, averaged over many; the search skips slots that cannot be evicted.
#[derive(Clone, Debug, PartialEq)]
pub struct Lirs {
    settings: Settings,
    geometry: Option<Geometry>,
    slots: usize,
    /// Records by last use, down to the oldest LIR record.
    stack: Lists,
    /// Those of the stack without a slot, in the order in which they lost it.
    lost: Lists,
    /// Slots of HIR records.
    queue: Lists,
    /// By record: its slot.
    slot_of: Vec<u32>,
    /// By record.
    is_lir: Vec<bool>,
    lirs: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Settings {
    hir: f64,
    stack: f64,
}

const NONE: u32 = u32::MAX;

impl Lirs {
    /// `lirs`: a hundredth of the slots for HIR records, as in the paper, and a stack of twice
    /// as many records as there are slots.
    #[must_use]
    pub fn new() -> Self {
        Self::with(0.01, 2.0)
    }

    /// `lirs:hir=...+stack=...`: the share of the slots for HIR records, of which there is at
    /// least one, and the bound of the stack as a share of the slots, both rounded down; `bind`
    /// accepts `hir` from 0 to 1 and `stack` from 1 to 64.
    #[must_use]
    pub fn with(hir: f64, stack: f64) -> Self {
        Self {
            settings: Settings { hir, stack },
            geometry: None,
            slots: 0,
            stack: Lists::default(),
            lost: Lists::default(),
            queue: Lists::default(),
            slot_of: Vec::new(),
            is_lir: Vec::new(),
            lirs: 0,
        }
    }

    fn record(&self, key: ExpertKey) -> Option<u32> {
        // A pool has at most 2^24 records.
        self.geometry?.index(key).map(|index| index as u32)
    }

    fn most_lirs(&self) -> usize {
        self.slots.saturating_sub(part(self.slots, self.settings.hir).max(1))
    }

    fn promote(&mut self, record: u32) {
        self.is_lir[record as usize] = true;
        self.lirs += 1;
        self.settle();
    }

    /// Takes what is not LIR from the bottom of the stack.
    fn prune(&mut self) {
        while let Some(record) = self.stack.oldest(0)
            && !self.is_lir[record as usize]
        {
            self.stack.remove(record);
            self.lost.remove(record);
        }
    }

    /// Makes HIR records of the lowest LIR ones until these are as few as they should be, and
    /// the stack as short.
    fn settle(&mut self) {
        self.prune();
        while self.lirs > self.most_lirs()
            && let Some(record) = self.stack.oldest(0)
        {
            self.stack.remove(record);
            self.is_lir[record as usize] = false;
            self.lirs -= 1;
            self.queue.push(0, self.slot_of[record as usize]);
            self.prune();
        }
        let most = part(self.slots, self.settings.stack);
        while self.stack.len(0) > most
            && let Some(record) = self.lost.oldest(0)
        {
            self.stack.remove(record);
            self.lost.remove(record);
        }
    }
}

impl Default for Lirs {
    fn default() -> Self {
        Self::new()
    }
}

impl Options for Lirs {
    const SETTINGS: &'static [Setting<Self>] = &[
        Setting::real(
            ("hir", "share of the slots for HIR records"),
            SHARE,
            |lirs| lirs.settings.hir,
            |lirs, share| lirs.settings.hir = share,
        ),
        Setting::real(
            ("stack", "bound of the stack, as a share of the slots"),
            ((1.0, 64.0), "a number from 1 to 64"),
            |lirs| lirs.settings.stack,
            |lirs, share| lirs.settings.stack = share,
        ),
    ];
}

impl EvictionPolicy for Lirs {
    fn on_insert(&mut self, slot: SlotId, key: ExpertKey, _origin: Origin) {
        let Some(record) = self.record(key) else { return };
        self.slot_of[record as usize] = slot.get();
        let known = self.stack.list_of(record).is_some();
        self.lost.remove(record);
        self.stack.push(0, record);
        if known || self.lirs < self.most_lirs() {
            self.promote(record);
        } else {
            self.queue.push(0, slot.get());
            self.settle();
        }
    }

    fn on_hit(&mut self, slot: SlotId, key: ExpertKey) {
        let Some(record) = self.record(key) else { return };
        let known = self.stack.list_of(record).is_some();
        self.stack.push(0, record);
        if self.is_lir[record as usize] {
            self.prune();
        } else if known {
            self.queue.remove(slot.get());
            self.promote(record);
        } else {
            self.queue.push(0, slot.get());
            self.settle();
        }
    }

    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        self.queue.oldest_evictable(0, view).or_else(|| {
            let slots =
                self.stack.oldest_first(0).map(|record| SlotId::new(self.slot_of[record as usize]));
            { slots }.find(|slot| view.is_evictable(*slot))
        })
    }

    fn bind(&mut self, geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        check(self)?;
        let records = geometry.records();
        self.geometry = Some(*geometry);
        self.slots = slots;
        self.stack = Lists::new(1, records);
        self.lost = Lists::new(1, records);
        self.queue = Lists::new(1, slots);
        self.slot_of = vec![NONE; records];
        self.is_lir = vec![false; records];
        self.lirs = 0;
        Ok(())
    }

    fn on_resize(&mut self, slots: usize) {
        self.slots = slots;
        self.queue.resize(slots);
        self.settle();
    }

    fn on_remove(&mut self, slot: SlotId, key: ExpertKey, cause: RemoveCause) {
        let Some(record) = self.record(key) else { return };
        self.queue.remove(slot.get());
        self.slot_of[record as usize] = NONE;
        if std::mem::replace(&mut self.is_lir[record as usize], false) {
            self.lirs -= 1;
        }
        if self.stack.list_of(record).is_some() {
            if cause == RemoveCause::Evicted {
                self.lost.push(0, record);
            } else {
                self.stack.remove(record);
            }
        }
        self.prune();
    }

    fn name(&self) -> String {
        spelled("lirs", self)
    }

    fn reset(&mut self) {
        self.stack.clear();
        self.lost.clear();
        self.queue.clear();
        self.slot_of.fill(NONE);
        self.is_lir.fill(false);
        self.lirs = 0;
    }
}
