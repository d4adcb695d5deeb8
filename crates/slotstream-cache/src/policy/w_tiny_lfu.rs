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
/// of the window; one that wins enters the main part, on probation. While slots are free, what
/// is too much for the window enters it without a contest.
///
/// One call brings several records, which are pinned and cannot lose a contest yet. They stay in
/// the window until they can, even if it is larger than its share then.
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
    /// The next record takes the slot of another one.
    evicted: bool,
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
            evicted: false,
        }
    }

    fn window(&self) -> usize {
        part(self.slots, self.settings.window).max(1)
    }

    /// Slots of the main part.
    fn main(&self) -> usize {
        self.slots.saturating_sub(self.window())
    }

    fn main_has_room(&self) -> bool {
        self.lists.len(PROBATION) + self.lists.len(PROTECTED) < self.main()
    }

    fn most_protected(&self) -> usize {
        part(self.main(), self.settings.protected)
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
        if !std::mem::take(&mut self.evicted) {
            while self.lists.len(WINDOW) > self.window()
                && self.main_has_room()
                && let Some(slot) = self.lists.oldest(WINDOW)
            {
                self.lists.push(PROBATION, slot);
            }
        }
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
        let main = self
            .lists
            .oldest_evictable(PROBATION, view)
            .or_else(|| self.lists.oldest_evictable(PROTECTED, view));
        let Some(main) = main else { return self.lists.oldest_evictable(WINDOW, view) };
        let most = self.count(view.key(main));
        let mut at = self.lists.oldest(WINDOW);
        while self.lists.len(WINDOW) >= self.window()
            && let Some(slot) = self.lists.evictable_from(at, view)
        {
            if self.count(view.key(SlotId::new(slot))) <= most {
                return Some(SlotId::new(slot));
            }
            at = self.lists.newer(slot);
            let had_room = self.main_has_room();
            self.lists.push(PROBATION, slot);
            if !had_room {
                break;
            }
        }
        Some(main)
    }

    fn bind(&mut self, geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        check(self)?;
        self.geometry = Some(*geometry);
        self.slots = slots;
        self.lists = Lists::new(3, slots);
        self.counts = vec![0; geometry.records()];
        self.demands = 0;
        self.evicted = false;
        Ok(())
    }

    fn on_resize(&mut self, slots: usize) {
        self.slots = slots;
        self.lists.resize(slots);
        self.lists.overflow(PROTECTED, PROBATION, self.most_protected());
    }

    #[inline]
    fn on_miss(&mut self, key: ExpertKey) {
        self.demanded(key);
    }

    fn on_remove(&mut self, slot: SlotId, _key: ExpertKey, cause: RemoveCause) {
        self.evicted = cause == RemoveCause::Evicted;
        self.lists.remove(slot.get());
    }

    fn name(&self) -> String {
        spelled("wtinylfu", self)
    }

    fn reset(&mut self) {
        self.lists.clear();
        self.counts.fill(0);
        self.demands = 0;
        self.evicted = false;
    }
}
