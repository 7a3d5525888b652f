//! A piece of input as it was received, before any decoding: what sources hand on and recordings keep.

use std::net::IpAddr;

use crate::types::SensingTime;

/// Input as received, with its time of arrival. A recorder keeps these, a decoder turns them into frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Captured<'a> {
    /// Arrival at the host, on the sensing clock.
    pub at: SensingTime,
    /// Where it came from.
    pub origin: Origin,
    /// The bytes.
    pub payload: Payload<'a>,
}

/// Where a piece of input came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A datagram's sender. The port is the ephemeral one of the sender: kept for recordings, never a key.
    Udp {
        /// Source address.
        addr: IpAddr,
        /// Source port.
        port: u16,
    },
    /// A serial port.
    Serial {
        /// Index among the configured serial sources, or of the text interface in a recording.
        port: u16,
    },
}

/// The bytes of a piece of input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload<'a> {
    /// One datagram.
    Datagram(&'a [u8]),
    /// One line of text without its line ending.
    Line(&'a [u8]),
}
