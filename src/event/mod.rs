//! Link features -> [`ZoneState`] and [`Event`]: hysteresis in time (hold and dwell), evidence named, journal on disk.

mod settings;
mod types;
mod zones;

pub use settings::{Settings, ZoneSettings, slug};
pub use types::{Cause, Draft, Event, EventKind, Request, Why, ZoneState};
pub use zones::{HOLD_RANGE_S, SENSITIVITY_RANGE, Zones};
