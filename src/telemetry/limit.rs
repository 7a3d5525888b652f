//! Repeated messages: one per interval, with the count of those held back.

use std::time::{Duration, Instant};

/// Lets one message per interval through and counts the rest.
#[derive(Debug)]
pub struct Repeats {
    interval: Duration,
    last: Option<Instant>,
    held_back: u64,
}

impl Repeats {
    /// One message per `interval`.
    pub const fn every(interval: Duration) -> Self {
        Self { interval, last: None, held_back: 0 }
    }

    /// `Some(n)` if the message may be written now, after `n` that were held back.
    pub fn allow(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|t| now.duration_since(t) < self.interval) {
            self.held_back += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_per_interval_and_none_uncounted() {
        let start = Instant::now();
        let mut repeats = Repeats::every(Duration::from_secs(10));
        assert_eq!(repeats.allow(start), Some(0));
        for s in 1..10 {
            assert_eq!(repeats.allow(start + Duration::from_secs(s)), None);
        }
        assert_eq!(repeats.allow(start + Duration::from_secs(10)), Some(9));
        assert_eq!(repeats.allow(start + Duration::from_secs(21)), Some(0));
    }
}
