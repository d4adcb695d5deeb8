//! W-TinyLFU: a window, and a contest of frequencies behind it.

use slotstream_core::{
    BindError, EvictionPolicy, ExpertKey, Geometry, Incoming, Origin, RemoveCause, SlotId, SlotView,
};

use super::lists::Lists;
use super::options::{Options, SHARE, Setting, check, part, spelled};

/// W-TinyLFU (G. Einziger, R. Friedman, B. Manes, *TinyLFU: A Highly Efficient Cache Admission
/// Policy*, ACM Transactions on Storage, 2017). New records enter a small LRU window. When it is
/// full, its least recently used record and the next victim of the main part (two segments, as
/// [`Slru`](super::Slru)) are compared: the one that was demanded less often goes, in a tie that
/// of the window. What leaves the window otherwise is on probation in the main part.
///
/// The paper counts demands in a sketch, because keys are many. Here records are few: a counter
/// up to 15 a record, exact, for hits and misses alike. After [so many](Self::with) demands a
/// slot, 10 unless told, all counters are halved.
///
/// An event takes constant time but for the halving, which is spread over as many demands; the
/// search skips slots that cannot be evicted.
#[derive(Clone, Debug, PartialEq)]
pub struct WTinyLfu {
    settings: Settings,
    geometry: Option<Geometry>,
    slots: usize,
    lists: Lists,
    /// By record: demands, up to [`MOST`].
    counts: Vec<u8>,
    /// Demands since the last halving.
    demands: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Settings {
    window: f64,
    protected: f64,
    sample: u64,
}

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;

/// Four bits.
const MOST: u8 = 15;

impl WTinyLfu {
    /// `wtinylfu`: a hundredth of the slots for the window and four fifths of the others
    /// protected, as in the paper; counters are halved every ten demands a slot.
    #[must_use]
    pub fn new() -> Self {
        Self::with(0.01, 0.8, 10)
    }

    /// `wtinylfu:window=...+protected=...+sample=...`: the window, of at least one slot, as a
    /// share of the slots, and the share of the others that may be protected, rounded down; the
    /// demands a slot between two halvings. `bind` accepts shares from 0 to 1 and 1 to 1,000,000
    /// demands.
    #[must_use]
    pub fn with(window: f64, protected: f64, sample: u64) -> Self {
        Self {
            settings: Settings { window, protected, sample },
            geometry: None,
            slots: 0,
            lists: Lists::default(),
            counts: Vec::new(),
            demands: 0,
        }
    }

    fn window(&self) -> usize {
        part(self.slots, self.settings.window).max(1)
    }

    fn most_protected(&self) -> usize {
        part(self.slots.saturating_sub(self.window()), self.settings.protected)
    }

    fn index(&self, key: ExpertKey) -> Option<usize> {
        self.geometry?.index(key)
    }

    fn count(&self, key: Option<ExpertKey>) -> u8 {
        key.and_then(|key| self.index(key)).map_or(0, |index| self.counts[index])
    }

    fn demanded(&mut self, key: ExpertKey) {
        let Some(index) = self.index(key) else { return };
        self.counts[index] = (self.counts[index] + 1).min(MOST);
        self.demands += 1;
        if self.demands >= self.settings.sample.saturating_mul(self.slots as u64) {
            self.demands = 0;
            self.counts.iter_mut().for_each(|count| *count /= 2);
        }
    }
}

impl Default for WTinyLfu {
    fn default() -> Self {
        Self::new()
    }
}

impl Options for WTinyLfu {
    const SETTINGS: &'static [Setting<Self>] = &[
        Setting::real(
            ("window", "the window, as a share of the slots"),
            SHARE,
            |policy| policy.settings.window,
            |policy, share| policy.settings.window = share,
        ),
        Setting::real(
            ("protected", "share of the other slots that may be protected"),
            SHARE,
            |policy| policy.settings.protected,
            |policy, share| policy.settings.protected = share,
        ),
        Setting::count(
            ("sample", "demands a slot after which counters are halved"),
            ((1, 1_000_000), "a whole number from 1 to 1,000,000"),
            |policy| policy.settings.sample,
            |policy, demands| policy.settings.sample = demands,
        ),
    ];
}

impl EvictionPolicy for WTinyLfu {
    #[inline]
    fn on_insert(&mut self, slot: SlotId, _key: ExpertKey, _origin: Origin) {
        self.lists.push(WINDOW, slot.get());
        self.lists.overflow(WINDOW, PROBATION, self.window());
    }

    #[inline]
    fn on_hit(&mut self, slot: SlotId, key: ExpertKey) {
        self.demanded(key);
        if self.lists.list_of(slot.get()) == Some(WINDOW) {
            self.lists.push(WINDOW, slot.get());
        } else {
            self.lists.push(PROTECTED, slot.get());
            self.lists.overflow(PROTECTED, PROBATION, self.most_protected());
        }
    }

    #[inline]
    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        let lists = &self.lists;
        let main = lists
            .oldest_evictable(PROBATION, view)
            .or_else(|| lists.oldest_evictable(PROTECTED, view));
        let full = lists.len(WINDOW) >= self.window();
        if !full && main.is_some() {
            return main;
        }
        match (lists.oldest_evictable(WINDOW, view), main) {
            (Some(window), Some(main)) => {
                let stays = self.count(view.key(window)) > self.count(view.key(main));
                Some(if stays { main } else { window })
            }
            (window, main) => window.or(main),
        }
    }

    fn bind(&mut self, geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        check(self)?;
        self.geometry = Some(*geometry);
        self.slots = slots;
        self.lists = Lists::new(3, slots);
        self.counts = vec![0; geometry.records()];
        self.demands = 0;
        Ok(())
    }

    fn on_resize(&mut self, slots: usize) {
        self.slots = slots;
        self.lists.resize(slots);
        self.lists.overflow(WINDOW, PROBATION, self.window());
        self.lists.overflow(PROTECTED, PROBATION, self.most_protected());
    }

    #[inline]
    fn on_miss(&mut self, key: ExpertKey) {
        self.demanded(key);
    }

    fn on_remove(&mut self, slot: SlotId, _key: ExpertKey, _cause: RemoveCause) {
        self.lists.remove(slot.get());
    }

    fn name(&self) -> String {
        spelled("wtinylfu", self)
    }

    fn reset(&mut self) {
        self.lists.clear();
        self.counts.fill(0);
        self.demands = 0;
    }
}
