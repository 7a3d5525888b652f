//! [`CsiFrame`](crate::frame::CsiFrame) -> [`LinkFeatures`]: clean series, motion statistic, verdict.

mod features;
mod stage;

pub use features::{LinkFeatures, NoVerdict, Verdict};
pub use stage::{Settings, Signal};

/// Time between two verdicts of a link, microseconds of sensing time.
pub const TICK_MICROS: i64 = 250_000;
