//! Tables that are arithmetic on their figures: nothing is simulated.

use slotstream_replay::{Cell, Figures, hit_rate_floor};

use super::bytes::Model;
use super::{Section, published};

/// What a token reads at the article's hit rates.
pub(super) fn reads(model: &Model) -> Section {
    let columns = ["hit_rate", "misses_per_token", "article_misses", "mb_per_token", "article_mb"];
    let mut rows = Figures::new(columns);
    for row in published::SIMULATION {
        let misses = model.lookups() * (1.0 - row.hit_rate);
        let mb = model.a_token() * (1.0 - row.hit_rate) / 1e6;
        rows.push(
            [Cell::Share(row.hit_rate)]
                .into_iter()
                .chain([misses, row.misses, mb, row.mb].map(Cell::Number)),
        );
    }
    Section::new("what a token reads at a hit rate (the article's hit rates)", rows)
}

/// The least hit rate by speed and disk.
pub(super) fn floors(model: &Model) -> Section {
    let columns = [
        "tok_s",
        "all_miss_gb_s",
        "article_gb_s",
        "floor_raw_disk",
        "article_floor_raw",
        "floor_engine_disk",
        "article_floor_engine",
    ];
    let mut rows = Figures::new(columns);
    for (tok_s, gb_s, raw, engine) in published::FLOORS {
        let floor = |disk| Cell::Share(hit_rate_floor(tok_s, model.a_token(), disk));
        rows.push([
            Cell::Number(tok_s),
            Cell::Number(tok_s * model.a_token() / 1e9),
            Cell::Number(gb_s),
            floor(published::RAW_DISK),
            Cell::Share(raw),
            floor(published::ENGINE_DISK),
            Cell::Share(engine),
        ]);
    }
    Section::new(
        "the hit rate that a speed needs at least: raw disk 17.3 GB/s, through the engine 12",
        rows,
    )
    .note("A weak floor: it takes the disk for the only cost, and reads never overlap computing.")
}

/// The receipts: their measurements, and what follows from them.
pub(super) fn receipts(model: &Model) -> Section {
    let columns = [
        "workload",
        "original_hit_rate",
        "tok_s",
        "article_tok_s",
        "mb_per_token",
        "article_mb",
        "records_per_token",
        "wait_share",
        "article_wait_share",
        "ms_without_reads",
        "article_ms",
    ];
    let mut rows = Figures::new(columns);
    for row in published::RECEIPTS {
        // The first token comes from the prompt's pass.
        let decoded = row.tokens - 1.0;
        let bytes = row.read_gb * 1e9 / decoded;
        rows.push([
            Cell::from(row.workload),
            Cell::Share(row.hit_rate),
            Cell::Number(decoded / row.decode_s),
            Cell::Number(row.tok_s),
            Cell::Number(bytes / 1e6),
            Cell::Number(row.mb_a_token),
            Cell::Number(bytes / model.record() as f64),
            Cell::Share(row.wait_s / row.decode_s),
            Cell::Share(row.wait_share),
            Cell::Number((row.decode_s - row.wait_s) / decoded * 1e3),
            Cell::Number(row.rest_ms),
        ]);
    }
    Section::new("speed and waiting, computed from the original's receipts (M5 Pro, 33 GB)", rows)
        .note(
            "Their times are published to 10 ms, so the last digit may differ. A pass of theirs \
             verifies two draft tokens, so the hit rate is not of 480 lookups a token.",
        )
}
