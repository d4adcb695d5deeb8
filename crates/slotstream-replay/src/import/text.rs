//! A text with one token and layer a line: `token layer id x top-k`.

use slotstream_core::{EventSink, ExpertIdx, Phase};

use super::gather::{Gather, Head, Visit};
use super::lines::Lines;
use super::survey::Declared;
use crate::trace::TraceError;

/// What the line with the token ids begins with.
pub(crate) const TOKEN_IDS: &str = "token_ids";

pub(super) fn read(mut lines: Lines, sink: &mut dyn EventSink) -> Result<Declared, TraceError> {
    let mut declared = Declared::default();
    let mut gather = Gather::new(sink);
    let mut tokens: Vec<u32> = Vec::new();
    let mut ids: Vec<ExpertIdx> = Vec::new();
    while let Some((line, place)) = lines.next()? {
        if let Some(comment) = line.strip_prefix('#') {
            let comment = comment.trim_start();
            match comment.strip_prefix(TOKEN_IDS) {
                None => declared.comment(place, comment)?,
                Some(list) => {
                    for id in list.split_ascii_whitespace() {
                        tokens.push(place.number("token id", id, u32::MAX.into())? as u32);
                    }
                }
            }
            continue;
        }
        let mut words = line.split_ascii_whitespace();
        let Some(token) = words.next() else { continue };
        let token = place.number("token", token, u64::MAX)?;
        let layer = place.index("layer", words.next().unwrap_or_default())?;
        ids.clear();
        for id in words {
            ids.push(ExpertIdx::new(place.index("expert", id)?));
        }
        // Each token is a pass of its own.
        let head = Head { pass: token, phase: Phase::Decode, session: 0, position: token };
        let id = usize::try_from(token).ok().and_then(|token| tokens.get(token)).copied();
        let tokens = &[id.unwrap_or(0)];
        let visit = Visit { tokens, layer, top_k: ids.len(), ids: &ids, weights: &[] };
        gather.visit(place, head, &visit)?;
    }
    Ok(declared)
}
