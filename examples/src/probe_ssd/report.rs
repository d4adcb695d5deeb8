//! What the measurements say.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use slotstream_core::RecordReader;
use slotstream_replay::{Cell as Value, Figures};

use super::measure::{Cell, Sample};
use super::source::Source;
use super::{Shape, Way};
use crate::{Failure, show_size};

/// Hit rates for which the time of a token is predicted.
const HIT_RATES: [f64; 7] = [0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95];
/// Less than this share fetched, and a cache has served the rest.
const CACHED: f64 = 0.9;

/// Everything, as JSON. Null is what was not measured.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    files: Vec<PathBuf>,
    file_bytes: u64,
    shape: Shape,
    readers: Vec<ReaderFigure>,
    pub(super) rows: Vec<Row>,
    predictions: Vec<Prediction>,
    /// Whether measuring ended because all bytes had been read once.
    pub(super) used_up: bool,
    #[serde(skip)]
    samples: Vec<(Cell, Vec<Sample>)>,
}

/// What a reader was asked to be and what it is.
#[derive(Debug, Serialize)]
struct ReaderFigure {
    reader: String,
    mode: String,
    why: String,
}

/// One way, reader and depth; medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) way: Way,
    pub(super) reader: String,
    pub(super) depth: u16,
    pub(super) rounds: usize,
    reads: usize,
    /// Reads a second, the median.
    reads_s: f64,
    pub(super) gb_s: f64,
    gb_s_least: f64,
    gb_s_most: f64,
    p50_ms: f64,
    p99_ms: f64,
    processor_s_per_gb: f64,
    /// Bytes fetched for each byte asked for; null where the system does not say.
    fetched_per_byte: Option<f64>,
    /// Whether a cache has served a part.
    cached: bool,
}

/// What a token waits for its records when nothing else costs time.
#[derive(Debug, Serialize)]
struct Prediction {
    hit_rate: f64,
    ms_per_token: f64,
    tok_s: f64,
}

impl Report {
    pub(super) fn new(
        files: &[PathBuf],
        file_bytes: u64,
        shape: &Shape,
        readers: &[(Source, Arc<dyn RecordReader>)],
    ) -> Self {
        let figure = |(source, reader): &(Source, Arc<dyn RecordReader>)| {
            let mode = reader.effective();
            ReaderFigure { reader: source.to_string(), mode: mode.name, why: mode.why }
        };
        Self {
            files: files.to_vec(),
            file_bytes,
            shape: shape.clone(),
            readers: readers.iter().map(figure).collect(),
            rows: Vec::new(),
            predictions: Vec::new(),
            used_up: false,
            samples: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, cell: Cell, sample: Sample) {
        match self.samples.iter_mut().find(|(known, _)| *known == cell) {
            Some((_, samples)) => samples.push(sample),
            None => self.samples.push((cell, vec![sample])),
        }
    }

    /// Makes rows and predictions of the samples.
    pub(super) fn finish(&mut self) {
        self.rows = self.samples.iter().map(|(cell, samples)| Row::of(cell, samples)).collect();
        let records = self.rows.iter().filter(|row| row.way == Way::Record && !row.cached);
        let Some(best) = records.map(|row| row.gb_s).max_by(f64::total_cmp) else { return };
        self.predictions = HIT_RATES
            .iter()
            .map(|&hit_rate| {
                let seconds = self.shape.token_bytes as f64 * (1.0 - hit_rate) / (best * 1e9);
                Prediction { hit_rate, ms_per_token: 1e3 * seconds, tok_s: 1.0 / seconds }
            })
            .collect();
    }

    pub(super) fn json(&self) -> Result<String, Failure> {
        serde_json::to_string(self).map_err(|e| Failure::output(e.into()))
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!("{} in {} files\n", show_size(self.file_bytes), self.files.len());
        for ReaderFigure { reader, mode, why } in &self.readers {
            text.push_str(&format!("{reader} -> {mode}: {why}\n"));
        }
        text.push_str(&format!("\n{}", self.table().text()));
        if self.used_up {
            text.push_str(
                "\nThe files were used up: no byte is read twice. Larger files, fewer \
                           rounds or --bytes give the rest.\n",
            );
        }
        if self.rows.iter().any(|row| row.cached) {
            text.push_str(
                "\nMarked rows were served from a cache in part: they say nothing of the \
                           disk.\n",
            );
        }
        if self.rows.iter().all(|row| row.fetched_per_byte.is_none()) {
            text.push_str("\nWhether a cache has served reads, this system does not say.\n");
        }
        if !self.predictions.is_empty() {
            let size = show_size(self.shape.token_bytes);
            text.push_str(&format!(
                "\nReading alone, at the best rate for records ({size} a token when nothing hits):\n\n{}",
                self.predicted().text()
            ));
        }
        text.trim_end().to_owned()
    }

    fn table(&self) -> Figures {
        let mut table = Figures::new([
            "way",
            "reader",
            "depth",
            "rounds",
            "reads",
            "reads_s",
            "gb_s",
            "least",
            "most",
            "p50_ms",
            "p99_ms",
            "cpu_s_per_gb",
            "fetched",
            "cached",
        ]);
        for row in &self.rows {
            table.push([
                Value::Text(format!("{:?}", row.way).to_lowercase()),
                Value::Text(row.reader.clone()),
                Value::from(u64::from(row.depth)),
                Value::from(row.rounds),
                Value::from(row.reads),
                Value::from(row.reads_s.round() as u64),
                Value::Number(row.gb_s),
                Value::Number(row.gb_s_least),
                Value::Number(row.gb_s_most),
                Value::Number(row.p50_ms),
                Value::Number(row.p99_ms),
                Value::Number(row.processor_s_per_gb),
                Value::number(row.fetched_per_byte),
                Value::from(if row.cached { "CACHED" } else { "" }),
            ]);
        }
        table
    }

    fn predicted(&self) -> Figures {
        let mut table = Figures::new(["hit_rate", "ms_per_token", "tok_s"]);
        for Prediction { hit_rate, ms_per_token, tok_s } in &self.predictions {
            table.push([
                Value::Share(*hit_rate),
                Value::Number(*ms_per_token),
                Value::Number(*tok_s),
            ]);
        }
        table
    }
}

impl Row {
    fn of(cell: &Cell, samples: &[Sample]) -> Self {
        let rates = sorted(samples.iter().map(|s| s.bytes as f64 / s.seconds.max(1e-9) / 1e9));
        let pace = sorted(samples.iter().map(|s| s.latencies.len() as f64 / s.seconds.max(1e-9)));
        let cost = |s: &Sample| s.processor_s / (s.bytes as f64 / 1e9).max(1e-9);
        let latencies = sorted(samples.iter().flat_map(|s| s.latencies.iter().copied()));
        let fetched: Option<Vec<f64>> =
            samples.iter().map(|s| Some(s.fetched? as f64 / s.bytes.max(1) as f64)).collect();
        let fetched = fetched.map(|shares| middle(&sorted(shares.into_iter()), 0.5));
        Self {
            way: cell.way,
            reader: cell.source.to_string(),
            depth: cell.depth,
            rounds: samples.len(),
            reads: samples.iter().map(|s| s.latencies.len()).sum(),
            reads_s: middle(&pace, 0.5),
            gb_s: middle(&rates, 0.5),
            gb_s_least: middle(&rates, 0.0),
            gb_s_most: middle(&rates, 1.0),
            p50_ms: 1e3 * middle(&latencies, 0.5),
            p99_ms: 1e3 * middle(&latencies, 0.99),
            processor_s_per_gb: middle(&sorted(samples.iter().map(cost)), 0.5),
            fetched_per_byte: fetched,
            cached: fetched.is_some_and(|share| share < CACHED),
        }
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The value at a share of the way through a sorted list; 0 of an empty one.
fn middle(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((share * last as f64).round() as usize).copied().unwrap_or(0.0)
}
