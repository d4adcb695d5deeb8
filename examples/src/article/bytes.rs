//! Tables of bytes: the checkpoint, the plan's pool, a record.

use slotstream_checkpoint::{Checkpoint, Ledger, TensorClass as C};
use slotstream_core::{Geometry, RecordLayout};
use slotstream_replay::{Cell, Figures, bytes_a_token};
use slotstream_testkit::checkpoint::{CheckpointSpec, published_config};

use super::{Section, published};
use crate::Failure;

/// What the headers of the published checkpoint say.
pub(super) struct Model {
    pub(super) geometry: Geometry,
    pub(super) layout: RecordLayout,
    ledger: Ledger,
    /// Bytes of the n-gram rows that a token looks up.
    ngram_bytes: u64,
}

impl Model {
    /// Writes the headers of the published config's shapes, holes for payload, and reads them as
    /// an engine does.
    pub(super) fn open() -> Result<Self, Failure> {
        let folder = tempfile::tempdir()
            .map_err(|source| Failure::File { path: std::env::temp_dir(), source })?;
        CheckpointSpec::new(published_config()).write_sparse(folder.path())?;
        let checkpoint = Checkpoint::open(folder.path())?;
        let ngram_bytes = checkpoint.ngram().map_or(0, |plan| {
            let row =
                plan.format.row_bytes(plan.row_width) + 4 * plan.format.row_groups(plan.row_width);
            (plan.head_sizes.len() * row) as u64
        });
        Ok(Self {
            geometry: checkpoint.geometry(),
            layout: checkpoint.record_layout().clone(),
            ledger: checkpoint.ledger().clone(),
            ngram_bytes,
        })
    }

    /// Bytes of a record.
    pub(super) fn record(&self) -> u64 {
        self.ledger.record_bytes
    }

    /// Records that a token looks up.
    pub(super) fn lookups(&self) -> f64 {
        (self.geometry.layers() * self.geometry.top_k()) as f64
    }

    /// Bytes that a token reads when nothing hits.
    pub(super) fn a_token(&self) -> f64 {
        bytes_a_token(&self.geometry, self.record()) as f64
    }
}

/// The article's four rows, then what the third is made of by the original's notes.
pub(super) fn ledger(model: &Model) -> Section {
    let ledger = &model.ledger;
    let linear =
        [C::LinearQkv, C::LinearZ, C::LinearOut, C::LinearAb, C::LinearConv, C::LinearSmall];
    let indexed = [C::AttentionQ, C::AttentionKv, C::AttentionOut, C::Indexer, C::AttentionNorms];
    let sum = |classes: &[C]| classes.iter().map(|class| ledger.row(*class).bytes).sum();
    let mut rows = Figures::new(["part", "bytes", "gb", "article_gb", "original_gb"]);
    for (part, bytes, article, original) in [
        ("routed experts", ledger.expert_bytes, Some(67.95), Some(67.948)),
        ("n-gram table", ledger.ngram_bytes, Some(32.00), Some(32.000)),
        ("everything else", ledger.rest_bytes, Some(3.82), Some(3.822)),
        ("total", ledger.total_bytes, Some(103.77), None),
        ("of it: linear attention", sum(&linear), None, Some(1.189)),
        ("of it: vision tower", sum(&[C::VisionTower]), None, Some(0.9)),
        ("of it: indexed attention", sum(&indexed), None, Some(0.376)),
        ("of it: hyper-connections", sum(&[C::HyperConnection, C::BlockInject]), None, Some(0.367)),
        ("of it: embed_tokens", sum(&[C::Embedding]), None, Some(0.358)),
        ("of it: lm_head", sum(&[C::Head]), None, Some(0.358)),
        ("of it: shared experts", sum(&[C::SharedExpert, C::SharedExpertGate]), None, Some(0.133)),
        ("of it: routers", sum(&[C::Router]), None, Some(0.126)),
        (
            "of it: n-gram layer",
            sum(&[C::PleProjections, C::PleSmall, C::NgramConstants]),
            None,
            Some(0.019),
        ),
    ] {
        let gb = Cell::Number(bytes as f64 / 1e9);
        let theirs = [article, original].map(Cell::number);
        rows.push([Cell::from(part), bytes.into(), gb].into_iter().chain(theirs));
    }
    Section::new("where the bytes of the checkpoint go, from its headers", rows).note(
        "of it: of everything else. inspect --model FOLDER shows every class of a checkpoint.",
    )
}

/// The pool of the 33 GB plan.
pub(super) fn plan(model: &Model) -> Section {
    let slots = published::PLAN_SLOTS;
    let pool = slots as u64 * model.record();
    let others: f64 = published::PLAN_ROWS.iter().map(|(_, gb)| gb).sum();
    let mut rows = Figures::new(["figure", "ours", "article"]);
    let per_layer = slots as f64 / model.geometry.layers() as f64;
    let share = slots as f64 / model.geometry.records() as f64;
    let arena = slots as u64 * model.layout.stride() as u64;
    for (figure, ours, article) in [
        ("slots", Cell::from(slots), Cell::from(slots)),
        ("experts a layer", Cell::Number(per_layer), Cell::from(published::PLAN_PER_LAYER)),
        ("share of the records", Cell::Share(share), Cell::Share(0.306)),
        ("bytes of their slots", pool.into(), published::PLAN_POOL.into()),
        ("bytes of our slots", arena.into(), Cell::Nothing),
        ("planned peak in GB", Cell::Number(pool as f64 / 1e9 + others), Cell::Number(32.0)),
    ] {
        rows.push([Cell::from(figure), ours, article]);
    }
    let others = published::PLAN_ROWS.map(|(row, gb)| format!("{row} {gb} GB"));
    Section::new("the pool of the 33 GB plan", rows).note(format!(
        "The peak adds their other rows: {}. Our slots begin at multiples of 16 KiB.",
        others.join(", ")
    ))
}

/// What a record is.
pub(super) fn records(model: &Model) -> Section {
    let pieces = model.layout.pieces();
    let small = pieces.iter().filter(|piece| piece.len == 51_200).count();
    let shape = model.layout.shape();
    let weights = 3 * shape.hidden() * shape.intermediate();
    let mut rows = Figures::new(["figure", "ours", "article", "original"]);
    let count = |n: u64| Cell::Count(n);
    for (figure, ours, article, original) in [
        ("bytes of a record", count(model.record()), count(2_764_800), count(2_764_800)),
        ("bytes of a slot", model.layout.stride().into(), Cell::Nothing, count(2_768_896)),
        (
            "bits a weight",
            Cell::Number(model.record() as f64 * 8.0 / weights as f64),
            Cell::Number(4.5),
            Cell::Nothing,
        ),
        ("pieces of a record", pieces.len().into(), count(9), count(9)),
        ("pieces of 51,200 bytes", small.into(), count(6), Cell::Nothing),
        ("records", model.geometry.records().into(), count(24_576), count(24_576)),
        ("records a token looks up", count(model.lookups() as u64), count(480), count(480)),
        (
            "MB a token when nothing hits",
            Cell::Number(model.a_token() / 1e6),
            Cell::Number(1327.1),
            Cell::Number(1327.0),
        ),
        ("bytes of n-gram rows a token", count(model.ngram_bytes), count(1600), count(1600)),
    ] {
        rows.push([Cell::from(figure), ours, article, original]);
    }
    Section::new("what a record is, and how many of them a token needs", rows)
        .note("The original planned slots of 16 KiB pages for a repacked file; its pool has none.")
}
