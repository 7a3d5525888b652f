//! What a user may turn. The constants of the method are not among it: they hold for all boards or are wrong.

use serde::{Deserialize, Serialize};

/// Settings of the signal stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Factor on the score of every link, beside the zone's own: 2 finds weaker motion, 0.5 only strong. Used within
    /// 0.1 to 10.
    pub sensitivity: f32,
    /// How long the evidence must have been gone before a link stops being "moving", seconds. Used within 0.25 to 30.
    pub release_s: f32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { sensitivity: 1.0, release_s: 1.0 }
    }
}
