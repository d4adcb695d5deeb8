//! The `README.md` of every crate is its head as rustdoc shows it, so that the two cannot drift.
//!
//! After a change of a head: `SLOTSTREAM_WRITE_READMES=1 cargo test --workspace --test repository
//! readmes` writes them.

use crate::files::{read, root};
use crate::workspace::crates;

/// Set to write the files instead of comparing them.
const WRITE: &str = "SLOTSTREAM_WRITE_READMES";

const FOOT: &str = "\
A part of [slotstream](../../README.md), where the other crates, the limits and the documents are \
listed.
Needs Rust 1.95. MIT, see [LICENSE](LICENSE).
";

#[test]
fn every_readme_is_the_head_of_its_crate() {
    let mut differ = Vec::new();
    for name in crates() {
        let expected = readme(&name, &read(&format!("crates/{name}/src/lib.rs")));
        let path = root().join("crates").join(&name).join("README.md");
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(&path, &expected).expect("the file can be written");
        }
        if std::fs::read_to_string(&path).ok().as_deref() != Some(expected.as_str()) {
            differ.push(name);
        }
    }
    assert!(differ.is_empty(), "{differ:?}: run this test with {WRITE}=1");
}

/// A README of the lines that start with `//!`.
fn readme(name: &str, lib: &str) -> String {
    let mut out = format!("# {name}\n\n");
    let mut fenced = false;
    for line in lib.lines().map_while(|line| line.strip_prefix("//!")) {
        let line = line.strip_prefix(' ').unwrap_or(line);
        if line.starts_with("```") {
            fenced = !fenced;
            out.push_str(if fenced { "```rust" } else { "```" });
        } else if fenced {
            if line == "#" || line.starts_with("# ") {
                continue; // compiled, not shown
            }
            out.push_str(line);
        } else if line.starts_with('[') && line.contains("]: ") {
            continue; // where a link leads
        } else {
            if line.starts_with('#') {
                out.push('#');
            }
            out.push_str(&without_item_links(line));
        }
        out.push('\n');
    }
    let mut out = collapse_blank_lines(out.trim_end());
    out.push_str("\n\n");
    out.push_str(FOOT);
    out
}

/// Links to items are rustdoc's alone: their text stays.
fn without_item_links(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(['`', '[']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let taken = match rest.starts_with('`') {
            true => code(rest).map(|len| (&rest[..len], len)),
            false => item_link(rest),
        };
        let (shown, len) = taken.unwrap_or((&rest[..1], 1));
        out.push_str(shown);
        rest = &rest[len..];
    }
    out + rest
}

/// The length of the code that begins with a backtick.
fn code(text: &str) -> Option<usize> {
    text[1..].find('`').map(|end| end + 2)
}

/// What `[shown]` or `[shown](path::Of)` shows, and its length; `None` for anything else.
fn item_link(text: &str) -> Option<(&str, usize)> {
    let end = text.find(']')?;
    let shown = &text[1..end];
    match text[end + 1..].strip_prefix('(') {
        Some(after) => {
            let target = &after[..after.find(')')?];
            let item = target.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | ':' | '@'));
            item.then_some((shown, end + target.len() + 3))
        }
        None => (shown.len() > 2 && shown.starts_with('`') && shown.ends_with('`'))
            .then_some((shown, end + 1)),
    }
}

/// Hidden lines leave pairs of blank ones.
fn collapse_blank_lines(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.dedup_by(|line, before| line.is_empty() && (before.is_empty() || *before == "```rust"));
    lines.join("\n")
}

#[test]
fn heads_become_readmes() {
    let lib = "//! One [`Item`] of `[rows, 2]`, [two](crate::Two), [site](https://a.b).\n//!\n\
               //! # Example\n//! ```no_run\n//! # use hidden;\n//!\n//! let x = [1](2);\n//! ```\n//!\n\
               //! [`Item::x`]: other::Item\n\nmod more;\n//! no";
    let expected = format!(
        "# name\n\nOne `Item` of `[rows, 2]`, two, [site](https://a.b).\n\n## Example\n```rust\n\
         let x = [1](2);\n```\n\n{FOOT}"
    );
    assert_eq!(readme("name", lib), expected);
}
