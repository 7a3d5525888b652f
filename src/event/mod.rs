//! Link features -> [`ZoneState`] and [`Event`]: hysteresis in time (hold and dwell), evidence named, journal on disk.

mod journal;
mod segment;
mod settings;
mod types;
mod writer;
mod zones;

pub use journal::{EventDraft, Journal, JournalError, JournalSettings, JournalStatus, Record, event_id};
pub(crate) use segment::write_atomically;
pub use settings::{Settings, ZoneSettings, slug};
pub use types::{Cause, Draft, Event, EventKind, Request, Why, ZoneState};
pub use writer::{DraftSender, spawn_journal_thread};
pub use zones::{HOLD_RANGE_S, SENSITIVITY_RANGE, Zones};
