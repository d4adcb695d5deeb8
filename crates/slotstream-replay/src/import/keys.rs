//! Plain keys, each a pass of its own.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::path::Path;

use slotstream_cache::MAX_RECORDS;
use slotstream_core::{EventSink, ExpertIdx, LayerIdx, Phase, Routing};

use super::lines::Lines;
use super::survey::Declared;
use crate::trace::{TraceError, step_of};

/// Most keys of one layer: more make several layers of this many.
const A_LAYER: usize = u16::MAX as usize;

/// Keys by the order in which they first came.
pub(super) struct Keys<'s, K> {
    numbers: HashMap<K, u32>,
    passes: u64,
    sink: &'s mut dyn EventSink,
}

impl<'s, K: Hash + Eq> Keys<'s, K> {
    pub(super) fn new(sink: &'s mut dyn EventSink) -> Self {
        Self { numbers: HashMap::new(), passes: 0, sink }
    }

    /// A request of `key`.
    pub(super) fn request<Q>(&mut self, path: &Path, key: &Q) -> Result<(), TraceError>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let number = match self.numbers.get(key) {
            Some(number) => *number as usize,
            None if self.numbers.len() == MAX_RECORDS => {
                let (records, most) = (MAX_RECORDS as u64 + 1, MAX_RECORDS as u64);
                return Err(TraceError::TooManyKeys { path: path.into(), records, most });
            }
            None => {
                let number = self.numbers.len();
                self.numbers.insert(key.to_owned(), number as u32);
                number
            }
        };
        let step = step_of((self.passes, Phase::Decode, 0, self.passes), &[0]);
        self.sink.on_step(&step);
        let layer = LayerIdx::new((number / A_LAYER) as u16);
        let ids = [ExpertIdx::new((number % A_LAYER) as u16)];
        self.sink.on_routing(&Routing::new(&step, layer, 1, &ids, &[]));
        self.passes += 1;
        Ok(())
    }
}

/// One key a line; lines that begin with `#` and empty ones are none.
pub(super) fn read(mut lines: Lines, sink: &mut dyn EventSink) -> Result<Declared, TraceError> {
    let mut declared = Declared::default();
    let mut keys: Keys<'_, String> = Keys::new(sink);
    while let Some((line, place)) = lines.next()? {
        let key = line.trim();
        if let Some(note) = key.strip_prefix('#') {
            if declared.note.is_empty() {
                declared.note = note.trim().to_owned();
            }
        } else if key.contains(char::is_whitespace) {
            return place.bad("key", "one key a line", key);
        } else if !key.is_empty() {
            keys.request(&place.path, key)?;
        }
    }
    Ok(declared)
}
