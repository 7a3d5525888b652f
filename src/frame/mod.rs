//! Bytes of a board -> [`CsiFrame`].
//!
//! *In*: UDP datagrams, serial lines, recordings, each with its time of arrival on the sensing clock. *Out*: frames,
//! recognised other packets, and rejects with a reason; nothing is guessed. *State*: per node the last sequence
//! number, losses and counts.

mod csi;
mod item;
mod layout;

pub use csi::{Chip, CsiFrame, LinkKey, SampleKind, WireFormat};
pub use item::{Item, Other, Reject};
pub use layout::Layout;
