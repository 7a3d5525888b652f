//! What the signal stage says about one link, four times a second.

use serde::{Deserialize, Serialize};

use crate::frame::LinkKey;
use crate::types::SensingTime;

/// Why there is no verdict. Unknown is a value: it is never shown as "quiet".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoVerdict {
    /// Not enough frames yet since the series began.
    WarmingUp,
    /// Less than 70 % of the expected frames of the window arrived.
    Gaps,
    /// Frames arrive too slowly for the statistic to have any power.
    RateTooLow,
    /// The measurement is mostly receiver noise or otherwise unusable.
    LinkTooPoor,
    /// The link has been silent.
    Silent,
}

/// The link's verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Something moves.
    Moving,
    /// Enough data, and nothing in it that moves.
    Still,
    /// No statement.
    None(NoVerdict),
}

/// State of one link at one tick (every 250 ms of sensing time).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkFeatures {
    /// Which series.
    pub link: LinkKey,
    /// The tick.
    pub at: SensingTime,
    /// Verdict after hysteresis and release.
    pub verdict: Verdict,
    /// Evidence of motion, scaled so that 1.0 is the switching-on threshold at the default sensitivity. `None` exactly
    /// when the verdict is `None`.
    pub score: Option<f32>,
    /// Natural logarithm of the change of the profile over about a tenth of a second, in units of receiver noise; 0 is
    /// noise alone. `None` where it could not be measured.
    pub change: Option<f32>,
    /// The same while nobody moves, as far as this link has learned it.
    pub quiet: Option<f32>,
    /// Frames per second this link has delivered lately.
    pub rate_hz: f32,
    /// Frames in the window as a share of those expected, 0 to 1.
    pub coverage: f32,
    /// Mean received signal strength over the window, where the format carries it.
    pub rssi_dbm: Option<f32>,
}

/// Lags of [`LinkChange`], seconds.
pub const CHANGE_LAGS_S: [f64; 4] = [0.05, 0.1, 0.2, 0.4];
/// Smooth components of the profile across the bins that [`LinkChange`] looks at.
pub const CHANGE_COMPONENTS: usize = 3;

/// What one link's profile did at a fused frame: the raw material of a track's token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkChange {
    /// Squared change of each smooth component over each lag, in units of what receiver noise alone gives: 1 is noise.
    /// A lag without frames to compare is NaN.
    pub change: [[f32; CHANGE_COMPONENTS]; CHANGE_LAGS_S.len()],
}
