//! `aetherd evaluate`: labelled recordings through the very pipeline that `run` uses, and the figures of it.

mod judge;
mod manifest;
mod metrics;
mod picture;
mod run;
mod table;
mod tracking;

pub use judge::{DEFAULT, Fold, RecordingReport, Report, Run, SENSITIVITIES, Summary, Tick, judge};
pub use manifest::{Label, LeaveOneOut, Manifest, ManifestError, Options, Recording, Stretch, Task};
pub use metrics::{Figures, Intervals, Scored, figures, intervals};
pub use picture::picture;
pub use run::{RunError, run_all};
pub use table::table;
pub use tracking::{TrackingFigures, TrackingScore};
