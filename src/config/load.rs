//! Finds, reads, merges and checks the configuration.

use std::path::{Path, PathBuf};

use super::finding::{Finding, Findings, Severity};
use super::layers::{Layer, from_environment, merge};
use super::meaning;
use super::settings::Settings;

/// Where the configuration is looked for when none is named.
pub const DEFAULT_PATH: &str = "/etc/aetherd/aetherd.toml";

/// A configuration that can be used.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The settings in force.
    pub settings: Settings,
    /// What works but is probably not meant.
    pub warnings: Vec<Finding>,
    /// Names of the layers, in order; empty = embedded defaults.
    pub layers: Vec<String>,
    /// The file named or found, for reading it again.
    pub path: Option<PathBuf>,
    /// `key=value` flags, for reading it again.
    pub flags: Vec<String>,
}

/// Loads the configuration: `path` or the default path if it exists, `conf.d/*.toml` beside it, the environment, flags.
///
/// # Errors
/// Everything that is wrong, as far as it can be told in one go.
pub fn load(
    path: Option<&Path>,
    environment: impl Iterator<Item = (String, String)>,
    flags: &[String],
) -> Result<Loaded, Findings> {
    let found = match path {
        Some(p) => Some(p.to_owned()),
        None => Some(PathBuf::from(DEFAULT_PATH)).filter(|p| p.exists()),
    };
    let mut layers = Vec::new();
    let mut findings = Vec::new();
    for file in found.iter().flat_map(|p| files_of(p)) {
        match Layer::from_file::<Settings>(&file) {
            Ok(layer) => layers.push(layer),
            Err(finding) => findings.push(finding),
        }
    }
    match from_environment::<Settings>(environment) {
        Ok(more) => layers.extend(more),
        Err(more) => findings.extend(more),
    }
    for flag in flags {
        let parsed = flag.split_once('=').ok_or_else(|| {
            Finding::error(
                "--set",
                None,
                format!("expected KEY=VALUE, got `{flag}`"),
                "for example --set mqtt.host=10.0.0.2",
            )
        });
        match parsed.and_then(|(k, v)| Layer::from_assignment::<Settings>(&format!("--set {k}"), k.trim(), v.trim())) {
            Ok(layer) => layers.push(layer),
            Err(finding) => findings.push(finding),
        }
    }
    if !findings.is_empty() {
        return Err(Findings(findings));
    }
    let settings: Settings = merge(&layers).map_err(|f| Findings(vec![f]))?;
    let (errors, warnings): (Vec<_>, Vec<_>) =
        meaning::check(&settings).into_iter().map(|p| place(&layers, &p)).partition(|f| f.severity == Severity::Error);
    if !errors.is_empty() {
        return Err(Findings(errors.into_iter().chain(warnings).collect()));
    }
    let names = layers.iter().map(|l| l.name.clone()).collect();
    Ok(Loaded { settings, warnings, layers: names, path: found, flags: flags.to_vec() })
}

/// The file and then `conf.d/*.toml` beside it, sorted by name.
fn files_of(path: &Path) -> Vec<PathBuf> {
    let mut files = vec![path.to_owned()];
    let folder = path.parent().unwrap_or(Path::new(".")).join("conf.d");
    let mut more: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|e| e.ok().map(|e| e.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "toml"))
        .collect();
    more.sort();
    files.extend(more);
    files
}

/// Gives a problem its place: the last layer that sets the key, or the nearest key above it that is set.
fn place(layers: &[Layer], problem: &meaning::Problem) -> Finding {
    let path: Vec<&str> = problem.path.iter().map(String::as_str).collect();
    let at = (1..=path.len()).rev().find_map(|n| {
        layers.iter().rev().find(|l| l.sets(&path[..n])).map(|l| (l.name.clone(), l.line_of(&path[..n])))
    });
    let (file, line) = at.unwrap_or_else(|| ("embedded defaults".to_owned(), None));
    Finding {
        severity: problem.severity,
        file,
        line,
        what: format!("{}: {}", problem.path.join("."), problem.what),
        cure: problem.cure.clone(),
    }
}
