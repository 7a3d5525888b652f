//! What there is to publish, as one value. The connection compares it with what it published last.

use serde::{Deserialize, Serialize};

use crate::event::ZoneState;
use crate::track::{Lifecycle, Placement};
use crate::types::{MacAddr, Provenance};

/// One zone with its names and settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ZoneView {
    /// Display name ("Living room").
    pub name: String,
    /// Home Assistant's area, where configured.
    pub area: Option<String>,
    /// State, with the topic-safe zone id in it.
    pub state: ZoneState,
    /// `state.since` as RFC 3339 with offset.
    pub since: Option<String>,
    /// Hold time in force, seconds.
    pub hold_s: f32,
    /// Sensitivity in force.
    pub sensitivity: f32,
}

/// One board.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeView {
    /// Topic-safe id, unique and stable ("kitchen", or "udp-192-168-1-50-3").
    pub id: String,
    /// Display name.
    pub name: String,
    /// Heard within the last ten seconds.
    pub available: bool,
    /// The board's MAC address, where known.
    pub mac: Option<MacAddr>,
    /// Chip name, where known.
    pub chip: Option<String>,
    /// Frames per second over the last ten seconds.
    pub rate_hz: f32,
    /// Share of frames lost by sequence number over the last minute; `None` where the format has none.
    pub loss: Option<f32>,
    /// Signal strength of the last frames.
    pub rssi_dbm: Option<f32>,
    /// Noise floor of the last frames.
    pub noise_dbm: Option<f32>,
    /// Wi-Fi channel.
    pub channel: Option<u8>,
    /// Frames accepted since start.
    pub frames: u64,
    /// Rejects since start, by reason.
    pub rejects: Vec<(String, u64)>,
    /// Last frame, RFC 3339 with offset.
    pub last_seen: Option<String>,
}

/// One person that is followed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrackView {
    /// Number of the track since start. Never a label of a metric.
    pub id: u64,
    /// Zone id.
    pub zone: String,
    /// Where it is in its life.
    pub state: Lifecycle,
    /// Seconds since it was first seen.
    pub age_s: f32,
    /// Seconds since it was last seen.
    pub unseen_s: f32,
    /// Place in the plan, where the links can tell.
    pub placement: Option<Placement>,
    /// Tokens it has streamed through the temporal head.
    pub tokens: u64,
    /// Bytes of its key/value cache, all layers; 0 while it has none.
    pub cache_bytes: u64,
}

/// The temporal head and the memory of its caches.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HeadView {
    /// Kernel in use, with the features of the processor it uses.
    pub kernel: String,
    /// Which weights, in words; says so where they are untrained.
    pub weights: String,
    /// False: no identity and no activity is derived from them.
    pub trained: bool,
    /// How caches forget: pattern, precision and policy.
    pub policy: String,
    /// Bytes of caches by the state of their tracks.
    pub active_bytes: u64,
    /// Of lost tracks.
    pub lost_bytes: u64,
    /// Kept for the next tracks.
    pub spare_bytes: u64,
    /// Limit for all of them.
    pub budget_bytes: u64,
    /// Caches of lost tracks given up for the budget, since start.
    pub evicted: u64,
    /// Tracks that got no cache, since start.
    pub refused: u64,
    /// Tokens streamed since start.
    pub tokens: u64,
    /// Tokens the model refused, since start.
    pub failed: u64,
}

/// Everything published as state, at one moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// Zones in the order of the configuration.
    pub zones: Vec<ZoneView>,
    /// Boards in the order of their ids.
    pub nodes: Vec<NodeView>,
    /// People that are followed, oldest first.
    pub tracks: Vec<TrackView>,
    /// Tracks that found no place for a cache, and people that were not followed because too many were, since start.
    pub tracks_refused: [u64; 2],
    /// The temporal head; `None` where it is switched off.
    pub head: Option<HeadView>,
    /// Things that are wrong and want the user's attention, one sentence with the cure each. Empty when all is well.
    pub faults: Vec<String>,
    /// Program version.
    pub version: String,
    /// Start of the program, RFC 3339 with offset.
    pub started: String,
    /// Whole seconds since start.
    pub uptime_s: u64,
    /// Resident memory, bytes.
    pub memory_bytes: u64,
    /// Frames dropped because the sensing thread could not keep up.
    pub frames_dropped: u64,
    /// Input that belongs to no known board, by reason: junk on the port, packets of boards that sent no frame.
    pub strangers: Vec<(String, u64)>,
    /// Recognised packets and lines without raw CSI, by kind, of everybody.
    pub others: Vec<(String, u64)>,
    /// Events in the journal that the broker has not acknowledged.
    pub events_waiting: u64,
    /// Where the frames come from.
    pub source: Provenance,
}
