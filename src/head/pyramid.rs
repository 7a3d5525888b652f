//! The whole past in few rows: means of blocks whose size doubles with distance.
//!
//! *In*: the tokens that leave the window, in order. *Out*: rows (mean key, mean value, how many tokens). Tokens gather
//! in the running mean of their block; a complete block enters level 0; a level that would hold three merges its two
//! oldest into one of the next level, as a binary counter carries. At the top level the two oldest merge in place, so
//! that the last row stands for all that is older and nothing is ever lost.
//!
//! Every token is counted in exactly one row. Rows: at most two per level and the running one, and only
//! `log2(T / B) + 1` levels are in use after T tokens in blocks of B. A pure function of the token sequence.

use super::LandmarkWeight;
use super::store::{Numbers, RowStore};
use crate::kernel::{LogWeights, Segment};

/// Rows of a pyramid of one cache; all memory is taken at construction.
#[derive(Debug, Clone)]
pub(super) struct Pyramid {
    heads: usize,
    dim: usize,
    block: u64,
    levels: usize,
    weight: LandmarkWeight,
    /// Slots 2 l and 2 l + 1 hold level l, the older one first; the last slot is the running block.
    rows: RowStore,
    counts: Vec<[u64; 2]>,
    /// Sums of the running block, and how many tokens are in it.
    sums: Vec<f32>,
    running: u64,
    carry: Vec<f32>,
    merged: Vec<f32>,
    scratch: Vec<f32>,
    picks: Vec<u32>,
    log_weights: Vec<f32>,
}

impl Pyramid {
    pub(super) fn new(heads: usize, dim: usize, block: usize, levels: usize, weight: LandmarkWeight) -> Self {
        let slots = 2 * levels + 1;
        Self {
            heads,
            dim,
            block: block as u64,
            levels,
            weight,
            rows: RowStore::new(Numbers::F32, heads, slots, dim),
            counts: vec![[0; 2]; levels],
            sums: vec![0.0; heads * 2 * dim],
            running: 0,
            carry: vec![0.0; heads * 2 * dim],
            merged: vec![0.0; heads * 2 * dim],
            scratch: vec![0.0; 2 * dim],
            picks: Vec::with_capacity(slots),
            log_weights: Vec::with_capacity(slots),
        }
    }

    /// Takes the token at `position`, all heads: keys and values of heads x dim. `counted` false only moves time on (a
    /// global token is a row of its own).
    pub(super) fn push(&mut self, position: u64, row: &[f32], counted: bool) {
        if counted {
            self.running += 1;
            self.sums.iter_mut().zip(row).for_each(|(s, x)| *s += x);
        }
        let complete = (position + 1).is_multiple_of(self.block);
        if complete && self.running > 0 {
            let n = self.running as f32;
            self.carry.iter_mut().zip(&self.sums).for_each(|(c, s)| *c = s / n);
            self.insert(self.running);
            self.running = 0;
        }
        if complete {
            self.sums.fill(0.0);
            self.list();
        } else if counted {
            let n = self.running as f32;
            self.merged.iter_mut().zip(&self.sums).for_each(|(m, s)| *m = s / n);
            let (slot, dim) = (2 * self.levels, self.dim);
            for head in 0..self.heads {
                let (key, value) = self.merged[head * 2 * dim..][..2 * dim].split_at(dim);
                self.rows.write(head, slot, key, value);
            }
            if self.running == 1 {
                self.picks.push(slot as u32);
                self.log_weights.push(0.0);
            }
            if let Some(last) = self.log_weights.last_mut() {
                *last = log_weight(self.weight, self.running);
            }
        }
    }

    /// `carry` stands for `count` tokens and enters level 0.
    fn insert(&mut self, mut count: u64) {
        for level in 0..self.levels {
            let held = self.counts[level].iter().filter(|c| **c > 0).count();
            if held < 2 {
                self.put(level, held, count);
                return;
            }
            // The two oldest become one.
            let [older, newer] = self.counts[level];
            self.merge(level, (newer as f64 / (older + newer) as f64) as f32);
            let merged = older + newer;
            if level + 1 == self.levels {
                self.put(level, 1, count);
                std::mem::swap(&mut self.carry, &mut self.merged);
                self.put(level, 0, merged);
                return;
            }
            self.counts[level] = [0; 2];
            self.put(level, 0, count);
            std::mem::swap(&mut self.carry, &mut self.merged);
            count = merged;
        }
    }

    /// `merged` becomes the mean of both rows of a level, the newer one weighing `share`.
    fn merge(&mut self, level: usize, share: f32) {
        let dim = self.dim;
        for head in 0..self.heads {
            let (key, value) = self.merged[head * 2 * dim..][..2 * dim].split_at_mut(dim);
            self.rows.read(head, 2 * level, key, value);
            let (newer_key, newer_value) = self.scratch.split_at_mut(dim);
            self.rows.read(head, 2 * level + 1, newer_key, newer_value);
            for (old, new) in self.merged[head * 2 * dim..][..2 * dim].iter_mut().zip(&self.scratch) {
                *old += (new - *old) * share;
            }
        }
    }

    /// `carry` becomes the row at `place` (0 or 1) of a level.
    fn put(&mut self, level: usize, place: usize, count: u64) {
        let dim = self.dim;
        for head in 0..self.heads {
            let (key, value) = self.carry[head * 2 * dim..][..2 * dim].split_at(dim);
            self.rows.write(head, 2 * level + place, key, value);
        }
        self.counts[level][place] = count;
    }

    /// Lists the rows anew after a change of the levels; the running block is empty then.
    fn list(&mut self) {
        self.picks.clear();
        self.log_weights.clear();
        for (slot, count) in self.counts.iter().flatten().enumerate().filter(|(_, c)| **c > 0) {
            self.picks.push(slot as u32);
            self.log_weights.push(log_weight(self.weight, *count));
        }
    }

    /// The rows of one kv head.
    pub(super) fn segment(&self, head: usize) -> Segment<'_> {
        self.rows.picked(head, &self.picks, LogWeights::Each(&self.log_weights))
    }

    /// How many rows there are now.
    pub(super) fn len(&self) -> usize {
        self.picks.len()
    }

    /// Tokens counted in all rows.
    pub(super) fn tokens(&self) -> u64 {
        self.running + self.counts.iter().flatten().sum::<u64>()
    }

    /// Bytes taken.
    pub(super) fn bytes(&self) -> usize {
        let floats = self.sums.len() + self.carry.len() + self.merged.len() + self.scratch.len();
        let lists = self.picks.capacity() + self.log_weights.capacity();
        self.rows.bytes() + 4 * (floats + lists) + size_of_val(self.counts.as_slice())
    }

    /// Forgets everything and overwrites it.
    pub(super) fn wipe(&mut self) {
        self.rows.wipe();
        self.counts.fill([0; 2]);
        for v in [&mut self.sums, &mut self.carry, &mut self.merged, &mut self.scratch] {
            v.fill(0.0);
        }
        self.running = 0;
        self.picks.clear();
        self.log_weights.clear();
    }
}

fn log_weight(weight: LandmarkWeight, count: u64) -> f32 {
    match weight {
        LandmarkWeight::Unit => 0.0,
        LandmarkWeight::Count => (count as f64).ln() as f32,
    }
}
