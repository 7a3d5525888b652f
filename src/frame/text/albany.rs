//! Lines of the albany recordings: host milliseconds and 128 values, with the console's 13,10 in place of every 10.
//!
//! The capture tool read the signed bytes through a console that wrote 13,10 for each 10, and kept the first 128. So a pair
//! 13,10 is one 10, and as many values as there were tens are cut off at the end: those bins are missing, not zero.

use super::super::shape::{FirstWord, Identity, LayoutRule, Shape};
use super::super::{CsiFrame, Layout, Reject, WireFormat};
use super::scan::{self, Separator};
use super::{Found, Other};
use crate::types::SensingTime;

const VALUES: usize = 128;

/// Reads one row.
pub(in crate::frame) fn row(line: &[u8], frame: &mut CsiFrame) -> Found {
    let line = line.trim_ascii();
    if line.is_empty() {
        return Found::Other(Other::Blank);
    }
    parse(line, frame).into()
}

fn parse(line: &[u8], frame: &mut CsiFrame) -> Result<Shape, Reject> {
    let comma = line.iter().position(|&byte| byte == b',').ok_or(Reject::FieldCount)?;
    scan::long_unsigned(&line[..comma]).ok_or(Reject::BadNumber)?;
    frame.format = WireFormat::Albany;
    let values = &mut frame.values;
    scan::array(&line[comma + 1..], Separator::Comma, values)?;
    if values.len() != VALUES {
        return Err(Reject::LengthMismatch);
    }
    scan::check_bytes(values)?;
    let mut kept = 0;
    for i in 0..VALUES {
        if values[i] == 10 && kept > 0 && i > 0 && values[i - 1] == 13 {
            values[kept - 1] = 10;
        } else {
            values[kept] = values[i];
            kept += 1;
        }
    }
    // The last value may be half of a cut pair.
    if values[VALUES - 1] == 13 {
        kept -= 1;
    }
    values.truncate(kept & !1);
    Ok(Shape { rule: LayoutRule::Fixed(Layout::Lltf64), first_word: FirstWord::Told(true), identity: Identity::None })
}

/// The row's own time.
pub(in crate::frame) fn wall_time(line: &[u8]) -> Option<SensingTime> {
    let line = line.trim_ascii();
    let comma = line.iter().position(|&byte| byte == b',')?;
    let ms = scan::long_unsigned(&line[..comma])?;
    Some(SensingTime(ms.checked_mul(1000)?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::types::NodeKey;

    fn decode(values: &[i16]) -> Result<Vec<i16>, Found> {
        let text: Vec<String> = values.iter().map(ToString::to_string).collect();
        let mut frame = CsiFrame::empty(NodeKey::Serial { port: 0 });
        match row(format!("1721500000123,{}", text.join(",")).as_bytes(), &mut frame) {
            Found::Frame(_) => Ok(frame.values),
            other => Err(other),
        }
    }

    #[test]
    fn tens_are_put_right_and_the_lost_tail_is_missing() {
        let mut sent: Vec<i16> = (0..128).map(|i| (i % 7) - 3).collect();
        assert_eq!(decode(&sent).unwrap(), sent);
        sent[20] = 10;
        sent[21] = 13;
        sent[50] = 10;
        let mut written: Vec<i16> = sent.iter().flat_map(|&v| if v == 10 { vec![13, 10] } else { vec![v] }).collect();
        written.truncate(128);
        assert_eq!(decode(&written).unwrap(), sent[..126]);
        // A 13 at the very end is dropped, and with it its pair.
        written[127] = 13;
        assert_eq!(decode(&written).unwrap(), sent[..124]);
        written.pop();
        assert_eq!(decode(&written), Err(Found::Reject(Reject::LengthMismatch)));
    }

    #[test]
    fn time() {
        assert_eq!(wall_time(b"1721500000123,1,2\r"), Some(SensingTime(1_721_500_000_123_000)));
        assert_eq!(wall_time(b"x,1"), None);
    }
}
