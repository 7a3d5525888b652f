//! [`CsiFrame`](crate::frame::CsiFrame) -> [`LinkFeatures`]: clean series, motion statistic, verdict.

mod features;

pub use features::{LinkFeatures, NoVerdict, Verdict};
