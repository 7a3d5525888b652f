//! TOML and environment -> [`Settings`](crate::config::Finding): load order, checking, errors with file, line, reason and cure.

mod finding;
mod layers;

pub use finding::{Finding, Findings, Severity};
pub use layers::{ENV_PREFIX, Layer, from_environment, merge};
