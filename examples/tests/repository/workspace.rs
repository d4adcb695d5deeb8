//! The crates and their borders. The law is the table of crates in `docs/architecture.md`; these
//! tests read it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::files::{read, root, text, tracked};

/// What may lie at the top, dot-files aside.
const TOP_LEVEL: [&str; 8] =
    ["Cargo.lock", "Cargo.toml", "LICENSE", "README.md", "benches", "crates", "docs", "examples"];

/// Crates that may name candle; examples and benches may, too.
const CANDLE: [&str; 4] =
    ["slotstream", "slotstream-candle", "slotstream-experts", "slotstream-qwen"];

/// Files with unsafe code in a crate whose border is `deny` are small.
const UNSAFE_LINES: usize = 250;

/// A row of the table of crates.
#[derive(Debug)]
struct Law {
    may_use: BTreeSet<String>,
    unsafe_code: String,
}

/// The table of crates: `| crate | border | may depend on | unsafe |`.
fn laws() -> BTreeMap<String, Law> {
    let architecture = read("docs/architecture.md");
    let rows = architecture.lines().filter(|line| line.starts_with("| `slotstream"));
    let laws: BTreeMap<_, _> = rows.map(law).collect();
    assert!(laws.len() >= 12, "the table of crates has {} rows", laws.len());
    laws
}

/// The names of all crates.
pub(crate) fn crates() -> impl Iterator<Item = String> {
    laws().into_keys()
}

fn law(row: &str) -> (String, Law) {
    let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
    let [name, _border, may_use, unsafe_code] = cells[..] else {
        panic!("four cells a row: {row}");
    };
    let full = |short: &str| match short {
        "slotstream" => short.to_owned(),
        _ => format!("slotstream-{short}"),
    };
    let may_use = may_use.split(',').map(str::trim).filter(|cell| *cell != "-").map(full).collect();
    let first = unsafe_code.split(',').next().unwrap_or_default().to_owned();
    (name.trim_matches('`').to_owned(), Law { may_use, unsafe_code: first })
}

/// The packages of the workspace as cargo sees them.
fn packages() -> Vec<Value> {
    let arguments = ["metadata", "--format-version", "1", "--no-deps", "--offline"];
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(root())
        .output()
        .expect("cargo runs: it built this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    metadata["packages"].as_array().expect("a list of packages").clone()
}

fn name(package: &Value) -> &str {
    package["name"].as_str().expect("a package has a name")
}

/// Whether a package is one of the crates, as opposed to examples, benches and what lies inside a
/// crate's folder for its sake.
fn is_crate(package: &Value) -> bool {
    folder(package).strip_prefix("crates/").is_some_and(|name| !name.contains('/'))
}

/// The folder of a package relative to the root.
fn folder(package: &Value) -> String {
    let manifest = Path::new(package["manifest_path"].as_str().expect("a path"));
    let folder = manifest.parent().expect("a manifest lies in a folder");
    folder.strip_prefix(root()).expect("below the root").display().to_string()
}

fn dependencies(package: &Value) -> &Vec<Value> {
    package["dependencies"].as_array().expect("a list of dependencies")
}

/// Build and normal dependencies, on every platform. Tests may use what they like.
fn shipped(package: &Value) -> impl Iterator<Item = &str> {
    dependencies(package).iter().filter(|d| d["kind"].as_str() != Some("dev")).map(name)
}

#[test]
fn the_table_names_every_crate() {
    let crates: BTreeSet<String> =
        packages().iter().filter(|p| is_crate(p)).map(|p| name(p).to_owned()).collect();
    assert_eq!(laws().into_keys().collect::<BTreeSet<_>>(), crates);
}

#[test]
fn arrows_go_only_where_the_table_says() {
    let laws = laws();
    for package in packages().iter().filter(|p| is_crate(p)) {
        let law = &laws[name(package)];
        let ours = shipped(package).filter(|d| d.starts_with("slotstream"));
        let wrong: Vec<_> = ours.filter(|d| !law.may_use.contains(*d)).collect();
        assert!(wrong.is_empty(), "{} must not depend on {wrong:?}", name(package));
    }
}

#[test]
fn the_table_itself_keeps_the_borders_that_matter_most() {
    let laws = laws();
    assert!(laws["slotstream-core"].may_use.is_empty(), "core knows nobody");
    assert!(!laws["slotstream-io"].may_use.contains("slotstream-cache"));
    assert!(!laws["slotstream-cache"].may_use.contains("slotstream-io"));
    for (name, law) in &laws {
        let unknown: Vec<_> = law.may_use.iter().filter(|d| !laws.contains_key(*d)).collect();
        assert!(unknown.is_empty(), "{name} may use {unknown:?}, which the table does not have");
        assert!(!law.may_use.contains("slotstream"), "{name}: nothing below knows the facade");
    }
}

#[test]
fn candle_stays_where_tensors_are_and_is_pinned() {
    for package in &packages() {
        for dependency in dependencies(package) {
            let of = name(dependency);
            if of != "candle-core" && !of.starts_with("candle-") {
                continue;
            }
            let allowed = CANDLE.contains(&name(package)) || !is_crate(package);
            assert!(allowed, "{} must not depend on {of}", name(package));
            let version = dependency["req"].as_str().expect("a version");
            assert!(version.starts_with('='), "{}: {of} {version} is not exact", name(package));
        }
    }
}

#[test]
fn nothing_comes_from_a_git_repository() {
    for package in &packages() {
        for dependency in dependencies(package) {
            let source = dependency["source"].as_str().unwrap_or("path");
            assert!(!source.starts_with("git"), "{}: {}", name(package), name(dependency));
        }
    }
}

#[test]
fn unsafe_code_is_where_the_table_says() {
    for (name, law) in laws() {
        let lib = read(&format!("crates/{name}/src/lib.rs"));
        let forbids = lib.contains("#![forbid(unsafe_code)]");
        assert_eq!(forbids, law.unsafe_code == "forbid", "{name}: {}", law.unsafe_code);
        for lint in ["#![allow(unsafe_code", "#![expect(unsafe_code", "#![warn(unsafe_code"] {
            assert!(!lib.contains(lint), "{name} opens the whole crate to unsafe code");
        }
        let manifest = read(&format!("crates/{name}/Cargo.toml"));
        assert!(manifest.contains("[lints]\nworkspace = true"), "{name}: the workspace's lints");
        if law.unsafe_code == "deny" {
            let below = Path::new("crates").join(&name).join("src");
            for file in tracked().iter().filter(|file| file.starts_with(&below)) {
                let text = text(file).unwrap_or_default();
                let lines = text.lines().count();
                let small = !text.contains("unsafe {") || lines <= UNSAFE_LINES;
                assert!(small, "{}: unsafe code in {lines} lines", file.display());
            }
        }
    }
}

#[test]
fn every_package_says_what_it_is() {
    for package in &packages() {
        let (name, folder) = (name(package), folder(package));
        let said = |field: &str| package[field].as_str().is_some_and(|text| !text.is_empty());
        for field in ["description", "license", "rust_version"] {
            assert!(said(field), "{name} has no {field}");
        }
        assert_eq!(package["edition"].as_str(), Some("2024"), "{name}");
        if is_crate(package) {
            assert_eq!(folder, format!("crates/{name}"), "a folder is called as its crate");
        } else {
            let private = package["publish"].as_array().is_some_and(Vec::is_empty);
            assert!(private, "{name} is not for publishing");
        }
    }
}

/// The fences that open a block in a crate's head, without the backticks.
fn opening_fences(lib: &str) -> Vec<&str> {
    let head = lib.lines().map_while(|line| line.strip_prefix("//!"));
    head.filter_map(|line| line.trim().strip_prefix("```")).step_by(2).collect()
}

#[test]
fn every_crate_head_has_an_example() {
    for name in crates() {
        let lib = read(&format!("crates/{name}/src/lib.rs"));
        let compiled = |fence: &&str| matches!(*fence, "" | "rust" | "no_run");
        let examples = opening_fences(&lib).into_iter().filter(compiled).count();
        assert!(examples > 0, "the head of {name} has no example that is compiled");
    }
}

#[test]
fn the_top_level_is_what_it_should_be() {
    let files = tracked();
    let tops: BTreeSet<&str> = files
        .iter()
        .filter_map(|file| file.iter().next()?.to_str())
        .filter(|top| !top.starts_with('.'))
        .collect();
    assert_eq!(tops, BTreeSet::from(TOP_LEVEL));
}
