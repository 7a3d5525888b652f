//! Link features -> [`ZoneState`] and [`Event`]: hysteresis in time (hold and dwell), evidence named, journal on disk.

mod types;

pub use types::{Cause, Event, EventKind, Request, Why, ZoneState};
