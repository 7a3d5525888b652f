//! From scores to a steady verdict: N of M, hysteresis, release.
//!
//! *In*: per tick a score, or that there is none. *Out*: moving, quiet, or not known yet. Times in ticks.

use super::TICK_S;

/// A score from here on switches on at once.
const STRONG: f64 = 1.3;
/// Two scores of at least 1 among this many ticks switch on.
const WINDOW_TICKS: u32 = 3;
const HITS: u32 = 2;
/// Below this score the evidence is gone.
const OFF: f64 = 0.7;
/// Below this one it is surely gone, and such a tick counts twice towards release.
const DEEP: f64 = 0.35;
/// After a start, "quiet" is first said below this score: there is no earlier tick to support it.
const START_QUIET: f64 = 0.5;

/// State of one link. A new one knows nothing.
#[derive(Debug, Clone)]
pub(super) struct Hysteresis {
    moving: bool,
    known: bool,
    /// Bit n: the score n ticks ago was at least 1.
    hits: u32,
    below: u32,
    release: u32,
}

impl Hysteresis {
    pub(super) fn new(release_s: f64) -> Self {
        let release = ((release_s / TICK_S).round() as u32).max(1);
        Self { moving: false, known: false, hits: 0, below: 0, release }
    }

    /// A new segment: nothing is known again.
    pub(super) fn reset(&mut self) {
        (self.moving, self.known, self.hits, self.below) = (false, false, 0, 0);
    }

    fn hit(&mut self, hit: bool) {
        self.hits = (self.hits << 1 | u32::from(hit)) & ((1 << WINDOW_TICKS) - 1);
    }

    /// A tick that counts so many times towards release; 0 starts the count again.
    fn count_below(&mut self, times: u32) {
        self.below = if times > 0 { self.below + times } else { 0 };
        if self.below >= self.release {
            (self.moving, self.below, self.hits) = (false, 0, 0);
        }
    }

    /// A tick with a score. After a start the state is unknown (`None`) until the score leaves the band between start
    /// and on.
    pub(super) fn score(&mut self, score: f64) -> Option<bool> {
        self.hit(score >= 1.0);
        if score >= 1.0 && (score >= STRONG || self.hits.count_ones() >= HITS) {
            self.moving = true;
            self.known = true;
        }
        if self.moving {
            self.count_below(match score {
                ..DEEP => 2,
                ..OFF => 1,
                _ => 0,
            });
        }
        self.known |= score < START_QUIET;
        self.known.then_some(self.moving)
    }

    /// A tick without one, in the middle of a segment.
    pub(super) fn skip(&mut self) {
        self.hit(false);
        if self.moving {
            self.count_below(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(scores: &[f64]) -> Vec<Option<bool>> {
        let mut state = Hysteresis::new(1.0);
        scores.iter().map(|s| state.score(*s)).collect()
    }

    #[test]
    fn on_at_once_when_strong_and_twice_of_three_when_weak() {
        assert_eq!(run(&[0.1, 1.4]), [Some(false), Some(true)]);
        assert_eq!(run(&[0.1, 1.1, 0.9, 1.1]), [Some(false), Some(false), Some(false), Some(true)]);
        assert_eq!(run(&[0.1, 1.1, 0.2, 0.2, 1.1])[4], Some(false));
    }

    #[test]
    fn off_only_after_the_release_time_below_the_lower_threshold() {
        assert_eq!(run(&[2.0, 0.5, 0.5, 0.5, 0.8, 0.5, 0.5, 0.5])[7], Some(true));
        assert_eq!(run(&[2.0, 0.5, 0.5, 0.5, 0.5])[3..], [Some(true), Some(false)]);
        assert_eq!(run(&[2.0, 0.1, 0.1])[1..], [Some(true), Some(false)], "surely gone");
        assert_eq!(run(&[2.0, 0.8, 0.8, 0.8, 0.8, 0.8])[5], Some(true));
    }

    #[test]
    fn unknown_between_the_thresholds_after_a_start() {
        assert_eq!(run(&[0.8, 0.9, 0.4, 0.9]), [None, None, Some(false), Some(false)]);
        let mut state = Hysteresis::new(1.0);
        state.score(2.0);
        state.reset();
        assert_eq!(state.score(0.8), None);
    }

    #[test]
    fn missing_scores_release_too() {
        let mut state = Hysteresis::new(1.0);
        state.score(2.0);
        for _ in 0..4 {
            state.skip();
        }
        assert_eq!(state.score(0.9), Some(false));
    }
}
