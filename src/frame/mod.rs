//! Bytes of a board -> [`CsiFrame`].
//!
//! *In*: UDP datagrams, serial lines, recordings, each with its time of arrival on the sensing clock. *Out*: frames,
//! recognised other packets, and rejects with a reason; nothing is guessed. *State*: per node the last sequence
//! number, losses and counts.

mod captured;
mod clock;
mod csi;
mod datagram;
mod decoder;
mod item;
mod layout;
mod lines;
mod memory;
mod order;
pub mod ports;
pub mod recording;
pub mod serial;
mod settings;
mod shape;
mod stats;
mod text;
pub mod udp;

pub use captured::{Captured, Origin, Payload};
pub use clock::SensingClock;
pub use csi::{Chip, CsiFrame, LinkKey, SampleKind, WireFormat};
pub use decoder::{Decoder, DecoderSettings, LineHint, Sink, line_wall_time};
pub use item::{Item, Other, Reject};
pub use layout::{Layout, ParseLayoutError};
pub use lines::{LineFramer, MAX_LINE_BYTES};
pub use settings::{SerialSettings, Settings, UdpSettings};
pub use stats::{FrameStats, NodeStats};
