//! RuView's UDP packets (ADR-018 and its siblings), dispatched on magic number and exact length.
//!
//! Everything is little-endian and packed. Sample pairs are (imaginary, real), as the Wi-Fi driver gives them.

use super::super::shape::{FirstWord, Identity, LayoutRule, Shape, plausible_noise, plausible_rssi};
use super::super::{CsiFrame, Layout, Other, Reject};
use super::{u16_at, u32_at, u64_at, widen};

const RAW_HEADER: usize = 20;
/// The longest buffer the radio gives: HT40 with STBC.
const MAX_BINS: u16 = 306;
const MAX_ANTENNAS: u8 = 4;

/// What kind of packet it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::frame) enum Packet {
    RawCsi,
    /// Board time at a sequence number, microseconds.
    TimeSync {
        seq: u32,
        board_us: u64,
    },
    Other(Other),
}

/// Reads magic number and length; the node id, as far as the packet has one, comes with a reject too.
pub(in crate::frame) fn classify(bytes: &[u8]) -> (u8, Result<Packet, Reject>) {
    if bytes.len() < 4 {
        return (0, Err(Reject::TooShort));
    }
    let id = bytes.get(4).copied().unwrap_or(0);
    match u32_at(bytes, 0) {
        0xC511_0001 => (id, if bytes.len() < RAW_HEADER { Err(Reject::TooShort) } else { Ok(Packet::RawCsi) }),
        0xC511_0002 => (id, exact(bytes, 32, Other::RuviewVitals)),
        0xC511_0003 => (id, exact(bytes, 48, Other::RuviewFeatures)),
        // One magic, two packets. A count that agrees with the length decides: read as a breathing rate it would be at
        // most 0.16 per minute.
        0xC511_0004 if is_wasm(bytes) => (id, Ok(Packet::Other(Other::RuviewWasmEvents))),
        0xC511_0004 => (id, exact(bytes, 48, Other::RuviewFusedVitals)),
        0xC511_0005 => {
            let good = bytes.len() >= 10 && usize::from(u16_at(bytes, 8)) + 10 == bytes.len();
            (id, if good { Ok(Packet::Other(Other::RuviewCompressed)) } else { Err(Reject::BadLength) })
        }
        0xC511_0006 => (id, exact(bytes, 60, Other::RuviewFeatureState).and_then(|packet| summed(bytes, packet))),
        0xC511_0007 if is_wasm(bytes) => (id, Ok(Packet::Other(Other::RuviewWasmEvents))),
        0xC511_0007 => match exact(bytes, 40, Other::RuviewTemporal) {
            Ok(_) if u16_at(bytes, 4) != 1 => (bytes[8], Err(Reject::BadVersion)),
            Ok(packet) => (bytes[8], summed(bytes, packet)),
            Err(reject) => (0, Err(reject)),
        },
        0xC511_0008 => {
            let good = bytes.len() == 40 && bytes[6] <= 3;
            (id, if good { Ok(Packet::Other(Other::RuviewRadarTargets)) } else { Err(Reject::BadLength) })
        }
        0xC511_8100 => mesh(bytes),
        0xC511_A110 => (id, time_sync(bytes)),
        _ => (0, Err(Reject::UnknownMagic)),
    }
}

fn exact(bytes: &[u8], length: usize, other: Other) -> Result<Packet, Reject> {
    if bytes.len() == length { Ok(Packet::Other(other)) } else { Err(Reject::BadLength) }
}

/// The last four bytes are the CRC-32 of all before them.
fn summed(bytes: &[u8], packet: Packet) -> Result<Packet, Reject> {
    let at = bytes.len() - 4;
    if crc32fast::hash(&bytes[..at]) == u32_at(bytes, at) { Ok(packet) } else { Err(Reject::BadChecksum) }
}

fn is_wasm(bytes: &[u8]) -> bool {
    bytes.len() >= 8 && {
        let count = usize::from(u16_at(bytes, 6));
        count <= 16 && count * 5 + 8 == bytes.len()
    }
}

fn mesh(bytes: &[u8]) -> (u8, Result<Packet, Reject>) {
    if bytes.len() < 20 {
        return (0, Err(Reject::BadLength));
    }
    let payload = usize::from(u16_at(bytes, 12));
    // Health and anomaly payloads open with the node id.
    let id = if matches!(bytes[5], 6 | 7) && payload > 0 { bytes[16] } else { 0 };
    if payload > 256 || bytes.len() != payload + 20 {
        return (id, Err(Reject::BadLength));
    }
    if bytes[4] != 1 {
        return (id, Err(Reject::BadVersion));
    }
    (id, summed(bytes, Packet::Other(Other::RuviewMesh)))
}

/// Later versions of the packet only add bytes at the end.
fn time_sync(bytes: &[u8]) -> Result<Packet, Reject> {
    if bytes.len() < 32 {
        return Err(Reject::BadLength);
    }
    if bytes[5] != 1 {
        return Err(Reject::BadVersion);
    }
    Ok(Packet::TimeSync { seq: u32_at(bytes, 24), board_us: u64_at(bytes, 8) })
}

/// Reads a raw CSI packet (at least its header is there) into `frame`.
pub(in crate::frame) fn raw_csi(bytes: &[u8], frame: &mut CsiFrame) -> Result<Shape, Reject> {
    let antennas = bytes[5];
    let bins = u16_at(bytes, 6);
    if antennas == 0 || antennas > MAX_ANTENNAS {
        return Err(Reject::BadAntennas);
    }
    if bins == 0 || bins > MAX_BINS {
        return Err(Reject::BadBins);
    }
    let all_bins = usize::from(antennas) * usize::from(bins);
    if bytes.len() != RAW_HEADER + 2 * all_bins {
        return Err(Reject::BadLength);
    }
    // Only C5 and C61 give 53 bins, and there the buffer is 12-bit packed unless the firmware turned that off, which
    // the packet does not say.
    if bins == 53 {
        return Err(Reject::Packed12Bit);
    }
    let seq = u32_at(bytes, 12);
    frame.seq = Some(seq);
    frame.seq_bits = 32;
    frame.freq_mhz =
        u16::try_from(u32_at(bytes, 8)).ok().filter(|mhz| matches!(mhz, 2412..=2484 | 5000..=5885 | 5925..=7125));
    frame.rssi_dbm = plausible_rssi(i64::from(bytes[16] as i8));
    frame.noise_dbm = plausible_noise(i64::from(bytes[17] as i8));
    let (ppdu, flags) = (bytes[18], bytes[19]);
    // Firmware up to 0.6.5 leaves both bytes 0, so "not HT40" is only known beside a named HE packet.
    let ht40 = if flags & 3 == 1 { Some(true) } else { None };
    frame.bandwidth_mhz = match (flags & 3, ppdu) {
        (1, _) => Some(40),
        (0, 1..=3) => Some(20),
        _ => None,
    };
    widen(&bytes[RAW_HEADER..], &mut frame.values);
    let rule = if antennas > 1 {
        LayoutRule::Fixed(Layout::Unknown(all_bins as u16))
    } else {
        LayoutRule::Classic { secondary: None, ht40, single: Layout::Natural64 }
    };
    let first_word = if flags & 0x20 != 0 { FirstWord::Told(true) } else { FirstWord::Look };
    Ok(Shape { rule, first_word, identity: Identity::Seq(seq, 32) })
}
