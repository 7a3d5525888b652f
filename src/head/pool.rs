//! The caches of all tracks: one place for each, a budget of bytes over all.
//!
//! *In*: which place a track has, and what becomes of the track. *Out*: its caches, one per layer. A cache is taken when
//! a track becomes active, rests while the track is lost, goes back wiped when it ends. Memory that was taken once is
//! kept for the next track. Where the budget is not enough, the track that has been lost longest gives its cache up;
//! where nobody is lost, the newcomer gets none.

use super::TemporalError;
use super::cache::KvCache;
use crate::track::CacheSlot;
use crate::types::SensingTime;

/// Caches of one track, one per layer.
pub type LayerCaches = Vec<KvCache>;

#[derive(Debug)]
struct Held {
    caches: LayerCaches,
    since: SensingTime,
    lost_since: Option<SensingTime>,
}

/// Numbers of a pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Places that hold caches.
    pub held: usize,
    /// Bytes of active tracks.
    pub active_bytes: usize,
    /// Bytes of lost tracks.
    pub lost_bytes: usize,
    /// Bytes that wait for the next track.
    pub spare_bytes: usize,
    /// Caches of lost tracks that were given up.
    pub evicted: u64,
    /// Tracks that got none.
    pub refused: u64,
}

/// The pool. One owner, no locks.
pub struct CachePool {
    make: Box<dyn Fn() -> Result<LayerCaches, TemporalError> + Send>,
    slots: Vec<Option<Held>>,
    spare: Vec<LayerCaches>,
    bytes_each: usize,
    budget: usize,
    evicted: u64,
    refused: u64,
}

impl std::fmt::Debug for CachePool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CachePool").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl CachePool {
    /// `places` slots; `make` makes the caches of one track; all together take at most `budget_bytes`.
    ///
    /// # Errors
    /// What `make` says: it is tried once, to know the size.
    pub fn new(
        places: usize,
        budget_bytes: usize,
        make: impl Fn() -> Result<LayerCaches, TemporalError> + Send + 'static,
    ) -> Result<Self, TemporalError> {
        let first = make()?;
        let bytes_each = first.iter().map(KvCache::bytes).sum();
        let mut spare = Vec::with_capacity(places);
        if bytes_each <= budget_bytes {
            spare.push(first);
        }
        let slots = std::iter::repeat_with(|| None).take(places).collect();
        Ok(Self { make: Box::new(make), slots, spare, bytes_each, budget: budget_bytes, evicted: 0, refused: 0 })
    }

    /// Bytes that the caches of one track take.
    pub const fn bytes_each(&self) -> usize {
        self.bytes_each
    }

    /// Limit for all of them.
    pub const fn budget_bytes(&self) -> usize {
        self.budget
    }

    /// Gives the place caches, empty ones. False if the budget has none for it, or there is no such place. A place that
    /// has caches keeps them.
    pub fn acquire(&mut self, slot: CacheSlot, now: SensingTime) -> bool {
        match self.slots.get(usize::from(slot.0)) {
            None => return false,
            Some(Some(_)) => return true,
            Some(None) => {}
        }
        let taken = self.slots.iter().flatten().count() + self.spare.len();
        let caches = if let Some(spare) = self.spare.pop() {
            Some(spare)
        } else if (taken + 1).saturating_mul(self.bytes_each) <= self.budget {
            (self.make)().ok()
        } else {
            self.evict()
        };
        let Some(caches) = caches else {
            self.refused += 1;
            return false;
        };
        self.slots[usize::from(slot.0)] = Some(Held { caches, since: now, lost_since: None });
        true
    }

    /// Whether [`acquire`](Self::acquire) would give another place caches now.
    pub fn has_room(&self) -> bool {
        let taken = self.slots.iter().flatten().count() + self.spare.len();
        !self.spare.is_empty()
            || (taken + 1).saturating_mul(self.bytes_each) <= self.budget
            || self.slots.iter().flatten().any(|h| h.lost_since.is_some())
    }

    /// Takes the caches of the track that has been lost longest.
    fn evict(&mut self) -> Option<LayerCaches> {
        let lost = self.slots.iter().enumerate();
        let lost = lost.filter_map(|(i, s)| s.as_ref()?.lost_since.map(|t| (t, i)));
        let (_, oldest) = lost.min()?;
        let mut held = self.slots[oldest].take()?;
        held.caches.iter_mut().for_each(KvCache::reset);
        self.evicted += 1;
        Some(held.caches)
    }

    /// The track is lost since `since`, or (None) found again. A lost track's caches rest.
    pub fn set_lost(&mut self, slot: CacheSlot, since: Option<SensingTime>) {
        if let Some(Some(held)) = self.slots.get_mut(usize::from(slot.0)) {
            held.lost_since = since;
        }
    }

    /// The track has ended: its caches are wiped and wait for the next one.
    pub fn release(&mut self, slot: CacheSlot) {
        if let Some(mut held) = self.slots.get_mut(usize::from(slot.0)).and_then(Option::take) {
            held.caches.iter_mut().for_each(KvCache::reset);
            self.spare.push(held.caches);
        }
    }

    /// The track at `ended` was the same person as the one at `survivor`: the older caches survive, at `survivor`.
    /// True if they are those of `ended`.
    pub fn merge(&mut self, survivor: CacheSlot, ended: CacheSlot) -> bool {
        if survivor == ended {
            return false;
        }
        let since = |s: CacheSlot| self.slots.get(usize::from(s.0))?.as_ref().map(|h| h.since);
        let moves = match (since(survivor), since(ended)) {
            (Some(a), Some(b)) => b < a,
            (None, Some(_)) => usize::from(survivor.0) < self.slots.len(),
            (_, None) => false,
        };
        if moves {
            self.slots.swap(usize::from(survivor.0), usize::from(ended.0));
        }
        self.release(ended);
        moves
    }

    /// The caches of a place, one per layer.
    pub fn get_mut(&mut self, slot: CacheSlot) -> Option<&mut LayerCaches> {
        self.slots.get_mut(usize::from(slot.0))?.as_mut().map(|h| &mut h.caches)
    }

    /// Whether a place has caches.
    pub fn holds(&self, slot: CacheSlot) -> bool {
        self.slots.get(usize::from(slot.0)).is_some_and(Option::is_some)
    }

    /// Numbers.
    pub fn stats(&self) -> PoolStats {
        let (mut held, mut lost) = (0, 0);
        for h in self.slots.iter().flatten() {
            held += 1;
            lost += usize::from(h.lost_since.is_some());
        }
        PoolStats {
            held,
            active_bytes: (held - lost) * self.bytes_each,
            lost_bytes: lost * self.bytes_each,
            spare_bytes: self.spare.len() * self.bytes_each,
            evicted: self.evicted,
            refused: self.refused,
        }
    }
}
