//! The `perplexity` example: how well a model predicts a text.
//!
//! A window is one fresh sequence. Every token that has tokens before it in its window is
//! predicted once; where windows overlap (`--stride`), only by the first window that it is in.
//! The perplexity is `exp` of the mean of `-ln p` over all predictions.

mod windows;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;
use indicatif::ProgressBar;
use serde::Serialize;
use slotstream::core::ErrorKind;
use slotstream::{Engine, Error, PhaseMetrics, SessionOptions};

use crate::console::parse;
use crate::figures::{EngineFigures, PhaseFigures, percent, rate, table, throughput};
use crate::forecasts::LookaheadFigures;
use crate::outputs;
use crate::recording::Recorder;
use crate::shadows::{self, ShadowFigures, Watchers};
use crate::{Console, Ended, EngineArguments, Failure, ShadowArguments, TraceArguments};
use windows::{Source, Window};

/// Computes the perplexity of a text under a model whose experts stay on disk.
///
/// Without arguments: the bundled model on ten windows of text that it was not trained on. A
/// window starts with empty caches; every token with tokens before it in the window is predicted
/// once.
#[derive(Parser, Clone, Debug)]
#[command(name = "perplexity", version, allow_negative_numbers = true)]
#[non_exhaustive]
pub struct Arguments {
    /// Windows of token ids: FILE.safetensors or FILE.safetensors:TENSOR [default: the held-out
    /// windows of the bundled model]
    #[arg(long, value_name = "FILE", conflicts_with = "text", help_heading = "Text")]
    pub windows: Option<String>,
    /// The tokens of a routing trace of any format that has them; each session is a window
    #[arg(
        long,
        value_name = "TRACE",
        conflicts_with_all = ["text", "windows"],
        help_heading = "Text"
    )]
    pub tokens_of: Option<PathBuf>,
    /// A text file, cut into windows
    #[arg(long, value_name = "FILE", help_heading = "Text")]
    pub text: Option<PathBuf>,
    /// Tokens of a window of --text [default: 2048, or the longest context]
    #[arg(long, value_name = "N", requires = "text", help_heading = "Text")]
    pub window: Option<usize>,
    /// Tokens between the starts of two windows of --text [default: the window]
    #[arg(long, value_name = "N", requires = "text", help_heading = "Text")]
    pub stride: Option<usize>,
    /// Leave out the first N windows
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Text")]
    pub skip: usize,
    /// Only the first N windows, of those that are not left out
    #[arg(long, value_name = "N", help_heading = "Text")]
    pub first: Option<usize>,
    /// The engine.
    #[command(flatten)]
    pub engine: EngineArguments,
    /// Print one JSON object on the last line instead of a table
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Print nothing but the line of JSON
    #[arg(long, help_heading = "Output")]
    pub quiet: bool,
    /// The recording.
    #[command(flatten)]
    pub trace: TraceArguments,
    /// The shadows.
    #[command(flatten)]
    pub shadow: ShadowArguments,
}

/// One window's result.
#[derive(Clone, Copy, Debug, Serialize)]
struct Scored {
    tokens: usize,
    predictions: usize,
    nll_sum: f64,
}

impl Scored {
    fn mean(&self) -> f64 {
        self.nll_sum / self.predictions.max(1) as f64
    }
}

/// Everything, as JSON. Null is what was not measured.
#[derive(Debug, Serialize)]
struct Report {
    perplexity: Option<f64>,
    mean_nll: Option<f64>,
    predictions: usize,
    windows: Vec<Scored>,
    /// Whether all windows were computed.
    complete: bool,
    tok_s: Option<f64>,
    passes: PhaseFigures,
    lookahead: LookaheadFigures,
    shadows: Vec<ShadowFigures>,
    #[serde(flatten)]
    engine: EngineFigures,
}

/// Runs the example with these arguments, the program's name first.
///
/// # Errors
/// [`Failure`] says what and whose it is. After Ctrl-C the windows so far are shown.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    console: &mut Console<'_>,
) -> Result<Ended, Failure> {
    let arguments: Arguments = parse(arguments)?;
    let json = arguments.json || arguments.quiet;
    console.progress &= !json;
    let source = console.waiting(|| Source::read(&arguments))?;
    let (engine, recorder, watchers) = build(&arguments, &source, console)?;
    let windows = source.windows(&engine, &arguments, &console.cancel)?;
    let mut passes = PhaseMetrics::default();
    let scored = score_all(&engine, &windows, json, console, &mut passes);
    // Whatever has ended the run: the recording is whole up to there.
    let recorded = recorder.finish(&engine);
    let scored = scored?;
    let complete = scored.len() == windows.len();
    let figures = EngineFigures::new(&engine, &arguments.engine);
    let ahead = LookaheadFigures::new(&engine);
    let report = Report::new(scored, complete, &passes, (figures, ahead), watchers.figures()?);
    console.line(&if json { report.json()? } else { report.text(&passes) })?;
    recorded?;
    Ok(if complete { Ended::Done } else { Ended::Interrupted })
}

/// Scores window by window; ends early after Ctrl-C.
fn score_all(
    engine: &Engine,
    windows: &[Window],
    json: bool,
    console: &mut Console<'_>,
    passes: &mut PhaseMetrics,
) -> Result<Vec<Scored>, Failure> {
    let mut scored = Vec::new();
    let total: usize = windows.iter().map(|window| window.tokens.len()).sum();
    let bar = console.bar(total as u64, "tokens", false);
    for (number, window) in windows.iter().enumerate() {
        match score(engine, window, console, &bar, passes) {
            Ok(one) => scored.push(one),
            Err(error) if error.kind() == ErrorKind::Cancelled => break,
            Err(error) => return Err(error.into()),
        }
        if let (false, Some(one)) = (json, scored.last()) {
            let text = format!(
                "window {:>3}  {:>5} predictions  nll {:>10.3}  mean {:.4}  perplexity {:.4}",
                number + 1,
                one.predictions,
                one.nll_sum,
                one.mean(),
                one.mean().exp()
            );
            bar.suspend(|| console.line(&text))?;
        }
    }
    bar.finish_and_clear();
    Ok(scored)
}

fn build(
    arguments: &Arguments,
    source: &Source,
    console: &Console<'_>,
) -> Result<(Engine, Recorder, Watchers), Failure> {
    let model = arguments.engine.find_model()?;
    let mut inputs = arguments.engine.inputs(&model.path);
    inputs.extend(windows::inputs(arguments));
    outputs::check(arguments.trace.output().as_slice(), &inputs)?;
    let mut builder = arguments.engine.builder(&model, &console.cancel)?;
    if let (None, Some(longest)) = (arguments.engine.context, source.longest()) {
        builder = builder.context(longest);
    }
    let rows = arguments.engine.chunk.unwrap_or(64);
    let builder = builder.logit_rows(rows).progress(console.load_progress());
    let (builder, recorder) = console
        .waiting(|| arguments.trace.begin(builder, &arguments.engine, &model, "perplexity"))?;
    let (builder, watchers) = arguments.shadow.begin(builder)?;
    let engine = builder.build()?;
    watchers.check()?;
    recorder.start()?;
    Ok((engine, recorder, watchers))
}

/// Runs one window as a sequence of its own.
fn score(
    engine: &Engine,
    window: &Window,
    console: &Console<'_>,
    bar: &ProgressBar,
    passes: &mut PhaseMetrics,
) -> Result<Scored, Error> {
    let mut session = engine.session(SessionOptions::new().with_cancel(console.cancel.clone()))?;
    let mut values = Vec::with_capacity(window.tokens.len());
    for piece in window.tokens.chunks(engine.chunk()) {
        values.extend(session.score(piece)?);
        bar.inc(piece.len() as u64);
    }
    passes.add(&session.metrics().total());
    // The first token has no value; of the rest the last ones are this window's own.
    let new = values.len().min(window.predictions);
    let nll_sum = values[values.len() - new..].iter().sum();
    Ok(Scored { tokens: window.tokens.len(), predictions: new, nll_sum })
}

impl Report {
    fn new(
        windows: Vec<Scored>,
        complete: bool,
        passes: &PhaseMetrics,
        (engine, lookahead): (EngineFigures, LookaheadFigures),
        shadows: Vec<ShadowFigures>,
    ) -> Self {
        let predictions: usize = windows.iter().map(|window| window.predictions).sum();
        let nll: f64 = windows.iter().map(|window| window.nll_sum).sum();
        let mean_nll = (predictions > 0).then(|| nll / predictions as f64);
        Self {
            perplexity: mean_nll.map(f64::exp),
            mean_nll,
            predictions,
            windows,
            complete,
            tok_s: tok_s(passes),
            passes: passes.into(),
            lookahead,
            shadows,
            engine,
        }
    }

    fn json(&self) -> Result<String, Failure> {
        serde_json::to_string(self).map_err(|e| Failure::output(e.into()))
    }

    fn text(&self, passes: &PhaseMetrics) -> String {
        let (Some(perplexity), Some(mean)) = (self.perplexity, self.mean_nll) else {
            return "no window was computed to its end".to_owned();
        };
        let mut rows = vec![
            ("perplexity", format!("{perplexity:.4}")),
            ("mean nll", format!("{mean:.7} over {} predictions", self.predictions)),
            ("speed", rate(self.tok_s, "tok/s")),
            ("hit rate", percent(passes.hit_rate())),
            ("token hit rate", percent(passes.token_hit_rate())),
            ("read rate", throughput(passes.read_gb_s())),
        ];
        rows.extend(shadows::rows(&self.shadows, true));
        rows.extend(self.engine.rows());
        let ahead = self.lookahead.table().map_or(String::new(), |table| format!("{table}\n\n"));
        format!("\n{ahead}{}", table(&rows))
    }
}

fn tok_s(passes: &PhaseMetrics) -> Option<f64> {
    let seconds = passes.time.as_secs_f64();
    (seconds > 0.0).then(|| passes.tokens as f64 / seconds)
}
