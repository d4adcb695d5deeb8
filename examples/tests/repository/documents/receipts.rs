//! Every measured figure in a table is one that a receipt holds.
//!
//! The line before a table says where its figures come from:
//! - `<!-- receipt: NAME, NAME -->`: measured; `docs/receipts/NAME.json` holds every figure;
//! - `<!-- golden: PATH, PATH -->`: JSON files of the repository hold every figure;
//! - `<!-- from: original -->`: somebody else's figures, quoted;
//! - `<!-- spec -->`: not measured, but set or computed.
//!
//! A table that speaks of speeds, shares or times and says nothing fails. The first column of a
//! table and its header name what was measured, so their numbers are not figures.

use std::path::Path;

use serde_json::Value;

use super::documents;
use super::markdown::{Table, tables};
use crate::files::{root, text, tracked};

/// What makes a table one of measurements.
const UNITS: [&str; 8] = ["tok/s", "tokens/s", "GB/s", "MB/s", "%", "ms", "µs", "ns"];

/// What a receipt must say beside its name, its rounds and its figures.
const MACHINE: [&str; 5] = ["cpu", "cores", "memory", "os", "disk"];

#[test]
fn every_figure_has_a_source() {
    let mut faults = Vec::new();
    for document in documents() {
        let text = text(&document).expect("a document is text");
        for table in tables(&text) {
            let at = format!("{} line {}", document.display(), table.line);
            check(&table, &mut |fault| faults.push(format!("{at}: {fault}")));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn every_receipt_is_complete() {
    for file in tracked() {
        if file.starts_with("docs/receipts") && file.extension().is_some_and(|e| e == "json") {
            let name = file.file_stem().and_then(|stem| stem.to_str()).expect("UTF-8");
            if let Err(fault) = receipt(name) {
                panic!("{fault}");
            }
        }
    }
}

fn check(table: &Table, fault: &mut dyn FnMut(String)) {
    let Some(marker) = table.marker.as_deref() else {
        if let Some(unit) = unit_of(table) {
            fault(format!("measurements in {unit}, but no line before the table says whose"));
        }
        return;
    };
    let held = if let Some(names) = marker.strip_prefix("receipt:") {
        names.split(',').map(|name| receipt(name.trim())).collect::<Result<Vec<_>, _>>()
    } else if let Some(paths) = marker.strip_prefix("golden:") {
        let figures = |path: &str| json(Path::new(path.trim())).map(|value| leaves(&value));
        paths.split(',').map(figures).collect::<Result<Vec<_>, _>>()
    } else if marker == "spec" || marker.starts_with("from:") {
        return;
    } else {
        Err(format!("`{marker}` says nothing that the checks know"))
    };
    match held {
        Err(error) => fault(error),
        Ok(held) => {
            let held: Vec<Value> = held.into_iter().flatten().collect();
            let cells = table.rows.iter().flat_map(|row| row.iter().skip(1));
            for cell in cells.filter(|cell| !is_held(cell, &held)) {
                fault(format!("`{cell}` is not in {marker}"));
            }
        }
    }
}

/// The first unit of measurement in a table.
fn unit_of(table: &Table) -> Option<&'static str> {
    let mut cells = table.header.iter().chain(table.rows.iter().flatten());
    cells.find_map(|cell| UNITS.into_iter().find(|unit| has_unit(cell, unit)))
}

/// Whether a cell holds a unit as a word of its own, or right behind a number.
fn has_unit(cell: &str, unit: &str) -> bool {
    cell.match_indices(unit).any(|(at, _)| {
        let before = cell[..at].chars().next_back();
        let after = cell[at + unit.len()..].chars().next();
        !before.is_some_and(char::is_alphabetic) && !after.is_some_and(char::is_alphabetic)
    })
}

/// All figures of a receipt, or what is wrong with it.
fn receipt(name: &str) -> Result<Vec<Value>, String> {
    let receipt = json(Path::new(&format!("docs/receipts/{name}.json")))?;
    let bad = |what: String| format!("receipt {name}: {what}");
    let said = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    if receipt["name"].as_str() != Some(name) {
        return Err(bad(format!("its name is {}", receipt["name"])));
    }
    if !said(&receipt["command"]) {
        return Err(bad("no command".into()));
    }
    let hex = |text: &str| text.len() >= 7 && text.chars().all(|c| c.is_ascii_hexdigit());
    if !receipt["commit"].as_str().is_some_and(hex) {
        return Err(bad(format!("commit {} is no commit", receipt["commit"])));
    }
    for field in MACHINE {
        let value = &receipt["machine"][field];
        if !said(value) && !value.is_number() {
            return Err(bad(format!("no machine.{field}")));
        }
    }
    if !receipt["settings"].is_object() {
        return Err(bad("no settings".into()));
    }
    if receipt["rounds"].as_u64().is_none_or(|rounds| rounds == 0) {
        return Err(bad(format!("{} rounds", receipt["rounds"])));
    }
    for field in ["median", "spread", "figures"] {
        let figures = leaves(&receipt[field]);
        let object = field != "figures" || receipt[field].is_object();
        if figures.is_empty() || !object {
            return Err(bad(format!("no {field}")));
        }
    }
    Ok(["figures", "median", "spread"].iter().flat_map(|f| leaves(&receipt[*f])).collect())
}

fn json(path: &Path) -> Result<Value, String> {
    let bytes = std::fs::read(root().join(path)).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_slice(&bytes).map_err(|e| format!("{}: {e}", path.display()))
}

/// The numbers and texts in a value, at any depth.
fn leaves(value: &Value) -> Vec<Value> {
    match value {
        Value::Array(list) => list.iter().flat_map(leaves).collect(),
        Value::Object(map) => map.values().flat_map(leaves).collect(),
        Value::Number(_) | Value::String(_) => vec![value.clone()],
        Value::Null | Value::Bool(_) => Vec::new(),
    }
}

/// Whether every number of a cell is held, as written or rounded; or the cell whole, as a text.
fn is_held(cell: &str, held: &[Value]) -> bool {
    held.iter().any(|value| value.as_str() == Some(cell))
        || numbers(cell).iter().all(|number| held.iter().any(|value| number.is(value)))
}

/// A number as a cell shows it.
#[derive(Debug, PartialEq)]
struct Shown {
    value: f64,
    decimals: usize,
    percent: bool,
}

impl Shown {
    fn is(&self, held: &Value) -> bool {
        let unit = 10_f64.powi(i32::try_from(self.decimals).unwrap_or(0));
        let rounds = |held: f64| ((held * unit).round() - self.value * unit).abs() < 0.01;
        held.as_f64().is_some_and(|held| rounds(held) || (self.percent && rounds(held * 100.0)))
    }
}

/// The numbers of a cell; one that a letter precedes is part of a name.
fn numbers(cell: &str) -> Vec<Shown> {
    let mut found = Vec::new();
    let (mut rest, mut before) = (cell, ' ');
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        before = rest[..start].chars().next_back().unwrap_or(before);
        let digits = |c: char| !c.is_ascii_digit() && c != '.' && c != ',';
        let end = rest[start..].find(digits).map_or(rest.len(), |len| start + len);
        let number = rest[start..end].trim_end_matches(['.', ',']).replace(',', "");
        let after = &rest[start + rest[start..end].trim_end_matches(['.', ',']).len()..];
        if !before.is_alphabetic() && before != '_' {
            let sign = if matches!(before, '-' | '−') { -1.0 } else { 1.0 };
            let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len());
            let value = sign * number.parse::<f64>().unwrap_or(f64::NAN);
            found.push(Shown { value, decimals, percent: after.trim_start().starts_with('%') });
        }
        before = rest[..end].chars().next_back().unwrap_or(' ');
        rest = &rest[end..];
    }
    found
}

#[test]
fn numbers_are_read_as_they_are_shown() {
    let shown = |value, decimals, percent| Shown { value, decimals, percent };
    assert_eq!(numbers("1,234.50 tok/s"), [shown(1234.5, 2, false)]);
    assert_eq!(numbers("83.4 %, -2"), [shown(83.4, 1, true), shown(-2.0, 0, false)]);
    assert_eq!(numbers("AVX2 p_3"), []);
}

#[test]
fn figures_are_held_when_they_round_to_what_is_shown() {
    let held = [Value::from(0.8341), Value::from(12.349), Value::from("12 to 14")];
    for cell in ["83.4%", "12.3 GB/s", "12.35", "12 to 14", "-", "none"] {
        assert!(is_held(cell, &held), "{cell}");
    }
    for cell in ["83.5%", "12.4", "12 to 15", "0.9", "83.4"] {
        assert!(!is_held(cell, &held), "{cell}");
    }
}

#[test]
fn a_table_of_measurements_needs_a_source() {
    let table = |text: &str| tables(text).pop().expect("a table");
    let faults = |text: &str| {
        let mut faults = Vec::new();
        check(&table(text), &mut |fault| faults.push(fault));
        faults
    };
    assert_eq!(faults("| a | b |\n|--|--|\n| x | 3 tok/s |\n").len(), 1);
    assert_eq!(faults("| a | time (ms) |\n|--|--|\n| x | 3 |\n").len(), 1);
    assert_eq!(faults("<!-- spec -->\n| a | b |\n|--|--|\n| x | 30% |\n"), [""; 0]);
    assert_eq!(faults("| a | b |\n|--|--|\n| items | 3 |\n"), [""; 0]);
    assert_eq!(faults("<!-- receipt: no-such -->\n| a | b |\n|--|--|\n| x | 3 |\n").len(), 1);
    let golden = "<!-- golden: crates/slotstream-cache/tests/fixtures/libcachesim.json -->\n";
    assert_eq!(faults(&format!("{golden}| a | b |\n|--|--|\n| 10 | 9909 |\n")), [""; 0]);
    assert_eq!(faults(&format!("{golden}| a | b |\n|--|--|\n| 10 | 9908.5 |\n")).len(), 1);
}
