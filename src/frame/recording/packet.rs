//! UDP payloads in captured packets, and the IP and UDP headers that our own recordings put around them.
//!
//! Link types by their registry numbers (www.tcpdump.org/linktypes.html); header layouts of RFC 791, 768, 8200.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

/// Serial lines, one packet a line.
pub(super) const LINK_LINE: u16 = 147;
/// Packets that start with an IP header.
pub(super) const LINK_RAW_IP: u16 = 101;
/// Largest UDP payload that fits an IPv4 packet.
pub(super) const MAX_DATAGRAM: usize = 65_507;

const UDP: u8 = 17;

/// A datagram found in a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Datagram {
    pub(super) source: IpAddr,
    pub(super) source_port: u16,
    pub(super) port: u16,
    /// Where the payload is in the packet.
    pub(super) payload: Range<usize>,
}

/// Why a captured packet gives no datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoDatagram {
    /// Another protocol.
    NotUdp,
    /// Part of a datagram only (IP fragment, or a capture with a short snap length).
    Partial,
    /// A link type whose headers are not known here.
    UnknownLink,
}

/// Finds the UDP payload of `packet`.
pub(super) fn datagram(link: u16, packet: &[u8]) -> Result<Datagram, NoDatagram> {
    let (ether_type, at) = match link {
        0 | 108 => (None, 4),
        1 => {
            let mut at = 12;
            let mut kind = be16(packet, at)?;
            // Up to two VLAN tags.
            for _ in 0..2 {
                if matches!(kind, 0x8100 | 0x88a8 | 0x9100) {
                    at += 4;
                    kind = be16(packet, at)?;
                }
            }
            (Some(kind), at + 2)
        }
        LINK_RAW_IP | 12 | 14 | 228 | 229 => (None, 0),
        113 => (Some(be16(packet, 14)?), 16),
        276 => (Some(be16(packet, 0)?), 20),
        _ => return Err(NoDatagram::UnknownLink),
    };
    if ether_type.is_some_and(|t| t != 0x0800 && t != 0x86dd) {
        return Err(NoDatagram::NotUdp);
    }
    match byte(packet, at)? >> 4 {
        4 => ipv4(packet, at),
        6 => ipv6(packet, at),
        _ => Err(NoDatagram::NotUdp),
    }
}

fn ipv4(packet: &[u8], at: usize) -> Result<Datagram, NoDatagram> {
    let header = usize::from(byte(packet, at)? & 15) * 4;
    if header < 20 || byte(packet, at + 9)? != UDP {
        return Err(NoDatagram::NotUdp);
    }
    if be16(packet, at + 6)? & 0x3fff != 0 {
        return Err(NoDatagram::Partial);
    }
    let source = Ipv4Addr::from(array::<4>(packet, at + 12)?);
    udp(packet, at + header, source.into())
}

fn ipv6(packet: &[u8], at: usize) -> Result<Datagram, NoDatagram> {
    let source = Ipv6Addr::from(array::<16>(packet, at + 8)?);
    let mut next = byte(packet, at + 6)?;
    let mut at = at + 40;
    for _ in 0..8 {
        match next {
            UDP => return udp(packet, at, source.into()),
            // Hop-by-hop, routing, destination options: same shape.
            0 | 43 | 60 => {
                next = byte(packet, at)?;
                at += 8 + 8 * usize::from(byte(packet, at + 1)?);
            }
            44 => return Err(NoDatagram::Partial),
            _ => return Err(NoDatagram::NotUdp),
        }
    }
    Err(NoDatagram::NotUdp)
}

fn udp(packet: &[u8], at: usize, source: IpAddr) -> Result<Datagram, NoDatagram> {
    let length = usize::from(be16(packet, at + 4)?);
    if length < 8 || packet.len() < at + length {
        return Err(NoDatagram::Partial);
    }
    Ok(Datagram { source, source_port: be16(packet, at)?, port: be16(packet, at + 2)?, payload: at + 8..at + length })
}

fn byte(packet: &[u8], at: usize) -> Result<u8, NoDatagram> {
    packet.get(at).copied().ok_or(NoDatagram::Partial)
}

fn be16(packet: &[u8], at: usize) -> Result<u16, NoDatagram> {
    array::<2>(packet, at).map(u16::from_be_bytes)
}

fn array<const N: usize>(packet: &[u8], at: usize) -> Result<[u8; N], NoDatagram> {
    packet.get(at..at + N).and_then(|s| s.try_into().ok()).ok_or(NoDatagram::Partial)
}

/// Writes IP and UDP headers and `payload` into `out` (cleared first). The destination is the unspecified address: which
/// of the host's addresses the datagram came to is not kept.
pub(super) fn wrap(out: &mut Vec<u8>, source: IpAddr, source_port: u16, port: u16, payload: &[u8]) {
    out.clear();
    // Callers keep payloads at or below MAX_DATAGRAM.
    let udp_len = (payload.len() + 8) as u16;
    // Sum of the pseudo header (addresses, protocol, length).
    let mut sum = u32::from(UDP) + u32::from(udp_len);
    match source {
        IpAddr::V4(v4) => {
            let mut header = [0u8; 20];
            header[0] = 0x45;
            header[2..4].copy_from_slice(&(udp_len + 20).to_be_bytes());
            header[6] = 0x40; // do not fragment
            header[8] = 64;
            header[9] = UDP;
            header[12..16].copy_from_slice(&v4.octets());
            let check = !fold(add(0, &header));
            header[10..12].copy_from_slice(&check.to_be_bytes());
            sum = add(sum, &v4.octets());
            out.extend_from_slice(&header);
        }
        IpAddr::V6(v6) => {
            let mut header = [0u8; 40];
            header[0] = 0x60;
            header[4..6].copy_from_slice(&udp_len.to_be_bytes());
            header[6] = UDP;
            header[7] = 64;
            header[8..24].copy_from_slice(&v6.octets());
            sum = add(sum, &v6.octets());
            out.extend_from_slice(&header);
        }
    }
    let mut header = [0u8; 8];
    header[0..2].copy_from_slice(&source_port.to_be_bytes());
    header[2..4].copy_from_slice(&port.to_be_bytes());
    header[4..6].copy_from_slice(&udp_len.to_be_bytes());
    sum = add(add(sum, &header), payload);
    // Zero would mean "no checksum" (RFC 768), so it is sent as all ones.
    let check = match !fold(sum) {
        0 => 0xffff,
        c => c,
    };
    header[6..8].copy_from_slice(&check.to_be_bytes());
    out.extend_from_slice(&header);
    out.extend_from_slice(payload);
}

/// Adds big-endian words to a ones' complement sum. 65,535 bytes cannot overflow the 32 bits.
fn add(sum: u32, bytes: &[u8]) -> u32 {
    bytes.chunks(2).fold(sum, |s, w| s + (u32::from(w[0]) << 8) + w.get(1).map_or(0, |&b| u32::from(b)))
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn wrapped_datagrams_come_back_with_right_checksums() {
        for source in ["192.0.2.7", "2001:db8::7"] {
            let source: IpAddr = source.parse().unwrap();
            for payload in [&b""[..], b"x", b"hello", &[0xff; 1400]] {
                let mut packet = Vec::new();
                wrap(&mut packet, source, 40000, 5005, payload);
                let found = datagram(LINK_RAW_IP, &packet).unwrap();
                assert_eq!((found.source, found.source_port, found.port), (source, 40000, 5005));
                assert_eq!(&packet[found.payload.clone()], payload);
                // A sum over everything that is covered, checksum included, is all ones.
                let at = found.payload.start - 8;
                let mut sum = add(u32::from(UDP) + payload.len() as u32 + 8, &packet[at..]);
                sum = match source {
                    IpAddr::V4(a) => {
                        assert_eq!(fold(add(0, &packet[..20])), 0xffff);
                        add(sum, &a.octets())
                    }
                    IpAddr::V6(a) => add(sum, &a.octets()),
                };
                assert_eq!(fold(sum), 0xffff);
            }
        }
    }

    #[test]
    fn link_types_of_tcpdump() {
        let mut ip = Vec::new();
        wrap(&mut ip, "10.0.0.9".parse().unwrap(), 1, 5005, b"abc");
        let with = |prefix: &[u8]| [prefix, &ip].concat();
        let ethernet = with(&[1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 8, 0]);
        let vlan = with(&[1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 0x81, 0, 0, 5, 8, 0]);
        let sll = with(&[0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 8, 0]);
        let sll2 = with(&[8, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0]);
        let null = with(&[2, 0, 0, 0]);
        for (link, packet) in [(1, &ethernet), (1, &vlan), (113, &sll), (276, &sll2), (0, &null), (12, &ip), (228, &ip)]
        {
            let found = datagram(link, packet).unwrap();
            assert_eq!(&packet[found.payload], b"abc", "link type {link}");
        }
        assert_eq!(datagram(105, &ip), Err(NoDatagram::UnknownLink));
        assert_eq!(datagram(LINK_RAW_IP, &ip[..ip.len() - 1]), Err(NoDatagram::Partial));
        let mut tcp = ip.clone();
        tcp[9] = 6;
        assert_eq!(datagram(LINK_RAW_IP, &tcp), Err(NoDatagram::NotUdp));
        let mut fragment = ip.clone();
        fragment[6] = 0x20;
        assert_eq!(datagram(LINK_RAW_IP, &fragment), Err(NoDatagram::Partial));
        let arp = [&ethernet[..12], &[8, 6], &ethernet[14..]].concat();
        assert_eq!(datagram(1, &arp), Err(NoDatagram::NotUdp));
    }
}
