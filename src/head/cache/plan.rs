//! Which rows the newest token attends to.

use super::KvCache;
use crate::head::config::{LandmarkWeight, TemporalBackendKind};
use crate::kernel::{LogWeights, Segment};

/// Most segments that one attention is made of: two per ring and window, picks of each ring, globals, means.
pub(in crate::head) const MOST_SEGMENTS: usize = 9;

/// One token's attention as ranges and picks; the rows are looked up per kv head.
#[derive(Debug, Clone, Default)]
pub(super) struct Plan {
    /// Ranges of slots (first, length) in the tail ring, then in the store.
    pub(super) tail: [(usize, usize); 2],
    pub(super) store: [(usize, usize); 2],
    pub(super) globals: usize,
    pub(super) tail_picks: Vec<u32>,
    pub(super) store_picks: Vec<u32>,
    pub(super) block_picks: Vec<u32>,
}

impl KvCache {
    /// Draws up which rows the newest token attends to.
    pub(in crate::head) fn draw_plan(&mut self) {
        let mut plan = std::mem::take(&mut self.plan);
        plan.tail_picks.clear();
        plan.store_picks.clear();
        plan.block_picks.clear();
        let i = self.position.saturating_sub(1);
        let dense = self.shape.backend == TemporalBackendKind::Dense;
        let low = if dense { self.start } else { i.saturating_sub(self.shape.window as u64).max(self.start) };
        if let Some(heavy) = &self.heavy {
            (plan.tail, plan.store) = ([(0, heavy.used), (0, 0)], [(0, 0); 2]);
            plan.globals = self.shape.globals.iter().filter(|g| **g <= i && !heavy.holds(**g)).count();
        } else {
            let boundary = self.position.saturating_sub(self.tail.slots() as u64).max(low);
            plan.tail = ranges(boundary, self.position, self.tail.slots());
            plan.store = self.store.as_ref().map_or([(0, 0); 2], |s| ranges(low, boundary, s.slots()));
            plan.globals = self.shape.globals.iter().filter(|g| **g < low).count();
            if self.shape.use_log_stride && self.pyramid.is_none() {
                self.pick_strides(i, low, &mut plan);
            }
        }
        self.pick_blocks(i, &mut plan);
        self.plan = plan;
    }

    fn pick_strides(&self, i: u64, low: u64, plan: &mut Plan) {
        let tail = self.tail.slots() as u64;
        let boundary = self.position.saturating_sub(tail);
        let newest = i % tail;
        let store = self.store.as_ref().map(|s| (s.slots() as u64, i % s.slots() as u64));
        // The first strides end in the window.
        let mut stride = (i.saturating_sub(low) + 1).next_power_of_two();
        let last_global = self.shape.globals.last().copied();
        let is_global = |j: u64| last_global.is_some_and(|g| j <= g) && self.shape.globals.binary_search(&j).is_ok();
        while stride < self.position && stride <= i {
            let j = i - stride;
            if j < low && j >= self.start && !is_global(j) {
                match store {
                    Some((slots, newest)) if j < boundary => plan.store_picks.push(back(newest, stride, slots)),
                    _ => plan.tail_picks.push(back(newest, stride, tail)),
                }
            }
            stride *= 2;
        }
    }

    fn pick_blocks(&self, i: u64, plan: &mut Plan) {
        let Some(blocks) = &self.blocks else { return };
        let complete = (i + 1) / self.shape.block_size as u64;
        let Some(pivot) = complete.checked_sub(1) else { return };
        let slots = blocks.slots() as u64;
        let newest = pivot % slots;
        let mut pick = |distance: u64| {
            if distance < slots {
                plan.block_picks.push(back(newest, distance, slots));
            }
        };
        pick(0);
        if pivot >= 1 {
            pick(1);
        }
        if self.shape.use_log_stride {
            let all = self.position.div_ceil(self.shape.block_size as u64);
            let mut stride = 2u64;
            while stride < all && stride <= pivot {
                pick(stride);
                stride *= 2;
            }
        }
    }

    /// The rows of one kv head that the plan names; unused segments are empty.
    pub(in crate::head) fn segments(&self, head: usize) -> [Segment<'_>; MOST_SEGMENTS] {
        let plan = &self.plan;
        let empty = Segment::tokens(self.tail.rows(head), 0);
        let once = LogWeights::Same(0.0);
        let mean = match self.shape.landmark_weight {
            LandmarkWeight::Unit => once,
            LandmarkWeight::Count => LogWeights::Same((self.shape.block_size as f32).ln()),
        };
        [
            self.tail.range(head, plan.tail[0].0, plan.tail[0].1),
            self.tail.range(head, plan.tail[1].0, plan.tail[1].1),
            self.store.as_ref().map_or(empty, |s| s.range(head, plan.store[0].0, plan.store[0].1)),
            self.store.as_ref().map_or(empty, |s| s.range(head, plan.store[1].0, plan.store[1].1)),
            self.tail.picked(head, &plan.tail_picks, once),
            self.store.as_ref().map_or(empty, |s| s.picked(head, &plan.store_picks, once)),
            self.pinned.range(head, 0, plan.globals),
            self.blocks.as_ref().map_or(empty, |b| b.picked(head, &plan.block_picks, mean)),
            self.pyramid.as_ref().map_or(empty, |p| p.segment(head)),
        ]
    }
}

/// The slot of the position `distance` before one whose slot is `newest`. Divisions would cost more than the rows they find.
fn back(newest: u64, distance: u64, slots: u64) -> u32 {
    let slot = match newest.checked_sub(distance) {
        Some(slot) => slot,
        None => newest + slots - if distance <= slots { distance } else { distance % slots },
    };
    (if slot >= slots { slot - slots } else { slot }) as u32
}

/// Positions `low..high` as at most two ranges of slots of a ring.
fn ranges(low: u64, high: u64, slots: usize) -> [(usize, usize); 2] {
    let len = high.saturating_sub(low) as usize;
    let first = (low % slots as u64) as usize;
    let before = len.min(slots - first);
    [(first, before), (0, len - before)]
}
