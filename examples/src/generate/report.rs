//! The figures of a generation.

use serde::Serialize;
use slotstream::{Error, FinishReason, Metrics, PhaseMetrics, Session};

use crate::failure::ErrorFigure;
use crate::figures::{EngineFigures, PhaseFigures, percent, rate, seconds, table, throughput};
use crate::forecasts::LookaheadFigures;
use crate::shadows::{self, ShadowFigures};
use crate::warm::WarmFigures;
use crate::{EngineArguments, Failure, show_size};

/// What a generation gave.
pub(super) struct Generated {
    /// The text; `None` for a model without a tokenizer.
    pub(super) text: Option<String>,
    pub(super) finish: FinishReason,
    /// Why it ended early.
    pub(super) error: Option<Error>,
}

/// All figures, as they are written in JSON. What could not be measured is null.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    prompt_tokens: usize,
    /// Of the prompt, those that did not run because a session that was loaded had seen them.
    reused_tokens: u64,
    tokens: Vec<u32>,
    text: Option<String>,
    finish_reason: String,
    error: Option<ErrorFigure>,
    ttft_s: Option<f64>,
    prefill_tok_s: Option<f64>,
    decode_tok_s: Option<f64>,
    hit_rate: Option<f64>,
    token_hit_rate: Option<f64>,
    bytes_read: u64,
    bytes_issued: u64,
    bytes_per_token: Option<f64>,
    io_wait_s: f64,
    io_wait_share: Option<f64>,
    thread_wait_s: f64,
    thread_wait_share: Option<f64>,
    read_gb_s: Option<f64>,
    #[serde(flatten)]
    engine: EngineFigures,
    prefill: PhaseFigures,
    decode: PhaseFigures,
    lookahead: LookaheadFigures,
    /// Null without `--warm-start`.
    pub(super) warm_start: Option<WarmFigures>,
    shadows: Vec<ShadowFigures>,
    #[serde(skip)]
    metrics: Metrics,
}

impl Report {
    pub(super) fn new(
        session: &Session,
        prompt_tokens: usize,
        generated: &Generated,
        arguments: &EngineArguments,
        shadows: Vec<ShadowFigures>,
    ) -> Self {
        let metrics = *session.metrics();
        let (total, decode) = (metrics.total(), metrics.decode);
        Self {
            prompt_tokens,
            reused_tokens: metrics.reused,
            tokens: session.tokens().get(prompt_tokens..).unwrap_or_default().to_vec(),
            text: generated.text.clone(),
            finish_reason: finish_name(generated),
            error: generated.error.as_ref().map(|e| ErrorFigure::new(e, e.kind())),
            ttft_s: metrics.time_to_first_token.map(|t| t.as_secs_f64()),
            prefill_tok_s: metrics.prefill_tok_s(),
            decode_tok_s: metrics.decode_tok_s(),
            hit_rate: decode.hit_rate(),
            token_hit_rate: decode.token_hit_rate(),
            bytes_read: total.bytes_read,
            bytes_issued: total.bytes_issued,
            bytes_per_token: metrics.bytes_per_token(),
            io_wait_s: total.io_wait.as_secs_f64(),
            io_wait_share: metrics.io_wait_share(),
            thread_wait_s: total.thread_wait.as_secs_f64(),
            thread_wait_share: metrics.thread_wait_share(),
            read_gb_s: total.read_gb_s(),
            engine: EngineFigures::new(session.engine(), arguments),
            prefill: (&metrics.prefill).into(),
            decode: (&decode).into(),
            lookahead: LookaheadFigures::new(session.engine()),
            warm_start: None,
            shadows,
            metrics,
        }
    }

    /// One line of JSON.
    pub(super) fn json(&self) -> Result<String, Failure> {
        serde_json::to_string(self).map_err(|e| Failure::output(e.into()))
    }

    /// A table and the verdict.
    pub(super) fn text(&self) -> String {
        let a_token = self.bytes_per_token.map_or(String::new(), |bytes| {
            format!(", {} a decoded token", show_size(bytes as u64))
        });
        let (read, issued) = (show_size(self.bytes_read), show_size(self.bytes_issued));
        let wait = percent(self.io_wait_share);
        let threads = percent(self.thread_wait_share);
        let mut rows = vec![
            (
                "prompt",
                format!("{} tokens, {} of them known", self.prompt_tokens, self.reused_tokens),
            ),
            ("generated", format!("{} tokens, ended by {}", self.tokens.len(), self.finish_reason)),
            ("first token", seconds(self.metrics.time_to_first_token)),
            ("prefill", rate(self.prefill_tok_s, "tok/s")),
            ("decode", rate(self.decode_tok_s, "tok/s")),
            ("hit rate", percent(self.hit_rate)),
            ("token hit rate", percent(self.token_hit_rate)),
            ("bytes read", format!("{read} (issued {issued}){a_token}")),
            ("io wait", format!("{:.3} s in all, {wait} of decoding", self.io_wait_s)),
            ("thread wait", format!("{:.3} s in all, {threads} of decoding", self.thread_wait_s)),
            ("read rate", throughput(self.read_gb_s)),
        ];
        rows.extend(self.prefill.sweep_row());
        rows.extend(shadows::rows(&self.shadows, self.decode.is_empty()));
        rows.extend(self.warm_start.as_ref().map(WarmFigures::row));
        rows.extend(self.engine.rows());
        let cached = self.engine.reader_mode == "buffered";
        let ahead = self.lookahead.table().map_or(String::new(), |table| format!("{table}\n\n"));
        format!("{}\n\n{ahead}{}", table(&rows), verdict(&self.metrics, cached))
    }
}

fn finish_name(generated: &Generated) -> String {
    match &generated.finish {
        FinishReason::Cancelled => "cancelled",
        FinishReason::Deadline => "deadline",
        FinishReason::Eos(_) => "eos",
        FinishReason::Stop(_) => "stop",
        FinishReason::Length => "length",
        FinishReason::Context => "context",
        _ => "failed",
    }
    .to_owned()
}

/// What bounds the speed, in one line. `cached`: reads went through the system's page cache.
fn verdict(metrics: &Metrics, cached: bool) -> String {
    let (phase, what) = match metrics.decode.passes {
        0 => (&metrics.prefill, "the prompt"),
        _ => (&metrics.decode, "decoding"),
    };
    let (time, wait) = (phase.time.as_secs_f64(), phase.io_wait.as_secs_f64());
    if time <= 0.0 {
        return "Verdict: nothing ran, so nothing was measured.".to_owned();
    }
    let share = wait / time;
    let waited = format!("{:.0}% of the time of {what} was waiting for reads", 100.0 * share);
    let each = per_token(phase);
    let note = if cached && phase.bytes_read > 0 {
        "; reads may have come from the page cache"
    } else {
        ""
    };
    let bound = if phase.bytes_read == 0 {
        format!("compute bounds it: every expert was resident, nothing was read{each}")
    } else if share > 0.6 {
        format!("reads bound it: {waited}{each}; more slots or a faster disk would help most{note}")
    } else if share < 0.4 {
        format!("compute bounds it: only {waited}{each}; faster arithmetic would help most{note}")
    } else {
        format!("reads and compute bound it about equally: {waited}{each}{note}")
    };
    format!("Verdict: {bound}.")
}

fn per_token(phase: &PhaseMetrics) -> String {
    let milliseconds = |seconds: f64| 1e3 * seconds / phase.tokens.max(1) as f64;
    let wait = phase.io_wait.as_secs_f64();
    let rest = (phase.time.as_secs_f64() - wait).max(0.0);
    format!(
        " ({:.2} ms of reads and {:.2} ms of compute a token)",
        milliseconds(wait),
        milliseconds(rest)
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn metrics(wait: u64, bytes_read: u64) -> Metrics {
        let mut metrics = Metrics::default();
        metrics.decode.passes = 10;
        metrics.decode.tokens = 10;
        metrics.decode.time = Duration::from_millis(100);
        metrics.decode.io_wait = Duration::from_millis(wait);
        metrics.decode.bytes_read = bytes_read;
        metrics
    }

    #[test]
    fn the_verdict_follows_the_share() {
        let verdict = |wait, bytes| verdict(&metrics(wait, bytes), true);
        let reads = verdict(75, 1);
        assert!(
            reads.starts_with("Verdict: reads bound it: 75% of the time of decoding"),
            "{reads}"
        );
        assert!(reads.contains("7.50 ms of reads and 2.50 ms of compute a token"), "{reads}");
        assert!(reads.contains("page cache"));
        assert!(verdict(10, 1).contains("compute bounds it: only 10%"));
        assert!(verdict(50, 1).contains("about equally: 50%"));
        assert!(verdict(0, 0).contains("nothing was read"));
        assert!(super::verdict(&Metrics::default(), false).contains("nothing ran"));
    }

    #[test]
    fn without_decoding_the_prompt_is_judged() {
        let mut metrics = Metrics::default();
        metrics.prefill.tokens = 4;
        metrics.prefill.time = Duration::from_millis(10);
        metrics.prefill.io_wait = Duration::from_millis(9);
        metrics.prefill.bytes_read = 1;
        let text = verdict(&metrics, false);
        assert!(
            text.contains("90% of the time of the prompt") && !text.contains("cache"),
            "{text}"
        );
    }
}
