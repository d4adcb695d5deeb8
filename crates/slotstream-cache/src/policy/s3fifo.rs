//! S3-FIFO: three first-in-first-out queues.

use slotstream_core::{
    BindError, EvictionPolicy, ExpertKey, Geometry, Incoming, Origin, RemoveCause, SlotId, SlotView,
};

use super::ghosts::Ghosts;
use super::lists::Lists;
use super::options::{Options, SHARE, SHARES, Setting, check, part, spelled};

/// S3-FIFO (J. Yang, Y. Zhang, Z. Qiu, Y. Yue, K. V. Rashmi, *FIFO Queues are All You Need for
/// Cache Eviction*, SOSP 2023). A new record enters a small queue. At its old end a record that
/// was hit often enough moves to the main queue, others are the victims and are remembered. A
/// record that is missed while it is remembered enters the main queue. At the old end of the
/// main queue a record that was hit (counted up to 3, one less each time round) goes round
/// again, else it is the victim. The main queue gives up a record when it is longer than its
/// share, else the small queue does.
///
/// As in libCacheSim, the implementation by the paper's authors: until the first eviction a new
/// record enters the main queue when the small one is full.
///
/// Records that cannot be evicted stay where they are. An event takes constant time; a choice
/// passes a slot at most five times: once in the small queue, four times in the main one.
#[derive(Clone, Debug, PartialEq)]
pub struct S3Fifo {
    settings: Settings,
    slots: usize,
    lists: Lists,
    /// By slot: hits since the record came or moved.
    hits: Vec<u8>,
    ghosts: Ghosts,
    /// The pool was full.
    evicted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Settings {
    small: f64,
    ghost: f64,
    threshold: u64,
}

const SMALL: usize = 0;
const MAIN: usize = 1;
const MOST_HITS: u8 = 3;

impl S3Fifo {
    /// `s3fifo`: a tenth of the slots for the small queue, as many records remembered as the
    /// main queue has slots, two hits to move, as in the paper.
    #[must_use]
    pub fn new() -> Self {
        Self::with(0.1, 0.9, 2)
    }

    /// `s3fifo:small=...+ghost=...+threshold=...`: the small queue, of at least one slot, and the
    /// records remembered as shares of the slots, rounded down; the hits that move a record out
    /// of the small queue. `bind` accepts `small` from 0 to 1, `ghost` from 0 to 64 and
    /// `threshold` from 1 to 3.
    #[must_use]
    pub fn with(small: f64, ghost: f64, threshold: u64) -> Self {
        Self {
            settings: Settings { small, ghost, threshold },
            slots: 0,
            lists: Lists::default(),
            hits: Vec::new(),
            ghosts: Ghosts::default(),
            evicted: false,
        }
    }

    fn small(&self) -> usize {
        part(self.slots, self.settings.small).max(1)
    }

    fn remembered(&self) -> usize {
        part(self.slots, self.settings.ghost)
    }

    /// The first victim of the small queue; those that were hit often enough move.
    fn sift(&mut self, view: &SlotView<'_>) -> Option<u32> {
        let mut at = self.lists.oldest(SMALL);
        while let Some(slot) = self.lists.evictable_from(at, view) {
            if u64::from(self.hits[slot as usize]) < self.settings.threshold {
                return Some(slot);
            }
            at = self.lists.newer(slot);
            self.hits[slot as usize] = 0;
            self.lists.push(MAIN, slot);
        }
        None
    }

    /// The first victim of the main queue; those that were hit go round.
    fn go_round(&mut self, view: &SlotView<'_>) -> Option<u32> {
        let mut at = self.lists.evictable_from(self.lists.oldest(MAIN), view);
        while let Some(slot) = at {
            let hits = &mut self.hits[slot as usize];
            if *hits == 0 {
                return Some(slot);
            }
            *hits -= 1;
            let newer = self.lists.newer(slot);
            self.lists.push(MAIN, slot);
            // Once round, what was passed over is still not evictable: `slot` is next again.
            at = self.lists.evictable_from(newer.or(Some(slot)), view);
        }
        None
    }
}

impl Default for S3Fifo {
    fn default() -> Self {
        Self::new()
    }
}

impl Options for S3Fifo {
    const SETTINGS: &'static [Setting<Self>] = &[
        Setting::real(
            ("small", "the small queue, as a share of the slots"),
            SHARE,
            |s3fifo| s3fifo.settings.small,
            |s3fifo, share| s3fifo.settings.small = share,
        ),
        Setting::real(
            ("ghost", "the records remembered, as a share of the slots"),
            SHARES,
            |s3fifo| s3fifo.settings.ghost,
            |s3fifo, share| s3fifo.settings.ghost = share,
        ),
        Setting::count(
            ("threshold", "hits that move a record to the main queue"),
            ((1, MOST_HITS as u64), "a whole number from 1 to 3"),
            |s3fifo| s3fifo.settings.threshold,
            |s3fifo, hits| s3fifo.settings.threshold = hits,
        ),
    ];
}

impl EvictionPolicy for S3Fifo {
    #[inline]
    fn on_insert(&mut self, slot: SlotId, key: ExpertKey, _origin: Origin) {
        if let Some(hits) = self.hits.get_mut(slot.index()) {
            *hits = 0;
        }
        let skips = !self.evicted && self.lists.len(SMALL) >= self.small();
        let list = if self.ghosts.returns(key) || skips { MAIN } else { SMALL };
        self.lists.push(list, slot.get());
    }

    #[inline]
    fn on_hit(&mut self, slot: SlotId, _key: ExpertKey) {
        if let Some(hits) = self.hits.get_mut(slot.index()) {
            *hits = (*hits + 1).min(MOST_HITS);
        }
    }

    #[inline]
    fn choose_victim(&mut self, _incoming: &Incoming, view: &SlotView<'_>) -> Option<SlotId> {
        let long = self.lists.len(MAIN) > self.slots.saturating_sub(self.small());
        let victim = if long { self.go_round(view) } else { None };
        let victim = victim.or_else(|| self.sift(view));
        victim.or_else(|| self.go_round(view)).map(SlotId::new)
    }

    fn bind(&mut self, geometry: &Geometry, slots: usize) -> Result<(), BindError> {
        check(self)?;
        self.slots = slots;
        self.lists = Lists::new(2, slots);
        self.hits = vec![0; slots];
        self.ghosts = Ghosts::new(1, geometry);
        self.evicted = false;
        Ok(())
    }

    fn on_resize(&mut self, slots: usize) {
        self.slots = slots;
        self.lists.resize(slots);
        self.hits.resize(slots, 0);
        self.ghosts.trim(0, self.remembered());
    }

    #[inline]
    fn on_miss(&mut self, key: ExpertKey) {
        self.ghosts.missed(key);
    }

    fn on_remove(&mut self, slot: SlotId, key: ExpertKey, cause: RemoveCause) {
        match cause {
            RemoveCause::Evicted => {
                self.evicted = true;
                if self.lists.list_of(slot.get()) == Some(SMALL) {
                    self.ghosts.remember(0, key);
                    self.ghosts.trim(0, self.remembered());
                }
            }
            RemoveCause::Cleared => self.evicted = false,
            _ => {}
        }
        self.lists.remove(slot.get());
    }

    fn name(&self) -> String {
        spelled("s3fifo", self)
    }

    fn reset(&mut self) {
        self.lists.clear();
        self.hits.fill(0);
        self.ghosts.clear();
        self.evicted = false;
    }
}
