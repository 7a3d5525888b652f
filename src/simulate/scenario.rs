//! [`Scenario`]: rooms, nodes, people and what they do, as plain data (TOML), and the ground truth it implies.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::frame::WireFormat;
use crate::types::MacAddr;

/// What is simulated. Read from TOML with unknown keys refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name for reports.
    pub name: String,
    /// Length in seconds.
    pub duration_s: f64,
    /// Start again at the end, without end. People should be away at both ends.
    #[serde(default)]
    pub repeat: bool,
    /// Wi-Fi channel, 1 to 13.
    #[serde(default = "default_channel")]
    pub channel: u8,
    /// Time of the first second, seconds since the epoch.
    #[serde(default = "default_start")]
    pub start_unix_s: i64,
    /// The receivers and the air.
    #[serde(default)]
    pub radio: RadioSetup,
    /// Rooms; radio does not pass between them.
    pub rooms: Vec<Room>,
    /// Boards.
    pub nodes: Vec<NodeSetup>,
    /// People.
    #[serde(default)]
    pub people: Vec<PersonSetup>,
}

const fn default_channel() -> u8 {
    6
}

/// 2026-01-01T00:00:00Z.
const fn default_start() -> i64 {
    1_767_225_600
}

/// A box-shaped room with an access point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Room {
    /// Zone name.
    pub zone: String,
    /// Length, width, height; a corner is the origin.
    pub size_m: [f64; 3],
    /// Where the transmitter stands.
    pub access_point_m: [f64; 3],
    /// Where people come in.
    pub door_m: [f64; 2],
    /// Stations besides the access point that send to every board of the room. Only text formats name the sender, so
    /// only they can tell these links apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transmitters: Vec<TransmitterSetup>,
}

/// A station that sends.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransmitterSetup {
    /// Where it stands.
    pub position_m: [f64; 3],
    /// Its address, as text formats carry it.
    pub mac: MacAddr,
}

/// What a simulated board sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeFormat {
    /// RuView raw CSI datagrams of an ESP32-S3.
    Adr018,
    /// ESPectre datagrams of an ESP32-C3.
    EspectreV2,
    /// esp-csi 25-field lines of an ESP32 (junk first word).
    EspCsi25,
    /// esp-csi 15-field lines of an ESP32-C6.
    EspCsi15,
    /// ESP32-CSI-Tool lines of an ESP32 (junk first word).
    CsiTool,
}

impl NodeFormat {
    /// The wire format it is decoded as.
    pub const fn wire(self) -> WireFormat {
        match self {
            Self::Adr018 => WireFormat::Adr018,
            Self::EspectreV2 => WireFormat::EspectreV2,
            Self::EspCsi25 => WireFormat::EspCsi25,
            Self::EspCsi15 => WireFormat::EspCsi15,
            Self::CsiTool => WireFormat::CsiTool,
        }
    }

    /// True for formats that come over a serial port.
    pub const fn is_serial(self) -> bool {
        matches!(self, Self::EspCsi25 | Self::EspCsi15 | Self::CsiTool)
    }
}

/// A board.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSetup {
    /// Zone of the room it is in.
    pub zone: String,
    /// Where it stands.
    pub position_m: [f64; 3],
    /// What it sends.
    pub format: NodeFormat,
    /// Id it gives itself (datagram formats).
    #[serde(default)]
    pub node_id: u8,
    /// Its address (datagram formats); text nodes get serial ports in their order.
    pub address: Option<IpAddr>,
    /// Frames a second from each transmitter of the room.
    pub rate_hz: f64,
    /// Error of its clock in parts per million.
    #[serde(default)]
    pub clock_ppm: f64,
}

/// What somebody does for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// Walks about.
    Walk,
    /// Keeps still on the spot, breathing and swaying a little.
    Stand,
    /// Keeps still, breathing only.
    Lie,
}

/// A stretch of somebody's plan; outside of all stretches the person is away.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// From this second on.
    pub from_s: f64,
    /// Until this second.
    pub to_s: f64,
    /// What is done.
    pub doing: Doing,
}

/// A person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PersonSetup {
    /// Zone of the room visited.
    pub zone: String,
    /// Walking speed.
    #[serde(default = "default_speed")]
    pub speed_m_s: f64,
    /// Breaths a minute.
    #[serde(default = "default_breaths")]
    pub breaths_per_min: f64,
    /// Rise and fall of the chest, millimetres from end to end.
    #[serde(default = "default_depth")]
    pub breath_depth_mm: f64,
    /// Points walked to, in turn; random ones if empty. The first is where a person that is there from the start stands.
    #[serde(default)]
    pub via_m: Vec<[f64; 2]>,
    /// The plan, in order of time.
    pub plan: Vec<Phase>,
}

const fn default_speed() -> f64 {
    1.0
}
const fn default_breaths() -> f64 {
    15.0
}
const fn default_depth() -> f64 {
    6.0
}

/// The receivers and the air.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RadioSetup {
    /// Signal to noise ratio of a subcarrier in the empty room, decibels.
    pub snr_db: f64,
    /// Share of single frames lost.
    pub loss: f64,
    /// Bursts of loss a minute, 50 to 300 ms each.
    pub loss_bursts_per_min: f64,
    /// Mean of the exponential delay between board and host, milliseconds.
    pub jitter_ms: f64,
    /// Stalls of the network a minute, 50 to 200 ms each; what waited arrives at once.
    pub stalls_per_min: f64,
    /// Share of frames whose receiver gain is a step off.
    pub gain_flicker: f64,
}

impl Default for RadioSetup {
    fn default() -> Self {
        Self {
            snr_db: 28.0,
            loss: 0.01,
            loss_bursts_per_min: 1.0,
            jitter_ms: 1.0,
            stalls_per_min: 2.0,
            gain_flicker: 0.02,
        }
    }
}

/// What a zone is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Label {
    /// Nobody there.
    Empty,
    /// Somebody walks.
    Motion,
    /// Somebody is there and nobody walks.
    Still,
}

/// A stretch of ground truth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TruthSpan {
    /// From this second on.
    pub from_s: f64,
    /// Until this second.
    pub to_s: f64,
    /// What is true.
    pub label: Label,
    /// Of this zone.
    pub zone: String,
}

/// Most transmitters of a room besides the access point.
pub(super) const MOST_TRANSMITTERS: usize = 16;

/// Why a scenario cannot be simulated.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ScenarioError {
    /// No such preset.
    #[error("unknown scenario `{given}`; expected one of: {known}, or a TOML file")]
    UnknownPreset {
        /// The name as given.
        given: String,
        /// The known names.
        known: String,
    },
    /// A value out of its range.
    #[error("scenario: {what} must be {expected}, got {got}")]
    Value {
        /// The key.
        what: &'static str,
        /// Its range.
        expected: &'static str,
        /// The value.
        got: String,
    },
    /// A zone that no room has.
    #[error("scenario: no room has the zone `{0}`; add a [[rooms]] entry for it or correct the name")]
    UnknownZone(String),
}

impl Scenario {
    /// Checks every value.
    pub fn check(&self) -> Result<(), ScenarioError> {
        let fail = |what, expected, got: String| Err(ScenarioError::Value { what, expected, got });
        let number = |what, expected, value: f64, ok: bool| {
            if ok && value.is_finite() { Ok(()) } else { fail(what, expected, value.to_string()) }
        };
        number("duration_s", "above 0, at most 86400", self.duration_s, (0.001..=86_400.0).contains(&self.duration_s))?;
        if !(1..=13).contains(&self.channel) {
            return fail("channel", "1 to 13", self.channel.to_string());
        }
        if self.start_unix_s.unsigned_abs() > 1 << 40 {
            return fail("start_unix_s", "seconds since the epoch", self.start_unix_s.to_string());
        }
        let r = &self.radio;
        number("radio.snr_db", "0 to 60", r.snr_db, (0.0..=60.0).contains(&r.snr_db))?;
        number("radio.loss", "0 to 1", r.loss, (0.0..=1.0).contains(&r.loss))?;
        number("radio.gain_flicker", "0 to 1", r.gain_flicker, (0.0..=1.0).contains(&r.gain_flicker))?;
        number("radio.jitter_ms", "0 to 1000", r.jitter_ms, (0.0..=1000.0).contains(&r.jitter_ms))?;
        for per_min in [r.loss_bursts_per_min, r.stalls_per_min] {
            number("radio.*_per_min", "0 to 600", per_min, (0.0..=600.0).contains(&per_min))?;
        }
        for room in &self.rooms {
            let s = room.size_m;
            let ok = s.iter().all(|v| (1.0..=100.0).contains(v));
            number("size_m", "three lengths of 1 to 100 m", s[0], ok)?;
            inside("access_point_m", &room.access_point_m, s)?;
            inside("door_m", &room.door_m, s)?;
            let few = room.transmitters.len() <= MOST_TRANSMITTERS;
            number("rooms.transmitters", "at most 16 entries", room.transmitters.len() as f64, few)?;
            for (i, t) in room.transmitters.iter().enumerate() {
                inside("transmitters.position_m", &t.position_m, s)?;
                if room.transmitters[..i].iter().any(|other| other.mac == t.mac) {
                    return fail("transmitters.mac", "different from the others of the room", t.mac.to_string());
                }
            }
        }
        if self.nodes.is_empty() || self.nodes.len() > 64 {
            return fail("nodes", "1 to 64 entries", self.nodes.len().to_string());
        }
        for node in &self.nodes {
            inside("nodes.position_m", &node.position_m, self.room(&node.zone)?.size_m)?;
            number("nodes.rate_hz", "above 0, at most 1000", node.rate_hz, (0.01..=1000.0).contains(&node.rate_hz))?;
            number("nodes.clock_ppm", "-1000 to 1000", node.clock_ppm, node.clock_ppm.abs() <= 1000.0)?;
            if !node.format.is_serial() && node.address.is_none() {
                return fail("nodes.address", "given for datagram formats", "nothing".into());
            }
            if !node.format.is_serial() && !self.room(&node.zone)?.transmitters.is_empty() {
                let what = "nodes.format";
                return fail(what, "a text format where the room has transmitters", node.format.wire().name().into());
            }
        }
        for person in &self.people {
            let size = self.room(&person.zone)?.size_m;
            person.via_m.iter().try_for_each(|p| inside("people.via_m", p, size))?;
            number("people.speed_m_s", "0.05 to 5", person.speed_m_s, (0.05..=5.0).contains(&person.speed_m_s))?;
            let breaths = person.breaths_per_min;
            number("people.breaths_per_min", "0 to 60", breaths, (0.0..=60.0).contains(&breaths))?;
            let depth = person.breath_depth_mm;
            number("people.breath_depth_mm", "0 to 50", depth, (0.0..=50.0).contains(&depth))?;
            let mut end = 0.0;
            for phase in &person.plan {
                let ok = phase.from_s >= end && phase.to_s > phase.from_s && phase.to_s <= self.duration_s;
                number("people.plan.from_s", "in order of time and within the duration", phase.from_s, ok)?;
                end = phase.to_s;
            }
        }
        Ok(())
    }

    /// The same, ended after `duration_s` seconds: plans are cut there.
    #[must_use]
    pub fn shortened(mut self, duration_s: f64) -> Self {
        self.duration_s = self.duration_s.min(duration_s);
        let end = self.duration_s;
        for person in &mut self.people {
            person.plan.retain(|phase| phase.from_s < end);
            person.plan.iter_mut().for_each(|phase| phase.to_s = phase.to_s.min(end));
        }
        self
    }

    pub(super) fn room(&self, zone: &str) -> Result<&Room, ScenarioError> {
        self.rooms.iter().find(|r| r.zone == zone).ok_or_else(|| ScenarioError::UnknownZone(zone.to_owned()))
    }

    /// The truth of every zone over one run of the plan, joined where nothing changes.
    pub fn truth(&self) -> Vec<TruthSpan> {
        let mut spans: Vec<TruthSpan> = Vec::new();
        for room in &self.rooms {
            let phases = || self.people.iter().filter(|p| p.zone == room.zone).flat_map(|p| &p.plan);
            let mut cuts: Vec<f64> = phases().flat_map(|p| [p.from_s, p.to_s]).chain([0.0, self.duration_s]).collect();
            cuts.sort_by(f64::total_cmp);
            cuts.dedup();
            for pair in cuts.windows(2) {
                let middle = (pair[0] + pair[1]) / 2.0;
                let here = || phases().filter(|p| p.from_s <= middle && middle < p.to_s);
                let label = if here().any(|p| p.doing == Doing::Walk) {
                    Label::Motion
                } else if here().next().is_some() {
                    Label::Still
                } else {
                    Label::Empty
                };
                match spans.last_mut() {
                    Some(last) if last.zone == room.zone && last.label == label => last.to_s = pair[1],
                    _ => spans.push(TruthSpan { from_s: pair[0], to_s: pair[1], label, zone: room.zone.clone() }),
                }
            }
        }
        spans
    }
}

fn inside(what: &'static str, point: &[f64], size: [f64; 3]) -> Result<(), ScenarioError> {
    let ok = point.iter().zip(size).all(|(p, s)| (0.0..=s).contains(p));
    let expected = "inside the room";
    if ok { Ok(()) } else { Err(ScenarioError::Value { what, expected, got: format!("{point:?}") }) }
}
