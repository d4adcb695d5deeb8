//! Requests as bytes, and any event out of bytes.

use slotstream_core::{
    Deadline, EventSink, ExpertIdx, Geometry, LayerIdx, Outcome, PassId, Phase, Prediction,
    Routing, SessionId, Step, Tap,
};

use super::cursor::{Bad, Cursor, Put};
use super::{MAX_LOGITS, TraceHeader, outcomes};

const STEP: u8 = 1;
const ROUTING: u8 = 2;
const FORECAST: u8 = 3;

const WITH_WEIGHTS: u8 = 1;
const WITH_LOGITS: u8 = 2;

/// The step of these parts: keeps its makers short.
pub(crate) const fn step_of(
    (pass, phase, session, position): (u64, Phase, u64, u64),
    tokens: &[u32],
) -> Step<'_> {
    Step { pass: PassId::new(pass), phase, session: SessionId::new(session), position, tokens }
}

/// Appends a step; `false` when this version of the format has no bytes for its phase.
pub(super) fn put_step(out: &mut Vec<u8>, step: &Step<'_>) -> bool {
    let phase = match step.phase {
        Phase::Prefill => 0,
        Phase::Decode => 1,
        _ => return false,
    };
    out.put_u8(STEP);
    out.put_u8(phase);
    out.put_u64(step.pass.get());
    out.put_u64(step.session.get());
    out.put_u64(step.position);
    out.put_u32(u32::try_from(step.tokens.len()).unwrap_or(u32::MAX));
    for token in step.tokens {
        out.put_u32(*token);
    }
    true
}

/// Appends a routing, with weights and `logits` logits a row where the header has them.
pub(super) fn put_routing(
    out: &mut Vec<u8>,
    routing: &Routing<'_>,
    header: &TraceHeader,
    ranked: &mut Vec<u16>,
) {
    let weights = if header.weights { routing.weights() } else { &[] };
    let experts = header.geometry.experts();
    let wanted = routing.rows() * experts;
    let logits = routing
        .logits()
        .filter(|logits| header.logits > 0 && logits.len() == wanted && wanted <= MAX_LOGITS);
    let flags = (if weights.is_empty() { 0 } else { WITH_WEIGHTS })
        | (if logits.is_some() { WITH_LOGITS } else { 0 });
    out.put_u8(ROUTING);
    out.put_u8(flags);
    out.put_u16(routing.layer().get());
    for id in routing.ids() {
        out.put_u16(id.get());
    }
    for weight in weights {
        out.put_f32(*weight);
    }
    for row in logits.unwrap_or_default().chunks_exact(experts) {
        // Highest first; of equal ones the lowest expert first.
        let order = |a: &u16, b: &u16| {
            row[usize::from(*b)].total_cmp(&row[usize::from(*a)]).then_with(|| a.cmp(b))
        };
        ranked.clear();
        ranked.extend((0..=u16::MAX).take(experts));
        if header.logits < experts {
            ranked.select_nth_unstable_by(header.logits, order);
        }
        let highest = &mut ranked[..header.logits];
        highest.sort_unstable_by(order);
        for expert in highest {
            out.put_u16(*expert);
            out.put_f32(row[usize::from(*expert)]);
        }
    }
}

/// Appends a forecast; `false` when this version of the format has no bytes for the tap.
pub(super) fn put_forecast(out: &mut Vec<u8>, at: Tap, predictions: &[Prediction]) -> bool {
    let tap = match at {
        Tap::BeforeLayer(_) => 0,
        Tap::AfterAttention(_) => 1,
        _ => return false,
    };
    out.put_u8(FORECAST);
    out.put_u8(tap);
    out.put_u16(at.layer().get());
    out.put_u32(u32::try_from(predictions.len()).unwrap_or(u32::MAX));
    for prediction in predictions {
        out.put_u16(prediction.key.layer().get());
        out.put_u16(prediction.key.expert().get());
        out.put_f32(prediction.confidence);
        out.put_u32(prediction.needed_by.passes_ahead);
        out.put_u16(prediction.needed_by.layer.get());
    }
    true
}

/// The events of a file one after another; buffers are reused from event to event.
#[derive(Debug, Default)]
pub(super) struct Frame {
    /// Pass, phase, session, position of the running pass.
    step: Option<(u64, Phase, u64, u64)>,
    tokens: Vec<u32>,
    layer: u16,
    ids: Vec<ExpertIdx>,
    weights: Vec<f32>,
    logits: Vec<f32>,
    tap: Option<Tap>,
    predictions: Vec<Prediction>,
}

/// Which event a frame holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Step,
    Routing,
    Forecast,
    Outcome(Outcome),
}

impl Frame {
    /// Reads the next event.
    pub(super) fn read(
        &mut self,
        read: &mut Cursor<'_>,
        header: &TraceHeader,
    ) -> Result<Kind, Bad> {
        let at = read.at();
        let tag = read.u8("event tag")?;
        match tag {
            STEP => self.read_step(read)?,
            ROUTING => self.read_routing(read, header)?,
            FORECAST => self.read_forecast(read, &header.geometry)?,
            _ => {
                let outcome = outcomes::decode(read, (at, tag), &header.geometry)?;
                return Ok(Kind::Outcome(outcome));
            }
        }
        Ok(match tag {
            STEP => Kind::Step,
            ROUTING => Kind::Routing,
            _ => Kind::Forecast,
        })
    }

    fn read_step(&mut self, read: &mut Cursor<'_>) -> Result<(), Bad> {
        let at = read.at();
        let phase = match read.u8("phase")? {
            0 => Phase::Prefill,
            1 => Phase::Decode,
            found => return Cursor::bad(at, "phase", "0 or 1", found.to_string()),
        };
        let (pass, session) = (read.u64("pass")?, read.u64("session")?);
        let position = read.u64("position")?;
        let rows = read.u32("rows")? as usize;
        let tokens = read.items::<4>("tokens", rows)?;
        self.tokens.clear();
        self.tokens.extend(tokens.map(u32::from_le_bytes));
        self.step = Some((pass, phase, session, position));
        Ok(())
    }

    fn read_routing(&mut self, read: &mut Cursor<'_>, header: &TraceHeader) -> Result<(), Bad> {
        let geometry = &header.geometry;
        if self.step.is_none() || self.tokens.is_empty() {
            let found = "a routing before the first pass, or of a pass without rows";
            return Cursor::bad(read.at(), "event", "a pass with rows before a routing", found);
        }
        let at = read.at();
        let flags = read.u8("routing flags")?;
        let known = (if header.weights { WITH_WEIGHTS } else { 0 })
            | (if header.logits > 0 { WITH_LOGITS } else { 0 });
        if flags & !known != 0 {
            let expected = format!("of {known:#04b} as in the header");
            return Cursor::bad(at, "routing flags", expected, format!("{flags:#04b}"));
        }
        self.layer = read.index("layer", geometry.layers())?;
        let lookups = self.tokens.len() * geometry.top_k();
        let at = read.at();
        let ids = read.items::<2>("expert ids", lookups)?;
        self.ids.clear();
        self.ids.extend(ids.map(|id| ExpertIdx::new(u16::from_le_bytes(id))));
        if let Some(bad) = self.ids.iter().position(|id| id.index() >= geometry.experts()) {
            let (expected, found) = (geometry.experts(), self.ids[bad].get());
            let expected = format!("less than {expected}");
            return Cursor::bad(at + 2 * bad, "expert id", expected, found.to_string());
        }
        self.weights.clear();
        if flags & WITH_WEIGHTS != 0 {
            let weights = read.items::<4>("weights", lookups)?;
            self.weights.extend(weights.map(f32::from_le_bytes));
        }
        self.logits.clear();
        if flags & WITH_LOGITS != 0 {
            self.read_logits(read, header)?;
        }
        Ok(())
    }

    /// Logits of the highest experts of each row; the others are minus infinity.
    fn read_logits(&mut self, read: &mut Cursor<'_>, header: &TraceHeader) -> Result<(), Bad> {
        let (rows, experts) = (self.tokens.len(), header.geometry.experts());
        let at = read.at();
        let most = MAX_LOGITS / experts;
        if rows > most {
            return Cursor::bad(at, "logits", format!("at most {most} rows"), rows.to_string());
        }
        let items = read.items::<6>("logits", rows * header.logits)?;
        self.logits.resize(rows * experts, f32::NEG_INFINITY);
        for (number, [a, b, c, d, e, f]) in items.enumerate() {
            let expert = usize::from(u16::from_le_bytes([a, b]));
            if expert >= experts {
                let expected = format!("less than {experts}");
                return Cursor::bad(
                    at + 6 * number,
                    "logit's expert",
                    expected,
                    expert.to_string(),
                );
            }
            let row = number / header.logits;
            self.logits[row * experts + expert] = f32::from_le_bytes([c, d, e, f]);
        }
        Ok(())
    }

    fn read_forecast(&mut self, read: &mut Cursor<'_>, geometry: &Geometry) -> Result<(), Bad> {
        let at = read.at();
        let make = match read.u8("tap")? {
            0 => Tap::BeforeLayer,
            1 => Tap::AfterAttention,
            found => return Cursor::bad(at, "tap", "0 or 1", found.to_string()),
        };
        self.tap = Some(make(LayerIdx::new(read.index("tap's layer", geometry.layers())?)));
        let count = read.u32("predictions")?;
        self.predictions.clear();
        for _ in 0..count {
            let key = outcomes::key(read, geometry)?;
            let at = read.at();
            let confidence = f32::from_bits(read.u32("confidence")?);
            if !(0.0..=1.0).contains(&confidence) {
                return Cursor::bad(at, "confidence", "0 to 1", confidence.to_string());
            }
            let passes_ahead = read.u32("passes ahead")?;
            let layer = LayerIdx::new(read.index("deadline's layer", geometry.layers())?);
            let needed_by = Deadline { passes_ahead, layer };
            self.predictions.push(Prediction { key, confidence, needed_by });
        }
        Ok(())
    }

    /// Lends the event that was read last.
    pub(super) fn lend(&self, kind: Kind, header: &TraceHeader, sink: &mut dyn EventSink) {
        match (kind, self.step, self.tap) {
            (Kind::Step, Some(step), _) => sink.on_step(&step_of(step, &self.tokens)),
            (Kind::Routing, Some(step), _) => {
                let step = step_of(step, &self.tokens);
                let (layer, top_k) = (LayerIdx::new(self.layer), header.geometry.top_k());
                let routing = Routing::new(&step, layer, top_k, &self.ids, &self.weights);
                if self.logits.is_empty() {
                    sink.on_routing(&routing);
                } else {
                    sink.on_routing(&routing.with_logits(&self.logits));
                }
            }
            (Kind::Forecast, _, Some(tap)) => sink.on_forecast(tap, &self.predictions),
            (Kind::Outcome(outcome), _, _) => sink.on_outcome(&outcome),
            // A frame holds the event that it has just read.
            _ => {}
        }
    }
}
