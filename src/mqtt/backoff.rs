//! Pauses between connection attempts.

use std::time::Duration;

use rand::Rng;

/// Doubles from `min` to `max`, with jitter: each pause is drawn from the upper half of its step, so that many daemons
/// do not knock at a restarted broker at the same instant.
#[derive(Debug)]
pub(super) struct Backoff {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    pub(super) fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, next: min }
    }

    /// The pause before the next attempt.
    pub(super) fn pause(&mut self, rng: &mut impl Rng) -> Duration {
        let step = self.next;
        self.next = (step * 2).min(self.max);
        step.mul_f64(rng.random_range(0.5..=1.0))
    }

    /// A connection lasted.
    pub(super) fn reset(&mut self) {
        self.next = self.min;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn grows_to_its_ceiling_stays_in_its_band_and_resets() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        for step in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0] {
            let pause = backoff.pause(&mut rng).as_secs_f64();
            assert!((step / 2.0..=step).contains(&pause), "{pause} for {step}");
        }
        backoff.reset();
        assert!(backoff.pause(&mut rng) <= Duration::from_secs(1));
    }
}
