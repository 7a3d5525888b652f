//! Who leaves a full cache of heavy hitters: the token that got the least attention so far.

#[cfg(doc)]
use super::FullPolicy;

/// Bookkeeping of [`FullPolicy::HeavyHitters`], by slot.
#[derive(Debug, Clone)]
pub(super) struct Heavy {
    pub(super) positions: Vec<u64>,
    pub(super) mass: Vec<f32>,
    pub(super) used: usize,
    pub(super) weights: Vec<f32>,
    pub(super) last_victim: Option<u64>,
}

impl Heavy {
    /// The slot for the token at `position`: the next free one, or that of the token with the least attention which is
    /// not protected. The capacity is larger than what is protected, so there is always one.
    pub(super) fn place(&mut self, position: u64, window: usize, globals: &[u64]) -> usize {
        let slot = if self.used < self.positions.len() {
            self.used += 1;
            self.used - 1
        } else {
            let least = position.saturating_sub(window as u64);
            let free = |p: u64| p < least;
            let candidates = (0..self.used).filter(|s| free(self.positions[*s]));
            let victim = candidates.min_by(|a, b| {
                // A global token has a row of its own outside: its slot is the first to give. They go in their order, since
                // the rows outside are told by how many of them are attended.
                let key = |s: usize| match globals.binary_search(&self.positions[s]) {
                    Ok(_) => (false, 0.0, self.positions[s]),
                    Err(_) => (true, self.mass[s], self.positions[s]),
                };
                let (x, y) = (key(*a), key(*b));
                x.0.cmp(&y.0).then(x.1.total_cmp(&y.1)).then(x.2.cmp(&y.2))
            });
            let victim = victim.expect("the capacity exceeds the protected window");
            let old = self.positions[victim];
            if globals.binary_search(&old).is_err() {
                self.last_victim = Some(old);
            }
            victim
        };
        self.positions[slot] = position;
        self.mass[slot] = 0.0;
        slot
    }

    /// Whether the token at this position is held.
    pub(super) fn holds(&self, position: u64) -> bool {
        self.positions[..self.used].contains(&position)
    }
}
