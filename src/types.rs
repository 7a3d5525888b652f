//! Small plain types that every stage may use: times, addresses, keys.
//!
//! Nothing here has state, a lock or a handle; everything is `Clone`, comparable and serialisable.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A point on the sensing clock: microseconds since the Unix epoch, by a clock that never jumps.
///
/// Live, the clock is the host's wall time at start plus the monotonic time since then, so that an NTP step neither
/// creates nor ends an event. In a replay it is the recording's own time. The difference to the wall clock is added
/// where a time leaves the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SensingTime(pub i64);

impl SensingTime {
    /// From seconds since the epoch.
    pub fn from_secs_f64(secs: f64) -> Self {
        Self((secs * 1e6).round() as i64)
    }

    /// Seconds from `earlier` to `self`; negative if `earlier` is later.
    pub fn secs_since(self, earlier: Self) -> f64 {
        self.0.wrapping_sub(earlier.0) as f64 / 1e6
    }

    /// This time moved by `micros` microseconds, saturating at the ends of the range.
    pub fn plus_micros(self, micros: i64) -> Self {
        Self(self.0.saturating_add(micros))
    }
}

/// A MAC address; displayed in lower-case hex with colons.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddr(pub [u8; 6]);

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text is not a MAC address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a MAC address as six hexadecimal bytes with colons (aa:bb:cc:dd:ee:ff), got `{0}`")]
pub struct ParseMacError(pub String);

impl MacAddr {
    /// Parses `aa:bb:cc:dd:ee:ff` (either case) without allocating.
    pub fn parse_bytes(text: &[u8]) -> Option<Self> {
        if text.len() != 17 {
            return None;
        }
        let mut mac = [0u8; 6];
        for (i, byte) in mac.iter_mut().enumerate() {
            let hi = (text[3 * i] as char).to_digit(16)?;
            let lo = (text[3 * i + 1] as char).to_digit(16)?;
            if i < 5 && text[3 * i + 2] != b':' {
                return None;
            }
            *byte = (hi * 16 + lo) as u8;
        }
        Some(Self(mac))
    }
}

impl FromStr for MacAddr {
    type Err = ParseMacError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse_bytes(text.as_bytes()).ok_or_else(|| ParseMacError(text.to_owned()))
    }
}

impl Serialize for MacAddr {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MacAddr {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Which board a frame came from.
///
/// A node id alone is not a key: old firmware lets every board call itself 1. A source port is not one either, it is
/// ephemeral. So UDP nodes are keyed by (address, node id) and serial nodes by the port they hang on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeKey {
    /// A board that sends datagrams.
    Udp {
        /// Source address of its datagrams.
        addr: IpAddr,
        /// The id it gives itself (0 for formats that carry none).
        id: u8,
    },
    /// A board on a serial port (or a text recording of one).
    Serial {
        /// Index of the port among the configured serial sources, or of the text interface in a recording.
        port: u16,
    },
}

impl fmt::Display for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp { addr, id } => write!(f, "{addr}/{id}"),
            Self::Serial { port } => write!(f, "serial{port}"),
        }
    }
}

/// Where the frames come from. Shown beside every state, so that nothing simulated is ever taken for sensed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provenance {
    /// Live boards.
    #[default]
    Sensed,
    /// A recording of real boards.
    Recorded,
    /// The physical simulator.
    Simulated,
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sensed => "sensed",
            Self::Recorded => "recorded",
            Self::Simulated => "simulated",
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn mac_round_trip_and_refusals() {
        let mac: MacAddr = "3C:71:bf:6d:2A:78".parse().unwrap();
        assert_eq!(mac.to_string(), "3c:71:bf:6d:2a:78");
        for bad in
            ["", "3c:71:bf:6d:2a", "3c:71:bf:6d:2a:7", "3c-71-bf-6d-2a-78", "zz:71:bf:6d:2a:78", "3c:71:bf:6d:2a:788"]
        {
            assert!(bad.parse::<MacAddr>().is_err(), "{bad}");
        }
    }
}
