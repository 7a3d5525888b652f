//! [`CsiFrame`](crate::frame::CsiFrame) -> [`LinkFeatures`]: clean series, motion statistic, verdict.
//!
//! *In*: decoded frames of any node, in order of arrival, and the ticks of the pipeline's grid. *Out*: per tick and link
//! one verdict with its score, and between ticks what a track's token is made of. *State*: per link about three seconds of projected frames, ten seconds of intervals and
//! the link's own quiet level. No training and no calibration: what moves is what changes the smooth profile across the
//! bins, over a tenth of a second, by more than the receiver noise seen in the rough part of the very same frames.
//!
//! The way of a frame: `time` (one axis for frames and ticks) -> `bins` (mask, gain) -> `smooth` (cosine basis, lag
//! statistic) -> `score` with `memory` -> `verdict`; `link` holds one series together and `stage` all of them. The method
//! and its figures are in `docs/signal.md`.

mod bins;
mod features;
mod link;
mod memory;
mod rate;
mod score;
mod settings;
mod smooth;
mod stage;
mod time;
mod verdict;

pub use features::{CHANGE_COMPONENTS, CHANGE_LAGS_S, LinkChange, LinkFeatures, NoVerdict, Verdict};
pub use settings::Settings;
pub use stage::Signal;

/// Time between two verdicts of a link, microseconds of sensing time.
pub const TICK_MICROS: i64 = 250_000;

/// Time between two fused frames, microseconds of sensing time; a tick is every fifth of them.
pub const FUSED_MICROS: i64 = 50_000;

/// The same in seconds.
const FUSED_S: f64 = FUSED_MICROS as f64 / 1e6;

/// A tick in seconds.
const TICK_S: f64 = TICK_MICROS as f64 / 1e6;
