//! How fast records come: read as the engine reads them, all of a layer at once.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use slotstream::checkpoint::Checkpoint;
use slotstream::checkpoint::container::Container;
use slotstream::core::{
    CancelToken, ExpertIdx, ExpertKey, Extent, FileId, LayerIdx, RecordReader, Rng,
};
use slotstream::experts::RecordIndex;
use slotstream::io::{LaneQueue, ReaderChoice, ReaderKind, Throttle, Throttled, open_reader};
use slotstream::{CheckpointIndex, Error};

use super::Arguments;
use super::subject::Subject;
use crate::probe_ssd::measure::{forget, pass, processor_time};
use crate::probe_ssd::scratch::Scratch;
use crate::probe_ssd::slots::Slots;
use crate::{Console, Failure};

/// Records that a layer may miss, as measured; beyond the last it goes on in a straight line.
const BURSTS: [usize; 4] = [1, 2, 4, 8];
/// Rounds, each of which reads every burst once.
const ROUNDS: usize = 8;
/// Bytes of the file that is written where the model is not here: 28 bursts of each size fit.
const SCRATCH: u64 = 512_000_000;
/// Seconds before the first byte of a simulated disk.
const LATENCY_S: f64 = 1e-4;

/// Seconds of reads, by their number.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Disk {
    /// What was measured.
    pub(super) what: String,
    /// Whether nothing was.
    pub(super) simulated: bool,
    pub(super) record_bytes: u64,
    pub(super) bursts: Vec<Burst>,
    /// Seconds of a processor for each second's worth of reading: per GB.
    pub(super) processor_s_gb: f64,
}

/// So many records, read at once.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Burst {
    pub(super) records: usize,
    /// Median, and the quarters around it.
    pub(super) seconds: f64,
    pub(super) fast_s: f64,
    pub(super) slow_s: f64,
}

/// Which of the three figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    Slow,
    Median,
    Fast,
}

impl Burst {
    pub(super) const fn at(&self, pace: Pace) -> f64 {
        match pace {
            Pace::Slow => self.slow_s,
            Pace::Median => self.seconds,
            Pace::Fast => self.fast_s,
        }
    }
}

impl Disk {
    /// Measures the files of the model, a scratch file in their place, or nothing where a disk is
    /// simulated.
    pub(super) fn measure(
        arguments: &Arguments,
        subject: &Subject,
        checkpoint: &Arc<Checkpoint>,
        container: Option<Container>,
        choice: &ReaderChoice,
        console: &Console<'_>,
    ) -> Result<Self, Failure> {
        let record = checkpoint.record_layout().payload_len() as u64;
        if let Some(gb_s) = arguments.sim_disk_gb_s {
            return Ok(Self::simulated(gb_s, record));
        }
        let reads = if subject.is_here() {
            Reads::of_model(checkpoint, container)
        } else {
            match Scratch::write(&arguments.scratch, SCRATCH, 0, console)? {
                Some(scratch) => Reads::of_scratch(checkpoint, scratch),
                None => return Err(Failure::Interrupted { what: "writing the scratch file" }),
            }
        };
        let lanes = arguments.engine.lanes.unwrap_or(8);
        let throttle = arguments.engine.throttle;
        let measuring =
            Measuring::new(reads, choice.kind, throttle, (lanes, record), &console.cancel)?;
        measuring.all(console)
    }

    fn simulated(gb_s: f64, record_bytes: u64) -> Self {
        let burst = |records| {
            let seconds = LATENCY_S + (records as u64 * record_bytes) as f64 / gb_s / 1e9;
            Burst { records, seconds, fast_s: seconds, slow_s: seconds }
        };
        Self {
            what: format!("simulated: {gb_s} GB/s, 0.1 ms before the first byte"),
            simulated: true,
            record_bytes,
            bursts: BURSTS.map(burst).into(),
            processor_s_gb: 0.0,
        }
    }

    /// Seconds of `records` reads at once: between what was measured, in a straight line.
    pub(super) fn seconds(&self, records: usize, pace: Pace) -> f64 {
        let points = self.bursts.iter().map(|burst| (burst.records as f64, burst.at(pace)));
        let points: Vec<(f64, f64)> = std::iter::once((0.0, 0.0)).chain(points).collect();
        let x = records as f64;
        // The last two go on beyond the last.
        let pair = points.windows(2).find(|pair| x <= pair[1].0).or(points.windows(2).last());
        let Some(&[(x0, y0), (x1, y1)]) = pair else { return 0.0 };
        (y0 + (x - x0) * (y1 - y0) / (x1 - x0)).max(0.0)
    }

    /// GB/s of the largest burst.
    pub(super) fn gb_s(&self, pace: Pace) -> f64 {
        let last = self.bursts.last().filter(|burst| burst.at(pace) > 0.0);
        last.map_or(0.0, |burst| {
            (burst.records as u64 * self.record_bytes) as f64 / burst.at(pace) / 1e9
        })
    }
}

/// Records that are read, none twice.
struct Reads {
    what: String,
    files: Vec<PathBuf>,
    records: Vec<Vec<Extent>>,
    /// Goes when the measurement is over.
    scratch: Option<Scratch>,
}

impl Reads {
    /// The model's own records, in a random order.
    fn of_model(checkpoint: &Arc<Checkpoint>, container: Option<Container>) -> Self {
        let geometry = checkpoint.geometry();
        let container = container.map(Arc::new);
        let mut index = CheckpointIndex::new(Arc::clone(checkpoint));
        let mut files = checkpoint.files().to_vec();
        if let Some(container) = &container {
            files.extend(container.files().iter().cloned());
            // Any reader takes whole blocks.
            let block = slotstream::core::Alignment { memory: 512, offset: 512, length: 512 };
            index = index.with_container(Arc::clone(container), block);
        }
        let mut keys: Vec<usize> = (0..geometry.records()).collect();
        let mut rng = Rng::new(0);
        for last in (1..keys.len()).rev() {
            keys.swap(last, rng.below(last as u64 + 1) as usize);
        }
        let wanted = ROUNDS * BURSTS.iter().sum::<usize>();
        let key = |dense: usize| {
            let (layer, expert) = (dense / geometry.experts(), dense % geometry.experts());
            // In range: a geometry numbers both in 16 bits.
            ExpertKey::new(LayerIdx::new(layer as u16), ExpertIdx::new(expert as u16))
        };
        let extents = |key| match index.whole(key) {
            Some(whole) => Some(vec![whole]),
            None => index.pieces(key).map(Vec::from),
        };
        let records = keys.into_iter().take(wanted).map(key).filter_map(extents).collect();
        let what =
            format!("records of the {}", if container.is_some() { "container" } else { "shards" });
        Self { what, files, records, scratch: None }
    }

    /// Nine pieces of a record at odd places of a file, as in shards.
    fn of_scratch(checkpoint: &Checkpoint, scratch: Scratch) -> Self {
        let pieces = checkpoint.record_layout().pieces();
        let wanted = ROUNDS * BURSTS.iter().sum::<usize>();
        let (mut at, mut records) = (8, Vec::new());
        while records.len() < wanted {
            let mut record = Vec::new();
            for piece in pieces {
                let len = piece.len as u64;
                let extent = Extent::new(FileId::new(0), at, len);
                record.extend(extent.ok().filter(|extent| extent.end() <= SCRATCH));
                at += len + 8;
            }
            if record.len() < pieces.len() {
                break;
            }
            records.push(record);
        }
        // Not in the order in which they lie.
        let mut rng = Rng::new(0);
        for last in (1..records.len()).rev() {
            records.swap(last, rng.below(last as u64 + 1) as usize);
        }
        let what = format!("records in nine pieces of {}", scratch.path().display());
        let files = vec![scratch.path().to_owned()];
        Self { what, files, records, scratch: Some(scratch) }
    }
}

/// The reader and the lanes that an engine would have.
struct Measuring {
    reads: Reads,
    kind: ReaderKind,
    throttle: Option<Throttle>,
    queue: LaneQueue,
    slots: Slots,
    record: u64,
}

impl Measuring {
    fn new(
        reads: Reads,
        kind: ReaderKind,
        throttle: Option<Throttle>,
        (lanes, record): (usize, u64),
        cancel: &CancelToken,
    ) -> Result<Self, Failure> {
        // A copy of all files in memory is not what a probe should make. A model of a disk goes over
        // the page cache, as it does for an engine.
        let cached = kind == ReaderKind::Memory || throttle.is_some();
        let kind = if cached { ReaderKind::Buffered } else { kind };
        let mut reader: Arc<dyn RecordReader> =
            open_reader(kind, &reads.files).map_err(Error::from)?;
        if let Some(throttle) = throttle {
            reader = Arc::new(Throttled::new(reader, throttle).woken_by(cancel.clone()));
        }
        let queue = LaneQueue::new(reader, lanes).map_err(Error::from)?;
        let longest = reads.records.iter().flatten().map(Extent::len).max().unwrap_or(0);
        let slots = Slots::new(lanes, longest as usize)?;
        Ok(Self { reads, kind, throttle, queue, slots, record })
    }

    /// Every burst in every round. Where the page cache is to hold the files, each burst is read
    /// once before, as it would have been by then.
    fn all(mut self, console: &Console<'_>) -> Result<Disk, Failure> {
        let cached = self.kind == ReaderKind::Buffered;
        forget(&self.reads.files)?;
        // A reader checks each file when it first reads of it; threads and pages are made, too.
        if let Some(record) = self.reads.records.last().cloned() {
            pass(&self.queue, record, &self.slots, None)?;
        }
        let bar = console.bar(ROUNDS as u64, "disk", false);
        let mut samples = vec![Vec::new(); BURSTS.len()];
        let (mut bytes, mut processor) = (0_u64, 0.0);
        let mut records = std::mem::take(&mut self.reads.records).into_iter();
        for _ in 0..ROUNDS {
            for (burst, samples) in BURSTS.into_iter().zip(&mut samples) {
                let reads: Vec<Extent> = records.by_ref().take(burst).flatten().collect();
                if reads.is_empty() {
                    break;
                }
                if cached {
                    pass(&self.queue, reads.clone(), &self.slots, None)?;
                }
                bytes += reads.iter().map(Extent::len).sum::<u64>();
                let (before, begun) = (processor_time(), Instant::now());
                pass(&self.queue, reads, &self.slots, None)?;
                // Reads that Ctrl-C has woken were faster than the model of a disk.
                if console.cancel.is_cancelled() {
                    return Err(Failure::Interrupted { what: "measuring the disk" });
                }
                samples.push(begun.elapsed().as_secs_f64());
                processor += processor_time().saturating_sub(before).as_secs_f64();
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        drop(self.reads.scratch.take());
        let how = match (self.throttle, cached) {
            (Some(_), _) => "on a simulated disk (--throttle)",
            (None, true) => "from the page cache",
            (None, false) => "cold",
        };
        Ok(Disk {
            what: format!("{}, {how}, by {}", self.reads.what, self.kind),
            simulated: false,
            record_bytes: self.record,
            bursts: BURSTS.into_iter().zip(samples).filter_map(burst).collect(),
            processor_s_gb: if bytes > 0 { processor / (bytes as f64 / 1e9) } else { 0.0 },
        })
    }
}

fn burst((records, mut samples): (usize, Vec<f64>)) -> Option<Burst> {
    samples.sort_by(f64::total_cmp);
    let at = |quarter: usize| samples.get((samples.len().max(1) - 1) * quarter / 4).copied();
    Some(Burst { records, seconds: at(2)?, fast_s: at(1)?, slow_s: at(3)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_follow_the_measured_points() {
        let disk = Disk::simulated(1.0, 1_000_000);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(near(disk.seconds(0, Pace::Median), 0.0));
        assert!(near(disk.seconds(1, Pace::Median), 0.0011));
        assert!(near(disk.seconds(3, Pace::Slow), 0.0031));
        assert!(near(disk.seconds(10, Pace::Fast), 0.0101), "beyond the last, in its line");
        assert!((disk.gb_s(Pace::Median) - 0.9877).abs() < 1e-3);
    }
}
