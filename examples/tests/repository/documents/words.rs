//! Nothing in the repository names the place where it was written.

use crate::files::{text, tracked};

/// Texts that no file may hold, in halves, so that this one does not either. A trailing space
/// stands for the end of a word.
const FORBIDDEN: [(&str, &str); 12] = [
    ("/wo", "rk "),
    ("../sha", "red "),
    ("shared/spe", "c "),
    ("shared/fix", "tures "),
    ("shared/tiny", "-model "),
    ("shared/stu", "dy "),
    ("index.crate", "s.io"),
    ("static.crate", "s.io"),
    ("files.python", "hosted"),
    ("artif", "actory"),
    ("suba", "gent"),
    ("sub-a", "gent"),
];

#[test]
fn no_file_names_the_workshop() {
    let mut found = Vec::new();
    for file in tracked() {
        let Some(text) = text(&file) else { continue };
        for (number, line) in text.lines().enumerate() {
            for forbidden in FORBIDDEN.map(|(head, tail)| format!("{head}{tail}")) {
                if holds(line, &forbidden) {
                    found.push(format!("{} line {}: {forbidden}", file.display(), number + 1));
                }
            }
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// Whether a line holds a text; one that ends with a space is the end of a word there.
fn holds(line: &str, forbidden: &str) -> bool {
    let word = forbidden.trim_end();
    let whole = word != forbidden;
    line.match_indices(word).any(|(at, _)| {
        let after = line[at + word.len()..].chars().next();
        !whole || !after.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

#[test]
fn words_end_where_they_should() {
    let word = format!("/{} ", "office");
    assert!(holds("see /office/x", &word) && holds("in /office", &word));
    assert!(!holds("in /officer/x", &word) && !holds("office", &word));
}
