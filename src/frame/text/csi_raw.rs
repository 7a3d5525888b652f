//! `CSIRAW <seq> <ms since boot> <rssi> <len> <hex>`: signed bytes as hexadecimal text.

use super::super::shape::{FirstWord, Identity, LayoutRule, Shape, plausible_rssi};
use super::super::{CsiFrame, Reject, WireFormat};
use super::scan::{counter, within};

/// Reads the line that `body` begins with; gives also how many bytes it took.
pub(super) fn line(body: &[u8], frame: &mut CsiFrame) -> Result<(Shape, usize), Reject> {
    frame.format = WireFormat::CsiRaw;
    let mut at = super::CSI_RAW.len();
    let mut field = || {
        let rest = body.get(at..).unwrap_or_default();
        let n = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
        at += n + 1;
        &rest[..n]
    };
    let [seq, ms, rssi, len] = [field(), field(), field(), field()];
    let Some(rest) = body.get(at..) else { return Err(Reject::Truncated) };
    let seq = counter(seq)?;
    let ms = counter(ms)?;
    frame.rssi_dbm = plausible_rssi(within(rssi, -128, 127)?);
    let len = within(len, 1, CsiFrame::MAX_VALUES as i64)? as usize;
    frame.seq = Some(seq);
    frame.seq_bits = 32;
    // The firmware's milliseconds step with its 10 ms tick; unwrapped they would take 49 days, so the width is nominal.
    frame.device_us = Some(u64::from(ms) * 1000);
    frame.device_us_bits = 64;

    let end = rest.iter().position(|byte| byte.is_ascii_whitespace()).unwrap_or(rest.len());
    let hex = &rest[..end];
    if hex.len() < 2 * len {
        let clean = hex.iter().all(u8::is_ascii_hexdigit);
        return Err(if clean { Reject::Truncated } else { Reject::BadHex });
    }
    if hex.len() > 2 * len {
        let clean = hex.iter().all(u8::is_ascii_hexdigit);
        return Err(if clean { Reject::LengthMismatch } else { Reject::Interleaved });
    }
    if !len.is_multiple_of(2) {
        return Err(Reject::LengthMismatch);
    }
    for pair in hex.chunks_exact(2) {
        let (Some(high), Some(low)) = (nibble(pair[0]), nibble(pair[1])) else { return Err(Reject::BadHex) };
        frame.values.push(i16::from((high << 4 | low) as i8));
    }
    let shape = Shape { rule: LayoutRule::UNKNOWN_CHIP, first_word: FirstWord::Look, identity: Identity::Seq(seq, 32) };
    Ok((shape, at + end))
}

fn nibble(byte: u8) -> Option<u8> {
    Some(match byte {
        b'0'..=b'9' => byte - b'0',
        b'a'..=b'f' => byte - b'a' + 10,
        b'A'..=b'F' => byte - b'A' + 10,
        _ => return None,
    })
}
