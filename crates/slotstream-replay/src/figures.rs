//! Tables of figures: for people, as CSV, as JSON.

use std::fmt::Write;

use serde_json::{Map, Value};

/// Rows of figures under named columns.
///
/// ```
/// use slotstream_replay::{Cell, Figures};
///
/// let mut table = Figures::new(["policy", "hit_rate"]);
/// table.push([Cell::from("clock"), Cell::Share(0.25)]);
/// assert_eq!(table.csv(), "policy,hit_rate\nclock,0.250000\n");
/// assert_eq!(table.json(), r#"[{"policy":"clock","hit_rate":0.25}]"#);
/// assert_eq!(table.text(), "policy  hit rate\nclock     25.00%\n");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    columns: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

/// One figure.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Cell {
    /// There is none.
    Nothing,
    /// A text.
    Text(String),
    /// A whole number.
    Count(u64),
    /// A number.
    Number(f64),
    /// A share of 1, shown to people in percent.
    Share(f64),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<usize> for Cell {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl Cell {
    /// A share, if there is one.
    #[must_use]
    pub fn share(share: Option<f64>) -> Self {
        share.map_or(Self::Nothing, Self::Share)
    }

    /// A number, if there is one.
    #[must_use]
    pub fn number(number: Option<f64>) -> Self {
        number.map_or(Self::Nothing, Self::Number)
    }

    fn text(&self) -> String {
        match self {
            Self::Nothing => "-".into(),
            Self::Text(text) => text.clone(),
            Self::Count(count) => count.to_string(),
            Self::Number(number) => format!("{number:.2}"),
            Self::Share(share) => format!("{:.2}%", share * 100.0),
        }
    }

    fn csv(&self) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::Text(text) if text.contains([',', '"', '\n', '\r']) => {
                format!("\"{}\"", text.replace('"', "\"\""))
            }
            Self::Text(text) => text.clone(),
            Self::Count(count) => count.to_string(),
            Self::Number(number) | Self::Share(number) => format!("{number:.6}"),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Nothing => Value::Null,
            Self::Text(text) => text.as_str().into(),
            Self::Count(count) => (*count).into(),
            Self::Number(number) | Self::Share(number) => (*number).into(),
        }
    }
}

impl Figures {
    /// No rows yet, under `columns`: names as in CSV and JSON, with underscores for spaces.
    #[must_use]
    pub fn new(columns: impl IntoIterator<Item = &'static str>) -> Self {
        Self { columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row; missing cells are [`Cell::Nothing`], surplus ones are dropped.
    pub fn push(&mut self, row: impl IntoIterator<Item = Cell>) {
        let mut row: Vec<Cell> = row.into_iter().collect();
        row.resize(self.columns.len(), Cell::Nothing);
        self.rows.push(row);
    }

    /// Adds the rows of a table with the same columns; a table with others adds nothing.
    pub fn append(&mut self, other: &Self) {
        if other.columns == self.columns {
            self.rows.extend(other.rows.iter().cloned());
        }
    }

    /// The rows.
    #[must_use]
    pub fn rows(&self) -> &[Vec<Cell>] {
        &self.rows
    }

    /// Without the columns in which no row has anything.
    #[must_use]
    pub fn without_empty_columns(&self) -> Self {
        self.with(|at| self.rows.iter().any(|row| row[at] != Cell::Nothing))
    }

    /// Without the column of this name.
    #[must_use]
    pub fn without(&self, column: &str) -> Self {
        self.with(|at| self.columns[at] != column)
    }

    /// With some columns only.
    fn with(&self, keep: impl Fn(usize) -> bool) -> Self {
        let kept: Vec<usize> = (0..self.columns.len()).filter(|at| keep(*at)).collect();
        let columns = kept.iter().map(|at| self.columns[*at]).collect();
        let rows =
            self.rows.iter().map(|row| kept.iter().map(|at| row[*at].clone()).collect()).collect();
        Self { columns, rows }
    }

    /// Aligned text: columns of texts to the left, of numbers to the right.
    #[must_use]
    pub fn text(&self) -> String {
        let heads: Vec<String> = self.columns.iter().map(|name| name.replace('_', " ")).collect();
        let cells: Vec<Vec<String>> =
            self.rows.iter().map(|row| row.iter().map(Cell::text).collect()).collect();
        let width = |at: usize| {
            let cells = cells.iter().map(|row| row[at].chars().count());
            cells.chain([heads[at].chars().count()]).max().unwrap_or(0)
        };
        let left = |at: usize| self.rows.iter().any(|row| matches!(row[at], Cell::Text(_)));
        let layout: Vec<(usize, bool)> = (0..heads.len()).map(|at| (width(at), left(at))).collect();
        let mut text = String::new();
        for row in std::iter::once(&heads).chain(&cells) {
            let mut line = String::new();
            for (cell, (width, left)) in row.iter().zip(&layout) {
                let cell =
                    if *left { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
                line.push_str(&cell);
                line.push_str("  ");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// Comma-separated, with a line of names; quoted as RFC 4180 says where necessary.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut text = self.columns.join(",") + "\n";
        for row in &self.rows {
            let cells: Vec<String> = row.iter().map(Cell::csv).collect();
            // Writing into a String cannot fail.
            let _ = writeln!(text, "{}", cells.join(","));
        }
        text
    }

    /// A JSON array of one object a row.
    #[must_use]
    pub fn json(&self) -> String {
        let rows = self.rows.iter().map(|row| {
            let pairs = self.columns.iter().zip(row);
            Value::Object(
                pairs.map(|(name, cell)| ((*name).to_owned(), cell.json())).collect::<Map<_, _>>(),
            )
        });
        Value::Array(rows.collect()).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Figures {
        let mut table = Figures::new(["policy", "slots", "hit_rate", "empty"]);
        table.push([Cell::from("a,\"b\""), Cell::from(7_u64), Cell::Share(0.5)]);
        table.push([Cell::from("é"), Cell::from(1234_usize), Cell::number(None), Cell::Nothing]);
        table
    }

    #[test]
    fn every_form_by_hand() {
        let table = sample();
        assert_eq!(
            table.text(),
            "policy  slots  hit rate  empty\na,\"b\"       7    50.00%      -\né        1234         -      -\n"
        );
        let lines = ["policy,slots,hit_rate,empty", "\"a,\"\"b\"\"\",7,0.500000,", "é,1234,,", ""];
        assert_eq!(table.csv(), lines.join("\n"));
        let objects: Value = serde_json::from_str(&table.json()).expect("JSON");
        assert_eq!(objects[0]["policy"], "a,\"b\"");
        assert_eq!((&objects[1]["slots"], &objects[1]["hit_rate"]), (&1234.into(), &Value::Null));
        assert!(table.without_empty_columns().csv().starts_with("policy,slots,hit_rate\n"));
    }

    #[test]
    fn numbers_that_are_none_are_null() {
        let mut table = Figures::new(["x"]);
        table.push([Cell::Number(f64::NAN)]);
        assert_eq!(table.json(), r#"[{"x":null}]"#);
    }
}
