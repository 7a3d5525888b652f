//! Times of text lines: from the lines themselves, on one clock that never goes back.
//!
//! *In*: lines in file order. *Out*: a time for each. *State*: the last clock reading and the time given for it.
//!
//! Clocks, by preference: the host's wall time where lines carry it; the radio's 32-bit microseconds; the board's
//! milliseconds since boot. Lines without a clock (log text, broken lines) take the last time. Repairs, each counted:
//! - the radio's clock wraps after 71.6 minutes: the difference is taken modulo 2^32;
//! - a step back of up to 1 s (stations or tasks interleaved) gives the last time again;
//! - a larger step back, or one forward beyond any pause, must be confirmed by the next line, else it was a damaged
//!   number and is ignored. Confirmed backwards it is a reboot: how long it took is not known, time goes on 1 s later.

use super::Notes;
use super::format::find;
use crate::frame::{LineHint, line_wall_time};
use crate::types::SensingTime;

const SMALL_STEP_BACK_US: i64 = 1_000_000;
const REBOOT_STEP_US: i64 = 1_000_000;
/// A pause of the board's clock beyond this is not believed at first.
const LONG_PAUSE_US: i64 = 600_000_000;
/// The same for the host's clock, which may well sleep over night.
const LONG_WALL_PAUSE_US: i64 = 86_400_000_000;

/// One reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clock {
    /// Microseconds since the epoch.
    Wall(i64),
    /// Radio microseconds, 32 bits.
    Radio(u32),
    /// Microseconds since boot, no wrap.
    Boot(i64),
}

impl Clock {
    fn same_kind(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }

    /// Microseconds from `earlier` to `self`.
    fn since(self, earlier: Self) -> i64 {
        match (self, earlier) {
            (Self::Wall(a), Self::Wall(b)) | (Self::Boot(a), Self::Boot(b)) => a.saturating_sub(b),
            (Self::Radio(a), Self::Radio(b)) => i64::from(a.wrapping_sub(b) as i32),
            _ => 0,
        }
    }

    fn believable(self, earlier: Self) -> bool {
        let limit = if matches!(self, Self::Wall(_)) { LONG_WALL_PAUSE_US } else { LONG_PAUSE_US };
        (-SMALL_STEP_BACK_US..=limit).contains(&self.since(earlier))
    }
}

/// The clock of one text recording.
pub(super) struct TextClock {
    hint: LineHint,
    rate_hz: Option<f64>,
    start: SensingTime,
    now: SensingTime,
    wall: bool,
    data_lines: u64,
    last: Option<Clock>,
    /// A reading too far off to believe without a second one.
    pending: Option<Clock>,
}

/// No line carries a time.
pub(super) struct NoClock;

impl TextClock {
    /// `head` is the beginning of the recording: it tells which clock there is, and the time of lines before the first
    /// reading.
    pub(super) fn new(
        head: &[u8],
        hint: LineHint,
        rate_hz: Option<f64>,
        start: Option<SensingTime>,
    ) -> Result<Self, NoClock> {
        let lines = || head.split(|&b| b == b'\n');
        let first_wall = lines().find_map(|l| line_wall_time(l, hint)).filter(|_| rate_hz.is_none());
        let begin = start.or(first_wall).unwrap_or_default();
        let no_clock = || first_wall.is_none() && !lines().any(|l| board_clock(l).is_some());
        if rate_hz.is_none() && no_clock() && lines().any(|l| is_data(l, hint)) {
            return Err(NoClock);
        }
        Ok(Self {
            hint,
            rate_hz,
            start: begin,
            now: begin,
            wall: first_wall.is_some() && start.is_none(),
            data_lines: 0,
            last: first_wall.map(|t| Clock::Wall(t.0)),
            pending: None,
        })
    }

    /// True if the times are the host's.
    pub(super) fn is_wall(&self) -> bool {
        self.wall
    }

    /// The time of `line`.
    pub(super) fn time(&mut self, line: &[u8], notes: &mut Notes) -> SensingTime {
        if let Some(rate) = self.rate_hz {
            if is_data(line, self.hint) {
                self.now = self.start.plus_micros((self.data_lines as f64 * 1e6 / rate).round() as i64);
                self.data_lines += 1;
            }
            return self.now;
        }
        let reading = match self.last {
            Some(Clock::Wall(_)) => line_wall_time(line, self.hint).map(|t| Clock::Wall(t.0)),
            _ => board_clock(line),
        };
        if let Some(reading) = reading {
            self.step(reading, notes);
        }
        self.now
    }

    fn step(&mut self, reading: Clock, notes: &mut Notes) {
        let Some(last) = self.last else {
            self.last = Some(reading);
            return;
        };
        if !reading.same_kind(last) {
            return;
        }
        let delta = reading.since(last);
        if !reading.believable(last) {
            if self.pending.is_some_and(|p| reading.believable(p)) {
                if delta < 0 {
                    notes.clock_restarts += 1;
                }
                self.now = self.now.plus_micros(if delta < 0 { REBOOT_STEP_US } else { delta });
                self.last = Some(reading);
                self.pending = None;
            } else {
                notes.odd_times += 1;
                self.pending = Some(reading);
            }
            return;
        }
        self.pending = None;
        if delta > 0 {
            if matches!((last, reading), (Clock::Radio(a), Clock::Radio(b)) if b < a) {
                notes.clock_wraps += 1;
            }
            self.now = self.now.plus_micros(delta);
            self.last = Some(reading);
        }
    }
}

/// True for lines that are meant as data, whole or not.
fn is_data(line: &[u8], hint: LineHint) -> bool {
    let line = line.trim_ascii_start();
    if hint != LineHint::Auto {
        return line.first().is_some_and(u8::is_ascii_digit) || (hint == LineHint::Ialr && find(line, b",").is_some());
    }
    line.starts_with(b"CSIRAW ") || line.starts_with(b"[") || find(line, b"CSI_DATA,").is_some()
}

/// The board's clock in a line, by the field positions of the wire-format tables.
fn board_clock(line: &[u8]) -> Option<Clock> {
    let line = line.trim_ascii_start();
    if let Some(rest) = line.strip_prefix(b"CSIRAW ") {
        let ms: i64 = integer(rest.split(|&b| b == b' ').nth(1)?)?;
        return (ms >= 0).then(|| Clock::Boot(ms.saturating_mul(1000)));
    }
    let (rest, index) = if let Some(rest) = line.strip_prefix(b"[") {
        (rest, 5)
    } else {
        let rest = &line[find(line, b"CSI_DATA,")?..];
        let array = rest.iter().position(|&b| b == b'[').unwrap_or(rest.len());
        let index = match rest[..array].iter().filter(|&&b| b == b',').count() {
            24 | 25 => 18,
            14 => 9,
            27 | 29 => 21,
            _ => return None,
        };
        (rest, index)
    };
    // Printed as signed by some firmware.
    let value = integer(rest.split(|&b| b == b',').nth(index)?)?;
    let whole = i64::from(i32::MIN)..=i64::from(u32::MAX);
    whole.contains(&value).then_some(Clock::Radio(value as u32))
}

fn integer(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn line(us: i64) -> String {
        format!("CSI_DATA,0,94:d9:b3:80:8c:81,-30,11,1,6,1,0,1,0,1,0,0,-93,0,13,2,{us},0,67,0,4,1,\"[1,2,3,4]\"")
    }

    fn times(readings: &[i64]) -> (Vec<i64>, Notes) {
        let head = line(readings[0]);
        let Ok(mut clock) = TextClock::new(head.as_bytes(), LineHint::Auto, None, None) else { panic!("no clock") };
        let mut notes = Notes::default();
        let times = readings.iter().map(|&us| clock.time(line(us).as_bytes(), &mut notes).0).collect();
        (times, notes)
    }

    #[test]
    fn wraps_steps_back_and_reboots() {
        // Wrap, signed print, a small step back.
        let (t, n) = times(&[4_294_960_000, 2_704, 12_704, 11_704, 22_704]);
        assert_eq!(t, [0, 10_000, 20_000, 20_000, 30_000]);
        assert_eq!((n.clock_wraps, n.clock_restarts, n.odd_times), (1, 0, 0));
        let (t, _) = times(&[2_147_483_640, -2_147_483_646, -2_147_483_000]);
        assert_eq!(t, [0, 10, 656]);
        // One damaged number changes nothing; two lines after a reboot go on a second later.
        let (t, n) = times(&[50_000_000, 50_010_000, 5_001, 50_020_000, 300_000, 310_000, 320_000]);
        assert_eq!(t, [0, 10_000, 10_000, 20_000, 20_000, 1_020_000, 1_030_000]);
        assert_eq!((n.clock_restarts, n.odd_times), (1, 2));
    }

    #[test]
    fn each_form_has_its_clock_and_text_without_one_says_so() {
        let six = "CSI_DATA,7,1a:00:00:00:00:00,-23,11,-96,32,4,11,372852,47,0,4,0,\"[0,0,1,1]\"";
        assert_eq!(board_clock(six.as_bytes()), Some(Clock::Radio(372_852)));
        assert_eq!(board_clock(b"CSIRAW 4535 87596 -40 128 00"), Some(Clock::Boot(87_596_000)));
        assert_eq!(board_clock(b"[1,-40,11,-95,6,123456,0]"), Some(Clock::Radio(123_456)));
        assert_eq!(board_clock(b"I (331) wifi: up"), None);
        assert!(TextClock::new(b"CSI_DATA,1,2\nCSI_DATA,3,4\n", LineHint::Auto, None, None).is_err());
        let mut notes = Notes::default();
        let Ok(mut c) = TextClock::new(b"CSI_DATA,1,2\n", LineHint::Auto, Some(50.0), Some(SensingTime(7))) else {
            panic!()
        };
        let t: Vec<i64> = [&b"CSI_DATA,1,2"[..], b"log", b"CSI_DATA,3,4"].map(|l| c.time(l, &mut notes).0).into();
        assert_eq!(t, [7, 7, 20_007]);
    }
}
