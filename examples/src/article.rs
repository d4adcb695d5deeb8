//! The `article` example: the tables of the article about the original, ours beside theirs.

mod arguments;
mod bytes;
mod formulas;
mod published;
mod simulated;
mod traces;

use std::ffi::OsString;

use serde_json::{Map, Value, json};
use slotstream_replay::{Figures, Synthetic};

use crate::console::parse;
use crate::{Console, Ended, Failure};
pub use arguments::{Arguments, Format, Table, Target};
use bytes::Model;
use traces::Traces;

/// Runs the example with these arguments, the program's name first.
///
/// # Errors
/// [`Failure`] says what and whose it is. After Ctrl-C nothing is shown.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    console: &mut Console<'_>,
) -> Result<Ended, Failure> {
    let arguments: Arguments = parse(arguments)?;
    arguments.check()?;
    let model = Model::open()?;
    let tables = arguments.tables();
    let recipe = match arguments.fit {
        Some(target) => traces::fitted(target, &model.geometry, arguments.passes, console)?,
        None => arguments.recipe()?,
    };
    let traces = Traces::replay(&arguments, &tables, &recipe, &model.geometry, console)?;
    let sections: Vec<(Table, Section)> =
        tables.iter().map(|table| (*table, section(*table, &model, &traces))).collect();
    match arguments.format {
        Format::Table => console.write(&text(&sections))?,
        Format::Json => console.line(&object(&arguments, &recipe, &sections).to_string())?,
    }
    Ok(Ended::Done)
}

/// A table with what is said above and below it.
struct Section {
    title: String,
    rows: Figures,
    notes: Vec<String>,
}

impl Section {
    fn new(title: impl Into<String>, rows: Figures) -> Self {
        Self { title: title.into(), rows, notes: Vec::new() }
    }

    fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }
}

fn section(table: Table, model: &Model, traces: &Traces) -> Section {
    match table {
        Table::Ledger => bytes::ledger(model),
        Table::Plan => bytes::plan(model),
        Table::Records => bytes::records(model),
        Table::Reads => formulas::reads(model),
        Table::Floors => formulas::floors(model),
        Table::Receipts => formulas::receipts(model),
        Table::Fit => simulated::fit(traces),
        Table::Simulation => simulated::simulation(model, traces),
        Table::Policies => simulated::policies(traces),
        Table::Forecasts => simulated::forecasts(model, traces),
        Table::Disks => simulated::disks(model, traces),
    }
}

fn text(sections: &[(Table, Section)]) -> String {
    let shown = sections.iter().map(|(table, Section { title, rows, notes })| {
        let notes: String = notes.iter().map(|note| format!("{note}\n")).collect();
        let rows = rows.without_empty_columns().text();
        format!(
            "{}: {title}\n\n{rows}{}{notes}",
            table.name(),
            if notes.is_empty() { "" } else { "\n" }
        )
    });
    shown.collect::<Vec<_>>().join("\n")
}

fn object(arguments: &Arguments, recipe: &Synthetic, sections: &[(Table, Section)]) -> Value {
    let tables = sections.iter().map(|(table, Section { title, rows, notes })| {
        // The library writes it; it is JSON.
        let rows: Value = serde_json::from_str(&rows.json()).unwrap_or_default();
        (table.name(), json!({ "title": title, "rows": rows, "notes": notes }))
    });
    json!({
        "settings": {
            "skew": recipe.skew,
            "drift": recipe.drift,
            "half_life": recipe.half_life,
            "passes": arguments.passes,
            "warmup": arguments.warmup,
            "seeds": arguments.seeds,
        },
        "tables": tables.collect::<Map<_, _>>(),
    })
}
