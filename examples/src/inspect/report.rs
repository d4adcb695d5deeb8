//! The report as text and as JSON.

use std::fmt::Write as _;
use std::path::Path;

use indicatif::HumanCount;
use serde::Serialize;
use slotstream::checkpoint::{Checkpoint, LayerType, Ledger, TensorClass};
use slotstream::core::ErrorKind;
use slotstream::qwen::QwenError;
use slotstream::text::TextError;
use slotstream::{Error, MemoryPlan};

use super::checks::Findings;
use super::digests::{self, DigestFigure};
use crate::failure::ErrorFigure;
use crate::figures::{count, table};
use crate::{Failure, show_size};

/// Everything that was found. What was not reached is null.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    model: String,
    /// Whether the checkpoint is valid; null when it was not looked at, or not to the end.
    valid: Option<bool>,
    error: Option<ErrorFigure>,
    config: Option<Config>,
    files: Vec<FileFigure>,
    /// Files of `--sha256`.
    pub(super) digests: Vec<DigestFigure>,
    /// How many those are when all were looked at.
    #[serde(skip)]
    pub(super) digests_listed: usize,
    /// Safetensors files that the index does not name.
    ignored_files: Vec<String>,
    ledger: Option<Ledger>,
    #[serde(flatten)]
    pub(super) findings: Findings,
    ngram: Option<Ngram>,
    optional: Vec<Optional>,
    record: Option<Record>,
    geometry: Option<GeometryFigure>,
    pub(super) plan: Option<Plan>,
    /// Where the plan is less than the flags asked for.
    pub(super) notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct FileFigure {
    path: String,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct Config {
    layers: usize,
    linear_attention_layers: usize,
    indexed_attention_layers: usize,
    hidden_size: usize,
    streams: usize,
    vocab_size: usize,
    context: usize,
    experts: usize,
    top_k: usize,
    expert_width: usize,
    shared_expert_width: usize,
    bits: usize,
    group_size: usize,
    eos_tokens: Vec<u32>,
}

#[derive(Debug, Serialize)]
struct Ngram {
    layer: u16,
    ngram_size: usize,
    heads: usize,
    row_width: usize,
    rows: u64,
    shards: usize,
    multipliers: Vec<i64>,
    head_sizes: Vec<i64>,
    head_offsets: Vec<i64>,
}

/// A part that the text model does without.
#[derive(Debug, Serialize)]
struct Optional {
    part: &'static str,
    found: bool,
    tensors: u64,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct Record {
    payload_bytes: usize,
    stride_bytes: usize,
    pieces: Vec<PieceFigure>,
}

#[derive(Debug, Serialize)]
struct PieceFigure {
    name: String,
    offset: usize,
    bytes: usize,
}

#[derive(Debug, Serialize)]
struct GeometryFigure {
    layers: usize,
    experts: usize,
    top_k: usize,
    records: usize,
    floor_slots: usize,
}

/// A memory plan.
#[derive(Debug, Serialize)]
pub(super) struct Plan {
    slots: usize,
    slot_bytes: u64,
    records: usize,
    total_bytes: u64,
    rows: Vec<PlanRow>,
}

#[derive(Debug, Serialize)]
struct PlanRow {
    name: &'static str,
    bytes: u64,
    what: String,
}

impl From<MemoryPlan> for Plan {
    fn from(plan: MemoryPlan) -> Self {
        let total_bytes = plan.total_bytes();
        let rows = plan.rows.into_iter();
        Self {
            slots: plan.slots,
            slot_bytes: plan.slot_bytes,
            records: plan.records,
            total_bytes,
            rows: rows.map(|r| PlanRow { name: r.name, bytes: r.bytes, what: r.what }).collect(),
        }
    }
}

impl Report {
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            model: folder.display().to_string(),
            valid: Some(true),
            error: None,
            config: None,
            files: Vec::new(),
            digests: Vec::new(),
            digests_listed: 0,
            ignored_files: Vec::new(),
            ledger: None,
            findings: Findings::default(),
            ngram: None,
            optional: Vec::new(),
            record: None,
            geometry: None,
            plan: None,
            notes: Vec::new(),
        }
    }

    /// Takes over what a valid checkpoint says of itself.
    pub(super) fn describe(&mut self, checkpoint: &Checkpoint) {
        let files = checkpoint.files().iter().zip(checkpoint.file_sizes());
        let show = |path: &Path| path.display().to_string();
        self.files = files.map(|(p, n)| FileFigure { path: show(p), bytes: *n }).collect();
        self.ignored_files = checkpoint.ignored_files().iter().map(|p| show(p)).collect();
        self.config = Some(Config::of(checkpoint));
        self.ledger = Some(checkpoint.ledger().clone());
        self.ngram = Ngram::of(checkpoint);
        let part = |class: TensorClass| {
            let row = checkpoint.ledger().row(class);
            Optional {
                part: class.label(),
                found: row.tensors > 0,
                tensors: row.tensors,
                bytes: row.bytes,
            }
        };
        self.optional = [TensorClass::VisionTower, TensorClass::DraftHead].map(part).into();
        self.record = Some(Record::of(checkpoint));
        let geometry = checkpoint.geometry();
        self.geometry = Some(GeometryFigure {
            layers: geometry.layers(),
            experts: geometry.experts(),
            top_k: geometry.top_k(),
            records: geometry.records(),
            floor_slots: geometry.floor_slots(),
        });
    }

    /// Takes over why the rest is missing. A plan or a prompt that does not fit leaves the model
    /// valid.
    pub(super) fn fail(&mut self, error: &Failure) {
        if let Failure::Engine(Error::Budget { plan, .. }) = error {
            self.plan = Some((**plan).clone().into());
        }
        self.valid = match error {
            error if error.kind() == ErrorKind::Cancelled => None,
            Failure::Engine(error) => Some(of_request(error)),
            Failure::Digests { .. } => Some(false),
            // A list of digests that cannot be read comes before everything else.
            _ => self.config.as_ref().map(|_| true),
        };
        self.error = Some(ErrorFigure::new(error, error.kind()));
    }

    pub(super) fn json(&self) -> Result<String, Failure> {
        serde_json::to_string(self).map_err(|e| Failure::output(e.into()))
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n", self.model);
        for (title, body) in [
            ("config", self.config.as_ref().map(Config::text)),
            ("files", self.config.as_ref().map(|_| self.files_text())),
            ("sha256", self.digests_text()),
            ("bytes by class", self.ledger.as_ref().map(ToString::to_string)),
            ("optional parts", self.config.as_ref().map(|_| self.optional_text())),
            ("n-gram layer", self.ngram.as_ref().map(Ngram::text)),
            ("records", self.record.as_ref().map(|record| self.record_text(record))),
            ("checks passed", self.config.as_ref().map(|_| self.checks_text())),
            ("memory plan", self.plan.as_ref().map(|plan| plan.text(&self.notes))),
        ] {
            if let Some(body) = body {
                let _ = write!(text, "\n{title}\n{}\n", indent(&body));
            }
        }
        let end = match (self.valid, &self.error) {
            (Some(true), None) => "valid",
            (_, Some(error)) if error.is_cancelled() => {
                "interrupted: valid as far as it was looked at"
            }
            (Some(true), Some(_)) => "valid, but this request does not fit it",
            (Some(false), _) => "NOT VALID",
            (None, _) => "not looked at: the request itself is wrong",
        };
        text + "\n" + end
    }

    fn digests_text(&self) -> Option<String> {
        let listed = self.digests_listed;
        (listed > 0).then(|| digests::summary(&self.digests, listed))
    }

    fn files_text(&self) -> String {
        let name = |path: &str| {
            Path::new(path).file_name().map_or(path.to_owned(), |n| n.display().to_string())
        };
        let mut rows: Vec<_> =
            self.files.iter().map(|f| (name(&f.path), count(f.bytes, "byte"))).collect();
        rows.extend(
            self.ignored_files.iter().map(|f| (name(f), "ignored: not in the index".to_owned())),
        );
        let or_none = |file: &Option<String>| match file {
            Some(file) => name(file),
            None => "none".to_owned(),
        };
        rows.push(("tokenizer".to_owned(), or_none(&self.findings.tokenizer)));
        rows.push(("chat template".to_owned(), or_none(&self.findings.chat_template)));
        let rows: Vec<_> = rows.iter().map(|(a, b)| (a.as_str(), b.clone())).collect();
        table(&rows)
    }

    fn optional_text(&self) -> String {
        let row = |part: &Optional| {
            let found = if part.found {
                format!(
                    "{}, {}: not loaded",
                    count(part.tensors, "tensor"),
                    count(part.bytes, "byte")
                )
            } else {
                "none".to_owned()
            };
            (part.part, found)
        };
        table(&self.optional.iter().map(row).collect::<Vec<_>>())
    }

    fn record_text(&self, record: &Record) -> String {
        let mut rows = Vec::new();
        if let Some(geometry) = &self.geometry {
            rows.push((
                "geometry",
                format!(
                    "{} x {} = {}, top-{}",
                    count(geometry.layers as u64, "layer"),
                    count(geometry.experts as u64, "expert"),
                    count(geometry.records as u64, "record"),
                    geometry.top_k
                ),
            ));
            rows.push(("smallest pool", count(geometry.floor_slots as u64, "slot")));
        }
        let bytes = |bytes: usize| count(bytes as u64, "byte");
        let (payload, stride) = (bytes(record.payload_bytes), bytes(record.stride_bytes));
        rows.push(("record", format!("{payload} in a slot of {stride}")));
        for piece in &record.pieces {
            let at = HumanCount(piece.offset as u64);
            rows.push((&piece.name, format!("{} at {at}", bytes(piece.bytes))));
        }
        table(&rows)
    }

    fn checks_text(&self) -> String {
        let checks = self.findings.checks.iter();
        let mut rows: Vec<_> = checks.map(|check| (check.name, check.found.clone())).collect();
        if self.findings.values_bytes.is_none() {
            let not = match &self.error {
                Some(error) if error.is_cancelled() => "not looked at to the end",
                _ => "not looked at: --values reads every scale, bias and float",
            };
            rows.push(("values", not.to_owned()));
        }
        table(&rows)
    }
}

/// Whether an error is about the request and not about the model.
fn of_request(error: &Error) -> bool {
    match error {
        Error::Model(error) => matches!(**error, QwenError::Token { .. }),
        Error::Budget { .. }
        | Error::Option { .. }
        | Error::Cache(_)
        | Error::Device { .. }
        | Error::NoTokenizer { .. } => true,
        Error::Text(error) => matches!(
            **error,
            TextError::NoTemplate { .. } | TextError::Refused { .. } | TextError::Encode { .. }
        ),
        _ => false,
    }
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

impl Config {
    fn of(checkpoint: &Checkpoint) -> Self {
        let config = checkpoint.config();
        let linear =
            config.layer_types.iter().filter(|t| **t == LayerType::LinearAttention).count();
        let generation = &checkpoint.generation().eos_token_ids;
        let eos = if generation.is_empty() { &config.eos_token_ids } else { generation };
        let format = checkpoint.expert_shape().format();
        Self {
            layers: config.num_hidden_layers,
            linear_attention_layers: linear,
            indexed_attention_layers: config.num_hidden_layers - linear,
            hidden_size: config.hidden_size,
            streams: config.hc_count,
            vocab_size: config.vocab_size,
            context: config.max_position_embeddings,
            experts: config.num_experts,
            top_k: config.num_experts_per_tok,
            expert_width: config.moe_intermediate_size,
            shared_expert_width: config.shared_expert_intermediate_size,
            bits: format.bits(),
            group_size: format.group_size(),
            eos_tokens: eos.clone(),
        }
    }

    fn text(&self) -> String {
        let (linear, indexed) = (self.linear_attention_layers, self.indexed_attention_layers);
        table(&[
            (
                "layers",
                format!("{}: {linear} gated delta net, {indexed} indexed attention", self.layers),
            ),
            ("width", format!("{} in {} streams", self.hidden_size, self.streams)),
            ("vocabulary", format!("{}; ends a text: {:?}", self.vocab_size, self.eos_tokens)),
            ("longest context", format!("{} tokens", self.context)),
            (
                "experts",
                format!(
                    "{} a layer of width {}, {} a token; shared expert of width {}",
                    self.experts, self.expert_width, self.top_k, self.shared_expert_width
                ),
            ),
            ("experts stored", format!("{} bits in groups of {}", self.bits, self.group_size)),
        ])
    }
}

impl Ngram {
    fn of(checkpoint: &Checkpoint) -> Option<Self> {
        let plan = checkpoint.ngram()?;
        Some(Self {
            layer: plan.layer.get(),
            ngram_size: plan.ngram_size,
            heads: plan.head_sizes.len(),
            row_width: plan.row_width,
            rows: plan.rows_per_shard * plan.shards.len() as u64,
            shards: plan.shards.len(),
            multipliers: plan.multipliers.clone(),
            head_sizes: plan.head_sizes.clone(),
            head_offsets: plan.head_offsets.clone(),
        })
    }

    fn text(&self) -> String {
        table(&[
            ("layer", format!("{} (from 0), up to {}-grams", self.layer, self.ngram_size)),
            (
                "table",
                format!(
                    "{} rows of {} values in {} shards",
                    self.rows, self.row_width, self.shards
                ),
            ),
            ("heads", self.heads.to_string()),
            ("multipliers", format!("{:?}", self.multipliers)),
            ("head sizes", format!("{:?}", self.head_sizes)),
        ])
    }
}

impl Record {
    fn of(checkpoint: &Checkpoint) -> Self {
        let layout = checkpoint.record_layout();
        let pieces = layout.pieces().iter().map(|piece| PieceFigure {
            name: format!("{:?}.{:?}", piece.matrix, piece.part).to_lowercase(),
            offset: piece.offset,
            bytes: piece.len,
        });
        Self {
            payload_bytes: layout.payload_len(),
            stride_bytes: layout.stride(),
            pieces: pieces.collect(),
        }
    }
}

impl Plan {
    fn text(&self, notes: &[String]) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let bytes = HumanCount(row.bytes).to_string();
            let _ = writeln!(text, "{:<18} {bytes:>15}  {}", row.name, row.what);
        }
        let total = HumanCount(self.total_bytes).to_string();
        let slots = count(self.slots as u64, "slot");
        let size = show_size(self.total_bytes);
        let _ = write!(text, "{:<18} {total:>15}  bytes, {size}: {slots}", "planned peak");
        for note in notes {
            let _ = write!(text, "\n{note}");
        }
        text
    }
}
