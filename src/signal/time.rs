//! One time axis for the frames of a link and the pipeline's ticks.
//!
//! *In*: arrival times and, where the format has them, the board's own time stamps. *Out*: the time of each frame on the
//! link's axis, and where a tick lies on it. Seconds, from the link's first frame.
//!
//! Between two frames the board's clock is exact to microseconds, while arrival suffers from queues and bursts. So the
//! axis runs with the board's clock as long as that behaves, and is tied to arrival by the smallest delay seen lately
//! (the lower envelope of arrival minus board time, as in network clock estimation: S. B. Moon et al., 1999). The
//! envelope may rise slowly, so that it follows drift. Without a board clock, arrival is the axis.

use crate::types::SensingTime;

/// The envelope may rise by this share of the time that passed; crystals differ by less.
const DRIFT: f64 = 2e-4;
/// The same stamp so often in a row is a clock that stands still.
const FROZEN_AFTER: u32 = 8;
/// Behind its own envelope by more than this…
const LATE_S: f64 = 0.5;
/// …for longer than this, the board's clock does not run like ours: tie it anew.
const LATE_FOR_S: f64 = 5.0;
/// So many such ties, and its clock is not used any more.
const MOST_TIES: u32 = 3;
/// Steps back up to this are reordering, further ones a restart of the board.
const REORDER_S: f64 = 0.1;

/// Time axis of one link.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    origin: SensingTime,
    board: Option<Board>,
    /// Smallest delay: arrival minus axis.
    delay_s: f64,
    last_arrival_s: f64,
    late_since_s: Option<f64>,
    same_stamp: u32,
    ties: u32,
    distrusted: bool,
}

/// The board clock in use.
#[derive(Debug, Clone, Copy)]
struct Board {
    stamp: u64,
    axis_s: f64,
}

impl Axis {
    /// An axis whose 0 is the arrival of the first frame.
    pub(super) fn new(first: SensingTime) -> Self {
        Self {
            origin: first,
            board: None,
            delay_s: 0.0,
            last_arrival_s: 0.0,
            late_since_s: None,
            same_stamp: 0,
            ties: 0,
            distrusted: false,
        }
    }

    /// Where a tick or arrival lies on the axis.
    pub(super) fn at(&self, now: SensingTime) -> f64 {
        now.secs_since(self.origin) - self.delay_s
    }

    /// Time of a frame on the axis. May stand still or step back a little; the series decides what that means.
    pub(super) fn frame(&mut self, arrival: SensingTime, stamp: Option<u64>, bits: u8) -> f64 {
        let arrival_s = arrival.secs_since(self.origin);
        let passed = (arrival_s - self.last_arrival_s).max(0.0);
        self.last_arrival_s = arrival_s;
        let stamp = stamp.filter(|_| !self.distrusted);
        let Some((stamp, board)) = stamp.zip(self.board) else {
            // The first stamp ties the board's clock to the axis where arrival puts it; without stamps it stays so.
            let axis_s = arrival_s - self.delay_s;
            self.board = stamp.map(|stamp| Board { stamp, axis_s });
            return axis_s;
        };
        let step_s = distance(board.stamp, stamp, bits) as f64 / 1e6;
        self.same_stamp = if stamp == board.stamp { self.same_stamp + 1 } else { 0 };
        if self.same_stamp >= FROZEN_AFTER {
            self.distrusted = true;
            return arrival_s - self.delay_s;
        }
        if step_s < -REORDER_S {
            return self.tie(arrival_s, stamp);
        }
        let axis_s = board.axis_s + step_s;
        let delay = arrival_s - axis_s;
        self.board = Some(Board { stamp, axis_s });
        self.delay_s = delay.min(self.delay_s + DRIFT * passed);
        if delay - self.delay_s <= LATE_S {
            self.late_since_s = None;
        } else if arrival_s - *self.late_since_s.get_or_insert(arrival_s) > LATE_FOR_S {
            self.ties += 1;
            self.distrusted = self.ties >= MOST_TIES;
            return self.tie(arrival_s, stamp);
        }
        axis_s
    }

    fn tie(&mut self, arrival_s: f64, stamp: u64) -> f64 {
        let axis_s = arrival_s - self.delay_s;
        self.board = Some(Board { stamp, axis_s });
        self.late_since_s = None;
        axis_s
    }
}

/// Signed distance of two stamps of a counter of `bits` bits.
fn distance(from: u64, to: u64, bits: u8) -> i64 {
    let shift = 64 - u32::from(bits.clamp(1, 64));
    (to.wrapping_sub(from) << shift) as i64 >> shift
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn at(s: f64) -> SensingTime {
        SensingTime::from_secs_f64(1_700_000_000.0 + s)
    }

    #[test]
    fn board_time_takes_the_jitter_out() {
        let mut axis = Axis::new(at(0.0));
        for i in 0..500u32 {
            let sent = f64::from(i) * 0.01;
            let jitter = f64::from(i % 7) * 0.004;
            // Wraps on the way.
            let stamp = u64::from((u32::MAX - 2_000_000).wrapping_add(i * 10_000));
            let t = axis.frame(at(sent + jitter), Some(stamp), 32);
            assert!((t - sent).abs() < 1e-6, "{i}: {t} {sent}");
        }
        assert!((axis.at(at(5.0)) - 5.0).abs() < 0.002);
    }

    #[test]
    fn a_restart_keeps_the_axis_and_a_frozen_clock_is_left() {
        let mut axis = Axis::new(at(0.0));
        axis.frame(at(0.0), Some(90_000_000), 32);
        axis.frame(at(1.0), Some(91_000_000), 32);
        assert!((axis.frame(at(4.0), Some(1_000), 32) - 4.0).abs() < 1e-6, "restart");
        assert!((axis.frame(at(5.0), Some(1_001_000), 32) - 5.0).abs() < 1e-6);
        let mut last = 0.0;
        for i in 0..20 {
            last = axis.frame(at(5.1 + 0.1 * f64::from(i)), Some(1_101_000), 32);
        }
        assert!((last - 7.0).abs() < 1e-3, "{last}");
    }

    #[test]
    fn drift_is_followed_and_a_clock_in_other_units_is_left() {
        let mut axis = Axis::new(at(0.0));
        for i in 0..36_000u64 {
            let t = i as f64 * 0.1;
            // 50 ppm slow.
            let axis_s = axis.frame(at(t), Some((t * 1e6 * (1.0 - 50e-6)) as u64), 64);
            assert!((axis.at(at(t)) - axis_s).abs() < 0.01, "{t}");
        }
        let mut axis = Axis::new(at(0.0));
        let mut last = 0.0;
        for i in 0..600u64 {
            // Milliseconds where microseconds are meant.
            last = axis.frame(at(i as f64 * 0.1), Some(i * 100), 32);
        }
        assert!(axis.distrusted && (last - 59.9).abs() < 0.2, "{last}");
    }

    #[test]
    fn without_stamps_arrival_counts() {
        let mut axis = Axis::new(at(0.0));
        for i in 0..10 {
            let t = f64::from(i) * 0.3;
            assert!((axis.frame(at(t), None, 0) - t).abs() < 1e-6);
        }
        assert!((axis.at(at(3.0)) - 3.0).abs() < 1e-6);
    }
}
