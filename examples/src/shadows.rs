//! `--shadow`: policies that watch the run.

use std::error::Error;
use std::iter;

use clap::Args;
use serde::Serialize;
use slotstream::EngineBuilder;
use slotstream::cache::{CacheError, PhaseCounters};
use slotstream_replay::{Shadows, Shared};

use crate::Failure;
use crate::figures::percent;

/// Policies that watch the run.
#[derive(Args, Clone, Debug)]
#[non_exhaustive]
pub struct ShadowArguments {
    /// Also count what other policies would have hit: POLICY or POLICY@SIZE, such as lru,
    /// clock@30% or opt@3routes; without a size, that of the pool. opt is counted at the end, from
    /// about 6 bytes a lookup
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Output")]
    pub shadow: Vec<String>,
}

/// The shadows of a run, if there are any.
#[derive(Debug)]
pub(crate) struct Watchers(Option<Shared<Shadows>>);

/// What a shadow would have hit, as JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ShadowFigures {
    /// As given.
    pub(crate) policy: String,
    pub(crate) slots: usize,
    pub(crate) prefill: LookupFigures,
    pub(crate) decode: LookupFigures,
}

/// Lookups of a shadow in one phase.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct LookupFigures {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) hit_rate: Option<f64>,
    pub(crate) token_hit_rate: Option<f64>,
}

impl ShadowArguments {
    /// Has an engine watched, if that is asked for.
    ///
    /// # Errors
    /// [`Failure::Replay`] for texts that name no shadow.
    pub(crate) fn begin(
        &self,
        builder: EngineBuilder,
    ) -> Result<(EngineBuilder, Watchers), Failure> {
        if self.shadow.is_empty() {
            return Ok((builder, Watchers(None)));
        }
        let mut shadows = Shadows::new();
        for text in &self.shadow {
            shadows.add_named(text)?;
        }
        let shared = Shared::new(shadows);
        Ok((builder.sink(Box::new(shared.clone())), Watchers(Some(shared))))
    }
}

impl Watchers {
    /// Ends the run before it begins when a shadow cannot have its size.
    ///
    /// # Errors
    /// [`Failure::Option`] names the shadow and says what it needs.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.figures().map(|_| ())
    }

    /// What each would have hit so far, in the order in which they were given.
    ///
    /// # Errors
    /// [`Failure::Option`] for a shadow that counts nothing, and why; [`Failure::Replay`] when
    /// `opt` cannot be computed.
    pub(crate) fn figures(&self) -> Result<Vec<ShadowFigures>, Failure> {
        let Some(shared) = &self.0 else { return Ok(Vec::new()) };
        shared.with(|shadows| {
            let reports = shadows.reports()?;
            reports
                .into_iter()
                .map(|report| match report.fault {
                    None => Ok(ShadowFigures {
                        policy: report.name.to_owned(),
                        slots: report.slots,
                        prefill: (&report.counters.prefill).into(),
                        decode: (&report.counters.decode).into(),
                    }),
                    Some(fault) => Err(refused(report.name, report.slots, fault)),
                })
                .collect()
        })
    }
}

/// A built-in policy breaks no contract, so what stops a shadow is its size.
fn refused(name: &str, slots: usize, fault: &CacheError) -> Failure {
    let causes = iter::successors(fault.source(), |error| (*error).source());
    let why = causes.fold(fault.to_string(), |why, cause| format!("{why}: {cause}"));
    let expected = format!("a shadow that works with {slots} slots: {why}");
    Failure::Option { option: "--shadow", value: name.to_owned(), expected }
}

impl From<&PhaseCounters> for LookupFigures {
    fn from(phase: &PhaseCounters) -> Self {
        Self {
            hits: phase.hits,
            misses: phase.misses,
            hit_rate: phase.hit_rate(),
            token_hit_rate: phase.token_hit_rate(),
        }
    }
}

/// Rows of a table for people: the hit rates of decoding, and of the prompt where `prefill`.
pub(crate) fn rows(figures: &[ShadowFigures], prefill: bool) -> Vec<(&'static str, String)> {
    figures
        .iter()
        .map(|shadow| {
            let counted = if prefill { &shadow.prefill } else { &shadow.decode };
            let (rate, tokens) = (percent(counted.hit_rate), percent(counted.token_hit_rate));
            let ShadowFigures { policy, slots, .. } = shadow;
            ("shadow", format!("{policy} with {slots} slots: hit rate {rate}, by token {tokens}"))
        })
        .collect()
}
