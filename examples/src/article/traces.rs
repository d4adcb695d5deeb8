//! Synthetic traces and their replays, for all tables that need them.

use std::ops::ControlFlow;

use slotstream_core::{CancelToken, Geometry};
use slotstream_replay::{
    Fit, Interval, Phases, Rate, ReplayError, Requests, Simulation, Summary, Synthetic, curve, fit,
};

use super::published::{self, SUMMARY_PASSES, SUMMARY_POOLS};
use super::{Arguments, Table, Target};
use crate::{Console, Failure};

/// The policies that are compared, `clock` first.
pub(super) const POLICIES: [&str; 5] = ["clock", "lru", "per-layer:lru", "per-layer:clock", "opt"];

/// What was counted: one figure a seed.
#[derive(Default)]
pub(super) struct Traces {
    /// By policy and experts a layer: hit rates.
    rates: Vec<(&'static str, usize, Vec<f64>)>,
    /// Of the first passes of every trace.
    pub(super) summaries: Vec<Summary>,
}

impl Traces {
    /// Draws a trace a seed and replays it as `tables` ask for.
    pub(super) fn replay(
        arguments: &Arguments,
        tables: &[Table],
        recipe: &Synthetic,
        geometry: &Geometry,
        console: &Console<'_>,
    ) -> Result<Self, Failure> {
        let pools = pools(tables);
        let with_summary = tables.contains(&Table::Fit);
        let mut traces = Self::default();
        for (policy, sizes) in &pools {
            let policy = *policy;
            traces.rates.extend(sizes.iter().map(|size| (policy, *size, Vec::new())));
        }
        if pools.is_empty() && !with_summary {
            return Ok(traces);
        }
        let bar = console.bar(arguments.seeds as u64, "traces", false);
        for seed in 0..arguments.seeds as u64 {
            let recipe = recipe.seed(seed);
            if with_summary {
                traces.summaries.push(summary(&recipe, geometry)?);
            }
            if !pools.is_empty() {
                let requests = recipe.requests(*geometry);
                let simulation =
                    Simulation::new(0).warm_up(arguments.warmup).cancel(console.cancel.clone());
                traces.add(&requests, &pools, &simulation)?;
            }
            refuse_cancelled(&console.cancel)?;
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(traces)
    }

    /// Replays one trace.
    fn add(
        &mut self,
        requests: &Requests,
        pools: &[(&'static str, Vec<usize>)],
        simulation: &Simulation,
    ) -> Result<(), Failure> {
        let layers = requests.geometry().layers();
        let mut at = self.rates.iter_mut();
        for (policy, sizes) in pools {
            let slots: Vec<usize> = sizes.iter().map(|size| size * layers).collect();
            for point in curve(requests, &[(*policy).to_owned()], &slots, simulation, &|_| {})? {
                let rate = point.outcome?.count(Phases::Decode).hit_rate();
                if let Some((_, _, rates)) = at.next() {
                    rates.extend(rate);
                }
            }
        }
        Ok(())
    }

    /// Hit rates of a pool, one a seed.
    pub(super) fn rates(&self, policy: &str, per_layer: usize) -> &[f64] {
        let found = self.rates.iter().find(|(name, size, _)| (*name, *size) == (policy, per_layer));
        found.map_or(&[], |(_, _, rates)| rates)
    }

    /// Their mean, with the smallest and the largest; `None` when that pool was not replayed.
    pub(super) fn rate(&self, policy: &str, per_layer: usize) -> Option<Interval> {
        Interval::of(self.rates(policy, per_layer), 0)
    }
}

/// By policy the experts a layer that the tables need.
fn pools(tables: &[Table]) -> Vec<(&'static str, Vec<usize>)> {
    let mut clock: Vec<usize> = Vec::new();
    let compared: Vec<usize> = published::POLICIES.iter().map(|(size, ..)| *size).collect();
    for table in tables {
        match table {
            Table::Simulation => clock.extend(published::SIMULATION.map(|row| row.per_layer)),
            Table::Policies => clock.extend(&compared),
            Table::Forecasts => clock.push(published::PLAN_PER_LAYER),
            Table::Disks => clock.push(published::DISKS_PER_LAYER),
            _ => {}
        }
    }
    clock.sort_unstable();
    clock.dedup();
    let [first, others @ ..] = POLICIES;
    let mut pools = vec![(first, clock)];
    if tables.contains(&Table::Policies) {
        pools.extend(others.map(|policy| (policy, compared.clone())));
    }
    pools.retain(|(_, sizes)| !sizes.is_empty());
    pools
}

/// The figures of a recipe by which the published traces are known.
fn summary(recipe: &Synthetic, geometry: &Geometry) -> Result<Summary, ReplayError> {
    let like = SUMMARY_POOLS
        .map(|(policy, per_layer)| Rate::new(policy, per_layer * geometry.layers(), 0.0));
    Summary::measure(&recipe.passes(SUMMARY_PASSES).requests(*geometry), &like)
}

/// The recipe whose trace of seed 0 comes closest to a published summary.
pub(super) fn fitted(
    target: Target,
    geometry: &Geometry,
    passes: usize,
    console: &Console<'_>,
) -> Result<Synthetic, Failure> {
    let known = match target {
        Target::Article => published::ARTICLE,
        Target::Original => published::ORIGINAL,
    };
    let bar = console.bar(0, "fitting", false);
    let Fit { recipe, .. } = fit(*geometry, &known.summary(geometry.layers()), 0, |at, of| {
        bar.set_length(of as u64);
        bar.set_position(at as u64);
        if console.cancel.is_cancelled() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    bar.finish_and_clear();
    Ok(recipe.passes(passes))
}

fn refuse_cancelled(cancel: &CancelToken) -> Result<(), ReplayError> {
    if cancel.is_cancelled() { Err(ReplayError::Cancelled) } else { Ok(()) }
}
