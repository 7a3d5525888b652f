//! [`LinkFeatures`](crate::signal::LinkFeatures) -> [`PoseTrack`]: who is where, for how long, and how surely.
//!
//! *In*: the features of all links at a tick, and once per link the zones it watches and where it runs. *Out*: tracks,
//! their ends, and people counts. *State*: see `tracker`. The method and its figures are in `docs/tracking.md`.
//!
//! Where at least three links of a zone cross: `plan` (areas) -> `image` (detections) -> `area` with `assign` and `kalman`
//! (which detection is whose). Elsewhere a track is that of a zone. Both ways: `life` (the named times), `slots`.

mod area;
mod assign;
mod image;
mod kalman;
mod life;
mod plan;
mod settings;
mod slots;
mod tracker;
mod types;

pub use plan::LinkPlace;
pub use settings::Settings;
pub use tracker::{Tracker, TrackerStats};
pub use types::{
    CacheSlot, EMBEDDING, EndReason, KEYPOINTS, Keypoint, Lifecycle, LinkShare, PeopleCount, Placement, PoseTrack,
    TrackEnded, TrackId,
};
