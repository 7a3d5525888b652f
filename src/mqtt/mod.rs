//! States and events -> broker; broker -> [`Request`](crate::event::Request).
//!
//! The rest of the program hands over a [`Snapshot`] (latest value wins) and the event journal (nothing is lost).

mod snapshot;

pub use snapshot::{NodeView, Snapshot, ZoneView};
