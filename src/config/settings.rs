//! [`Settings`]: every section, each declared by the module that it is for.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::event::{self, ZoneSettings};
use crate::pipeline::{NodeSettings, TransmitterSettings};
use crate::{frame, head, mqtt, signal, telemetry, track, web};

/// The version of the configuration format that this program reads.
pub const VERSION: u32 = 1;

/// The whole configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Version of the format, 1.
    pub version: u32,
    /// Where journal, inventory and tuning live. Under systemd the service's state directory wins over the default.
    pub state_dir: Option<PathBuf>,
    /// Log.
    pub log: telemetry::Settings,
    /// Sources of frames.
    pub frames: frame::Settings,
    /// Motion detection.
    pub signal: signal::Settings,
    /// Tracks.
    pub track: track::Settings,
    /// The temporal head and its caches.
    pub head: head::Settings,
    /// Hold and dwell.
    pub occupancy: event::Settings,
    /// Boards with names; boards that are not listed work too.
    pub node: Vec<NodeSettings>,
    /// Places of the stations whose packets the boards measure.
    pub transmitter: Vec<TransmitterSettings>,
    /// Zones; without any there is one, "Home", that every board watches.
    pub zone: Vec<ZoneSettings>,
    /// The broker.
    pub mqtt: mqtt::Settings,
    /// The read-only HTTP server.
    pub web: web::Settings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            version: VERSION,
            state_dir: None,
            log: telemetry::Settings::default(),
            frames: frame::Settings::default(),
            signal: signal::Settings::default(),
            track: track::Settings::default(),
            head: head::Settings::default(),
            occupancy: event::Settings::default(),
            node: Vec::new(),
            transmitter: Vec::new(),
            zone: Vec::new(),
            mqtt: mqtt::Settings::default(),
            web: web::Settings::default(),
        }
    }
}

impl Settings {
    /// The zones in force: those configured, or one that every board watches.
    pub fn zones(&self) -> Vec<ZoneSettings> {
        if self.zone.is_empty() {
            vec![ZoneSettings { name: "Home".to_owned(), ..ZoneSettings::default() }]
        } else {
            self.zone.clone()
        }
    }

    /// Names of the serial ports, in the order of their indices.
    pub fn serial_ports(&self) -> Vec<String> {
        self.frames.serial.iter().map(|s| s.port.display().to_string()).collect()
    }

    /// The state directory in force: configured, else systemd's, else the user's.
    pub fn state_dir(&self) -> PathBuf {
        let systemd = || {
            let list = std::env::var_os("STATE_DIRECTORY")?;
            std::env::split_paths(&list).next()
        };
        let user = || {
            let home = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
            home.or_else(|| std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".local/state")))
                .map(|d| d.join("aetherd"))
        };
        self.state_dir.clone().or_else(systemd).or_else(user).unwrap_or_else(|| PathBuf::from("/var/lib/aetherd"))
    }
}
