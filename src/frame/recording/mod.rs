//! Recordings: input as it was received, kept with its times.
//!
//! *In*: a file, an archive member, standard input. *Out*: [`Unit`]s (datagrams and lines as they came from the wire), which
//! go through the very decoders that live input uses. *State*: one read buffer; memory does not grow with the recording.
//!
//! | form | what a unit is | times |
//! |---|---|---|
//! | `pcapng` (also pcap) | UDP payload; text line (link type 147) | of the capture |
//! | `espectre-npz` | ESPectre v2 datagram, 135 bytes | evenly spaced over the recorded duration |
//! | `ruview-jsonl` | ADR-018 datagram, header built again | as recorded |
//! | `csi-tool`, `esp-csi`, `csi-raw`, `albany`, `ialr`, `text` | line | from the lines, see `textclock` |
//!
//! Times without a known epoch start at [`Options::start`], or at 1970-01-01T00:00:00Z.

mod capture;
mod container;
mod error;
mod format;
mod import;
mod meta;
mod npz;
mod packet;
mod reader;
mod ruview;
#[cfg(test)]
mod tests;
mod text;
mod textclock;
mod writer;

use std::io;
use std::ops::Range;

pub use error::RecordingError;
pub use format::Format;
pub use import::{ImportSummary, import};
pub use meta::{FORMAT_VERSION, NodeEntry, RecordingMeta, SerialPort};
pub use reader::{Reader, members, open, open_bytes};
pub use writer::{Writer, WriterSummary};

use super::{Captured, Decoder, Item, LineHint, Origin, Other, Reject};
use crate::types::{NodeKey, SensingTime};

/// How a recording is to be read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// Frames a second, for forms whose lines or rows carry no time. Where they do, it replaces their times.
    pub rate_hz: Option<f64>,
    /// Time of the first unit, for recordings whose clock has no known start.
    pub start: Option<SensingTime>,
    /// Member of an archive, if the path does not name one (`archive.tar.xz#member`).
    pub member: Option<String>,
    /// Take only datagrams to this port; others in the capture are counted in [`Notes::other_ports`].
    pub udp_port: Option<u16>,
}

/// One piece of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit<'a> {
    /// Bytes as they came from the wire, and what the line decoder has to know about them.
    Captured(Captured<'a>, LineHint),
    /// Something the recording tells of without its bytes.
    Counted(Counted),
}

impl Unit<'_> {
    /// Time of the unit.
    pub fn at(&self) -> SensingTime {
        match self {
            Self::Captured(c, _) => c.at,
            Self::Counted(c) => c.at,
        }
    }

    /// Hands the unit to `decoder`; what carries no bytes goes to `sink` as it was counted.
    pub fn decode(&self, decoder: &mut Decoder, sink: &mut dyn FnMut(NodeKey, Item<'_>)) {
        match self {
            Self::Captured(captured, hint) => decoder.captured(captured, *hint, sink),
            Self::Counted(counted) => sink(
                counted.node,
                match counted.what {
                    CountedAs::Other(other) => Item::Other(other),
                    CountedAs::Reject(reject) => Item::Reject(reject),
                },
            ),
        }
    }
}

/// A packet that a recording tells of without its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// Time of the entry.
    pub at: SensingTime,
    /// The board.
    pub node: NodeKey,
    /// What it was.
    pub what: CountedAs,
}

/// What a packet without bytes counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountedAs {
    /// A recognised packet without raw CSI.
    Other(Other),
    /// An entry that no rule accepts.
    Reject(Reject),
}

/// Where and how a recording stops being readable. Everything before it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Bytes (after decompression) that were good.
    pub position: u64,
    /// What is wrong there.
    pub what: String,
}

impl Damage {
    /// `None` for failures of the system rather than of the content.
    fn from_io(e: &io::Error, position: u64) -> Option<Self> {
        if e.raw_os_error().is_some() {
            return None;
        }
        let what = match e.kind() {
            io::ErrorKind::UnexpectedEof => "torn: it ends in the middle".to_owned(),
            _ => format!("damaged: {e}"),
        };
        Some(Self { position, what })
    }
}

/// Things met while reading that are no units; all zero for a clean recording of ours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Notes {
    /// Captured packets of other protocols.
    pub not_udp: u64,
    /// Datagrams to other ports than asked for.
    pub other_ports: u64,
    /// IP fragments and packets cut by the capture's snap length.
    pub partial_packets: u64,
    /// Packets of link types whose headers are not known.
    pub unknown_links: u64,
    /// Capture blocks that hold no packet with a time.
    pub other_blocks: u64,
    /// Wraps of a radio's 32-bit clock.
    pub clock_wraps: u64,
    /// Steps of a board's clock back to a new start.
    pub clock_restarts: u64,
    /// Times in lines that were not believed.
    pub odd_times: u64,
}

impl Notes {
    fn add(&mut self, other: &Self) {
        self.not_udp += other.not_udp;
        self.other_ports += other.other_ports;
        self.partial_packets += other.partial_packets;
        self.unknown_links += other.unknown_links;
        self.other_blocks += other.other_blocks;
        self.clock_wraps += other.clock_wraps;
        self.clock_restarts += other.clock_restarts;
        self.odd_times += other.odd_times;
    }
}

/// Bytes found by a form's reader, in its buffer.
struct Found {
    at: SensingTime,
    origin: Origin,
    hint: LineHint,
    range: Range<usize>,
}

/// What a form's reader gives.
enum Event {
    Bytes(Found),
    Counted(Counted),
}
