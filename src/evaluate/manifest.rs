//! The manifest of an evaluation: which recordings, what is true in them, how to split.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// What a manifest may be wrong about.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The file cannot be read.
    #[error("cannot read the manifest {path}: {source}")]
    Read {
        /// The manifest.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not the TOML that is expected.
    #[error("{path}:{line}: {message}")]
    Syntax {
        /// The manifest.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What was expected and what came.
        message: String,
    },
    /// A recording contradicts itself.
    #[error("{path}: recording {index} ({recording}): {message}")]
    Meaning {
        /// The manifest.
        path: PathBuf,
        /// Position in the manifest, from 1.
        index: usize,
        /// The recording's path as written.
        recording: String,
        /// What is wrong and the cure.
        message: String,
    },
}

/// What is true during a stretch of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Label {
    /// Nobody is there.
    Empty,
    /// Somebody moves.
    Motion,
    /// Somebody is there and keeps still.
    Still,
}

impl Label {
    /// Whether a motion detector should say "moving".
    pub const fn is_motion(self) -> bool {
        matches!(self, Self::Motion)
    }
}

/// A labelled stretch; times in seconds since the recording's first frame.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stretch {
    /// First second.
    pub from_s: f64,
    /// Last second (not included).
    pub to_s: f64,
    /// What is true in it.
    pub label: Label,
}

/// One recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    /// File, relative to the manifest; `archive.tar.bz2#member` names one file of an archive.
    pub path: String,
    /// Format name as in `aetherd decode --format`.
    #[serde(default = "auto")]
    pub format: String,
    /// Session the recording belongs to; recordings of one session are never on both sides of a split.
    pub session: String,
    /// Chip of the receiver.
    #[serde(default)]
    pub chip: Option<String>,
    /// Room.
    #[serde(default)]
    pub room: Option<String>,
    /// Person.
    #[serde(default)]
    pub person: Option<String>,
    /// Feed only frames from this second on.
    #[serde(default)]
    pub start_s: Option<f64>,
    /// Feed only frames before this second.
    #[serde(default)]
    pub end_s: Option<f64>,
    /// Feed, but do not score, this many seconds at the start.
    #[serde(default)]
    pub skip_s: f64,
    /// Frames per second, for formats without time stamps.
    #[serde(default)]
    pub rate_hz: Option<f64>,
    /// Label of the whole file.
    #[serde(default)]
    pub label: Option<Label>,
    /// Labelled stretches; what no stretch covers is not scored.
    #[serde(default)]
    pub truth: Vec<Stretch>,
}

fn auto() -> String {
    "auto".to_owned()
}

impl Recording {
    /// What is true at `t_s` seconds since the first frame; `None` where it is not labelled or not scored.
    pub fn label_at(&self, t_s: f64) -> Option<Label> {
        if t_s < self.start_s.unwrap_or(0.0) + self.skip_s || self.end_s.is_some_and(|e| t_s >= e) {
            return None;
        }
        self.label.or_else(|| self.truth.iter().find(|s| s.from_s <= t_s && t_s < s.to_s).map(|s| s.label))
    }

    /// Starts of labelled motion that follow something scored or the recording's start later than second 0.
    pub fn onsets(&self) -> impl Iterator<Item = f64> + '_ {
        self.truth.iter().filter(|s| s.label.is_motion() && s.from_s > 0.0).map(|s| s.from_s)
    }
}

/// What is kept apart when something is fitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaveOneOut {
    /// Nothing is fitted: the shipped defaults are judged.
    #[default]
    None,
    /// Sessions.
    Session,
    /// Rooms.
    Room,
    /// Chips.
    Chip,
    /// People.
    Person,
}

impl LeaveOneOut {
    /// The group of `recording`; recordings that do not say are a group of their own.
    pub fn group(self, recording: &Recording) -> Option<String> {
        let named = |v: &Option<String>| Some(v.clone().unwrap_or_else(|| format!("?{}", recording.path)));
        match self {
            Self::None => None,
            Self::Session => Some(recording.session.clone()),
            Self::Room => named(&recording.room),
            Self::Chip => named(&recording.chip),
            Self::Person => named(&recording.person),
        }
    }
}

/// The task judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Moving or not, four times a second and more.
    #[default]
    Motion,
}

/// How to judge.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// The task.
    pub task: Task,
    /// The split.
    pub leave_one_out: LeaveOneOut,
    /// Thin the frames to this rate first.
    pub decimate_to_hz: Option<f64>,
    /// Drop this share of the frames at random first, 0 to 1.
    pub drop_fraction: f64,
    /// Seed of everything random here.
    pub seed: u64,
}

/// A manifest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// How to judge.
    #[serde(default)]
    pub evaluate: Options,
    /// The recordings.
    pub recording: Vec<Recording>,
}

impl Manifest {
    /// Reads and checks a manifest.
    pub fn load(path: &Path) -> Result<Self, ManifestError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ManifestError::Read { path: path.to_owned(), source })?;
        let manifest: Self = toml::from_str(&text).map_err(|e| ManifestError::Syntax {
            path: path.to_owned(),
            line: e.span().map_or(1, |s| 1 + text[..s.start.min(text.len())].matches('\n').count()),
            message: e.message().to_owned(),
        })?;
        manifest.check(path)?;
        Ok(manifest)
    }

    /// Checks the meaning; `path` is for the messages.
    pub fn check(&self, path: &Path) -> Result<(), ManifestError> {
        for (i, r) in self.recording.iter().enumerate() {
            let wrong = |message: &str| {
                Err(ManifestError::Meaning {
                    path: path.to_owned(),
                    index: i + 1,
                    recording: r.path.clone(),
                    message: message.to_owned(),
                })
            };
            if r.label.is_some() != r.truth.is_empty() {
                return wrong("expected either `label` for the whole file or a list `truth`, not both and not neither");
            }
            if r.truth.iter().any(|s| s.to_s.is_nan() || s.from_s.is_nan() || s.to_s <= s.from_s) {
                return wrong("a stretch of `truth` ends before it begins; expected from_s < to_s");
            }
            if r.rate_hz.is_some_and(|hz| !(hz > 0.0 && hz <= 10_000.0)) {
                return wrong("expected `rate_hz` above 0 and at most 10000");
            }
        }
        let o = &self.evaluate;
        if !(0.0..1.0).contains(&o.drop_fraction) || o.decimate_to_hz.is_some_and(|hz| hz.is_nan() || hz <= 0.0) {
            return Err(ManifestError::Meaning {
                path: path.to_owned(),
                index: 0,
                recording: "[evaluate]".to_owned(),
                message: "expected drop_fraction in 0..1 and decimate_to_hz above 0".to_owned(),
            });
        }
        Ok(())
    }
}
