//! TOML and environment -> [`Settings`]: load order, checking, errors with file, line, reason and cure.

mod finding;
mod layers;
mod load;
mod meaning;
mod settings;

pub use finding::{Finding, Findings, Severity};
pub use layers::{ENV_PREFIX, Layer, from_environment, merge};
pub use load::{DEFAULT_PATH, Loaded, load};
pub use settings::{Settings, VERSION};
