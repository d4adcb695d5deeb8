//! The same model with other amounts of memory.

use serde::Serialize;
use slotstream::Error;
use slotstream::machine::Machine;

use super::hits::Curves;
use super::predict::Model;
use super::subject::Subject;
use super::{Arguments, plan_for};
use crate::Failure;

/// GiB of memory in the rows of the table.
const SIZES: [u64; 8] = [8, 12, 16, 24, 32, 36, 48, 64];

/// One amount of memory.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Size {
    pub(super) ram_gib: u64,
    /// What an engine would take of it.
    pub(super) budget_bytes: u64,
    /// `None`: it does not fit.
    pub(super) fits: Option<Fit>,
    /// Bytes that the smallest plan needs; `None` where one fits.
    pub(super) needs_bytes: Option<u64>,
}

/// What fits.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Fit {
    pub(super) planned_bytes: u64,
    pub(super) slots: usize,
    pub(super) experts_per_layer: f64,
    pub(super) context: usize,
    pub(super) chunk: usize,
    pub(super) hit_rate: f64,
    pub(super) tok_s: f64,
}

/// A row for each amount of memory, all of it as free as a simulated machine's is.
pub(super) fn table(
    arguments: &Arguments,
    subject: &Subject,
    model: &Model<'_>,
    curves: &Curves,
    machine: Machine,
) -> Result<Vec<Size>, Failure> {
    SIZES
        .into_iter()
        .map(|ram_gib| {
            let machine = Machine::simulated(ram_gib << 30).with_process(machine.process);
            let budget_bytes = machine.budget().map_or(0, |budget| budget.bytes);
            let row = Size { ram_gib, budget_bytes, fits: None, needs_bytes: None };
            match plan_for(arguments, subject, machine) {
                Err(Failure::Engine(Error::Budget { plan, .. })) => {
                    Ok(Size { needs_bytes: Some(plan.total_bytes()), ..row })
                }
                Err(error) => Err(error),
                Ok(plan) => {
                    let hit_rate = curves.at(plan.slots)?.rate;
                    let fit = Fit {
                        planned_bytes: plan.total_bytes(),
                        slots: plan.slots,
                        experts_per_layer: plan.experts_per_layer(),
                        context: plan.context,
                        chunk: plan.chunk,
                        hit_rate,
                        tok_s: model.tok_s(hit_rate),
                    };
                    Ok(Size { fits: Some(fit), ..row })
                }
            }
        })
        .collect()
}
