//! The plain data of this stage.

use serde::{Deserialize, Serialize};

use crate::types::SensingTime;

/// Numbers in a re-identification embedding.
pub const EMBEDDING: usize = 128;
/// Keypoints of a body in the COCO order.
pub const KEYPOINTS: usize = 17;

/// Identity of a track, unique for the life of the process and increasing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TrackId(pub u64);

/// The place of a track's key/value cache in the head's pool. Handed out by the tracker when a track becomes active and
/// taken back when it ends; no two living tracks hold the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CacheSlot(pub u16);

/// Where a track is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifecycle {
    /// Seen, not yet believed.
    Tentative,
    /// Followed.
    Active,
    /// Not seen for a while; may be found again.
    Lost,
}

/// A place in the plane with its uncertainty.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// Metres in the plan's coordinates.
    pub position_m: [f64; 2],
    /// Metres per second.
    pub velocity_m_s: [f64; 2],
    /// One standard deviation of the position along its longer axis, metres.
    pub sigma_m: f64,
}

/// How much a link says about a track: its share of the track's evidence. The shares of a track sum to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LinkShare {
    /// Index into the link features of the tick.
    pub link: u16,
    /// 0 to 1.
    pub share: f32,
}

/// One joint of a body.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Keypoint {
    /// Metres in the plan's coordinates, height last.
    pub position_m: [f32; 3],
    /// 0 to 1.
    pub confidence: f32,
}

/// One person that is followed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PoseTrack {
    /// Identity.
    pub id: TrackId,
    /// Where it is in its life.
    pub lifecycle: Lifecycle,
    /// Index of the zone it is in.
    pub zone: u16,
    /// Place in the plane; `None` without geometry.
    pub placement: Option<Placement>,
    /// First seen.
    pub born: SensingTime,
    /// Last seen (a detection was assigned).
    pub seen: SensingTime,
    /// Its cache in the head's pool; from active to the end.
    pub slot: Option<CacheSlot>,
    /// Which links speak of it, and how much.
    pub links: Vec<LinkShare>,
    /// Re-identification embedding of unit length, from trained weights only.
    pub embedding: Option<Vec<f32>>,
    /// Joints; `None` until a trained pose model exists.
    pub keypoints: Option<[Keypoint; KEYPOINTS]>,
}

/// Why a track ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// Never believed.
    NotConfirmed,
    /// Lost for longer than the lost window.
    TimedOut,
    /// It was the same person as the other track, which goes on. The older cache survives.
    MergedInto(TrackId),
    /// Configuration changed, or the tracker was reset.
    Reset,
}

/// The end of a track.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrackEnded {
    /// Which.
    pub track: TrackId,
    /// When.
    pub at: SensingTime,
    /// Why.
    pub reason: EndReason,
    /// The slot it gives back, if it had one.
    pub slot: Option<CacheSlot>,
}

/// How many people a zone holds, as far as the links can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeopleCount {
    /// The number.
    pub people: u16,
    /// What the number is: true for "at least" this many. From the tracker it is always true, for nobody as well: who
    /// stands near others or does not move is not told apart.
    pub at_least: bool,
}
