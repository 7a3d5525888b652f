//! What is wrong with a configuration, where, and what cures it.

use std::fmt;

use serde::Serialize;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Works, but probably not as meant.
    Warning,
    /// The daemon does not start (or keeps its old settings) with this.
    Error,
}

/// One thing found in the configuration; displayed as `file:line: what: cure`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// File, or the environment variable.
    pub file: String,
    /// Line from 1, where it is known.
    pub line: Option<usize>,
    /// What was expected and what came.
    pub what: String,
    /// What to do.
    pub cure: String,
}

impl Finding {
    /// An error in `file` at `line`.
    pub fn error(file: &str, line: Option<usize>, what: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { severity: Severity::Error, file: file.to_owned(), line, what: what.into(), cure: cure.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: ", self.file)?,
            None => write!(f, "{}: ", self.file)?,
        }
        if self.severity == Severity::Warning {
            f.write_str("warning: ")?;
        }
        write!(f, "{}: {}", self.what, self.cure)
    }
}

/// A configuration that cannot be used: one or more findings.
#[derive(Debug, thiserror::Error)]
#[error("the configuration cannot be used\n{}", .0.iter().map(|f| format!("  {f}")).collect::<Vec<_>>().join("\n"))]
pub struct Findings(pub Vec<Finding>);
