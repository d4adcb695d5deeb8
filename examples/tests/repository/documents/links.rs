//! Every link within the repository leads to something.

use std::path::Path;

use super::documents;
use super::markdown::prose;
use crate::files::{root, text};

#[test]
fn every_relative_link_resolves() {
    let mut broken = Vec::new();
    for document in documents() {
        let text = text(&document).expect("a document is text");
        for (line, target) in links(&text) {
            if let Err(why) = resolve(&document, target) {
                broken.push(format!("{} line {line}: {target}: {why}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

/// The targets of `[text](target)`, with their lines.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let mut rest = line;
        while let Some((_, after)) = rest.split_once("](") {
            let target = after.split_once(')').map_or(after, |(target, _)| target);
            found.push((number, target));
            rest = after;
        }
    }
    found
}

fn resolve(document: &Path, target: &str) -> Result<(), String> {
    if target.starts_with("https://") {
        return Ok(());
    }
    let (path, anchor) = match target.split_once('#') {
        Some((path, anchor)) => (path, Some(anchor)),
        None => (target, None),
    };
    let base = document.parent().unwrap_or_else(|| Path::new(""));
    let name = if path.is_empty() { document.to_path_buf() } else { base.join(path) };
    if !root().join(&name).exists() {
        return Err("there is no such file".into());
    }
    match anchor {
        None => Ok(()),
        Some(anchor) => {
            let text = text(&name).ok_or("an anchor of a file that is not text")?;
            let known =
                prose(&text).iter().any(|(_, line)| heading(line).as_deref() == Some(anchor));
            if known { Ok(()) } else { Err("there is no such heading".into()) }
        }
    }
}

/// The anchor of a heading.
fn heading(line: &str) -> Option<String> {
    let title = line.strip_prefix('#')?.trim_start_matches('#').trim();
    let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    Some(kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect())
}

#[test]
fn finds_links_and_anchors() {
    let text = "[a](b.md), [c](../d#e)\n```\n[no](link)\n```\n";
    assert_eq!(links(text), [(1, "b.md"), (1, "../d#e")]);
    assert_eq!(heading("## The op seam: `Ops`").as_deref(), Some("the-op-seam-ops"));
    assert!(resolve(Path::new("README.md"), "no/such/file.md").is_err());
    assert!(resolve(Path::new("README.md"), "LICENSE").is_ok());
}
