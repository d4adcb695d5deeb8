//! The `train_lookahead` example: what this model's routers usually say otherwise than the forecast
//! made one layer earlier, learnt from texts of one's own.

mod samples;

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::console::parse;
use crate::outputs::{self, Input, Kind, OutputFile, Way};
use crate::text_file::read_text;
use crate::whole_file::WholeFile;
use crate::{Console, Ended, EngineArguments, Failure, parse_size, show_size};
use clap::Parser;
use samples::FileSamples;
use serde::Serialize;
use slotstream::checkpoint::{Checkpoint, SIDECAR_NAME};
use slotstream::core::{ErrorKind, Geometry, LayerIdx, SessionId};
use slotstream::experts::Speculation;
use slotstream::lookahead::{
    Correction, CorrectionShape, Fit, Recorder, TrainOptions, agreement, fit,
};
use slotstream::{Engine, Error, SessionOptions, router_identity};

const CORRECTION: Kind = Kind {
    what: "of a correction",
    is: |path| Ok(Correction::from_bytes(&std::fs::read(path)?).is_ok()),
    way: Way::Whole,
};

/// Longest text that is read.
const TEXT_LIMIT: u64 = 64 << 20;

/// Trains the correction that the forecaster `corrected` uses, from texts of your own.
///
/// Each file is a document. The model reads them; at every layer it is noted what the forecast made
/// one layer earlier said and what the router then chose. From that a low-rank correction is
/// fitted, layer by layer, with a penalty found by leaving documents out; agreement is measured on
/// documents that nothing was fitted to. The correction belongs to this model alone.
#[derive(Parser, Clone, Debug)]
#[command(name = "train_lookahead", version, allow_negative_numbers = true)]
#[non_exhaustive]
pub struct Arguments {
    /// Texts, at least three
    #[arg(value_name = "TEXT", required = true, num_args = 3..)]
    pub texts: Vec<PathBuf>,
    /// File to write [default: lookahead.safetensors in the model's folder]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Rank of the correction of a layer
    #[arg(long, value_name = "N", default_value_t = 128, help_heading = "Training")]
    pub rank: usize,
    /// Every so many-th document is held out, to measure by; from 2
    #[arg(long, value_name = "N", default_value_t = 3, help_heading = "Training")]
    pub hold_out: usize,
    /// Most tokens of a document
    #[arg(long, value_name = "N", help_heading = "Training")]
    pub tokens: Option<usize>,
    /// Most tokens in all; each takes a sample a layer
    #[arg(long, value_name = "N", default_value_t = 16384, help_heading = "Training")]
    pub rows: usize,
    /// Folder for the samples, which are deleted at the end [default: the system's]
    #[arg(long, value_name = "DIR", help_heading = "Training")]
    pub scratch: Option<PathBuf>,
    /// Largest file of samples
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "16GB",
        help_heading = "Training")]
    pub scratch_limit: u64,
    /// The engine.
    #[command(flatten)]
    pub engine: EngineArguments,
    /// Print one JSON object on the last line instead of a table
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// What a layer's correction is worth.
#[derive(Clone, Copy, Debug, Serialize)]
struct Trained {
    layer: u16,
    /// Rows it was fitted to.
    rows: usize,
    penalty: f64,
    /// Squared error left in documents that were left out.
    left: f64,
    /// Share of the correction that the rank keeps.
    kept: f64,
    /// Agreement of the forecast with the router on held-out documents, and rows of those; null where
    /// there are none.
    before: Option<f64>,
    after: Option<f64>,
    held_out_rows: usize,
}

#[derive(Debug, Serialize)]
struct Report {
    out: PathBuf,
    bytes: u64,
    documents: usize,
    held_out: usize,
    tokens: usize,
    cut: usize,
    skipped: usize,
    rank: usize,
    /// What is less than was asked for.
    notes: Vec<String>,
    identity: String,
    /// Means over the layers; null without a row of a held-out document.
    before: Option<f64>,
    after: Option<f64>,
    layers: Vec<Trained>,
}

/// Which sessions were which documents.
#[derive(Default)]
struct Documents {
    train: Vec<SessionId>,
    held_out: Vec<SessionId>,
    tokens: usize,
    /// Texts of which only the beginning was read.
    cut: usize,
    /// Texts that were not read at all: empty, there before, or beyond `--rows`.
    skipped: usize,
}

impl Documents {
    /// Refuses what is too little to fit to, before it is fitted.
    fn check(&self, given: usize) -> Result<(), Failure> {
        let (fit, held_out) = (self.train.len(), self.held_out.len());
        if fit >= 2 {
            return Ok(());
        }
        let why = self.left_out(given).into_iter().map(|note| format!("; {note}")).collect();
        Err(Failure::FewDocuments { given, fit, held_out, why })
    }

    /// What is less than was asked for, a line each.
    fn notes(&self, rank: (usize, usize), texts: usize) -> Vec<String> {
        let (asked, used) = rank;
        let mut notes = Vec::new();
        if used < asked {
            notes.push(format!("--rank {asked}: a layer has {used} experts, {used} is used"));
        }
        if self.held_out.is_empty() {
            notes.push(
                "no document was held out: what the correction is worth is not known".to_owned(),
            );
        }
        notes.extend(self.left_out(texts));
        notes
    }

    /// Which texts were not read, or not whole, a line each.
    fn left_out(&self, texts: usize) -> Vec<String> {
        let mut notes = Vec::new();
        if self.cut > 0 {
            let cut = self.cut;
            notes.push(format!(
                "{cut} of {texts} texts were cut: --tokens, --context and --rows say how much is read"
            ));
        }
        if self.skipped > 0 {
            let skipped = self.skipped;
            notes.push(format!(
                "{skipped} of {texts} texts were not read: empty, the same as one before, or beyond \
                 --rows"
            ));
        }
        notes
    }
}

/// Runs the example with these arguments, the program's name first.
///
/// # Errors
/// [`Failure`] says what and whose it is. After Ctrl-C nothing is written.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    console: &mut Console<'_>,
) -> Result<Ended, Failure> {
    let arguments: Arguments = parse(arguments)?;
    console.progress &= !arguments.json;
    at_least("--hold-out", arguments.hold_out, 2)?;
    if arguments.hold_out > arguments.texts.len() {
        let (value, texts) = (arguments.hold_out.to_string(), arguments.texts.len());
        let expected = format!("at most {texts}, the number of texts: else none is held out");
        return Err(Failure::Option { option: "--hold-out", value, expected });
    }
    at_least("--rank", arguments.rank, 1)?;
    at_least("--rows", arguments.rows, 1)?;
    let texts = arguments.texts.iter().map(|path| read_text(path, TEXT_LIMIT));
    let texts: Vec<String> = console.waiting(|| texts.collect::<Result<_, _>>())?;
    let model = arguments.engine.find_model()?;
    let out = arguments.out.clone().unwrap_or_else(|| model.path.join(SIDECAR_NAME));
    let file = destination(&arguments, &model.path, &out)?;
    let checkpoint = Checkpoint::open(&model.path).map_err(Error::from)?;
    let geometry = checkpoint.geometry();
    let (hidden, experts) = (checkpoint.config().hidden_size, geometry.experts());
    let shape = CorrectionShape::new(hidden, experts, arguments.rank.min(experts));
    let sizes = (geometry.layers(), hidden, experts);
    let (scratch, limit) = (arguments.scratch.as_deref(), arguments.scratch_limit);
    let store = FileSamples::create(scratch, sizes, arguments.rows, limit)?;
    let store = Arc::new(Mutex::new(store));
    let engine = arguments
        .engine
        .builder(&model, &console.cancel)?
        .progress(console.load_progress())
        .forecaster(Box::new(Recorder::new(&geometry, Arc::clone(&store))))
        // Nothing is read ahead, so the recorder is asked in every pass.
        .speculation(Speculation::off())
        .build()?;
    let Some(documents) = read_all(&arguments, &texts, &engine, console)? else {
        return Ok(Ended::Interrupted);
    };
    drop(engine);
    documents.check(texts.len())?;
    let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
    store.finish()?;
    let mut correction = Correction::new(shape, router_identity(&checkpoint)?);
    let Some(layers) = train(&store, &documents, &geometry, &mut correction, console)? else {
        return Ok(Ended::Interrupted);
    };
    let bytes = correction.to_bytes()?;
    write(file, &out, &bytes)?;
    let notes = documents.notes((arguments.rank, shape.rank), texts.len());
    let report = Report::new((out, bytes.len() as u64), &documents, &correction, layers, notes);
    console.line(&if arguments.json { report.json()? } else { report.text() })?;
    Ok(Ended::Done)
}

fn at_least(option: &'static str, found: usize, least: usize) -> Result<(), Failure> {
    if found < least {
        let (value, expected) = (found.to_string(), format!("at least {least}"));
        return Err(Failure::Option { option, value, expected });
    }
    Ok(())
}

/// Lets the model read every document, each in a session of its own; nothing after Ctrl-C.
fn read_all(
    arguments: &Arguments,
    texts: &[String],
    engine: &Engine,
    console: &Console<'_>,
) -> Result<Option<Documents>, Failure> {
    let most = arguments.tokens.unwrap_or(usize::MAX).min(engine.context());
    let mut documents = Documents::default();
    let mut left = arguments.rows;
    let mut seen = HashSet::new();
    let bar = console.bar(texts.len() as u64, "texts", false);
    for (number, text) in texts.iter().enumerate() {
        let mut tokens = engine.tokenizer()?.encode(text, true).map_err(Error::from)?;
        let whole = tokens.len();
        tokens.truncate(most.min(left));
        // The same text twice would be held out and trained from.
        if tokens.is_empty() || !seen.insert(tokens.clone()) {
            documents.skipped += 1;
            bar.inc(1);
            continue;
        }
        documents.cut += usize::from(tokens.len() < whole);
        let options = SessionOptions::new().with_cancel(console.cancel.clone());
        let mut session = engine.session(options)?;
        match session.prefill(&tokens) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Cancelled => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        left -= tokens.len();
        documents.tokens += tokens.len();
        let held_out = number % arguments.hold_out == arguments.hold_out - 1;
        let list = if held_out { &mut documents.held_out } else { &mut documents.train };
        list.push(session.id());
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(Some(documents))
}

/// Fits the correction of every layer; nothing after Ctrl-C.
fn train(
    store: &FileSamples,
    documents: &Documents,
    geometry: &Geometry,
    correction: &mut Correction,
    console: &Console<'_>,
) -> Result<Option<Vec<Trained>>, Failure> {
    let mut layers = Vec::new();
    let bar = console.bar(geometry.layers().saturating_sub(1) as u64, "layers", false);
    let last = u16::try_from(geometry.layers()).unwrap_or(u16::MAX);
    for layer in (1..last).map(LayerIdx::new) {
        if console.cancel.is_cancelled() {
            return Ok(None);
        }
        let found =
            fit(store, layer, &documents.train, correction.shape(), &TrainOptions::default())?;
        let (before, after, held_out_rows) =
            agreement(store, layer, &documents.held_out, &found.correction, geometry.top_k())?;
        let measured = |share| (held_out_rows > 0).then_some(share);
        let Fit { rows, penalty, left, kept, .. } = found;
        let layer_number = layer.get();
        correction.insert(layer, found.correction)?;
        layers.push(Trained {
            layer: layer_number,
            rows,
            penalty,
            left,
            kept,
            before: measured(before),
            after: measured(after),
            held_out_rows,
        });
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(Some(layers))
}

/// Begins the file. Replaced is a correction and nothing else.
fn destination(arguments: &Arguments, model: &Path, out: &Path) -> Result<WholeFile, Failure> {
    let output = OutputFile { option: "--out", path: out, kind: CORRECTION };
    let texts = arguments.texts.iter().map(|path| Input::File("a TEXT", path.into()));
    // A correction may be one of the model's files.
    let engine = arguments.engine.inputs(model).into_iter();
    let engine = engine.filter(|input| matches!(input, Input::File(..)));
    outputs::check(&[output], &texts.chain(engine).collect::<Vec<_>>())?;
    WholeFile::create(out).map_err(|source| Failure::File { path: out.into(), source })
}

/// Writes the file, which gets its name when it is complete.
fn write(mut file: WholeFile, out: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let written = file.write_all(bytes).and_then(|()| file.finish());
    written.map_err(|source| Failure::File { path: out.into(), source })
}

/// A share, or that nothing was measured.
fn share(share: Option<f64>) -> String {
    share.map_or("none".to_owned(), |share| format!("{share:.3}"))
}

impl Report {
    fn new(
        (out, bytes): (PathBuf, u64),
        documents: &Documents,
        correction: &Correction,
        layers: Vec<Trained>,
        notes: Vec<String>,
    ) -> Self {
        let mean = |of: fn(&Trained) -> Option<f64>| {
            let shares: Option<Vec<f64>> = layers.iter().map(of).collect();
            let shares = shares.filter(|shares| !shares.is_empty())?;
            Some(shares.iter().sum::<f64>() / shares.len() as f64)
        };
        Self {
            out,
            bytes,
            documents: documents.train.len(),
            held_out: documents.held_out.len(),
            tokens: documents.tokens,
            cut: documents.cut,
            skipped: documents.skipped,
            rank: correction.shape().rank,
            notes,
            identity: correction.identity().to_owned(),
            before: mean(|layer| layer.before),
            after: mean(|layer| layer.after),
            layers,
        }
    }

    fn json(&self) -> Result<String, Failure> {
        serde_json::to_string(self).map_err(|e| Failure::output(e.into()))
    }

    fn text(&self) -> String {
        let head = ["layer", "rows", "penalty", "error left", "rank keeps", "before", "after"];
        let mut text = head.map(|name| format!("{name:>10}")).join(" ");
        for layer in &self.layers {
            let cells = [
                layer.layer.to_string(),
                layer.rows.to_string(),
                format!("{:.0e}", layer.penalty),
                format!("{:.3}", layer.left),
                format!("{:.3}", layer.kept),
                share(layer.before),
                share(layer.after),
            ];
            text.push('\n');
            text.push_str(&cells.map(|cell| format!("{cell:>10}")).join(" "));
        }
        let _ = write!(
            text,
            "\n\nagreement on {} held-out documents, mean of the layers: {} before, {} after\n\
             trained on {} documents, rank {}\n{}: {}, for {}",
            self.held_out,
            share(self.before),
            share(self.after),
            self.documents,
            self.rank,
            self.out.display(),
            show_size(self.bytes),
            self.identity,
        );
        for note in &self.notes {
            let _ = write!(text, "\nnote: {note}");
        }
        text
    }
}
