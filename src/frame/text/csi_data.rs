//! `CSI_DATA` lines: esp-csi (25 and 15 fields), esp-radar (30 and 28) and ESP32-CSI-Tool (26, with host time 27).

use super::super::shape::{FirstWord, Identity, LayoutRule, Shape, plausible_noise, plausible_rssi};
use super::super::{CsiFrame, Layout, Reject, WireFormat};
use super::base64_field;
use super::scan::{self, Separator, counter, within};
use crate::types::{MacAddr, SensingTime};

const MAX_FIELDS: usize = 31;
/// Longest buffer in bytes, with room for what newer chips may give.
const MAX_LEN: i64 = CsiFrame::MAX_VALUES as i64;

/// The fields before the array (or all, where the array is base64).
struct Fields<'a> {
    fields: [&'a [u8]; MAX_FIELDS],
    count: usize,
}

impl<'a> Fields<'a> {
    fn split(text: &'a [u8]) -> Self {
        let mut fields = [&text[..0]; MAX_FIELDS];
        let mut count = 0;
        for field in text.split(|&byte| byte == b',') {
            if count < MAX_FIELDS {
                fields[count] = field;
            }
            count += 1;
        }
        Self { fields, count }
    }

    fn at(&self, index: usize) -> &'a [u8] {
        self.fields[index]
    }

    /// Something in the fields that no field holds: text of another line.
    fn foreign(&self) -> bool {
        self.fields[..self.count.min(MAX_FIELDS)]
            .iter()
            .any(|f| f.iter().any(|b| !b.is_ascii_alphanumeric() && !b".:-_+/=\" ".contains(b)) || f.contains(&b' '))
    }
}

/// Where the columns of a format are.
struct Columns {
    format: WireFormat,
    seq: Option<usize>,
    mac: usize,
    rssi: usize,
    noise: usize,
    channel: usize,
    /// HT40 flag and side of the secondary channel.
    width: Option<(usize, usize)>,
    stamp: usize,
    gains: Option<(usize, usize)>,
    len: usize,
    first_word: Option<usize>,
    /// Columns that are no number, or of no known form.
    free: &'static [usize],
}

const ESP_CSI_25: Columns = Columns {
    format: WireFormat::EspCsi25,
    seq: Some(1),
    mac: 2,
    rssi: 3,
    noise: 14,
    channel: 16,
    width: Some((7, 17)),
    stamp: 18,
    gains: None,
    len: 22,
    first_word: Some(23),
    free: &[0, 2, 24],
};

const ESP_CSI_15: Columns = Columns {
    format: WireFormat::EspCsi15,
    seq: Some(1),
    mac: 2,
    rssi: 3,
    noise: 5,
    channel: 8,
    width: None,
    stamp: 9,
    gains: Some((7, 6)),
    len: 12,
    first_word: Some(13),
    free: &[0, 2, 14],
};

const ESP_RADAR_30: Columns = Columns {
    format: WireFormat::EspRadar,
    seq: Some(1),
    mac: 5,
    rssi: 6,
    noise: 17,
    channel: 19,
    width: Some((10, 20)),
    stamp: 21,
    gains: Some((25, 26)),
    len: 27,
    first_word: Some(28),
    free: &[0, 2, 3, 4, 5, 29],
};

const ESP_RADAR_28: Columns =
    Columns { gains: None, len: 25, first_word: Some(26), free: &[0, 2, 3, 4, 5, 27], ..ESP_RADAR_30 };

const CSI_TOOL: Columns = Columns {
    format: WireFormat::CsiTool,
    seq: None,
    mac: 2,
    rssi: 3,
    noise: 14,
    channel: 16,
    width: Some((7, 17)),
    stamp: 18,
    gains: None,
    len: 24,
    first_word: None,
    free: &[0, 1, 2, 23, 25],
};

/// Reads the `CSI_DATA` line that `body` begins with; gives also how many bytes it took.
pub(super) fn line(body: &[u8], frame: &mut CsiFrame) -> Result<(Shape, usize), Reject> {
    let Some(open) = body.iter().position(|&byte| byte == b'[') else {
        return without_array(body, frame);
    };
    let quoted = body[open - 1] == b'"';
    let fields = Fields::split(&body[..open]);
    let columns = match (fields.count, quoted) {
        (25, _) => &ESP_CSI_25,
        (15, _) => &ESP_CSI_15,
        (30, _) => &ESP_RADAR_30,
        (28, _) => &ESP_RADAR_28,
        (26, false) => &CSI_TOOL,
        _ => return Err(if fields.foreign() { Reject::Interleaved } else { Reject::FieldCount }),
    };
    let inside = &body[open + 1..];
    let Some(close) = inside.iter().position(|&byte| byte == b']') else {
        return Err(if scan::foreign(inside.trim_ascii_end()) { Reject::Interleaved } else { Reject::Truncated });
    };
    let (shape, len) = header(&fields, columns, frame)?;
    let separator = if columns.format == WireFormat::CsiTool { Separator::Space } else { Separator::Comma };
    scan::array(&inside[..close], separator, &mut frame.values)?;
    let shape = check(shape, columns.format, len, frame)?;

    let mut end = open + 1 + close + 1;
    if quoted && body.get(end) == Some(&b'"') {
        end += 1;
    }
    if columns.format == WireFormat::CsiTool {
        end += host_time(&body[end..]).map_or(0, |(_, consumed)| consumed);
    }
    Ok((shape, end))
}

/// A line without an opening bracket: base64, or cut before the array.
fn without_array(body: &[u8], frame: &mut CsiFrame) -> Result<(Shape, usize), Reject> {
    let fields = Fields::split(body.trim_ascii_end());
    let columns = match fields.count {
        30 => &ESP_RADAR_30,
        28 => &ESP_RADAR_28,
        _ if fields.foreign() => return Err(Reject::Interleaved),
        n if n < 30 => return Err(Reject::Truncated),
        _ => return Err(Reject::FieldCount),
    };
    let (shape, len) = header(&fields, columns, frame)?;
    base64_field::decode(fields.at(fields.count - 1), len, &mut frame.values)?;
    Ok((check(shape, columns.format, len, frame)?, body.len()))
}

/// Reads all columns but the array. Every numeric column must be a number: a line with a damaged one has lost bytes, and
/// may have lost some of the array too.
fn header(fields: &Fields<'_>, columns: &Columns, frame: &mut CsiFrame) -> Result<(Shape, usize), Reject> {
    for index in 0..fields.count {
        if !columns.free.contains(&index) && scan::integer(fields.at(index)).is_none() {
            return Err(if fields.foreign() { Reject::Interleaved } else { Reject::BadNumber });
        }
    }
    frame.format = columns.format;
    frame.transmitter = Some(MacAddr::parse_bytes(fields.at(columns.mac)).ok_or(Reject::BadMac)?);
    frame.rssi_dbm = plausible_rssi(within(fields.at(columns.rssi), -128, 127)?);
    frame.noise_dbm = plausible_noise(within(fields.at(columns.noise), -128, 255)?);
    let channel = within(fields.at(columns.channel), 0, 233)?;
    frame.channel = u8::try_from(channel).ok().filter(|&channel| channel != 0);
    if let Some(seq) = columns.seq {
        frame.seq = Some(counter(fields.at(seq))?);
        frame.seq_bits = 32;
    }
    let stamp = counter(fields.at(columns.stamp))?;
    frame.device_us = Some(u64::from(stamp));
    frame.device_us_bits = 32;
    if let Some((agc, fft)) = columns.gains {
        frame.agc_gain = Some(within(fields.at(agc), -1024, 1024)? as i16);
        frame.fft_gain = Some(within(fields.at(fft), -1024, 1024)? as i16);
    }
    let len = within(fields.at(columns.len), 1, MAX_LEN)? as usize;
    let first_word = match columns.first_word {
        Some(column) => FirstWord::Told(within(fields.at(column), 0, 1)? == 1),
        // ESP32-CSI-Tool has no such column, and bins 0 and 1 are junk in every recording of it.
        None => FirstWord::Told(true),
    };
    let rule = match columns.width {
        None => LayoutRule::Ascending,
        Some((width, side)) => {
            let ht40 = within(fields.at(width), 0, 1)? == 1;
            frame.bandwidth_mhz = Some(if ht40 { 40 } else { 20 });
            let secondary = within(fields.at(side), 0, 2)? as u8;
            LayoutRule::Classic { secondary: Some(secondary), ht40: Some(ht40), single: Layout::Lltf64 }
        }
    };
    Ok((Shape { rule, first_word, identity: Identity::Stamp(u64::from(stamp)) }, len))
}

/// Checks the array against `len` and the range of the format.
fn check(shape: Shape, format: WireFormat, len: usize, frame: &CsiFrame) -> Result<Shape, Reject> {
    let values = &frame.values;
    // With "LLTF only" the ESP32-CSI-Tool prints 128 numbers and still the length of the whole buffer.
    let lltf_only = format == WireFormat::CsiTool && values.len() == 128 && len > 128;
    if (values.len() != len && !lltf_only) || !values.len().is_multiple_of(2) {
        return Err(Reject::LengthMismatch);
    }
    if format != WireFormat::EspCsi15 {
        scan::check_bytes(values)?;
        return Ok(shape);
    }
    match values.len() {
        // Forced LLTF: 12-bit numbers, already put together by the firmware.
        52 if values.iter().all(|v| (-2048..=2047).contains(v)) => {
            Ok(Shape { rule: LayoutRule::Fixed(Layout::ForcedLltf26), ..shape })
        }
        52 => Err(Reject::ValueRange),
        // The same buffer printed byte by byte shows itself: every second byte is the top of a 12-bit number.
        106 if values.iter().skip(1).step_by(2).all(|v| matches!(v, 0 | 1 | 14 | 15 | -1 | -2)) => {
            Err(Reject::Packed12Bit)
        }
        _ => Ok(shape),
    }
}

/// `,<unix seconds>` behind the array, as host helpers append it.
fn host_time(tail: &[u8]) -> Option<(SensingTime, usize)> {
    let digits = tail.strip_prefix(b",")?;
    let end = digits.iter().position(|&byte| !matches!(byte, b'0'..=b'9' | b'.')).unwrap_or(digits.len());
    let text = std::str::from_utf8(&digits[..end]).ok()?;
    let secs: f64 = text.parse().ok()?;
    Some((SensingTime::from_secs_f64(secs), end + 1))
}

/// The time that a host helper appended to the line.
pub(in crate::frame) fn appended_time(line: &[u8]) -> Option<SensingTime> {
    let close = line.iter().rposition(|&byte| byte == b']')?;
    host_time(&line[close + 1..]).map(|(time, _)| time)
}
