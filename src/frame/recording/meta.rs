//! What a recording says about itself: the JSON in the comment of its section header.

use serde::{Deserialize, Serialize};

use super::Reader;
use crate::frame::LineHint;
use crate::types::Provenance;

/// Version of the conventions of our own recordings.
pub const FORMAT_VERSION: u32 = 1;

/// A board named in a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEntry {
    /// Key as displayed (`192.0.2.1/3`, `serial0`).
    pub key: String,
    /// The user's name for it.
    pub name: String,
    /// The zone it watches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

/// A source of text lines in a recording. Its place in the list is the port number of the lines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SerialPort {
    /// Name of the port or file.
    pub name: String,
    /// What the line decoder has to know.
    #[serde(default)]
    pub hint: LineHint,
}

/// Description of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingMeta {
    /// [`FORMAT_VERSION`] of the writer.
    pub aetherd_recording: u32,
    /// Where the frames came from when they were written.
    pub provenance: Provenance,
    /// False if the times count from an unknown start and not from the epoch.
    #[serde(default = "yes")]
    pub wall_clock: bool,
    /// Free text of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Hash of the settings in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings_hash: Option<String>,
    /// The form it was imported from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported_from: Option<String>,
    /// Boards known at the time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeEntry>,
    /// Text sources, by port number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub serial: Vec<SerialPort>,
    /// UDP port the datagrams came to.
    #[serde(default = "default_port")]
    pub udp_port: u16,
}

const fn yes() -> bool {
    true
}

const fn default_port() -> u16 {
    5005
}

impl RecordingMeta {
    /// A description with nothing but the provenance.
    pub fn new(provenance: Provenance) -> Self {
        Self {
            aetherd_recording: FORMAT_VERSION,
            provenance,
            wall_clock: true,
            label: None,
            settings_hash: None,
            imported_from: None,
            nodes: Vec::new(),
            serial: Vec::new(),
            udp_port: default_port(),
        }
    }

    /// The description for an import of `reader`: what the source says of itself, or its name, format and ports.
    pub fn of_import(reader: &Reader) -> Self {
        let mut meta = reader.meta().cloned().unwrap_or_else(|| Self::new(Provenance::Recorded));
        meta.aetherd_recording = FORMAT_VERSION;
        meta.provenance = reader.provenance();
        meta.wall_clock = reader.wall_clock();
        meta.imported_from.get_or_insert_with(|| reader.format().name().to_owned());
        if meta.serial.is_empty() {
            meta.serial = reader.ports().to_vec();
        }
        meta
    }
}
