//! Who may import whom. Reads the `crate::` paths of every source file against the table of the architecture.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Module -> modules of ours that it may name. Not in the table: `main.rs`, `lib.rs`.
fn table() -> BTreeMap<&'static str, &'static [&'static str]> {
    BTreeMap::from([
        ("types", &[][..]),
        ("frame", &["types"]),
        ("signal", &["types", "frame"]),
        ("kernel", &[]),
        ("track", &["types", "frame", "signal"]),
        ("head", &["types", "frame", "signal", "track", "kernel"]),
        ("event", &["types", "frame", "signal", "track"]),
        ("mqtt", &["types", "frame", "track", "event"]),
        ("telemetry", &["types"]),
        ("web", &["types", "track", "head", "event", "mqtt", "telemetry"]),
        ("simulate", &["types", "frame"]),
        (
            "config",
            &["types", "frame", "signal", "track", "head", "kernel", "event", "mqtt", "telemetry", "web", "pipeline"],
        ),
        (
            "pipeline",
            &[
                "types",
                "frame",
                "signal",
                "track",
                "head",
                "kernel",
                "event",
                "mqtt",
                "telemetry",
                "web",
                "config",
                "simulate",
            ],
        ),
        ("evaluate", &["types", "frame", "signal", "track", "head", "kernel", "event", "simulate", "pipeline"]),
        (
            "cli",
            &[
                "types",
                "frame",
                "signal",
                "track",
                "head",
                "kernel",
                "event",
                "mqtt",
                "telemetry",
                "web",
                "config",
                "simulate",
                "pipeline",
                "evaluate",
            ],
        ),
    ])
}

fn sources(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

/// The modules that a line names by `crate::`; `crate::{a::X, b}` included.
fn named(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    for part in line.split("crate::").skip(1) {
        let ident = |s: &str| s.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
        if let Some(group) = part.strip_prefix('{') {
            let mut depth = 0;
            let mut start = true;
            for (i, c) in group.char_indices() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => start = true,
                    c if start && !c.is_whitespace() => {
                        found.push(ident(&group[i..]));
                        start = false;
                    }
                    _ => {}
                }
            }
        } else {
            found.push(ident(part));
        }
    }
    found
}

#[test]
fn stages_import_only_what_the_table_allows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let table = table();
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 20, "the sources were not found");
    let mut wrong = Vec::new();
    for file in files {
        let relative = file.strip_prefix(&root).unwrap();
        let first = relative.components().next().unwrap().as_os_str().to_string_lossy().into_owned();
        let module = first.strip_suffix(".rs").unwrap_or(&first).to_owned();
        if module == "main" || module == "lib" {
            continue;
        }
        let allowed =
            table.get(module.as_str()).unwrap_or_else(|| panic!("module `{module}` is not in the layering table"));
        for (number, line) in fs::read_to_string(&file).unwrap().lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for other in named(code) {
                if other != module && !allowed.contains(&other.as_str()) && table.contains_key(other.as_str()) {
                    wrong.push(format!("{}:{}: {module} must not import {other}", relative.display(), number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_cycle_hides_in_the_table() {
    // config and pipeline know each other by design: settings of nodes are declared by the pipeline, and the pipeline
    // takes whole settings; everything else must be ordered.
    let table = table();
    let mut order: Vec<&str> = Vec::new();
    let mut rest: Vec<&str> = table.keys().copied().collect();
    while !rest.is_empty() {
        let ready: Vec<&str> = rest
            .iter()
            .copied()
            .filter(|m| table[m].iter().all(|d| order.contains(d) || (*m == "config" && *d == "pipeline")))
            .collect();
        assert!(!ready.is_empty(), "a cycle among {rest:?}");
        rest.retain(|m| !ready.contains(m));
        order.extend(ready);
    }
}

#[test]
fn names_are_found_in_every_form_of_path() {
    assert_eq!(named("use crate::frame::{A, B};"), ["frame"]);
    assert_eq!(named("use crate::{frame::{A, B}, signal::C, types};"), ["frame", "signal", "types"]);
    assert_eq!(named("fn x(a: crate::mqtt::Y) -> crate::event::Z {"), ["mqtt", "event"]);
}
