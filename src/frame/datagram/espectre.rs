//! ESPectre's UDP packets: the streaming datagrams of v2 and the 64-byte records of v3.
//!
//! All begin with the little-endian 16-bit magic 0x4353, and no packet says which header it has: v3 shows itself by version
//! and header length, the headers of v2 by the exact length of the datagram.

use super::super::shape::{FirstWord, Identity, LayoutRule, Shape, plausible_noise, plausible_rssi};
use super::super::{Chip, CsiFrame, Layout, Reject};
use super::{u16_at, u32_at, u64_at, widen};

const MAGIC: [u8; 2] = [0x53, 0x43];
/// Header of a v3 record.
pub(in crate::frame) const RECORD_HEADER: usize = 64;
const MAX_BINS: usize = 306;

pub(in crate::frame) fn has_magic(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// Whether the bytes begin with a v3 record. The third byte of a v2 header is a chip (0 to 6) or a number of bins, of which
/// 7 and 8 do not occur.
pub(in crate::frame) fn is_record(bytes: &[u8]) -> bool {
    has_magic(bytes) && bytes.len() >= 4 && matches!(bytes[2], 7 | 8) && usize::from(bytes[3]) == RECORD_HEADER
}

fn chip(byte: u8) -> Option<Chip> {
    Some(match byte {
        1 => Chip::Esp32,
        2 => Chip::Esp32S2,
        3 => Chip::Esp32S3,
        4 => Chip::Esp32C3,
        5 => Chip::Esp32C5,
        6 => Chip::Esp32C6,
        _ => return None,
    })
}

fn rule(chip: Option<Chip>) -> LayoutRule {
    match chip {
        Some(Chip::Esp32C5 | Chip::Esp32C6 | Chip::Esp32C61) => LayoutRule::Ascending,
        // The firmware switches the legacy field off and asks for HT20.
        Some(_) => LayoutRule::Classic { secondary: Some(0), ht40: None, single: Layout::HtLtf64 },
        None => LayoutRule::UNKNOWN_CHIP,
    }
}

/// Reads a v2 datagram into `frame`.
pub(in crate::frame) fn stream(bytes: &[u8], frame: &mut CsiFrame) -> Result<Shape, Reject> {
    if bytes.len() < 4 {
        return Err(Reject::TooShort);
    }
    let fits = |header: usize, bins: usize| bins > 0 && bins <= MAX_BINS && bytes.len() == header + 2 * bins;
    let (header, chip_byte, seq) = if bytes.len() >= 7 && fits(7, usize::from(u16_at(bytes, 5))) {
        (7, bytes[2], bytes[4])
    } else if bytes.len() >= 6 && fits(6, usize::from(u16_at(bytes, 4))) {
        (6, bytes[2], bytes[3])
    } else if fits(4, usize::from(bytes[2])) {
        (4, 0, bytes[3])
    } else {
        return Err(Reject::BadLength);
    };
    frame.chip = chip(chip_byte);
    frame.seq = Some(u32::from(seq));
    frame.seq_bits = 8;
    widen(&bytes[header..], &mut frame.values);
    Ok(Shape { rule: rule(frame.chip), first_word: FirstWord::Look, identity: Identity::Seq(u32::from(seq), 8) })
}

/// Length of the v3 record that `bytes` begin with, measured from its own header.
pub(in crate::frame) fn record_len(bytes: &[u8]) -> Result<usize, Reject> {
    if bytes.len() < RECORD_HEADER {
        return Err(Reject::TooShort);
    }
    let length = RECORD_HEADER + usize::from(u16_at(bytes, 12));
    if bytes.len() < length { Err(Reject::BadLength) } else { Ok(length) }
}

/// Reads one v3 record, cut to its length, into `frame`.
pub(in crate::frame) fn record(bytes: &[u8], frame: &mut CsiFrame) -> Result<Shape, Reject> {
    let flags = bytes[5];
    let seq = u32_at(bytes, 6);
    let bins = usize::from(u16_at(bytes, 10));
    let csi_bytes = usize::from(u16_at(bytes, 12));
    if bins == 0 || bins > MAX_BINS {
        return Err(Reject::BadBins);
    }
    if csi_bytes != 2 * bins {
        return Err(Reject::LengthMismatch);
    }
    frame.chip = chip(bytes[4]);
    frame.seq = Some(seq);
    frame.seq_bits = 32;
    if flags & 2 != 0 {
        frame.device_us = Some(u64::from(u32_at(bytes, 30)));
        frame.device_us_bits = 32;
    } else {
        frame.device_us = Some(u64_at(bytes, 22));
        frame.device_us_bits = 64;
    }
    frame.channel = Some(bytes[42]).filter(|channel| (1..=177).contains(channel));
    frame.rssi_dbm = plausible_rssi(i64::from(bytes[43] as i8));
    frame.noise_dbm = plausible_noise(i64::from(bytes[44] as i8));
    widen(&bytes[RECORD_HEADER..], &mut frame.values);
    Ok(Shape { rule: rule(frame.chip), first_word: FirstWord::Told(flags & 1 != 0), identity: Identity::Seq(seq, 32) })
}
