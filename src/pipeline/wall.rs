//! Wall-clock times, where they leave the program: RFC 3339 with the offset of the local time zone.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::types::SensingTime;

/// A sensing time as RFC 3339 with milliseconds and offset. `wall_offset_micros` is wall clock minus sensing clock:
/// zero for recordings, and for a host whose clock was never set since the start.
pub fn rfc3339(at: SensingTime, wall_offset_micros: i64) -> String {
    let micros = at.0.saturating_add(wall_offset_micros);
    let stamp = Timestamp::from_microsecond(micros).unwrap_or(Timestamp::UNIX_EPOCH);
    stamp.to_zoned(TimeZone::system()).strftime("%Y-%m-%dT%H:%M:%S%.3f%:z").to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_time_has_an_offset_and_names_the_same_instant() {
        let text = rfc3339(SensingTime(1_700_000_000_123_456), 0);
        assert!(text.contains('T') && text.len() == "2023-11-14T22:13:20.123+00:00".len(), "{text}");
        let parsed: Timestamp = text.parse().unwrap();
        assert_eq!(parsed.as_millisecond(), 1_700_000_000_123);
        let shifted: Timestamp = rfc3339(SensingTime(1_700_000_000_123_456), 3_600_000_000).parse().unwrap();
        assert_eq!(shifted.as_second(), 1_700_003_600);
        assert!(rfc3339(SensingTime(i64::MAX), 1).starts_with("1970"), "a time that no calendar has");
    }
}
