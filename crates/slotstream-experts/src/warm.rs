//! A pool that begins with records that were resident before.

use std::collections::VecDeque;

use slotstream_cache::{CacheError, Claim};
use slotstream_core::{
    BindError, CancelToken, EventSink, EvictionPolicy, ExpertKey, Extent, Origin, Outcome,
    ReadClass, SlotId,
};

use crate::ExpertsError;
use crate::call::Wait;
use crate::landing::{Group, Landed, Owner, PieceFault, Place, Spare, read};
use crate::provider::StreamingExperts;
use crate::runs::{Run, runs};
use crate::sweep::lend;

/// Most bytes of a block, whose reads are queued together.
const BLOCK_BYTES: usize = 16 << 20;
/// Blocks that are read at once: the pieces of shards bounce, and that memory is in no plan's row but
/// that of the workspace, which nobody uses yet.
const BLOCKS: usize = 2;

/// What a warm start did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WarmStart {
    /// Records that were asked for.
    pub asked: usize,
    /// Records that are resident now.
    pub admitted: usize,
    /// Records that the policy did not want.
    pub refused: usize,
    /// Records for which there was no free slot.
    pub left_out: usize,
    /// Reads, each of neighbours in a file.
    pub reads: u64,
    /// Bytes of them.
    pub bytes: u64,
}

/// A block of records whose reads are under way.
struct Block {
    number: usize,
    claims: Vec<Claim>,
    landed: Option<Option<PieceFault>>,
}

impl StreamingExperts {
    /// Lets the policy take over a state that it exported, before the pool has a record.
    ///
    /// # Errors
    /// [`BindError`] when it is no state of this policy and model.
    pub fn import_policy(&mut self, state: &[u8]) -> Result<(), BindError> {
        self.pool.policy_mut().import(state)
    }

    /// Reads records into free slots, in one sweep over the files: in the order in which they lie there,
    /// neighbours at once. Evicts nothing; where there are fewer free slots than records, it takes some of
    /// them, evenly. Between two passes.
    ///
    /// To the policy each is an insertion of origin [`Origin::WarmStart`]; to the sinks
    /// [`Outcome::Admitted`], told when the slot is taken.
    ///
    /// # Errors
    /// What a read or a policy can answer, [`ExpertsError::ReadRun`] among them, and
    /// [`ExpertsError::Stopped`] when `cancel` was set. The pool is then empty, as if nothing had been
    /// asked for, and its counters are zero.
    pub fn warm_start(
        &mut self,
        keys: &[ExpertKey],
        cancel: &CancelToken,
    ) -> Result<WarmStart, ExpertsError> {
        self.join_tickets()?;
        let stop = CancelToken::new();
        let result = self.read_back(keys, (cancel, &stop));
        if result.is_err() {
            stop.cancel();
            self.clear();
            self.reset_counters();
        }
        result
    }

    fn read_back(
        &mut self,
        keys: &[ExpertKey],
        (cancel, stop): (&CancelToken, &CancelToken),
    ) -> Result<WarmStart, ExpertsError> {
        let mut done = WarmStart { asked: keys.len(), ..WarmStart::default() };
        let wanted = self.wanted(keys)?;
        done.left_out = keys.len() - wanted.len();
        let layout = self.arena.layout();
        let per_block = (BLOCK_BYTES / layout.stride()).max(1);
        let spare = Spare::new();
        let mut flying: VecDeque<Block> = VecDeque::new();
        for (number, records) in wanted.chunks(per_block).enumerate() {
            if cancel.is_cancelled() {
                return Err(ExpertsError::Stopped { called: "warm start" });
            }
            while flying.len() >= BLOCKS {
                self.land_block(&mut flying)?;
            }
            let block = self.queue_warm(number, records, (&spare, stop), &mut done)?;
            flying.extend(block);
        }
        while !flying.is_empty() {
            self.land_block(&mut flying)?;
        }
        done.left_out += done.asked - done.left_out - done.refused - done.admitted;
        Ok(done)
    }

    /// Records that are not there, as many as have room, in the order of the files.
    fn wanted(&self, keys: &[ExpertKey]) -> Result<Vec<(ExpertKey, Place)>, ExpertsError> {
        let absent: Vec<ExpertKey> =
            keys.iter().copied().filter(|key| !self.pool.is_resident(*key)).collect();
        let free = self.free_slots();
        let chosen: Vec<ExpertKey> = if absent.len() <= free {
            absent
        } else {
            (0..free).map(|at| absent[at * absent.len() / free]).collect()
        };
        let found = |key: ExpertKey| Ok((key, Place::of(key, self.arena.layout(), &*self.index)?));
        let mut found: Vec<_> =
            chosen.into_iter().map(found).collect::<Result<_, ExpertsError>>()?;
        found.sort_by_key(|(_, place)| match place {
            Place::Whole(extent) => *extent,
            Place::Pieces(extents) => extents[0],
        });
        Ok(found)
    }

    fn free_slots(&self) -> usize {
        let pool = &self.pool;
        pool.slots().saturating_sub(pool.resident_count() + pool.open_claims())
    }

    /// Claims the records of a block, and queues their reads; `None` where nobody wants any.
    fn queue_warm(
        &mut self,
        number: usize,
        records: &[(ExpertKey, Place)],
        (spare, stop): (&std::sync::Arc<Spare>, &CancelToken),
        done: &mut WarmStart,
    ) -> Result<Option<Block>, ExpertsError> {
        let origin = Origin::WarmStart;
        let (mut claims, mut places) = (Vec::new(), Vec::new());
        for (key, place) in records {
            if self.free_slots() == 0 {
                break;
            }
            match self.pool.claim(*key, origin) {
                Ok(claim) => {
                    let (slot, key) = (claim.slot(), claim.key());
                    self.sinks.on_outcome(&Outcome::Admitted { slot, key, origin });
                    claims.push(claim);
                    places.push(*place);
                }
                Err(CacheError::NotAdmitted { key, .. }) => {
                    self.sinks.on_outcome(&Outcome::NotAdmitted { key, origin });
                    done.refused += 1;
                }
                // Named twice.
                Err(CacheError::Claimed { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if claims.is_empty() {
            return Ok(None);
        }
        let layout = self.arena.layout();
        let slots: Vec<SlotId> = claims.iter().map(Claim::slot).collect();
        let runs = neighbours(runs(&places, layout), &slots, layout.stride() as u64);
        let lent = lend(&self.arena, &slots, &runs)?;
        let group = Group::new(Owner::Call(number), runs.len(), &self.landed.0);
        let jobs = runs.iter().zip(lent).enumerate().map(|(at, (run, lent))| {
            read(Some(at), *run.extent(), lent, &group, Some(spare), stop)
        });
        let jobs: Vec<_> = jobs.collect();
        done.admitted += claims.len();
        done.reads += runs.len() as u64;
        done.bytes += runs.iter().map(|run| run.extent().len()).sum::<u64>();
        self.outstanding += 1;
        self.queue.submit(ReadClass::Demand, jobs);
        Ok(Some(Block { number, claims, landed: None }))
    }

    /// Waits for the block that was queued first; its records are resident then.
    fn land_block(&mut self, flying: &mut VecDeque<Block>) -> Result<(), ExpertsError> {
        while flying.front().is_some_and(|block| block.landed.is_none()) {
            let Some(Landed { owner, fault, .. }) = self.next_landed(Wait::ToTheEnd)? else {
                continue;
            };
            let block = flying.iter_mut().find(|block| owner == Owner::Call(block.number));
            if let Some(block) = block {
                block.landed = Some(fault);
            }
        }
        let Some(Block { claims, landed, .. }) = flying.pop_front() else { return Ok(()) };
        if let Some(Some(fault)) = landed {
            let key = |claim: Option<&Claim>| claim.map(Claim::key);
            let ends = key(claims.first()).zip(key(claims.last()));
            let Some((first, last)) = ends else { return Ok(()) };
            let tensor = self.index.tensor(&fault.extent);
            return Err(ExpertsError::ReadRun { first, last, tensor, source: fault.source });
        }
        claims.into_iter().try_for_each(|claim| Ok(self.pool.publish(claim)?))
    }
}

/// The same runs, of which those of whole records go to neighbouring slots.
fn neighbours(runs: Vec<Run>, slots: &[SlotId], stride: u64) -> Vec<Run> {
    let mut split = Vec::with_capacity(runs.len());
    for run in runs {
        let Run::Slots { extent, first, count } = run else {
            split.push(run);
            continue;
        };
        let mut begin = 0;
        for at in 1..=count {
            let follows = |at: usize| slots[first + at].get() == slots[first + at - 1].get() + 1;
            if at < count && follows(at) {
                continue;
            }
            let offset = extent.offset() + begin as u64 * stride;
            let end = if at == count { extent.end() } else { extent.offset() + at as u64 * stride };
            // A part of an extent that is lawful.
            if let Ok(extent) = Extent::new(extent.file(), offset, end - offset) {
                split.push(Run::Slots { extent, first: first + begin, count: at - begin });
            }
            begin = at;
        }
    }
    split
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use slotstream_core::FileId;

    #[test]
    fn runs_end_where_slots_are_no_neighbours() {
        let extent = |offset, len| Extent::new(FileId::new(1), offset, len).expect("small");
        let run = Run::Slots { extent: extent(1000, 450), first: 1, count: 5 };
        let slots = [9, 3, 4, 7, 8, 2].map(SlotId::new);
        let split = neighbours(vec![run], &slots, 100);
        let expected = [
            Run::Slots { extent: extent(1000, 200), first: 1, count: 2 },
            Run::Slots { extent: extent(1200, 200), first: 3, count: 2 },
            Run::Slots { extent: extent(1400, 50), first: 5, count: 1 },
        ];
        assert_eq!(split, expected);
    }
}
