//! Tables that are written while they are told.

use std::fmt;
use std::io::{self, BufWriter, Write};

use slotstream_cache::Demand;
use slotstream_core::{Attached, EventSink, Geometry, Phase, Routing, Step};

use super::failed;
use crate::trace::{StepEvent, TraceError};

/// A format that is written line by line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Table {
    /// One lookup a line, under a header.
    Csv,
    /// One JSON object a line, each a visit of a layer.
    Jsonl,
    /// One key a line: the distinct records of each visit in route order, as their dense numbers.
    Keys,
}

/// Writes the requests that it is told to `W`, as a table. Logits, forecasts and outcomes are left
/// out.
///
/// The first error is kept and returned by [`finish`](Self::finish).
pub struct TableWriter<W: Write> {
    out: BufWriter<W>,
    table: Table,
    geometry: Option<Geometry>,
    /// The table has a column of weights; known from the first routing.
    weights: Option<bool>,
    step: Option<StepEvent>,
    demand: Demand,
    lines: u64,
    error: Option<io::Error>,
}

impl<W: Write> TableWriter<W> {
    /// Writes to `out`, through a buffer.
    pub fn new(out: W, table: Table) -> Self {
        Self {
            out: BufWriter::new(out),
            table,
            geometry: None,
            weights: None,
            step: None,
            demand: Demand::new(),
            lines: 0,
            error: None,
        }
    }

    /// Ends the table; gives the number of its lines without comments and headers.
    ///
    /// # Errors
    /// [`TraceError::Io`]: the first error of writing.
    pub fn finish(mut self) -> Result<u64, TraceError> {
        self.attempt(|table| table.out.flush());
        match self.error {
            Some(error) => Err(failed(self.lines, error)),
            None => Ok(self.lines),
        }
    }

    fn attempt(&mut self, write: impl FnOnce(&mut Self) -> io::Result<()>) {
        if self.error.is_none() {
            self.error = write(self).err();
        }
    }

    fn declare(&mut self, geometry: Geometry) -> io::Result<()> {
        let (layers, experts) = (geometry.layers(), geometry.experts());
        let top_k = geometry.top_k();
        match self.table {
            Table::Csv => {
                writeln!(self.out, "# layers {layers} experts {experts} top_k {top_k}")
            }
            Table::Jsonl => writeln!(
                self.out,
                "{{\"geometry\":{{\"layers\":{layers},\"experts\":{experts},\"top_k\":{top_k}}}}}"
            ),
            Table::Keys => Ok(()),
        }
    }

    fn csv(&mut self, step: &StepEvent, routing: &Routing<'_>) -> io::Result<()> {
        let weights = match self.weights {
            Some(weights) => weights,
            None => {
                let weights = !routing.weights().is_empty();
                let more = if weights { ",weight" } else { "" };
                let columns = "pass,phase,session,position,token,layer,row,rank,expert";
                writeln!(self.out, "{columns}{more}")?;
                *self.weights.insert(weights)
            }
        };
        let top_k = routing.top_k();
        for (place, id) in routing.ids().iter().enumerate() {
            let (row, rank) = (place / top_k, place % top_k);
            let (pass, session, position) = (step.pass.get(), step.session.get(), step.position);
            let (phase, token) = (phase(step.phase), step.tokens[row]);
            let (layer, expert) = (routing.layer().get(), id.get());
            write!(
                self.out,
                "{pass},{phase},{session},{position},{token},{layer},{row},{rank},{expert}"
            )?;
            if weights {
                match routing.weights().get(place) {
                    Some(weight) => write!(self.out, ",{weight}")?,
                    None => write!(self.out, ",")?,
                }
            }
            writeln!(self.out)?;
            self.lines += 1;
        }
        Ok(())
    }

    fn jsonl(&mut self, step: &StepEvent, routing: &Routing<'_>) -> io::Result<()> {
        let (pass, session, position) = (step.pass.get(), step.session.get(), step.position);
        let (phase, tokens, layer) = (phase(step.phase), &step.tokens, routing.layer().get());
        let top_k = routing.top_k();
        let rows: Vec<Vec<u16>> =
            routing.ids().chunks(top_k).map(|r| r.iter().map(|id| id.get()).collect()).collect();
        write!(
            self.out,
            "{{\"pass\":{pass},\"phase\":\"{phase}\",\"session\":{session},\"position\":{position},\
             \"tokens\":{tokens:?},\"layer\":{layer},\"experts\":{rows:?}"
        )?;
        // JSON has no NaN; a router that gives one fails before anybody is told.
        if !routing.weights().is_empty() && routing.weights().iter().all(|w| w.is_finite()) {
            let rows: Vec<&[f32]> = routing.weights().chunks(top_k).collect();
            write!(self.out, ",\"weights\":{rows:?}")?;
        }
        writeln!(self.out, "}}")?;
        self.lines += 1;
        Ok(())
    }

    fn keys(&mut self, routing: &Routing<'_>) -> io::Result<()> {
        let Some(geometry) = self.geometry else { return Ok(()) };
        self.demand.read(routing);
        for expert in self.demand.experts() {
            if let Some(index) = geometry.index(routing.key(*expert)) {
                writeln!(self.out, "{index}")?;
                self.lines += 1;
            }
        }
        Ok(())
    }
}

fn phase(phase: Phase) -> &'static str {
    if phase == Phase::Decode { "decode" } else { "prefill" }
}

impl<W: Write + Send> EventSink for TableWriter<W> {
    fn on_attach(&mut self, pool: &Attached<'_>) {
        self.geometry = Some(pool.geometry);
        self.attempt(|table| table.declare(pool.geometry));
    }

    fn on_step(&mut self, step: &Step<'_>) {
        self.step = Some(step.into());
    }

    fn on_routing(&mut self, routing: &Routing<'_>) {
        self.attempt(|table| {
            let Some(step) = table.step.take() else { return Ok(()) };
            if step.tokens.len() == routing.rows() {
                match table.table {
                    Table::Csv => table.csv(&step, routing)?,
                    Table::Jsonl => table.jsonl(&step, routing)?,
                    Table::Keys => table.keys(routing)?,
                }
            }
            table.step = Some(step);
            Ok(())
        });
    }
}

impl<W: Write> fmt::Debug for TableWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableWriter")
            .field("table", &self.table)
            .field("lines", &self.lines)
            .finish_non_exhaustive()
    }
}
