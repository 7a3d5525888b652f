//! The free list of cache slots.

use super::types::CacheSlot;

/// Slots 0 to n-1, the lowest free one first.
#[derive(Debug, Clone)]
pub(super) struct Slots {
    taken: Vec<bool>,
    /// Times that none was free.
    refused: u64,
}

impl Slots {
    pub(super) fn new(slots: u16) -> Self {
        Self { taken: vec![false; usize::from(slots)], refused: 0 }
    }

    /// The lowest free slot; `None`, counted, where all are taken.
    pub(super) fn take(&mut self) -> Option<CacheSlot> {
        let free = self.taken.iter().position(|t| !t);
        match free {
            Some(i) => self.taken[i] = true,
            None => self.refused += 1,
        }
        free.map(|i| CacheSlot(i as u16))
    }

    /// Gives a slot back. Returns whether it was taken.
    pub(super) fn give_back(&mut self, slot: CacheSlot) -> bool {
        self.taken.get_mut(usize::from(slot.0)).is_some_and(|t| std::mem::replace(t, false))
    }

    /// Slots taken now.
    pub(super) fn in_use(&self) -> usize {
        self.taken.iter().filter(|t| **t).count()
    }

    /// Times that none was free.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }
}
