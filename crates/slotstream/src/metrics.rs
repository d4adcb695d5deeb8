//! What a session counted.

use std::time::Duration;

use slotstream_cache::{PhaseCounters, PoolCounters};
use slotstream_core::ReadCounters;
use slotstream_experts::{ExpertMetrics, LayerLookahead};
use slotstream_ngram::NgramMetrics;

/// What one session did in one phase.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PhaseMetrics {
    /// Passes of the graph.
    pub passes: u64,
    /// Tokens that went through the graph.
    pub tokens: u64,
    /// Time in passes.
    pub time: Duration,
    /// Time in which the compute thread had nothing else to do than wait for a read.
    pub io_wait: Duration,
    /// Distinct (layer, expert) lookups that found their record, per pass.
    pub hits: u64,
    /// Distinct (layer, expert) lookups that did not; adopted forecasts included.
    pub misses: u64,
    /// (position, rank) lookups.
    pub token_lookups: u64,
    /// (position, rank) lookups whose record was resident when the pass reached the layer.
    pub token_hits: u64,
    /// Reads.
    pub reads: u64,
    /// Payload bytes asked for.
    pub bytes_read: u64,
    /// Bytes moved for them, widening included.
    pub bytes_issued: u64,
    /// Time with at least one read in flight.
    pub read_time: Duration,
    /// Predictions of the forecaster.
    pub predictions: u64,
    /// Records that were read before they were demanded.
    pub read_ahead: u64,
    /// Of the misses, those whose bytes were there because they had been read ahead.
    pub on_time: u64,
    /// Of the misses, those whose speculative reads had not ended.
    pub late: u64,
    /// Payload bytes that were read ahead and not used.
    pub wasted_bytes: u64,
    /// Layers whose experts were read outside of the pool; their lookups are neither hits nor
    /// misses.
    pub sweeps: u64,
    /// Records that sweeps read.
    pub swept_records: u64,
    /// Records that sweeps found in the pool.
    pub swept_resident: u64,
    /// Reads of sweeps.
    pub sweep_runs: u64,
    /// Bytes of these reads, small gaps between records included.
    pub sweep_bytes: u64,
    /// The longest read of a sweep that the engine has made so far, in bytes.
    pub longest_run: u64,
    /// Records that were admitted to the pool at the end of a prompt.
    pub hot_admitted: u64,
    /// Records that the policy did not admit.
    pub hot_refused: u64,
}

impl PhaseMetrics {
    /// `hits / (hits + misses)`; `None` before the first lookup.
    #[must_use]
    pub fn hit_rate(&self) -> Option<f64> {
        ratio(self.hits as f64, (self.hits + self.misses) as f64)
    }

    /// `token_hits / token_lookups`; `None` before the first lookup.
    #[must_use]
    pub fn token_hit_rate(&self) -> Option<f64> {
        ratio(self.token_hits as f64, self.token_lookups as f64)
    }

    /// Gigabytes a second while a read was in flight.
    #[must_use]
    pub fn read_gb_s(&self) -> Option<f64> {
        ratio(self.bytes_read as f64 / 1e9, self.read_time.as_secs_f64())
    }

    /// Adds what happened elsewhere, such as in another session.
    pub fn add(&mut self, other: &Self) {
        self.passes += other.passes;
        self.tokens += other.tokens;
        self.time += other.time;
        self.io_wait += other.io_wait;
        self.hits += other.hits;
        self.misses += other.misses;
        self.token_lookups += other.token_lookups;
        self.token_hits += other.token_hits;
        self.reads += other.reads;
        self.bytes_read += other.bytes_read;
        self.bytes_issued += other.bytes_issued;
        self.read_time += other.read_time;
        self.predictions += other.predictions;
        self.read_ahead += other.read_ahead;
        self.on_time += other.on_time;
        self.late += other.late;
        self.wasted_bytes += other.wasted_bytes;
        self.sweeps += other.sweeps;
        self.swept_records += other.swept_records;
        self.swept_resident += other.swept_resident;
        self.sweep_runs += other.sweep_runs;
        self.sweep_bytes += other.sweep_bytes;
        self.longest_run = self.longest_run.max(other.longest_run);
        self.hot_admitted += other.hot_admitted;
        self.hot_refused += other.hot_refused;
    }
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

/// What one session did since it was made or its metrics last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Metrics {
    /// Prompt passes, and tokens run again after a truncation or a failure.
    pub prefill: PhaseMetrics,
    /// Passes over generated tokens.
    pub decode: PhaseMetrics,
    /// Tokens of prompts that did not run because the session had seen them
    /// ([`Session::prompt`](crate::Session::prompt)).
    pub reused: u64,
    /// Tokens generated.
    pub generated: u64,
    /// From the start of the first prefill to the first generated token, loading excluded.
    pub time_to_first_token: Option<Duration>,
    /// From the first generated token to the last one.
    pub decode_time: Duration,
}

impl Metrics {
    /// Prompt tokens a second.
    #[must_use]
    pub fn prefill_tok_s(&self) -> Option<f64> {
        ratio(self.prefill.tokens as f64, self.prefill.time.as_secs_f64())
    }

    /// `(generated - 1) / decode_time`; `None` before the second token.
    #[must_use]
    pub fn decode_tok_s(&self) -> Option<f64> {
        let tokens = self.generated.checked_sub(1).filter(|n| *n > 0)?;
        ratio(tokens as f64, self.decode_time.as_secs_f64())
    }

    /// Bytes read in decode passes for each of their tokens.
    #[must_use]
    pub fn bytes_per_token(&self) -> Option<f64> {
        ratio(self.decode.bytes_read as f64, self.decode.tokens as f64)
    }

    /// Share of the decode time spent waiting for reads.
    #[must_use]
    pub fn io_wait_share(&self) -> Option<f64> {
        ratio(self.decode.io_wait.as_secs_f64(), self.decode.time.as_secs_f64())
    }

    /// Both phases together.
    #[must_use]
    pub fn total(&self) -> PhaseMetrics {
        let mut total = self.prefill;
        total.add(&self.decode);
        total
    }
}

/// The engine's counters at one moment; two of them give what a pass did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) pool: PoolCounters,
    pub(crate) experts: ExpertMetrics,
    pub(crate) ahead: LayerLookahead,
    pub(crate) ngram: Option<NgramMetrics>,
    pub(crate) queue: ReadCounters,
}

impl Reading {
    /// What happened since `earlier` in a pass of `tokens` tokens that took `time`.
    pub(crate) fn since(&self, earlier: &Self, tokens: usize, time: Duration) -> PhaseMetrics {
        let queue = self.queue.since(&earlier.queue);
        let phases = |reading: &Self| [reading.pool.prefill, reading.pool.decode];
        let delta = |field: fn(&PhaseCounters) -> u64| {
            let sum = |reading: &Self| phases(reading).iter().map(field).sum::<u64>();
            sum(self).saturating_sub(sum(earlier))
        };
        let experts = |field: fn(&ExpertMetrics) -> u64| {
            field(&self.experts).saturating_sub(field(&earlier.experts))
        };
        let ahead = |field: fn(&LayerLookahead) -> u64| {
            field(&self.ahead).saturating_sub(field(&earlier.ahead))
        };
        let sweeps = experts(|e| e.sweeps);
        let ngram_wait = |reading: &Self| reading.ngram.map_or(Duration::ZERO, |n| n.wait);
        PhaseMetrics {
            passes: 1,
            tokens: tokens as u64,
            time,
            io_wait: self.experts.wait.saturating_sub(earlier.experts.wait)
                + ngram_wait(self).saturating_sub(ngram_wait(earlier)),
            hits: delta(|p| p.hits),
            misses: delta(|p| p.misses),
            token_lookups: delta(|p| p.token_lookups),
            token_hits: delta(|p| p.token_hits),
            reads: queue.reads,
            bytes_read: queue.bytes_read,
            bytes_issued: queue.bytes_issued,
            read_time: queue.busy,
            predictions: experts(|e| e.predictions),
            read_ahead: ahead(|a| a.issued),
            on_time: ahead(|a| a.on_time),
            late: ahead(|a| a.late),
            wasted_bytes: ahead(|a| a.wasted_bytes),
            sweeps,
            swept_records: experts(|e| e.swept_records),
            swept_resident: experts(|e| e.swept_resident),
            sweep_runs: experts(|e| e.sweep_runs),
            sweep_bytes: experts(|e| e.sweep_bytes),
            longest_run: if sweeps > 0 { self.experts.longest_run } else { 0 },
            hot_admitted: experts(|e| e.hot_admitted),
            hot_refused: experts(|e| e.hot_refused),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_need_a_denominator() {
        let mut metrics = Metrics::default();
        assert_eq!((metrics.decode_tok_s(), metrics.prefill_tok_s()), (None, None));
        metrics.generated = 1;
        metrics.decode_time = Duration::from_secs(1);
        assert_eq!(metrics.decode_tok_s(), None, "one token takes no decode time");
        metrics.generated = 5;
        assert_eq!(metrics.decode_tok_s(), Some(4.0));
        metrics.decode.hits = 3;
        metrics.decode.misses = 1;
        assert_eq!(metrics.total().hit_rate(), Some(0.75));
    }
}
