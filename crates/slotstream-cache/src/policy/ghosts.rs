//! Records that were given up and are remembered.

use slotstream_core::{ExpertKey, Geometry};

use super::lists::Lists;

/// Queues of records without a slot, oldest first; a record is in one of them or in none.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Ghosts {
    geometry: Option<Geometry>,
    lists: Lists,
    /// The record of the last miss, if it was remembered.
    returning: Option<u32>,
}

impl Ghosts {
    /// `queues` empty queues for the records of `geometry`.
    pub(super) fn new(queues: usize, geometry: &Geometry) -> Self {
        let lists = Lists::new(queues, geometry.records());
        Self { geometry: Some(*geometry), lists, returning: None }
    }

    fn record(&self, key: ExpertKey) -> Option<u32> {
        // A pool has at most 2^24 records.
        self.geometry?.index(key).map(|index| index as u32)
    }

    /// `key` becomes the newest of `queue`.
    #[inline]
    pub(super) fn remember(&mut self, queue: usize, key: ExpertKey) {
        if let Some(record) = self.record(key) {
            self.lists.push(queue, record);
        }
    }

    /// The queue that `key` is in.
    #[inline]
    pub(super) fn queue_of(&self, key: ExpertKey) -> Option<usize> {
        self.lists.list_of(self.record(key)?)
    }

    /// Number of records in `queue`.
    #[inline]
    pub(super) fn len(&self, queue: usize) -> usize {
        self.lists.len(queue)
    }

    /// Forgets `key`; the queue that it was in.
    #[inline]
    pub(super) fn forget(&mut self, key: ExpertKey) -> Option<usize> {
        let record = self.record(key)?;
        let queue = self.lists.list_of(record);
        self.lists.remove(record);
        queue
    }

    /// Forgets the oldest of `queue` until at most `most` are left.
    #[inline]
    pub(super) fn trim(&mut self, queue: usize, most: usize) {
        while self.len(queue) > most
            && let Some(record) = self.lists.oldest(queue)
        {
            self.lists.remove(record);
        }
    }

    /// A demand missed `key`: it leaves its queue now, so that the eviction for it cannot push
    /// it out, and [`returns`](Self::returns) still knows.
    #[inline]
    pub(super) fn missed(&mut self, key: ExpertKey) {
        self.returning = self.forget(key).and_then(|_| self.record(key));
    }

    /// Whether `key`, which gets a slot, was remembered. It no longer is.
    #[inline]
    pub(super) fn returns(&mut self, key: ExpertKey) -> bool {
        let missed = self.returning.take();
        self.forget(key).is_some() || (missed.is_some() && missed == self.record(key))
    }

    /// Nothing is remembered.
    pub(super) fn clear(&mut self) {
        self.lists.clear();
        self.returning = None;
    }
}
