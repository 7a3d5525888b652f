//! Rows of the IALR recordings:
//! `session_id,host_unix_us,timestamp_us,label,esp_label,settling,rssi,num_subcarriers,amp_0,…`.

use super::super::shape::{FirstWord, Identity, LayoutRule, Shape, plausible_rssi};
use super::super::{CsiFrame, Layout, Reject, SampleKind, WireFormat};
use super::scan::{self, Separator, counter, within};
use super::{Found, Other};
use crate::types::SensingTime;

const COLUMNS: usize = 8;

/// The fields before the amplitudes, and the amplitudes' text.
fn split(line: &[u8]) -> Option<([&[u8]; COLUMNS], &[u8])> {
    let mut fields = [&line[..0]; COLUMNS];
    let mut rest = line;
    for field in &mut fields {
        let comma = rest.iter().position(|&byte| byte == b',')?;
        *field = &rest[..comma];
        rest = &rest[comma + 1..];
    }
    Some((fields, rest))
}

/// Reads one row.
pub(in crate::frame) fn row(line: &[u8], frame: &mut CsiFrame) -> Found {
    let line = line.trim_ascii();
    if line.is_empty() {
        return Found::Other(Other::Blank);
    }
    if line.starts_with(b"session_id,") {
        return Found::Other(Other::Header);
    }
    parse(line, frame).into()
}

fn parse(line: &[u8], frame: &mut CsiFrame) -> Result<Shape, Reject> {
    let (fields, amplitudes) = split(line).ok_or(Reject::FieldCount)?;
    frame.format = WireFormat::IalrAmplitude;
    frame.kind = SampleKind::Amplitude;
    scan::long_unsigned(fields[1]).ok_or(Reject::BadNumber)?;
    let stamp = counter(fields[2])?;
    frame.device_us = Some(u64::from(stamp));
    frame.device_us_bits = 32;
    frame.rssi_dbm = plausible_rssi(within(fields[6], -128, 127)?);
    let bins = within(fields[7], 1, CsiFrame::MAX_VALUES as i64)? as usize;
    scan::array(amplitudes, Separator::Comma, &mut frame.values)?;
    if frame.values.len() != bins {
        return Err(Reject::LengthMismatch);
    }
    // The amplitude of a pair of signed bytes is at most 181.
    if frame.values.iter().any(|v| !(0..=181).contains(v)) {
        return Err(Reject::ValueRange);
    }
    let layout = match bins {
        64 => Layout::Natural64,
        128 => Layout::LltfHt128,
        _ => return Err(Reject::UnknownLayout),
    };
    Ok(Shape {
        rule: LayoutRule::Fixed(layout),
        first_word: FirstWord::Told(false),
        identity: Identity::Stamp(u64::from(stamp)),
    })
}

/// The row's own time at the host.
pub(in crate::frame) fn wall_time(line: &[u8]) -> Option<SensingTime> {
    let (fields, _) = split(line)?;
    scan::long_unsigned(fields[1]).map(SensingTime)
}
