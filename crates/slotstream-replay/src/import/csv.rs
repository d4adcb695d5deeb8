//! A table of lookups: `pass,layer,row,rank,expert` and more, one lookup a line.

use slotstream_core::{EventSink, ExpertIdx, Phase};

use super::gather::{Gather, Head, Visit, phase};
use super::lines::{Lines, Place};
use super::survey::Declared;
use crate::trace::TraceError;

/// The columns; the first five are needed.
pub(super) const COLUMNS: [&str; 10] =
    ["pass", "layer", "row", "rank", "expert", "phase", "session", "position", "token", "weight"];
const NEEDED: usize = 5;

/// The visit that is being read.
#[derive(Default)]
struct Running {
    key: Option<(Head, u16)>,
    tokens: Vec<u32>,
    ids: Vec<ExpertIdx>,
    weights: Vec<f32>,
    /// Experts of the first row; known once a second row begins.
    top_k: usize,
}

/// One line.
struct Lookup {
    head: Head,
    layer: u16,
    row: u64,
    rank: u64,
    expert: u16,
    token: u32,
    weight: Option<f32>,
}

pub(super) fn read(mut lines: Lines, sink: &mut dyn EventSink) -> Result<Declared, TraceError> {
    let mut declared = Declared::default();
    let mut columns: Option<Vec<usize>> = None;
    let mut gather = Gather::new(sink);
    let mut running = Running::default();
    while let Some((line, place)) = lines.next()? {
        if let Some(comment) = line.strip_prefix('#') {
            declared.comment(place, comment)?;
        } else if line.trim().is_empty() {
        } else if let Some(columns) = &columns {
            let lookup = lookup(place, line, columns)?;
            running.add(place, &lookup, &mut gather)?;
        } else {
            columns = Some(header(place, line)?);
        }
    }
    running.end(lines.place(), &mut gather)?;
    Ok(declared)
}

/// Which column each field of a line is.
fn header(place: &Place, line: &str) -> Result<Vec<usize>, TraceError> {
    let known = COLUMNS.join(", ");
    let mut columns = Vec::new();
    for name in line.split(',').map(str::trim) {
        match COLUMNS.iter().position(|column| *column == name) {
            Some(column) if !columns.contains(&column) => columns.push(column),
            Some(_) => return place.bad("header", "each column once", name),
            None => return place.bad("header", format!("columns of {known}"), name),
        }
    }
    if let Some(missing) = (0..NEEDED).find(|column| !columns.contains(column)) {
        return place.bad("header", format!("a column {}", COLUMNS[missing]), line);
    }
    Ok(columns)
}

fn lookup(place: &Place, line: &str, columns: &[usize]) -> Result<Lookup, TraceError> {
    let mut fields = [""; COLUMNS.len()];
    let mut given = line.split(',');
    for column in columns {
        let Some(field) = given.next() else {
            return place.bad("line", format!("{} fields", columns.len()), line);
        };
        fields[*column] = field.trim();
    }
    if given.next().is_some() {
        return place.bad("line", format!("{} fields", columns.len()), line);
    }
    let [pass, layer, row, rank, expert, phase_name, session, position, token, weight] = fields;
    let or_zero = |field, text: &str, most| {
        if text.is_empty() { Ok(0) } else { place.number(field, text, most) }
    };
    let pass = place.number("pass", pass, u64::MAX)?;
    Ok(Lookup {
        head: Head {
            pass,
            phase: if phase_name.is_empty() { Phase::Decode } else { phase(place, phase_name)? },
            session: or_zero("session", session, u64::MAX)?,
            position: or_zero("position", position, u64::MAX)?,
        },
        layer: place.index("layer", layer)?,
        row: place.number("row", row, u64::MAX)?,
        rank: place.number("rank", rank, u64::MAX)?,
        expert: place.index("expert", expert)?,
        token: or_zero("token", token, u32::MAX.into())? as u32,
        weight: match weight.parse() {
            Ok(weight) => Some(weight),
            Err(_) if weight.is_empty() => None,
            Err(_) => return place.bad("weight", "a number", weight),
        },
    })
}

impl Running {
    fn add(
        &mut self,
        place: &Place,
        lookup: &Lookup,
        gather: &mut Gather<'_>,
    ) -> Result<(), TraceError> {
        let key = Some((lookup.head, lookup.layer));
        if key != self.key || (lookup.row, lookup.rank) == (0, 0) {
            self.end(place, gather)?;
            self.key = key;
        }
        let row = self.tokens.len().saturating_sub(1);
        let rank = self.ids.len() - row * self.top_k;
        let next_row = !self.tokens.is_empty() && lookup.rank == 0;
        let expected = match (self.tokens.is_empty(), next_row) {
            (true, _) => (0, 0),
            (false, true) => (row as u64 + 1, 0),
            (false, false) => (row as u64, rank as u64),
        };
        if (lookup.row, lookup.rank) != expected {
            let (row, rank) = expected;
            let found = format!("row {}, rank {}", lookup.row, lookup.rank);
            return place.bad("row and rank", format!("row {row}, rank {rank}"), &found);
        }
        if next_row && self.top_k == 0 {
            self.top_k = rank;
        }
        if next_row && rank != self.top_k {
            return place.bad("rank", format!("{} in every row", self.top_k), &rank.to_string());
        }
        if lookup.rank == 0 {
            self.tokens.push(lookup.token);
        }
        self.ids.push(ExpertIdx::new(lookup.expert));
        self.weights.extend(lookup.weight);
        Ok(())
    }

    /// Hands over the visit that was read, if there is one.
    fn end(&mut self, place: &Place, gather: &mut Gather<'_>) -> Result<(), TraceError> {
        if let Some((head, layer)) = self.key.take() {
            let Self { tokens, ids, weights, .. } = &*self;
            let top_k = if self.top_k == 0 { ids.len() } else { self.top_k };
            gather.visit(place, head, &Visit { tokens, layer, top_k, ids, weights })?;
        }
        *self = Self::default();
        Ok(())
    }
}
