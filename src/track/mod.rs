//! [`LinkFeatures`](crate::signal::LinkFeatures) -> [`PoseTrack`]: who is where, for how long, and how surely.

mod types;

pub use types::{
    CacheSlot, EMBEDDING, EndReason, KEYPOINTS, Keypoint, Lifecycle, LinkShare, PeopleCount, Placement, PoseTrack,
    TrackEnded, TrackId,
};
