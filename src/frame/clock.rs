//! The sensing clock of a live run: wall time at the start plus monotonic time since then.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::types::SensingTime;

/// A clock that never jumps. A host without a battery clock may start in 1970 and be set by NTP a minute later; intervals
/// on this clock stay right, and [`wall_offset_micros`](Self::wall_offset_micros) says what to add for the outside world.
#[derive(Debug, Clone)]
pub struct SensingClock {
    start: Instant,
    wall_at_start_micros: i64,
}

fn wall_micros() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |micros| -micros),
    }
}

impl SensingClock {
    /// Starts the clock at the present wall time.
    pub fn start() -> Self {
        Self { start: Instant::now(), wall_at_start_micros: wall_micros() }
    }

    /// Microseconds since the epoch as believed at the start, advanced monotonically.
    pub fn now(&self) -> SensingTime {
        let elapsed = i64::try_from(self.start.elapsed().as_micros()).unwrap_or(i64::MAX);
        SensingTime(self.wall_at_start_micros).plus_micros(elapsed)
    }

    /// Wall time minus sensing time, microseconds: not 0 once the wall clock was stepped.
    pub fn wall_offset_micros(&self) -> i64 {
        wall_micros().saturating_sub(self.now().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_forward_and_agrees_with_an_unstepped_wall_clock() {
        let clock = SensingClock::start();
        let first = clock.now();
        let second = clock.now();
        assert!(second >= first);
        assert!(clock.wall_offset_micros().abs() < 5_000_000, "{}", clock.wall_offset_micros());
    }
}
