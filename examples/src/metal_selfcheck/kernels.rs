//! Every kernel against `reference/`, and how long the operations of a decoded token take.

use std::time::Instant;

use serde::Serialize;
use slotstream::candle::{DType, Device, Tensor};
use slotstream::kernels::metal::{BufferId, Dispatch, Memory};
use slotstream::ops::{CandleContext, Error, PlanEncoder, Resource};
use slotstream_kernel_cases::{Case, Family};

use super::failed;
use crate::describe;

/// Batches of which the fastest counts.
const BATCHES: usize = 3;

/// The cases of one `.metal` file.
#[derive(Clone, Debug, Serialize)]
pub struct Checked {
    /// The file's stem.
    pub family: &'static str,
    /// Cases that gave what `reference/` gives.
    pub right: usize,
    /// Cases that did not run: their memory is larger than `most_bytes`.
    pub left_out: usize,
    /// The largest error, relative to the value or to the root mean square of its array.
    pub max_error: f32,
    /// What is wrong, or could not be launched.
    pub wrong: Vec<String>,
}

/// One operation at the width of the published model.
#[derive(Clone, Debug, Serialize)]
pub struct Timed {
    /// What is launched on what.
    pub case: String,
    /// Launches of the operation.
    pub launches: usize,
    /// Bytes of its arrays, each counted once.
    pub bytes: usize,
    /// Microseconds of one operation among many in one submission.
    pub us: f64,
    /// `bytes` by that time.
    pub gb_s: f64,
    /// That by what a copy moves.
    pub share: f64,
    /// Largest error, as in [`Checked`]; `None` where the result is wrong.
    pub max_error: Option<f32>,
}

/// Runs the cases of a family. Those that need more than `most_bytes` are left out.
#[must_use]
pub fn check(encoder: &dyn PlanEncoder, family: &Family, most_bytes: usize) -> Checked {
    let mut checked =
        Checked { family: family.name, right: 0, left_out: 0, max_error: 0.0, wrong: Vec::new() };
    for case in (family.cases)() {
        if bytes(case.memory()) > most_bytes {
            checked.left_out += 1;
            continue;
        }
        match run(encoder, &case) {
            Ok(error) => {
                checked.right += 1;
                checked.max_error = checked.max_error.max(error);
            }
            Err(why) => checked.wrong.push(why),
        }
    }
    checked
}

/// Checks a case once: its largest error, or what is wrong.
fn run(encoder: &dyn PlanEncoder, case: &Case) -> Result<f32, String> {
    let results = Loaded::new(encoder.device(), case).and_then(|loaded| {
        encoder.encode(loaded.launches(case))?;
        loaded.results(case)
    });
    let results =
        results.map_err(|error| format!("{}: {}", case.name(), describe(&failed(error))))?;
    case.check(&results).map_err(|wrong| format!("{}: {wrong}", case.name()))
}

/// Times an operation of a family's that is at the width of the published model, `rounds` times in one
/// submission, where a copy moves `copy_gb_s`.
///
/// # Errors
/// [`Error`] when it cannot be launched.
pub fn time(
    encoder: &dyn PlanEncoder,
    case: &Case,
    rounds: usize,
    copy_gb_s: f64,
) -> Result<Timed, Error> {
    let loaded = Loaded::new(encoder.device(), case)?;
    encoder.encode(loaded.launches(case))?;
    // Before other rounds change what is updated in place. Also compiles what is timed.
    let max_error = case.check(&loaded.results(case)?).ok();
    let mut seconds = f64::INFINITY;
    for _ in 0..BATCHES {
        let launches: Vec<_> = (0..rounds).map(|_| loaded.launches(case)).collect();
        let begun = Instant::now();
        launches.into_iter().try_for_each(|launches| encoder.encode(launches))?;
        wait(encoder)?;
        seconds = seconds.min(begun.elapsed().as_secs_f64() / rounds.max(1) as f64);
    }
    let bytes = bytes(case.memory());
    let gb_s = bytes as f64 / seconds / 1e9;
    Ok(Timed {
        case: case.name().to_owned(),
        launches: case.launches().len(),
        bytes,
        us: seconds * 1e6,
        gb_s,
        share: gb_s / copy_gb_s,
        max_error,
    })
}

/// GB/s of a copy of `bytes`, read and written: what the device's memory gives at most.
///
/// # Errors
/// [`Error`] when the device refuses.
pub fn copy_gb_s(encoder: &dyn PlanEncoder, bytes: usize, rounds: usize) -> Result<f64, Error> {
    const OP: &str = "copy";
    let from = Tensor::ones(bytes / 4, DType::F32, encoder.device()).within(OP)?;
    from.copy().within(OP)?;
    wait(encoder)?;
    let mut seconds = f64::INFINITY;
    for _ in 0..BATCHES {
        let begun = Instant::now();
        for _ in 0..rounds {
            from.copy().within(OP)?;
        }
        wait(encoder)?;
        seconds = seconds.min(begun.elapsed().as_secs_f64() / rounds.max(1) as f64);
    }
    Ok(2.0 * bytes as f64 / seconds / 1e9)
}

/// Waits for everything that was encoded.
fn wait(encoder: &dyn PlanEncoder) -> Result<(), Error> {
    let nothing = encoder.words(vec![0])?;
    encoder.read_back(&nothing, &[], &mut || Ok(())).map(drop)
}

fn bytes(memory: &Memory) -> usize {
    memory.buffers().iter().map(|buffer| buffer.len).sum()
}

/// A case's memory as tensors of bytes.
struct Loaded {
    buffers: Vec<Tensor>,
    /// By buffer: what a table points to, entry by entry; empty for what is no table.
    tables: Vec<Vec<Tensor>>,
}

impl Loaded {
    fn new(device: &Device, case: &Case) -> Result<Self, Error> {
        const OP: &str = "upload";
        let memory = case.memory();
        let upload = |buffer: &slotstream::kernels::metal::Buffer| {
            // No device has buffers of no bytes.
            let mut bytes = vec![0; buffer.len.max(1)];
            for (at, piece) in &buffer.pieces {
                bytes[*at..*at + piece.len()].copy_from_slice(piece);
            }
            let len = bytes.len();
            Tensor::from_vec(bytes, len, device).within(OP)
        };
        let buffers = memory.buffers().iter().map(upload).collect::<Result<Vec<_>, Error>>()?;
        let mut addresses = memory.addresses().to_vec();
        addresses.sort_by_key(|address| (address.table, address.at));
        let mut tables = vec![Vec::new(); buffers.len()];
        for address in addresses {
            let (target, table) = (address.target.index(), &mut tables[address.table.index()]);
            let whole: &Tensor = &buffers[target];
            let rest = whole.elem_count() - address.offset;
            table.push(whole.narrow(0, address.offset, rest).within(OP)?);
        }
        Ok(Self { buffers, tables })
    }

    fn launches(&self, case: &Case) -> Vec<Dispatch<Resource<'_>>> {
        let resource = |id: BufferId| match &self.tables[id.index()][..] {
            [] => Resource::Tensor(self.buffers[id.index()].clone()),
            table => Resource::Pages(table),
        };
        case.launches().iter().map(|launch| launch.clone().map(resource)).collect()
    }

    /// The bytes of the results, waiting for them.
    fn results(&self, case: &Case) -> Result<Vec<Vec<u8>>, Error> {
        let read = |view: slotstream::kernels::metal::View<BufferId>| {
            let bytes = self.buffers[view.buffer.index()].to_vec1::<u8>().within("read back")?;
            Ok(bytes[view.offset..view.offset + view.len].to_vec())
        };
        case.results().into_iter().map(read).collect()
    }
}
