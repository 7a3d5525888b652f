//! `aetherd evaluate`: labelled recordings through the very pipeline that `run` uses, and the figures of it.

mod manifest;
mod metrics;

pub use manifest::{Label, LeaveOneOut, Manifest, ManifestError, Options, Recording, Stretch, Task};
pub use metrics::{Figures, Intervals, Scored, figures, intervals};
