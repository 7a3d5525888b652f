//! Settings of the event stage.

use serde::{Deserialize, Serialize};

/// Hold and dwell, for zones that do not set their own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// A zone stays occupied this long after the last motion, in seconds (1 to 3600).
    pub hold_s: f32,
    /// After the hold, a visit with enough motion in it keeps the zone occupied this much longer, in seconds
    /// (0 to 7200, 0 = off). The evidence is then named `dwell`.
    pub dwell_s: f32,
    /// How much motion a visit needs before the dwell rule holds it, in seconds.
    pub dwell_min_motion_s: f32,
    /// An event `still` is given once motion has been absent this long, in seconds.
    pub still_after_s: f32,
    /// A zone is unavailable once none of its boards was heard for this long, in seconds.
    pub unavailable_after_s: f32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { hold_s: 30.0, dwell_s: 60.0, dwell_min_motion_s: 5.0, still_after_s: 10.0, unavailable_after_s: 60.0 }
    }
}

/// One zone as configured.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ZoneSettings {
    /// Display name, for example "Living room".
    pub name: String,
    /// Topic-safe id; made from the name where it is not given. Keep it when you rename a zone.
    pub id: Option<String>,
    /// Area in Home Assistant.
    pub area: Option<String>,
    /// Names or ids of the boards that watch this zone; empty = every board.
    pub nodes: Vec<String>,
    /// Overrides `occupancy.hold_s` for this zone.
    pub hold_s: Option<f32>,
    /// Overrides `occupancy.dwell_s` for this zone.
    pub dwell_s: Option<f32>,
    /// Factor on the motion score, 0.25 to 4; larger finds weaker motion.
    pub sensitivity: Option<f32>,
}

impl ZoneSettings {
    /// The id in force: the configured one, or one made of the name.
    pub fn effective_id(&self) -> String {
        self.id.clone().unwrap_or_else(|| slug(&self.name))
    }
}

/// Lower-case letters, digits and single underscores; what may stand in a topic and in a Home Assistant id.
pub fn slug(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        let c = match c {
            'ä' | 'Ä' | 'à' | 'á' | 'â' | 'å' => 'a',
            'ö' | 'Ö' | 'ò' | 'ó' | 'ô' => 'o',
            'ü' | 'Ü' | 'ù' | 'ú' | 'û' => 'u',
            'é' | 'è' | 'ê' | 'ë' | 'É' => 'e',
            'ß' => 's',
            'ñ' => 'n',
            'ç' => 'c',
            c => c.to_ascii_lowercase(),
        };
        if c.is_ascii_alphanumeric() {
            out.push(c);
        } else if !out.is_empty() && !out.ends_with('_') {
            out.push('_');
        }
    }
    while out.ends_with('_') {
        out.pop();
    }
    if out.is_empty() { "zone".to_owned() } else { out }
}
