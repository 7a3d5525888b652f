//! esp-csi-rs array lists: `[n,n,…,csi_len,[v,v,…]]`, 22 numbers before the array on classic chips, 24 on C6.

use super::super::shape::{FirstWord, Identity, LayoutRule, Shape, plausible_noise, plausible_rssi};
use super::super::{Chip, CsiFrame, Layout, Reject, WireFormat};
use super::Found;
use super::scan::{self, Separator, counter, within};

const CLASSIC: usize = 22;
const C6: usize = 24;

/// Reads a line that begins with a bracket; `None` if it is not of this kind at all.
pub(super) fn line(body: &[u8], frame: &mut CsiFrame) -> Option<Found> {
    let inner = body[1..].iter().position(|&byte| byte == b'[')? + 1;
    // Log lines in brackets have letters where this has numbers.
    let head = body[1..inner].strip_suffix(b",")?;
    if head.iter().any(|byte| !matches!(byte, b'0'..=b'9' | b'-' | b',' | b' ')) {
        return None;
    }
    Some(parse(head, &body[inner + 1..], frame).into())
}

fn parse(head: &[u8], array: &[u8], frame: &mut CsiFrame) -> Result<Shape, Reject> {
    let mut fields = [&head[..0]; C6];
    let mut count = 0;
    for field in head.split(|&byte| byte == b',') {
        if count < C6 {
            fields[count] = field.trim_ascii();
        }
        count += 1;
    }
    if count != CLASSIC && count != C6 {
        return Err(Reject::FieldCount);
    }
    for field in &fields[..count] {
        scan::integer(field).ok_or(Reject::BadNumber)?;
    }
    let array = array.trim_ascii_end();
    let Some(values) = array.strip_suffix(b"]]") else {
        return Err(if scan::foreign(array) { Reject::Interleaved } else { Reject::Truncated });
    };
    frame.format = WireFormat::EspCsiRs;
    frame.seq = Some(counter(fields[0])?);
    frame.seq_bits = 32;
    frame.rssi_dbm = plausible_rssi(within(fields[1], -128, 127)?);
    frame.noise_dbm = plausible_noise(within(fields[3], -128, 255)?);
    let channel = within(fields[4], 0, 233)?;
    frame.channel = u8::try_from(channel).ok().filter(|&channel| channel != 0);
    let stamp = counter(fields[5])?;
    frame.device_us = Some(u64::from(stamp));
    frame.device_us_bits = 32;
    let rule = if count == C6 {
        frame.chip = Some(Chip::Esp32C6);
        LayoutRule::Ascending
    } else {
        let secondary = within(fields[8], 0, 2)? as u8;
        let ht40 = within(fields[14], 0, 1)? == 1;
        frame.bandwidth_mhz = Some(if ht40 { 40 } else { 20 });
        LayoutRule::Classic { secondary: Some(secondary), ht40: Some(ht40), single: Layout::Natural64 }
    };
    let len = within(fields[count - 1], 1, CsiFrame::MAX_VALUES as i64)? as usize;
    scan::array(values, Separator::Comma, &mut frame.values)?;
    if frame.values.len() != len || !len.is_multiple_of(2) {
        return Err(Reject::LengthMismatch);
    }
    scan::check_bytes(&frame.values)?;
    Ok(Shape { rule, first_word: FirstWord::Look, identity: Identity::Stamp(u64::from(stamp)) })
}
