//! How many frames per second a link delivers.
//!
//! Random loss lowers the rate, a stall does not: intervals beyond eight times the median are left out, so that the
//! share of frames missing in a window can still be told.

use std::collections::VecDeque;

/// Intervals looked at, seconds before the newest frame.
const SPAN_S: f64 = 10.0;
/// Most intervals kept; above 200 frames per second the span is shorter.
const MOST: usize = 2048;
/// Fewer intervals give no rate.
const LEAST: usize = 5;
/// No interval up to this long is a stall, seconds.
const NO_STALL_S: f64 = 0.25;
const STALL_MEDIANS: f64 = 8.0;

/// Intervals of one segment.
#[derive(Debug, Clone)]
pub(super) struct Rate {
    intervals: VecDeque<(f64, f64)>,
    sorted: Vec<f64>,
}

impl Rate {
    pub(super) fn new() -> Self {
        Self { intervals: VecDeque::with_capacity(MOST), sorted: Vec::with_capacity(MOST) }
    }

    pub(super) fn clear(&mut self) {
        self.intervals.clear();
    }

    /// A frame at `t_s`, `interval_s` after the one before.
    pub(super) fn add(&mut self, t_s: f64, interval_s: f64) {
        if self.intervals.len() == MOST {
            self.intervals.pop_front();
        }
        self.intervals.push_back((t_s, interval_s));
        while self.intervals.front().is_some_and(|i| i.0 < t_s - SPAN_S) {
            self.intervals.pop_front();
        }
    }

    /// Frames per second, or `None` where there are too few intervals.
    pub(super) fn hz(&mut self) -> Option<f64> {
        if self.intervals.len() < LEAST {
            return None;
        }
        self.sorted.clear();
        self.sorted.extend(self.intervals.iter().map(|i| i.1));
        let longest = NO_STALL_S.max(STALL_MEDIANS * median(&mut self.sorted));
        let (n, sum) = self
            .sorted
            .iter()
            .filter(|i| **i <= longest)
            .fold((0u32, 0.0), |(n, sum), interval| (n + 1, sum + interval));
        Some(f64::from(n) / sum)
    }
}

/// Median of a list that may be reordered; the mean of the two middle values where their number is even. 0 if empty.
pub(super) fn median(values: &mut [f64]) -> f64 {
    let n = values.len();
    if n == 0 {
        return 0.0;
    }
    let (below, upper, _) = values.select_nth_unstable_by(n / 2, f64::total_cmp);
    let upper = *upper;
    if n % 2 == 1 {
        return upper;
    }
    let lower = below.iter().copied().max_by(f64::total_cmp).unwrap_or(upper);
    0.5 * (lower + upper)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&mut []), 0.0);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn a_stall_does_not_lower_the_rate_and_loss_does() {
        let run = |intervals: &mut dyn Iterator<Item = f64>| {
            let (mut rate, mut t) = (Rate::new(), 0.0);
            for interval in intervals {
                t += interval;
                rate.add(t, interval);
            }
            rate.hz()
        };
        assert_eq!(run(&mut [0.01; 4].into_iter()), None);
        let steady = run(&mut (0..300).map(|i| if i % 100 == 50 { 0.9 } else { 0.01 }));
        assert!(steady.is_some_and(|hz| (hz - 100.0).abs() < 1e-6), "{steady:?}");
        let lossy = run(&mut (0..300).map(|i| if i % 2 == 0 { 0.01 } else { 0.02 }));
        assert!(lossy.is_some_and(|hz| (hz - 66.67).abs() < 0.1), "{lossy:?}");
    }

    #[test]
    fn bounded() {
        let mut rate = Rate::new();
        for i in 0..10_000 {
            rate.add(f64::from(i) * 1e-3, 1e-3);
        }
        assert_eq!(rate.intervals.len(), MOST);
        assert_eq!(rate.intervals.capacity(), MOST);
    }
}
