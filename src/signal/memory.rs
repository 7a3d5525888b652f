//! What is quiet on this link: a histogram of past levels of change, slowly forgotten.
//!
//! *In*: the level of each tick (see `smooth`), as its natural logarithm. *Out*: the link's floor, once there is a narrow
//! low cluster. Motion is broad and is therefore not learned as quiet, however long it lasts. The use of a low quantile
//! as noise floor is that of minimum statistics in speech enhancement (R. Martin, 2001).

use super::TICK_S;

const BINS: usize = 96;
const STEP: f64 = 0.0625;
/// Time constant of forgetting, seconds.
const FORGET_S: f64 = 400.0;
/// Memory needed before the floor counts, seconds.
const NEEDED_S: f64 = 30.0;
/// The floor is this quantile of the levels.
const FLOOR_QUANTILE: f64 = 0.15;
/// Between these quantiles the levels must span less than [`NARROW_RATIO`].
const NARROW: (f64, f64) = (0.05, 0.25);
const NARROW_RATIO: f64 = 2.0;

/// Memory of one link; survives gaps.
#[derive(Debug, Clone)]
pub(super) struct Memory {
    /// Seconds spent at each level.
    histogram: [f64; BINS],
    seconds: f64,
    decay: f64,
}

impl Memory {
    pub(super) fn new() -> Self {
        Self { histogram: [0.0; BINS], seconds: 0.0, decay: (-TICK_S / FORGET_S).exp() }
    }

    /// Remembers one tick at level `ln_level`.
    pub(super) fn add(&mut self, ln_level: f64) {
        for bin in &mut self.histogram {
            *bin *= self.decay;
        }
        let bin = ((ln_level / STEP).floor().max(0.0) as usize).min(BINS - 1);
        self.histogram[bin] += TICK_S;
        self.seconds = self.seconds * self.decay + TICK_S;
    }

    /// Seconds remembered.
    pub(super) fn seconds(&self) -> f64 {
        self.seconds
    }

    /// The link's quiet level, or `None` while the memory is short or may hold nothing but motion.
    pub(super) fn floor(&self) -> Option<f64> {
        if self.seconds < NEEDED_S {
            return None;
        }
        let spread = (self.quantile(NARROW.1) - self.quantile(NARROW.0)) as f64 * STEP;
        (spread <= NARROW_RATIO.ln()).then(|| ((self.quantile(FLOOR_QUANTILE) as f64 + 0.5) * STEP).exp())
    }

    fn quantile(&self, share: f64) -> usize {
        let total: f64 = self.histogram.iter().sum();
        let mut sum = 0.0;
        self.histogram
            .iter()
            .position(|bin| {
                sum += bin;
                sum >= share * total
            })
            .unwrap_or(BINS - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_cluster_is_learned_and_motion_alone_is_not() {
        let mut quiet = Memory::new();
        for i in 0..119 {
            quiet.add(0.6 + 0.01 * f64::from(i % 5));
            assert_eq!(quiet.floor(), None, "too short");
        }
        for i in 0..20 {
            quiet.add(0.6 + 0.01 * f64::from(i % 5));
        }
        let floor = quiet.floor().map(f64::ln);
        assert!(floor.is_some_and(|f| (f - 0.62).abs() < 0.07), "{floor:?}");

        let mut moving = Memory::new();
        for i in 0..1000 {
            moving.add(f64::from(i % 50) * 0.08);
        }
        assert_eq!(moving.floor(), None, "broad");
    }

    #[test]
    fn the_floor_is_the_low_cluster_of_a_mixture_and_follows_a_change() {
        let mut memory = Memory::new();
        for i in 0..2000 {
            memory.add(if i % 2 == 0 { 1.0 } else { 2.0 + f64::from(i % 16) * 0.1 });
        }
        assert!(memory.floor().is_some_and(|f| (f.ln() - 1.0).abs() < 0.07));
        for _ in 0..4 * 3600 {
            memory.add(2.0);
        }
        assert!(memory.floor().is_some_and(|f| (f.ln() - 2.0).abs() < 0.07));
    }

    #[test]
    fn absurd_levels_stay_in_range() {
        let mut memory = Memory::new();
        for level in [-5.0, 1e9, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            memory.add(level);
        }
        assert!((memory.histogram.iter().sum::<f64>() - memory.seconds()).abs() < 1e-9);
    }
}
