//! One JSON object a line: a geometry, or a visit of a layer.

use serde::Deserialize;
use slotstream_core::{EventSink, ExpertIdx, Geometry, Phase};

use super::gather::{Gather, Head, Visit, phase};
use super::lines::{Lines, Place};
use super::survey::Declared;
use crate::trace::TraceError;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Object {
    geometry: Option<Numbers>,
    model: Option<String>,
    note: Option<String>,
    pass: Option<u64>,
    phase: Option<String>,
    session: Option<u64>,
    position: Option<u64>,
    tokens: Option<Vec<u32>>,
    layer: Option<u16>,
    experts: Option<Vec<Vec<u16>>>,
    weights: Option<Vec<Vec<f32>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Numbers {
    layers: u16,
    experts: u16,
    top_k: u16,
}

pub(super) fn read(mut lines: Lines, sink: &mut dyn EventSink) -> Result<Declared, TraceError> {
    let mut declared = Declared::default();
    let mut gather = Gather::new(sink);
    while let Some((line, place)) = lines.next()? {
        if line.trim().is_empty() {
            continue;
        }
        let object: Object = match serde_json::from_str(line) {
            Ok(object) => object,
            Err(error) => {
                let found = error.to_string();
                return place.bad("object", "a geometry, or pass, layer and experts", &found);
            }
        };
        declare(&object, place, &mut declared)?;
        if object.experts.is_some() || object.geometry.is_none() {
            visit(object, place, &mut gather)?;
        }
    }
    Ok(declared)
}

fn declare(object: &Object, place: &Place, declared: &mut Declared) -> Result<(), TraceError> {
    if let Some(Numbers { layers, experts, top_k }) = object.geometry {
        match Geometry::new(layers, experts, top_k) {
            Ok(geometry) => declared.geometry = Some(geometry),
            Err(error) => return place.bad("geometry", "a legal one", &error.to_string()),
        }
    }
    if let Some(model) = &object.model {
        declared.model.clone_from(model);
    }
    if let Some(note) = &object.note {
        declared.note.clone_from(note);
    }
    Ok(())
}

fn visit(object: Object, place: &Place, gather: &mut Gather<'_>) -> Result<(), TraceError> {
    let (Some(pass), Some(layer), Some(experts)) = (object.pass, object.layer, object.experts)
    else {
        return place.bad("object", "pass, layer and experts", "an object without one of them");
    };
    let top_k = experts.first().map_or(0, Vec::len);
    if let Some(row) = experts.iter().position(|row| row.len() != top_k) {
        let found = format!("{} in row {row}", experts[row].len());
        return place.bad("experts", format!("{top_k} a row"), &found);
    }
    if layer == u16::MAX || experts.iter().flatten().any(|expert| *expert == u16::MAX) {
        return place.bad("layer and experts", "at most 65534", "65535");
    }
    let phase = object.phase.map_or(Ok(Phase::Decode), |name| phase(place, &name))?;
    let (session, position) = (object.session.unwrap_or(0), object.position.unwrap_or(0));
    let ids: Vec<ExpertIdx> = experts.iter().flatten().map(|id| ExpertIdx::new(*id)).collect();
    let weights: Vec<f32> = object.weights.unwrap_or_default().concat();
    let tokens = object.tokens.unwrap_or_else(|| vec![0; experts.len()]);
    let visit = Visit { tokens: &tokens, layer, top_k, ids: &ids, weights: &weights };
    gather.visit(place, Head { pass, phase, session, position }, &visit)
}
