//! Prefill passes of many rows: the experts of a layer go by one after another, read in large runs
//! into memory of their own, and the pool is left as it is.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use candle_core::Tensor;
use slotstream_cache::{Abort, CacheError};
use slotstream_candle::{SlotArena, SlotDevice};
use slotstream_core::{
    EventSink, ExpertIdx, ExpertKey, Geometry, LayerIdx, Origin, Outcome, ReadClass, RecordLayout,
    Routing, SlotId,
};

use crate::ExpertsError;
use crate::call::Wait;
use crate::landing::{Group, Landed, Lent, Owner, PieceFault, Place, Spare, read};
use crate::prompt::Prompts;
use crate::provider::StreamingExperts;
use crate::runs::{Run, longest_pieces, runs};

/// When a prefill pass is swept. It changes time and what is read, never a bit of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PrefillSweep {
    /// Never: every pass goes through the pool. The default, since no number of rows was found from
    /// which sweeps are faster.
    #[default]
    Off,
    /// From so many rows on.
    Rows(usize),
}

impl PrefillSweep {
    /// Fewest rows of a pass that is swept; `None`: none is.
    #[must_use]
    pub const fn rows(self) -> Option<usize> {
        match self {
            Self::Rows(rows) => Some(rows),
            Self::Off => None,
        }
    }

    /// Bytes that sweeps hold at most: the blocks that are computed and read, a buffer for each of
    /// `lanes` reads at once, and the counts of one prompt.
    #[must_use]
    pub fn planned_bytes(self, layout: &RecordLayout, geometry: &Geometry, lanes: usize) -> u64 {
        if self.rows().is_none() {
            return 0;
        }
        let records = per_block(layout, geometry);
        let blocks = (BLOCKS * records * layout.stride()) as u64;
        blocks + lanes as u64 * longest_pieces(layout, records) + Prompts::bytes(geometry)
    }
}

impl fmt::Display for PrefillSweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows(rows) => rows.fmt(f),
            Self::Off => f.write_str("off"),
        }
    }
}

/// A text that is no [`PrefillSweep`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{value:?}: expected off or a number of rows from 1 on")]
#[non_exhaustive]
pub struct SweepOptionError {
    /// The text.
    pub value: String,
}

impl FromStr for PrefillSweep {
    type Err = SweepOptionError;

    fn from_str(text: &str) -> Result<Self, SweepOptionError> {
        match (text, text.parse()) {
            ("off", _) => Ok(Self::Off),
            (_, Ok(rows @ 1..)) => Ok(Self::Rows(rows)),
            _ => Err(SweepOptionError { value: text.into() }),
        }
    }
}

/// Blocks of records: one is computed while the others are read.
const BLOCKS: usize = 4;

/// Most bytes of a block, which is one run where a container holds it.
const BLOCK_BYTES: usize = 16 << 20;

/// Records of a block; a layer has at least [`BLOCKS`], or no two of them would overlap.
fn per_block(layout: &RecordLayout, geometry: &Geometry) -> usize {
    (BLOCK_BYTES / layout.stride()).clamp(1, geometry.experts().div_ceil(BLOCKS))
}

/// Memory outside of the pool that sweeps read into, and when they do.
#[derive(Debug)]
pub(crate) struct Staging {
    rows: usize,
    arena: SlotArena,
    per_block: usize,
    spare: Arc<Spare>,
}

impl Staging {
    /// Reserves the blocks; `None` where nothing is swept.
    pub(crate) fn new(
        sweep: PrefillSweep,
        layout: &RecordLayout,
        geometry: &Geometry,
        device: Option<Arc<dyn SlotDevice>>,
    ) -> Result<Option<Self>, ExpertsError> {
        let Some(rows) = sweep.rows() else { return Ok(None) };
        let per_block = per_block(layout, geometry);
        let arena = SlotArena::on(device, layout.clone(), BLOCKS * per_block)?;
        Ok(Some(Self { rows, arena, per_block, spare: Spare::new() }))
    }

    /// Whether a pass of `rows` rows is swept.
    pub(crate) const fn sweeps(&self, rows: usize) -> bool {
        rows >= self.rows
    }

    /// The slot of record `at` of a block.
    const fn slot(&self, block: usize, at: usize) -> SlotId {
        // Both are small numbers.
        SlotId::new(((block % BLOCKS) * self.per_block + at) as u32)
    }
}

/// A layer that is swept.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// Computed where they are.
    resident: Vec<(ExpertIdx, SlotId)>,
    /// Read, in blocks; ascending.
    absent: Vec<ExpertIdx>,
    /// To be admitted once read; ascending.
    hot: Vec<ExpertIdx>,
    /// By block, as far as reads were queued: their number, bytes and the longest of them.
    queued: Vec<(u64, u64, u64)>,
    /// By block: whether it has landed, and its fault.
    landed: Vec<Option<Option<PieceFault>>>,
}

impl StreamingExperts {
    /// Decides what a sweep reads, says so and queues the first blocks.
    pub(crate) fn begin_sweep(&mut self, routing: &Routing<'_>) -> Result<(), ExpertsError> {
        let layer = routing.layer();
        let mut sweep = Sweep::default();
        for expert in self.grouped.experts() {
            match self.pool.slot_of(ExpertKey::new(layer, *expert)) {
                Some(slot) => sweep.resident.push((*expert, slot)),
                None => sweep.absent.push(*expert),
            }
        }
        if self.hints.prompt.is_some_and(|prompt| prompt.last) {
            sweep.hot = self.hot_experts(routing);
            // One that only earlier passes used is read to be admitted.
            sweep.absent.extend_from_slice(&sweep.hot);
            sweep.absent.sort_unstable();
            sweep.absent.dedup();
        }
        let (records, resident) = (sweep.absent.len(), sweep.resident.len());
        // First: a sink may panic, and a sweep that was told of has no other end.
        if let Some(call) = &mut self.call {
            call.sweep = Some(sweep);
        }
        self.sinks.on_outcome(&Outcome::Swept { layer, records });
        self.metrics.sweeps += 1;
        self.metrics.swept_resident += resident as u64;
        (0..BLOCKS).try_for_each(|_| self.queue_block())
    }

    /// The prompt's most used experts of a layer that are not resident: of as many as are the
    /// layer's share of the pool.
    fn hot_experts(&self, routing: &Routing<'_>) -> Vec<ExpertIdx> {
        let (geometry, layer) = (self.pool.geometry(), routing.layer());
        let share = (self.pool.slots() / geometry.layers()).max(1);
        let mut hot = self.prompts.hottest(routing.session(), geometry, layer, share);
        hot.retain(|expert| !self.pool.is_resident(ExpertKey::new(layer, *expert)));
        hot
    }

    /// Queues the reads of the next block, if there is one.
    fn queue_block(&mut self) -> Result<(), ExpertsError> {
        let (Some(staging), Some(call)) = (&self.staging, &mut self.call) else { return Ok(()) };
        let Some(sweep) = &mut call.sweep else { return Ok(()) };
        let number = sweep.queued.len();
        let Some(block) = sweep.absent.chunks(staging.per_block).nth(number) else {
            return Ok(());
        };
        let layout = staging.arena.layout();
        let key = |expert: &ExpertIdx| ExpertKey::new(call.layer, *expert);
        let places: Vec<Place> = block
            .iter()
            .map(|expert| Place::of(key(expert), layout, &*self.index))
            .collect::<Result<_, _>>()?;
        let runs = runs(&places, layout);
        let slots: Vec<SlotId> = (0..places.len()).map(|at| staging.slot(number, at)).collect();
        let lent = lend(&staging.arena, &slots, &runs)?;
        let bytes = |run: &Run| run.extent().len();
        let longest = runs.iter().map(bytes).max().unwrap_or(0);
        sweep.queued.push((runs.len() as u64, runs.iter().map(bytes).sum(), longest));
        let group = Group::new(Owner::Call(number), runs.len(), &self.landed.0);
        let jobs = runs.iter().zip(lent).enumerate().map(|(at, (run, lent))| {
            read(Some(at), *run.extent(), lent, &group, Some(&staging.spare), &call.cancel)
        });
        let jobs = jobs.collect();
        self.outstanding += 1;
        self.queue.submit(ReadClass::Demand, jobs);
        Ok(())
    }

    /// Computes the resident experts, then block after block while the next ones are read.
    pub(crate) fn run_sweep(&mut self, x: &Tensor, out: &Tensor) -> Result<(), ExpertsError> {
        let Some((layer, sweep)) =
            self.call.as_ref().and_then(|call| Some((call.layer, call.sweep.as_ref()?)))
        else {
            return Ok(());
        };
        // Before anything is admitted, which may take their slots.
        self.run(&self.arena, &sweep.resident, x, out)?;
        let blocks = match &self.staging {
            Some(staging) => sweep.absent.len().div_ceil(staging.per_block),
            None => 0,
        };
        for number in 0..blocks {
            if self.hints.cancel.is_cancelled() {
                return Err(ExpertsError::Cancelled { layer });
            }
            self.await_block(layer, number)?;
            self.run_block(number, x, out)?;
            self.admit_block(layer, number)?;
            self.queue_block()?;
        }
        Ok(())
    }

    /// Waits until a block is there and counts it.
    fn await_block(&mut self, layer: LayerIdx, number: usize) -> Result<(), ExpertsError> {
        loop {
            if let Some(sweep) = self.call.as_mut().and_then(|call| call.sweep.as_mut())
                && let Some(landed) = sweep.landed.get_mut(number).and_then(Option::take)
            {
                let (runs, bytes, longest) = sweep.queued[number];
                let records = self.block(number).len() as u64;
                if let Some(fault) = landed {
                    return Err(self.run_error(layer, number, fault));
                }
                self.metrics.swept_records += records;
                self.metrics.sweep_runs += runs;
                self.metrics.sweep_bytes += bytes;
                self.metrics.longest_run = self.metrics.longest_run.max(longest);
                return Ok(());
            }
            if self.outstanding == 0 {
                let when = "before the reads of a block were queued";
                return Err(ExpertsError::Order { called: "compute", when });
            }
            if let Some(landed) = self.next_landed(Wait::UnlessCancelled)? {
                self.settle_block(landed);
            }
        }
    }

    /// Notes that a block has landed.
    fn settle_block(&mut self, landed: Landed) {
        let Owner::Call(number) = landed.owner else { return };
        if let Some(sweep) = self.call.as_mut().and_then(|call| call.sweep.as_mut()) {
            let known = sweep.landed.len().max(number + 1);
            sweep.landed.resize_with(known, || None);
            sweep.landed[number] = Some(landed.fault);
        }
    }

    /// The experts of a block.
    fn block(&self, number: usize) -> &[ExpertIdx] {
        let sweep = self.call.as_ref().and_then(|call| call.sweep.as_ref());
        let (Some(sweep), Some(staging)) = (sweep, &self.staging) else { return &[] };
        sweep.absent.chunks(staging.per_block).nth(number).unwrap_or_default()
    }

    fn run_block(&self, number: usize, x: &Tensor, out: &Tensor) -> Result<(), ExpertsError> {
        let Some(staging) = &self.staging else { return Ok(()) };
        let numbered = self.block(number).iter().enumerate();
        let records: Vec<_> = numbered
            .map(|(at, expert)| (*expert, staging.slot(number, at)))
            .filter(|(expert, _)| self.grouped.count(*expert) > 0)
            .collect();
        Ok(self.run(&staging.arena, &records, x, out)?)
    }

    /// Copies the hot experts of a block into slots of the pool.
    fn admit_block(&mut self, layer: LayerIdx, number: usize) -> Result<(), ExpertsError> {
        let Some(sweep) = self.call.as_ref().and_then(|call| call.sweep.as_ref()) else {
            return Ok(());
        };
        let hot = |expert: &ExpertIdx| sweep.hot.binary_search(expert).is_ok();
        let block = self.block(number).iter().enumerate();
        let admitted: Vec<_> =
            block.filter(|(_, expert)| hot(expert)).map(|(at, expert)| (at, *expert)).collect();
        for (at, expert) in admitted {
            if !self.admit(ExpertKey::new(layer, expert), (number, at))? {
                break;
            }
        }
        Ok(())
    }

    /// Gives a staged record a slot, if the policy likes; `false` when there is none for anybody.
    fn admit(&mut self, key: ExpertKey, from: (usize, usize)) -> Result<bool, ExpertsError> {
        let Some(staging) = &self.staging else { return Ok(false) };
        let origin = Origin::PromptHot;
        let claim = match self.pool.claim(key, origin) {
            Ok(claim) => claim,
            Err(CacheError::Exhausted { .. }) => return Ok(false),
            Err(error @ (CacheError::NotAdmitted { .. } | CacheError::PolicyViolation { .. })) => {
                self.sinks.on_outcome(&Outcome::NotAdmitted { key, origin });
                self.metrics.hot_refused += 1;
                let refused = matches!(error, CacheError::NotAdmitted { .. });
                return if refused { Ok(true) } else { Err(error.into()) };
            }
            Err(error) => return Err(error.into()),
        };
        let slot = claim.slot();
        let staged = staging.slot(from.0, from.1);
        let copied = copy(&staging.arena, staged, &self.arena, slot, claim.after());
        if let Err(error) = copied {
            self.pool.abort(claim, Abort::Withdrawn)?;
            self.sinks.on_outcome(&Outcome::Withdrawn { slot, key, origin });
            return Err(error.into());
        }
        self.pool.publish(claim)?;
        self.sinks.on_outcome(&Outcome::Admitted { slot, key, origin });
        self.metrics.hot_admitted += 1;
        Ok(true)
    }

    fn run_error(&self, layer: LayerIdx, number: usize, fault: PieceFault) -> ExpertsError {
        let block = self.block(number);
        let key = |expert: Option<&ExpertIdx>| {
            ExpertKey::new(layer, expert.copied().unwrap_or(ExpertIdx::new(0)))
        };
        ExpertsError::ReadRun {
            first: key(block.first()),
            last: key(block.last()),
            tensor: self.index.tensor(&fault.extent),
            source: fault.source,
        }
    }
}

/// Lends each run of a block what it is read into: the block's record `i` goes to `slots[i]` of `arena`,
/// and a run of whole records to neighbouring slots.
pub(crate) fn lend(
    arena: &SlotArena,
    slots: &[SlotId],
    runs: &[Run],
) -> Result<Vec<Lent>, ExpertsError> {
    let mut leases: Vec<_> = slots.iter().map(|_| None).collect();
    let mut lent = Vec::with_capacity(runs.len());
    for run in runs {
        lent.push(match run {
            Run::Slots { extent, first, count } => {
                lend_slots(arena, &slots[*first..first + count], extent.len() as usize)?
            }
            Run::Pieces { extent, pieces } => {
                let mut parts = Vec::with_capacity(pieces.len());
                for part in pieces {
                    let lease = match &mut leases[part.record] {
                        Some(lease) => lease,
                        none => none
                            .insert(arena.lease(slots[part.record], None)?.into_pieces().map(Some)),
                    };
                    parts.extend(lease[part.piece].take().map(|piece| (part.at, piece)));
                }
                match parts.pop() {
                    Some((0, piece)) if parts.is_empty() => Lent::piece(piece),
                    last => {
                        parts.extend(last);
                        let len = extent.len() as usize;
                        Lent::Apart(slotstream_io::AlignedBuf::new(), len, parts)
                    }
                }
            }
        });
    }
    Ok(lent)
}

/// Lends neighbouring slots to one read of `len` bytes: as they lie, where the host may write them and
/// they are in one slab.
fn lend_slots(arena: &SlotArena, slots: &[SlotId], len: usize) -> Result<Lent, ExpertsError> {
    if arena.is_host() {
        let first = slots.first().copied().unwrap_or(SlotId::new(0));
        match arena.lease_run(first, slots.len()) {
            Ok(lease) => return Ok(Lent::Slots(lease, len)),
            Err(slotstream_candle::Error::NoSuchSlot { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let stride = arena.layout().stride();
    let whole = |(i, slot): (usize, &SlotId)| {
        Ok((i * stride, arena.lease(*slot, None)?.into_whole(len - i * stride)))
    };
    let parts = slots.iter().enumerate().map(whole).collect::<Result<_, ExpertsError>>()?;
    Ok(Lent::Apart(slotstream_io::AlignedBuf::new(), len, parts))
}

/// Copies a record from one slot memory to another.
fn copy(
    from: &SlotArena,
    record: SlotId,
    to: &SlotArena,
    slot: SlotId,
    after: Option<slotstream_core::Tick>,
) -> Result<(), slotstream_candle::Error> {
    let reading = from.read(&[record])?;
    let mut lease = to.lease(slot, after)?.into_whole(usize::MAX);
    if let Some(bytes) = reading.record(record) {
        lease.bytes().copy_from_slice(bytes);
    }
    Ok(())
}
