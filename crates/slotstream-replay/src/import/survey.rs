//! The geometry of requests that do not say it.

use std::path::Path;

use slotstream_core::{EventSink, Geometry, Routing, Step};

use super::lines::Place;
use crate::trace::{TraceError, TraceHeader, TraceTotals};

/// What a text says about itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Declared {
    pub(super) geometry: Option<Geometry>,
    pub(super) model: String,
    pub(super) note: String,
}

impl Declared {
    /// Reads a line of comment: `layers L experts E top_k K`, or anything else, the first of
    /// which is the note.
    pub(super) fn comment(&mut self, place: &Place, text: &str) -> Result<(), TraceError> {
        let words: Vec<&str> = text.split([' ', '\t', ';', ',']).collect();
        let after =
            |name| words.iter().position(|word| *word == name).and_then(|i| words.get(i + 1));
        if let (Some(layers), Some(experts), Some(top_k)) =
            (after("layers"), after("experts"), after("top_k"))
        {
            let number = |field, text| place.number(field, text, u16::MAX.into());
            let numbers =
                [number("layers", layers)?, number("experts", experts)?, number("top_k", top_k)?];
            let [layers, experts, top_k] = numbers.map(|n| n as u16);
            match Geometry::new(layers, experts, top_k) {
                Ok(geometry) => self.geometry = Some(geometry),
                Err(error) => return place.bad("geometry", error.to_string(), text),
            }
        } else if self.note.is_empty() {
            self.note = text.trim().to_owned();
        }
        Ok(())
    }
}

/// Collects the largest numbers.
#[derive(Debug, Default)]
pub(super) struct Survey {
    layers: u16,
    experts: u16,
    top_k: usize,
    weights: bool,
}

impl EventSink for Survey {
    fn on_step(&mut self, _step: &Step<'_>) {}

    fn on_routing(&mut self, routing: &Routing<'_>) {
        self.layers = self.layers.max(routing.layer().get() + 1);
        let most = routing.ids().iter().map(|id| id.get()).max().unwrap_or(0);
        self.experts = self.experts.max(most + 1);
        self.top_k = routing.top_k();
        self.weights |= !routing.weights().is_empty();
    }
}

impl Survey {
    /// The header of what was surveyed.
    pub(super) fn header(self, declared: Declared, path: &Path) -> Result<TraceHeader, TraceError> {
        let Self { layers, experts, top_k, weights } = self;
        // With one row of distinct experts, there are at least as many experts as a row has.
        let experts = experts.max(u16::try_from(top_k).unwrap_or(u16::MAX));
        let seen = Geometry::new(layers, experts, u16::try_from(top_k).unwrap_or(u16::MAX));
        let Ok(seen) = seen else { return Err(TraceError::Empty { path: path.into() }) };
        let geometry = declared.geometry.unwrap_or(seen);
        let fits = seen.layers() <= geometry.layers()
            && seen.experts() <= geometry.experts()
            && seen.top_k() == geometry.top_k();
        if !fits {
            let place = Place { path: path.into(), line: 0 };
            let (expected, found) = (format!("{geometry:?}"), format!("{seen:?}"));
            return place.bad("geometry", expected, &found);
        }
        let (model, note) = (declared.model, declared.note);
        Ok(TraceHeader { model, note, weights, ..TraceHeader::requests(geometry) })
    }
}

/// Counts what a sink is told.
#[derive(Debug)]
pub(super) struct Counted<'s> {
    sink: &'s mut dyn EventSink,
    pub(super) totals: TraceTotals,
}

impl<'s> Counted<'s> {
    pub(super) fn new(sink: &'s mut dyn EventSink) -> Self {
        Self { sink, totals: TraceTotals::default() }
    }
}

impl EventSink for Counted<'_> {
    fn on_step(&mut self, step: &Step<'_>) {
        self.totals.passes += 1;
        self.sink.on_step(step);
    }
    fn on_routing(&mut self, routing: &Routing<'_>) {
        self.totals.routings += 1;
        self.sink.on_routing(routing);
    }
}
