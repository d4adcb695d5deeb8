//! First and last words of a trace.

use slotstream_cache::{PhaseCounters, PoolCounters, SlotPool};
use slotstream_core::{Attached, EvictionPolicy, Geometry};

use super::cursor::{Bad, Cursor, Put};
use super::{FLAG_LOGITS, FLAG_WEIGHTS};

/// What a trace is of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceHeader {
    /// The model's geometry. Of a text without one: the smallest that holds all its numbers.
    pub geometry: Geometry,
    /// Payload bytes of a record; 0 when unknown.
    pub record_bytes: u64,
    /// Slots of the recorded pool; 0 when the requests are of no pool.
    pub slots: usize,
    /// Fewest slots that the pool could have.
    pub floor: usize,
    /// The recorded policy as it was named; empty when unknown.
    pub policy: String,
    /// The model.
    pub model: String,
    /// Whatever else is worth knowing.
    pub note: String,
    /// Whether routings carry weights.
    pub weights: bool,
    /// Logits recorded for each row of a routing, the highest ones; 0 when none are.
    pub logits: usize,
}

impl TraceHeader {
    /// Requests for a model of this geometry, of no pool.
    #[must_use]
    pub const fn requests(geometry: Geometry) -> Self {
        Self {
            geometry,
            record_bytes: 0,
            slots: 0,
            floor: 0,
            policy: String::new(),
            model: String::new(),
            note: String::new(),
            weights: false,
            logits: 0,
        }
    }

    /// What a sink is told first.
    #[must_use]
    pub fn attached(&self) -> Attached<'_> {
        Attached {
            geometry: self.geometry,
            record_bytes: self.record_bytes,
            slots: self.slots,
            floor: self.floor,
            policy: &self.policy,
        }
    }

    pub(crate) const fn flags(&self) -> u16 {
        (if self.weights { FLAG_WEIGHTS } else { 0 })
            | (if self.logits > 0 { FLAG_LOGITS } else { 0 })
    }

    /// The payload. Numbers of a geometry and of a pool fit their fields.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let short = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
        let long = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let mut out = Vec::new();
        out.put_u16(short(self.geometry.layers()));
        out.put_u16(short(self.geometry.experts()));
        out.put_u16(short(self.geometry.top_k()));
        out.put_u16(short(self.logits));
        out.put_u64(self.record_bytes);
        out.put_u32(long(self.slots));
        out.put_u32(long(self.floor));
        out.put_text(&self.policy);
        out.put_text(&self.model);
        out.put_text(&self.note);
        out
    }

    pub(crate) fn decode(bytes: &[u8], flags: u16) -> Result<Self, Bad> {
        let mut read = Cursor::new(bytes, 0);
        let numbers = (read.u16("layers")?, read.u16("experts")?, read.u16("top_k")?);
        let (layers, experts, top_k) = numbers;
        let Ok(geometry) = Geometry::new(layers, experts, top_k) else {
            let found = format!("{layers} layers, {experts} experts, top-{top_k}");
            return Cursor::bad(0, "geometry", "at least 1 each, top-k at most experts", found);
        };
        let at = read.at();
        let logits = usize::from(read.u16("logits")?);
        let most = if flags & FLAG_LOGITS == 0 { 0 } else { geometry.experts() };
        if logits > most || (logits == 0) != (most == 0) {
            let expected = if most == 0 { "0".to_owned() } else { format!("1 to {most}") };
            return Cursor::bad(at, "logits", expected, logits.to_string());
        }
        let record_bytes = read.u64("record_bytes")?;
        let at = read.at();
        let slots = read.u32("slots")? as usize;
        if slots > geometry.records() {
            let expected = format!("at most {} records", geometry.records());
            return Cursor::bad(at, "slots", expected, slots.to_string());
        }
        let at = read.at();
        let floor = read.u32("floor")? as usize;
        if floor > slots {
            return Cursor::bad(at, "floor", format!("at most {slots} slots"), floor.to_string());
        }
        let (policy, model) = (read.text("policy")?, read.text("model")?);
        let note = read.text("note")?;
        if read.left() > 0 {
            return Cursor::bad(read.at(), "header", "its end", format!("{} bytes", read.left()));
        }
        let weights = flags & FLAG_WEIGHTS != 0;
        Ok(Self { geometry, record_bytes, slots, floor, policy, model, note, weights, logits })
    }
}

/// How many events a trace holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceTotals {
    /// Passes.
    pub passes: u64,
    /// Routings: visits of a layer.
    pub routings: u64,
    /// Forecasts.
    pub forecasts: u64,
    /// Outcomes.
    pub outcomes: u64,
}

impl TraceTotals {
    /// All events.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.passes
            .saturating_add(self.routings)
            .saturating_add(self.forecasts)
            .saturating_add(self.outcomes)
    }
}

/// A pool when its recording ended: what an exact replay must arrive at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolEnd {
    /// Slots.
    pub slots: usize,
    /// Checksum of the records in all slots, in slot order.
    pub content: u32,
    /// The counters.
    pub counters: PoolCounters,
}

impl PoolEnd {
    /// The pool as it is now.
    #[must_use]
    pub fn of<P: EvictionPolicy>(pool: &SlotPool<P>) -> Self {
        let mut content = crc32fast::Hasher::new();
        for (slot, _) in pool.states() {
            let record = pool.key(slot).and_then(|key| pool.geometry().index(key));
            // 0: no record. There are fewer records than 2^32.
            let number = record.map_or(0, |index| index as u32 + 1);
            content.update(&number.to_le_bytes());
        }
        let (slots, content) = (pool.slots(), content.finalize());
        Self { slots, content, counters: *pool.counters() }
    }

    /// Everything that it holds, by name: slots, the checksum, every counter.
    pub fn figures(mut self) -> impl Iterator<Item = (&'static str, u64)> {
        let counters = fields(&mut self.counters).map(|counter| *counter);
        let pool = [("slots", self.slots as u64), ("content", self.content.into())];
        pool.into_iter().chain(COUNTERS.into_iter().zip(counters))
    }

    /// What the two hold differently: name, figure here, figure in `other`.
    pub fn differences(self, other: Self) -> impl Iterator<Item = (&'static str, u64, u64)> {
        let pairs = self.figures().zip(other.figures());
        pairs.filter(|(here, there)| here != there).map(|((name, a), (_, b))| (name, a, b))
    }
}

/// The end mark of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceEnd {
    /// Events before it.
    pub totals: TraceTotals,
    /// The recorded pool, when the recording was told.
    pub pool: Option<PoolEnd>,
}

/// The names of [`fields`].
const COUNTERS: [&str; 24] = [
    "prefill_hits",
    "prefill_misses",
    "prefill_adopted",
    "prefill_pending",
    "prefill_token_lookups",
    "prefill_token_hits",
    "decode_hits",
    "decode_misses",
    "decode_adopted",
    "decode_pending",
    "decode_token_lookups",
    "decode_token_hits",
    "claims_demand",
    "claims_prefetch",
    "claims_prompt",
    "claims_warm_start",
    "claims_other",
    "published",
    "read_failed",
    "withdrawn",
    "discarded",
    "evicted",
    "shrunk",
    "cleared",
];

/// Every counter, in the order of the format.
fn fields(counters: &mut PoolCounters) -> [&mut u64; 24] {
    let PoolCounters { prefill, decode, claims, .. } = counters;
    let [a, b, c, d, e, f] = phase(prefill);
    let [g, h, i, j, k, l] = phase(decode);
    [
        a,
        b,
        c,
        d,
        e,
        f,
        g,
        h,
        i,
        j,
        k,
        l,
        &mut claims.demand,
        &mut claims.prefetch,
        &mut claims.prompt_hot,
        &mut claims.warm_start,
        &mut claims.other,
        &mut counters.published,
        &mut counters.read_failed,
        &mut counters.withdrawn,
        &mut counters.discarded,
        &mut counters.evicted,
        &mut counters.shrunk,
        &mut counters.cleared,
    ]
}

fn phase(phase: &mut PhaseCounters) -> [&mut u64; 6] {
    [
        &mut phase.hits,
        &mut phase.misses,
        &mut phase.adopted,
        &mut phase.pending,
        &mut phase.token_lookups,
        &mut phase.token_hits,
    ]
}

impl TraceEnd {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let TraceTotals { passes, routings, forecasts, outcomes } = self.totals;
        for total in [passes, routings, forecasts, outcomes] {
            out.put_u64(total);
        }
        out.put_u8(u8::from(self.pool.is_some()));
        if let Some(mut pool) = self.pool {
            out.put_u32(u32::try_from(pool.slots).unwrap_or(u32::MAX));
            out.put_u32(pool.content);
            for counter in fields(&mut pool.counters) {
                out.put_u64(*counter);
            }
        }
    }

    pub(crate) fn decode(read: &mut Cursor<'_>) -> Result<Self, Bad> {
        let totals = TraceTotals {
            passes: read.u64("passes")?,
            routings: read.u64("routings")?,
            forecasts: read.u64("forecasts")?,
            outcomes: read.u64("outcomes")?,
        };
        let at = read.at();
        let pool = match read.u8("pool")? {
            0 => None,
            1 => {
                let slots = read.u32("pool slots")? as usize;
                let content = read.u32("pool content")?;
                let mut counters = PoolCounters::default();
                for counter in fields(&mut counters) {
                    *counter = read.u64("counter")?;
                }
                Some(PoolEnd { slots, content, counters })
            }
            found => return Cursor::bad(at, "pool", "0 or 1", found.to_string()),
        };
        if read.left() > 0 {
            let found = format!("{} bytes", read.left());
            return Cursor::bad(read.at(), "end mark", "its end", found);
        }
        Ok(Self { totals, pool })
    }
}
