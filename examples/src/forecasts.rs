//! Forecasters: the files that their names refer to, and what they were good for.

use std::fmt::Write as _;

use serde::Serialize;
use slotstream::Engine;
use slotstream::core::{ErrorKind, EventSink, Routing, Step};
use slotstream::experts::{LayerLookahead, LookaheadMetrics};
use slotstream::lookahead::{FileFault, ForecastFiles, OracleRoutes};
use slotstream_replay::{Recording, TraceFormat};

use crate::show_size;

/// Opens recorded traces for `oracle:TRACE`.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Traces;

impl ForecastFiles for Traces {
    fn routes(&self, path: &str) -> Result<OracleRoutes, FileFault> {
        // A pipe would be waited for, and somebody may never write into it.
        if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            return Err(FileFault::new(ErrorKind::User, "it is no regular file"));
        }
        let mut routes = Routes(OracleRoutes::new());
        // Opened as a replay does: it may be compressed.
        let trace = Recording::open_as(path, TraceFormat::Native);
        let played = trace.and_then(|trace| trace.play(&mut routes));
        played.map_err(|error| FileFault::new(error.kind(), error))?;
        Ok(routes.0)
    }
}

/// Takes the routes out of a recording.
#[derive(Debug)]
struct Routes(OracleRoutes);

impl EventSink for Routes {
    fn on_step(&mut self, _step: &Step<'_>) {}
    fn on_routing(&mut self, routing: &Routing<'_>) {
        self.0.add(routing);
    }
}

/// What reading ahead did, as JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LookaheadFigures {
    forecaster: String,
    passes: u64,
    passes_without: u64,
    backed_off: u64,
    /// Seconds of a pass without and with it, as last compared.
    compared_s: Option<(f64, f64)>,
    total: LayerFigures,
    layers: Vec<LayerFigures>,
}

/// One target layer.
#[derive(Clone, Copy, Debug, Serialize)]
struct LayerFigures {
    forecast: u64,
    demanded: u64,
    misses: u64,
    issued: u64,
    refused: u64,
    too_late: u64,
    on_time: u64,
    late: u64,
    adopted: u64,
    expired: u64,
    cancelled: u64,
    failed: u64,
    wasted_bytes: u64,
    precision: Option<f64>,
    recall: Option<f64>,
    agreement: Option<f64>,
    wait_s: f64,
    wait_removed_s: f64,
}

impl From<&LayerLookahead> for LayerFigures {
    fn from(layer: &LayerLookahead) -> Self {
        Self {
            forecast: layer.forecast,
            demanded: layer.demanded,
            misses: layer.misses,
            issued: layer.issued,
            refused: layer.refused,
            too_late: layer.too_late,
            on_time: layer.on_time,
            late: layer.late,
            adopted: layer.adopted(),
            expired: layer.expired,
            cancelled: layer.cancelled,
            failed: layer.failed,
            wasted_bytes: layer.wasted_bytes,
            precision: layer.precision(),
            recall: layer.recall(),
            agreement: layer.agreement(),
            wait_s: layer.wait.as_secs_f64(),
            wait_removed_s: layer.wait_removed().as_secs_f64(),
        }
    }
}

impl LookaheadFigures {
    pub(crate) fn new(engine: &Engine) -> Self {
        let (forecaster, metrics): (String, LookaheadMetrics) =
            engine.inspect(|experts| (experts.forecaster(), experts.lookahead().clone()));
        Self {
            forecaster,
            passes: metrics.passes,
            passes_without: metrics.passes_without,
            backed_off: metrics.backed_off,
            compared_s: metrics.compared,
            total: (&metrics.total()).into(),
            layers: metrics.layers.iter().map(LayerFigures::from).collect(),
        }
    }

    /// A table by target layer, for people; nothing where nothing was expected.
    pub(crate) fn table(&self) -> Option<String> {
        if self.total.forecast == 0 {
            return None;
        }
        let mut text =
            format!("Read ahead by {}, by the layer that it was for:\n", self.forecaster);
        let head =
            ["layer", "issued", "on time", "late", "expired", "wasted", "precision", "recall"];
        let more = ["agreement", "wait removed"];
        for (at, name) in head.iter().chain(&more).enumerate() {
            let _ = write!(text, "{}{name:>12}", if at == 0 { "" } else { " " });
        }
        let layers = self.layers.iter().enumerate();
        let named = layers.map(|(number, layer)| (number.to_string(), layer));
        for (name, layer) in named.chain([("all".to_owned(), &self.total)]) {
            let _ = write!(text, "\n{}", layer.row(&name));
        }
        if self.passes_without > 0 {
            let _ = write!(
                text,
                "\n{} passes read ahead, {} did not, to compare or because it did not pay",
                self.passes, self.passes_without
            );
        }
        if let Some((without, with)) = self.compared_s {
            let (without, with) = (1e3 * without, 1e3 * with);
            let _ = write!(text, "; {without:.2} ms a pass without, {with:.2} ms with");
        }
        Some(text)
    }
}

impl LayerFigures {
    fn row(&self, name: &str) -> String {
        let share = |share: Option<f64>| share.map_or("-".to_owned(), |s| format!("{s:.3}"));
        [
            name.to_owned(),
            self.issued.to_string(),
            self.on_time.to_string(),
            self.late.to_string(),
            (self.expired + self.cancelled + self.failed).to_string(),
            show_size(self.wasted_bytes),
            share(self.precision),
            share(self.recall),
            share(self.agreement),
            format!("{:.1} ms", 1e3 * self.wait_removed_s),
        ]
        .map(|cell| format!("{cell:>12}"))
        .join(" ")
    }
}
