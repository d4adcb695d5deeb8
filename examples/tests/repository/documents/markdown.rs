//! As much of Markdown as the checks need.

/// A table: the comment before it, the header, and the rows below.
#[derive(Debug, PartialEq)]
pub(crate) struct Table {
    /// Number of the header's line, from one.
    pub(crate) line: usize,
    /// The `<!-- ... -->` on the line before the header, trimmed.
    pub(crate) marker: Option<String>,
    pub(crate) header: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// The lines outside code blocks, numbered from one.
pub(crate) fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            lines.push((at + 1, line));
        }
    }
    lines
}

/// The tables of a document.
pub(crate) fn tables(text: &str) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    let mut marker = None;
    let mut inside = false;
    for (line, text) in prose(text) {
        if let Some(row) = cells(text) {
            match (inside, tables.last_mut()) {
                (true, Some(table)) if !is_rule(&row) => table.rows.push(row),
                (true, _) => {}
                (false, _) => {
                    let (marker, header) = (marker.take(), row);
                    tables.push(Table { line, marker, header, rows: Vec::new() });
                    inside = true;
                }
            }
            continue;
        }
        inside = false;
        match comment(text) {
            Some(found) => marker = Some(found.to_owned()),
            None if text.trim().is_empty() => {}
            None => marker = None,
        }
    }
    tables
}

fn comment(line: &str) -> Option<&str> {
    Some(line.trim().strip_prefix("<!--")?.strip_suffix("-->")?.trim())
}

fn cells(line: &str) -> Option<Vec<String>> {
    let inner = line.trim().strip_prefix('|')?;
    let inner = inner.strip_suffix('|').unwrap_or(inner);
    Some(inner.split('|').map(|cell| cell.trim().replace(['`', '*'], "")).collect())
}

fn is_rule(row: &[String]) -> bool {
    row.iter().all(|cell| !cell.is_empty() && cell.chars().all(|c| matches!(c, '-' | ':')))
}

#[test]
fn finds_tables_with_their_markers() {
    let text = "<!-- receipt: a, b -->\n\n| x | y |\n|---|--:|\n| one | **2.5** |\n\ntext\n\n\
                ```\n| no | table |\n```\n| z |\n|:-|\n| 3 |\n";
    let found = tables(text);
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].line, found[0].marker.as_deref()), (3, Some("receipt: a, b")));
    assert_eq!(found[0].rows, [["one", "2.5"]]);
    assert_eq!((found[1].line, found[1].marker.as_deref()), (12, None));
    assert_eq!(found[1].rows, [["3"]]);
}
