//! Settings of the track stage.

use serde::{Deserialize, Serialize};

/// Times, noise and weights of tracking. Values out of their range are used at the end of the range.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// A track is believed once it was seen at every tick for this long, seconds (0.25 to 60).
    pub confirm_after_s: f64,
    /// A track that is not believed yet ends when it was not seen for this long, seconds (0.25 to 60).
    pub doubt_ends_after_s: f64,
    /// A believed track that was not seen for this long is lost, seconds (0.25 to 600).
    pub lost_after_s: f64,
    /// A track that was not seen for this long ends, seconds (at least `lost_after_s`, at most 86400).
    pub terminate_after_s: f64,
    /// While no link has a verdict the times above stand still, but not for longer than this, seconds (0 to 3600).
    pub outage_freeze_s: f64,
    /// Two tracks within `merge_distance_m` of each other for this long are one person, seconds (0.25 to 600).
    pub merge_after_s: f64,
    /// See `merge_after_s`, metres (0.1 to 5).
    pub merge_distance_m: f64,
    /// Most tracks with a cache at a time (1 to 256); twice as many are followed.
    pub max_tracks: u16,
    /// How much people accelerate: root of the spectral density of a white acceleration, m/s^1.5 (0.05 to 10).
    pub acceleration: f64,
    /// Standard deviation of the place of a detection, metres (0.05 to 5).
    pub detection_sigma_m: f64,
    /// Age of what a link says, as a part of the window it looks at (0 to 1).
    pub age_factor: f64,
    /// Probability with which the true detection of a track lies in its gate (0.5 to 0.9999).
    pub gate_probability: f64,
    /// Weight of place in the cost of a pair (0 to 1). Detections have no embedding, so this and the next act where a
    /// young track takes up a lost one: among those within `embedding_distance` that of the lowest cost.
    pub position_weight: f64,
    /// Weight of the embedding in it, 1 at `embedding_distance` (0 to 1). For assignments place has all the weight.
    pub embedding_weight: f64,
    /// A lost track is taken up by a younger one whose embedding has at most this cosine distance (0 to 2).
    pub embedding_distance: f64,
    /// Edge of a cell of the image, metres (0.1 to 1); enlarged where a plan would have more than 1024 cells.
    pub grid_step_m: f64,
    /// A link covers the places that lengthen its way by no more than this, metres (0.05 to 5).
    pub ellipse_excess_m: f64,
    /// Part of a link's reach that does not fall with the distance to its ends: the walls' echoes, 1/m2 (0 to 10).
    pub echo_per_m2: f64,
    /// Weight of smoothness against measurement in the image (0.001 to 100).
    pub regularisation: f64,
    /// Distance over which neighbouring places are alike, metres (0.1 to 5).
    pub correlation_m: f64,
    /// Two people nearer to each other than this are one detection, metres (0.3 to 5).
    pub resolution_m: f64,
    /// Another person is seen only where that lowers the misfit of the image to this part (0.1 to 1).
    pub misfit_ratio: f64,
    /// ... and moves the links by at least this part of what the first one does (0 to 1).
    pub least_share: f64,
    /// Most people that are told apart at one tick in one area (1 to 8).
    pub max_detections: u16,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            confirm_after_s: 1.0,
            doubt_ends_after_s: 0.5,
            lost_after_s: 2.0,
            terminate_after_s: 30.0,
            outage_freeze_s: 60.0,
            merge_after_s: 3.0,
            merge_distance_m: 0.8,
            max_tracks: 32,
            acceleration: 1.5,
            detection_sigma_m: 0.7,
            age_factor: 0.5,
            gate_probability: 0.99,
            position_weight: 0.6,
            embedding_weight: 0.4,
            embedding_distance: 0.3,
            grid_step_m: 0.25,
            ellipse_excess_m: 0.5,
            echo_per_m2: 0.3,
            regularisation: 3.0,
            correlation_m: 1.5,
            resolution_m: 1.2,
            misfit_ratio: 0.6,
            least_share: 0.3,
            max_detections: 3,
        }
    }
}

impl Settings {
    /// With every value within its range; what is no number becomes the default.
    pub(super) fn within_range(&self) -> Self {
        let d = Self::default();
        let f = |value: f64, default: f64, least: f64, most: f64| {
            if value.is_finite() { value.clamp(least, most) } else { default }
        };
        let lost_after_s = f(self.lost_after_s, d.lost_after_s, 0.25, 600.0);
        Self {
            confirm_after_s: f(self.confirm_after_s, d.confirm_after_s, 0.25, 60.0),
            doubt_ends_after_s: f(self.doubt_ends_after_s, d.doubt_ends_after_s, 0.25, 60.0),
            lost_after_s,
            terminate_after_s: f(self.terminate_after_s, d.terminate_after_s, lost_after_s, 86_400.0),
            outage_freeze_s: f(self.outage_freeze_s, d.outage_freeze_s, 0.0, 3600.0),
            merge_after_s: f(self.merge_after_s, d.merge_after_s, 0.25, 600.0),
            merge_distance_m: f(self.merge_distance_m, d.merge_distance_m, 0.1, 5.0),
            max_tracks: self.max_tracks.clamp(1, 256),
            acceleration: f(self.acceleration, d.acceleration, 0.05, 10.0),
            detection_sigma_m: f(self.detection_sigma_m, d.detection_sigma_m, 0.05, 5.0),
            age_factor: f(self.age_factor, d.age_factor, 0.0, 1.0),
            gate_probability: f(self.gate_probability, d.gate_probability, 0.5, 0.9999),
            position_weight: f(self.position_weight, d.position_weight, 0.0, 1.0),
            embedding_weight: f(self.embedding_weight, d.embedding_weight, 0.0, 1.0),
            embedding_distance: f(self.embedding_distance, d.embedding_distance, 0.0, 2.0),
            grid_step_m: f(self.grid_step_m, d.grid_step_m, 0.1, 1.0),
            ellipse_excess_m: f(self.ellipse_excess_m, d.ellipse_excess_m, 0.05, 5.0),
            echo_per_m2: f(self.echo_per_m2, d.echo_per_m2, 0.0, 10.0),
            regularisation: f(self.regularisation, d.regularisation, 0.001, 100.0),
            correlation_m: f(self.correlation_m, d.correlation_m, 0.1, 5.0),
            resolution_m: f(self.resolution_m, d.resolution_m, 0.3, 5.0),
            misfit_ratio: f(self.misfit_ratio, d.misfit_ratio, 0.1, 1.0),
            least_share: f(self.least_share, d.least_share, 0.0, 1.0),
            max_detections: self.max_detections.clamp(1, 8),
        }
    }

    /// Squared Mahalanobis distance at the edge of the gate: chi-square of two degrees of freedom.
    pub(super) fn gate(&self) -> f64 {
        -2.0 * (1.0 - self.gate_probability).ln()
    }
}
