//! The plain data of this stage: zone states, events and requests.

use serde::{Deserialize, Serialize};

use crate::track::PeopleCount;
use crate::types::{Provenance, SensingTime};

/// What makes a zone count as occupied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Somebody moves, or moved within the hold time.
    Motion,
    /// Entered and never seen leaving: held by the dwell rule.
    Dwell,
}

/// State of one zone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ZoneState {
    /// Zone id: a topic-safe name, unique in the configuration.
    pub zone: String,
    /// Somebody is there; `None` while unknown.
    pub occupied: Option<bool>,
    /// Somebody moves; `None` while unknown.
    pub moving: Option<bool>,
    /// Evidence for `occupied`; `None` unless occupied.
    pub why: Option<Why>,
    /// How many people; `None` while `occupied` is unknown.
    pub people: Option<PeopleCount>,
    /// Largest motion score of the zone's links (1.0 = threshold); `None` without a verdict.
    pub score: Option<f32>,
    /// Share of the zone's links that have a verdict, times their coverage: 0 to 1.
    pub quality: f32,
    /// At least one link of the zone was heard within the availability limit.
    pub available: bool,
    /// When `occupied` took its present value.
    pub since: Option<SensingTime>,
    /// Where the frames come from.
    pub source: Provenance,
}

impl ZoneState {
    /// A zone of which nothing is known yet.
    pub const fn unknown(zone: String, source: Provenance) -> Self {
        Self {
            zone,
            occupied: None,
            moving: None,
            why: None,
            people: None,
            score: None,
            quality: 0.0,
            available: false,
            since: None,
            source,
        }
    }
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The zone became occupied.
    Entered,
    /// The zone became empty.
    Left,
    /// Motion began in an occupied zone.
    StartedMoving,
    /// Motion ended while the zone stays occupied.
    Still,
}

impl EventKind {
    /// Every kind, as announced to Home Assistant.
    pub const ALL: [Self; 4] = [Self::Entered, Self::Left, Self::StartedMoving, Self::Still];

    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Entered => "entered",
            Self::Left => "left",
            Self::StartedMoving => "started_moving",
            Self::Still => "still",
        }
    }
}

/// The measurement behind an event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    /// Kind of evidence, or what ran out (`hold_expired`).
    pub why: String,
    /// The link that showed it, as `node` or `node<-transmitter`; absent where a time ran out.
    pub link: Option<String>,
    /// Its motion score (1.0 = threshold).
    pub score: Option<f32>,
}

/// An event as the sensing thread gives it; the journal makes it an [`Event`] with an id.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    /// Zone id.
    pub zone: String,
    /// What happened.
    pub kind: EventKind,
    /// When.
    pub at: SensingTime,
    /// The measurement behind it.
    pub cause: Cause,
    /// Where the frames come from.
    pub source: Provenance,
}

/// One event, as journalled and published.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Unique over restarts; increases with time.
    pub id: String,
    /// Zone id.
    pub zone: String,
    /// What happened.
    pub kind: EventKind,
    /// When, as RFC 3339 with offset.
    pub at: String,
    /// The measurement behind it.
    pub cause: Cause,
    /// Where the frames come from.
    pub source: Provenance,
}

/// A command from outside, on its way to the stage that answers it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum Request {
    /// Read the configuration again.
    Reload,
    /// Change the sensitivity of a zone (0.25 to 4; larger finds weaker motion).
    SetSensitivity {
        /// Zone id.
        zone: String,
        /// Factor on the score.
        value: f32,
    },
    /// Change how long a zone stays occupied after the last motion.
    SetHold {
        /// Zone id.
        zone: String,
        /// Seconds.
        seconds: f32,
    },
    /// Home Assistant said that it is there: announce and repeat everything.
    Announce,
}
