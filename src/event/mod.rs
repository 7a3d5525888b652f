//! Link features -> [`ZoneState`] and [`Event`]: hysteresis in time (hold and dwell), evidence named, journal on disk.

mod journal;
mod segment;
mod types;
mod writer;

pub use journal::{EventDraft, Journal, JournalError, JournalSettings, JournalStatus, Record, event_id};
pub(crate) use segment::write_atomically;
pub use types::{Cause, Event, EventKind, Request, Why, ZoneState};
pub use writer::{DraftSender, spawn_journal_thread};
