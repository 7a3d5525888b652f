//! A new token comes in, and what that moves: the policy of a full cache, the tail, the means of blocks.

use half::f16;

use super::{CachePrecision, FullPolicy, KvCache};
use crate::head::{TemporalError, Tensor3};

impl KvCache {
    /// Appends the key and the value of one token, each of shape (1, kv_heads, head_dim).
    ///
    /// # Errors
    /// [`TemporalError::Shape`] for other shapes, [`TemporalError::NotFinite`] for NaN, infinity and numbers beyond the
    /// precision,
    /// [`TemporalError::CacheFull`] under [`FullPolicy::Error`]. In all cases the cache is as before.
    pub fn append(&mut self, k: &Tensor3, v: &Tensor3) -> Result<(), TemporalError> {
        k.expect("k", 1, self.shape.kv_heads, self.shape.head_dim)?;
        v.expect("v", 1, self.shape.kv_heads, self.shape.head_dim)?;
        self.append_rows(k.as_slice(), v.as_slice())
    }

    /// As [`append`](Self::append), from slices of kv_heads x head_dim. Allocates nothing.
    pub(in crate::head) fn append_rows(&mut self, keys: &[f32], values: &[f32]) -> Result<(), TemporalError> {
        let (heads, dim) = (self.shape.kv_heads, self.shape.head_dim);
        for (what, row) in [("k", keys), ("v", values)] {
            if row.len() != heads * dim {
                let (expected, got) = (format!("{heads} x {dim} numbers"), format!("{} numbers", row.len()));
                return Err(TemporalError::Shape { what, expected, got });
            }
            check_numbers(what, row, self.limit())?;
        }
        if self.is_full() {
            match self.policy {
                FullPolicy::Error => return Err(TemporalError::CacheFull { capacity: self.capacity }),
                FullPolicy::Slide => {
                    let block = self.shape.block_size as u64;
                    let next = (self.start / block + 1) * block;
                    self.left += next - self.start;
                    self.start = next;
                }
                // The victim's slot is taken below.
                FullPolicy::HeavyHitters => self.left += 1,
            }
        }
        let position = self.position;
        if let Ok(place) = self.shape.globals.binary_search(&position) {
            for head in 0..heads {
                self.pinned.write(head, place, &keys[head * dim..][..dim], &values[head * dim..][..dim]);
            }
        }
        let slot = match self.heavy.as_mut() {
            Some(heavy) => heavy.place(position, self.shape.window, &self.shape.globals),
            None => {
                self.leave_tail();
                (position % self.tail.slots() as u64) as usize
            }
        };
        for head in 0..heads {
            self.tail.write(head, slot, &keys[head * dim..][..dim], &values[head * dim..][..dim]);
        }
        self.add_to_block(keys, values);
        self.position += 1;
        Ok(())
    }

    /// Largest magnitude that is taken: half precision has only infinity beyond, products of single precision overflow.
    fn limit(&self) -> f32 {
        if self.precision == CachePrecision::F32 { LARGEST } else { f16::MAX.to_f32() }
    }

    /// The token whose slot in the tail is about to be taken moves behind it: into the store, or into the pyramid.
    fn leave_tail(&mut self) {
        let (tail, dim) = (self.tail.slots() as u64, self.shape.head_dim);
        if self.position < tail || (self.store.is_none() && self.pyramid.is_none()) {
            return;
        }
        let old = self.position - tail;
        for head in 0..self.shape.kv_heads {
            let (key, value) = self.row[head * 2 * dim..][..2 * dim].split_at_mut(dim);
            self.tail.read(head, (old % tail) as usize, key, value);
            if let Some(store) = &mut self.store {
                store.write(head, (old % store.slots() as u64) as usize, key, value);
            }
        }
        if let Some(pyramid) = &mut self.pyramid {
            let global = self.shape.globals.binary_search(&old).is_ok();
            pyramid.push(old, &self.row, !global);
            self.start = old + 1;
            self.left += 1;
        }
    }

    fn add_to_block(&mut self, keys: &[f32], values: &[f32]) {
        let Some(blocks) = &mut self.blocks else { return };
        let (dim, block) = (self.shape.head_dim, self.shape.block_size as u64);
        for head in 0..self.shape.kv_heads {
            let (key, value) = self.sums[head * 2 * dim..][..2 * dim].split_at_mut(dim);
            key.iter_mut().zip(&keys[head * dim..][..dim]).for_each(|(s, x)| *s += x);
            value.iter_mut().zip(&values[head * dim..][..dim]).for_each(|(s, x)| *s += x);
        }
        if (self.position + 1).is_multiple_of(block) {
            let slot = (self.position / block % blocks.slots() as u64) as usize;
            let share = 1.0 / block as f32;
            self.sums.iter_mut().for_each(|s| *s *= share);
            for head in 0..self.shape.kv_heads {
                let (key, value) = self.sums[head * 2 * dim..][..2 * dim].split_at(dim);
                blocks.write(head, slot, key, value);
            }
            self.sums.fill(0.0);
        }
    }
}

/// Largest magnitude of a number in single precision: the square of it, added up over a head, still is a number.
pub(in crate::head) const LARGEST: f32 = 1e16;

/// Refuses NaN, infinity and numbers beyond `limit`. One pass without branches (without their signs the bits of floats are
/// ordered as the floats are, infinity and NaN last); the search for the culprit only if there is one.
pub(in crate::head) fn check_numbers(what: &'static str, numbers: &[f32], limit: f32) -> Result<(), TemporalError> {
    let magnitude = |x: &f32| x.to_bits() & 0x7fff_ffff;
    if numbers.iter().map(magnitude).fold(0, u32::max) <= limit.to_bits() {
        return Ok(());
    }
    let index = numbers.iter().position(|x| magnitude(x) > limit.to_bits()).unwrap_or_default();
    Err(TemporalError::NotFinite { what, index })
}
