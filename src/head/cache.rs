//! The key/value cache of one head over one token stream.
//!
//! *In*: key and value of each new token. *Out*: segments of rows for the kernel. *State*: the newest tokens in a ring by
//! absolute position (so that nothing is ever moved), an 8- or 4-bit ring behind a half-precision tail where chosen,
//! global tokens pinned outside, running means of blocks, or the pyramid. All memory is taken at construction; a
//! stream that lives for days costs what one of a minute costs, in time and bytes.

use half::f16;

use super::config::{LandmarkWeight, Pattern, TemporalBackendKind, TemporalHeadConfig};
use super::pyramid::Pyramid;
use super::store::{Numbers, RowStore};
use super::{TemporalError, Tensor3};
use crate::kernel::{LogWeights, Segment};

/// In which numbers keys and values are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CachePrecision {
    /// Single precision.
    F32,
    /// Half precision.
    F16,
    /// The newest `tail_length` tokens in half precision, older ones in 8-bit blocks with a scale of their own for key
    /// and value of every head and token.
    TwoTierQ8 {
        /// Tokens of the tail.
        tail_length: usize,
    },
    /// The same with 4-bit blocks.
    TwoTierQ4 {
        /// Tokens of the tail.
        tail_length: usize,
    },
}

/// What happens when a cache is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FullPolicy {
    /// [`TemporalError::CacheFull`], and nothing is appended.
    Error,
    /// The oldest block leaves; means of blocks and global tokens stay reachable.
    Slide,
    /// The token with the least attention so far leaves; window and globals are protected. Such a cache attends to
    /// everything it holds: what is kept for being attended must be attendable. (Zhang et al., H2O, NeurIPS 2023.)
    HeavyHitters,
}

/// Most segments that one attention is made of: two per ring and window, picks of each ring, globals, means.
pub(super) const MOST_SEGMENTS: usize = 9;

/// What a cache is made for; a head takes only caches of its own shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CacheShape {
    pub(super) backend: TemporalBackendKind,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) window: usize,
    pub(super) block_size: usize,
    pub(super) globals: Vec<u64>,
    pub(super) use_log_stride: bool,
    pub(super) use_landmarks: bool,
    pub(super) landmark_weight: LandmarkWeight,
    pub(super) pattern: Pattern,
    pub(super) pyramid_levels: usize,
}

impl CacheShape {
    pub(super) fn of(config: &TemporalHeadConfig) -> Self {
        let dense = config.backend == TemporalBackendKind::Dense;
        Self {
            backend: config.backend,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            window: config.window,
            block_size: config.block_size,
            globals: if dense { Vec::new() } else { config.globals() },
            use_log_stride: config.use_log_stride && !dense,
            use_landmarks: config.use_landmarks && !dense,
            landmark_weight: config.landmark_weight,
            pattern: if dense { Pattern::Compatible } else { config.pattern },
            pyramid_levels: config.pyramid_levels,
        }
    }
}

/// One token's attention as ranges and picks; the rows are looked up per kv head.
#[derive(Debug, Clone, Default)]
struct Plan {
    /// Ranges of slots (first, length) in the tail ring, then in the store.
    tail: [(usize, usize); 2],
    store: [(usize, usize); 2],
    globals: usize,
    tail_picks: Vec<u32>,
    store_picks: Vec<u32>,
    block_picks: Vec<u32>,
}

/// A key/value cache.
#[derive(Debug, Clone)]
pub struct KvCache {
    shape: CacheShape,
    precision: CachePrecision,
    policy: FullPolicy,
    capacity: usize,
    /// Tokens seen so far; the next one has this position.
    position: u64,
    /// Oldest position that is still in a ring.
    start: u64,
    tail: RowStore,
    store: Option<RowStore>,
    pinned: RowStore,
    blocks: Option<RowStore>,
    sums: Vec<f32>,
    pyramid: Option<Pyramid>,
    heavy: Option<Heavy>,
    row: Vec<f32>,
    plan: Plan,
    left: u64,
}

/// Bookkeeping of [`FullPolicy::HeavyHitters`], by slot.
#[derive(Debug, Clone)]
struct Heavy {
    positions: Vec<u64>,
    mass: Vec<f32>,
    used: usize,
    weights: Vec<f32>,
    last_victim: Option<u64>,
}

impl KvCache {
    /// A cache for heads of this configuration (see `make_cache` of the heads). A pyramid keeps only the window one by
    /// one, whatever the capacity.
    ///
    /// # Errors
    /// [`TemporalError::Config`] where capacity, precision and policy do not fit.
    pub(super) fn new(
        config: &TemporalHeadConfig,
        capacity: usize,
        precision: CachePrecision,
        policy: FullPolicy,
    ) -> Result<Self, TemporalError> {
        config.validate()?;
        if !config.causal {
            return Err(TemporalError::NotCausal("a cache"));
        }
        let shape = CacheShape::of(config);
        let pyramid = shape.pattern == Pattern::Pyramid;
        let capacity = if pyramid { shape.window + 1 } else { capacity };
        let wrong = |what, expected, got: usize| Err(TemporalError::Config { what, expected, got: got.to_string() });
        if capacity == 0 || capacity > u32::MAX as usize {
            return wrong("capacity", "1 to 4294967295 tokens", capacity);
        }
        if policy == FullPolicy::Slide && !pyramid && capacity < shape.block_size {
            return wrong("capacity", "at least a block, which is what leaves a full cache", capacity);
        }
        if policy == FullPolicy::HeavyHitters && !pyramid && capacity < shape.window + 2 {
            return wrong("capacity", "at least two tokens more than the window, which is protected", capacity);
        }
        let (numbers, quantised, tail) = match precision {
            CachePrecision::F32 => (Numbers::F32, None, capacity),
            CachePrecision::F16 => (Numbers::F16, None, capacity),
            CachePrecision::TwoTierQ8 { tail_length } => (Numbers::F16, Some(Numbers::Q8), tail_length),
            CachePrecision::TwoTierQ4 { tail_length } => (Numbers::F16, Some(Numbers::Q4), tail_length),
        };
        if quantised.is_some() {
            if pyramid {
                return wrong("precision", "F32 or F16 for a pyramid, which keeps only the window one by one", tail);
            }
            if policy == FullPolicy::HeavyHitters {
                return wrong("precision", "F32 or F16 with heavy_hitters", tail);
            }
            if tail == 0 || tail >= capacity {
                return wrong("tail_length", "at least 1 and below the capacity", tail);
            }
        }
        let (heads, dim) = (shape.kv_heads, shape.head_dim);
        let rows = |numbers, slots| RowStore::new(numbers, heads, slots, dim);
        let means = shape.use_landmarks && !pyramid;
        // Twice the capacity in blocks: what has just left stays reachable by its means as long again.
        let block_slots = 2 * capacity.div_ceil(shape.block_size);
        let block_numbers = if quantised.is_some() { Numbers::Q8 } else { numbers };
        let heavy = (policy == FullPolicy::HeavyHitters && !pyramid).then(|| Heavy {
            positions: vec![0; capacity],
            mass: vec![0.0; capacity],
            used: 0,
            weights: vec![0.0; (capacity + shape.globals.len() + 70) * config.group()],
            last_victim: None,
        });
        Ok(Self {
            tail: rows(numbers, tail),
            store: quantised.map(|q| rows(q, capacity - tail)),
            pinned: rows(numbers, shape.globals.len()),
            blocks: means.then(|| rows(block_numbers, block_slots)),
            sums: vec![0.0; if means { heads * 2 * dim } else { 0 }],
            pyramid: pyramid
                .then(|| Pyramid::new(heads, dim, shape.block_size, shape.pyramid_levels, shape.landmark_weight)),
            heavy,
            row: vec![0.0; heads * 2 * dim],
            plan: Plan {
                tail_picks: Vec::with_capacity(64),
                store_picks: Vec::with_capacity(64),
                block_picks: Vec::with_capacity(66),
                ..Plan::default()
            },
            shape,
            precision,
            policy,
            capacity,
            position: 0,
            start: 0,
            left: 0,
        })
    }
}

impl KvCache {
    /// Appends the key and the value of one token, each of shape (1, kv_heads, head_dim).
    ///
    /// # Errors
    /// [`TemporalError::Shape`] for other shapes, [`TemporalError::NotFinite`] for NaN, infinity and numbers beyond
    /// the precision,
    /// [`TemporalError::CacheFull`] under [`FullPolicy::Error`]. In all cases the cache is as before.
    pub fn append(&mut self, k: &Tensor3, v: &Tensor3) -> Result<(), TemporalError> {
        k.expect("k", 1, self.shape.kv_heads, self.shape.head_dim)?;
        v.expect("v", 1, self.shape.kv_heads, self.shape.head_dim)?;
        self.append_rows(k.as_slice(), v.as_slice())
    }

    /// As [`append`](Self::append), from slices of kv_heads x head_dim. Allocates nothing.
    pub(super) fn append_rows(&mut self, keys: &[f32], values: &[f32]) -> Result<(), TemporalError> {
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

    /// Draws up which rows the newest token attends to.
    pub(super) fn draw_plan(&mut self) {
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
        let boundary = self.position.saturating_sub(self.tail.slots() as u64);
        let mut stride = 1u64;
        while stride < self.position && stride <= i {
            let j = i - stride;
            if j < low && j >= self.start && self.shape.globals.binary_search(&j).is_err() {
                match &self.store {
                    Some(store) if j < boundary => plan.store_picks.push((j % store.slots() as u64) as u32),
                    _ => plan.tail_picks.push((j % self.tail.slots() as u64) as u32),
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
        let oldest = complete.saturating_sub(slots);
        let mut pick = |b: u64| {
            if b >= oldest {
                plan.block_picks.push((b % slots) as u32);
            }
        };
        pick(pivot);
        if pivot >= 1 {
            pick(pivot - 1);
        }
        if self.shape.use_log_stride {
            let all = self.position.div_ceil(self.shape.block_size as u64);
            let mut stride = 2u64;
            while stride < all && stride <= pivot {
                pick(pivot - stride);
                stride *= 2;
            }
        }
    }

    /// The rows of one kv head that the plan names; unused segments are empty.
    pub(super) fn segments(&self, head: usize) -> [Segment<'_>; MOST_SEGMENTS] {
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

impl KvCache {
    /// Tokens held one by one, globals that are pinned outside not counted.
    pub fn len(&self) -> usize {
        match &self.heavy {
            Some(heavy) => heavy.used,
            None => (self.position - self.start) as usize,
        }
    }

    /// Whether no token was appended since construction or reset.
    pub fn is_empty(&self) -> bool {
        self.position == 0
    }

    /// Tokens appended since construction or reset; the next one has this position.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Tokens that can be held one by one.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether the policy has to decide at the next token. A pyramid is never full.
    pub fn is_full(&self) -> bool {
        self.pyramid.is_none() && self.len() == self.capacity
    }

    /// The policy for a full cache.
    pub fn policy(&self) -> FullPolicy {
        self.policy
    }

    /// In which numbers it keeps keys and values.
    pub fn precision(&self) -> CachePrecision {
        self.precision
    }

    /// Tokens that are not held one by one any more.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Position of the token that left last under [`FullPolicy::HeavyHitters`].
    pub fn last_victim(&self) -> Option<u64> {
        self.heavy.as_ref()?.last_victim
    }

    /// Rows the newest token attended to.
    pub fn rows(&self) -> usize {
        self.segments(0).iter().map(|s| s.len).sum()
    }

    /// Past tokens, the present one included, that its rows stand for, a mean for all it was made of; what several rows
    /// show counts as often.
    pub fn tokens_in_rows(&self) -> u64 {
        let means = self.plan.block_picks.len() as u64 * self.shape.block_size as u64;
        let pyramid = self.pyramid.as_ref().map_or(0, Pyramid::tokens);
        let rows = self.rows() - self.plan.block_picks.len() - self.pyramid.as_ref().map_or(0, Pyramid::len);
        rows as u64 + means + pyramid
    }

    /// Bytes taken, all of them at construction.
    pub fn bytes(&self) -> usize {
        let stores = [Some(&self.tail), self.store.as_ref(), Some(&self.pinned), self.blocks.as_ref()];
        let rows: usize = stores.into_iter().flatten().map(RowStore::bytes).sum();
        let picks = [&self.plan.tail_picks, &self.plan.store_picks, &self.plan.block_picks];
        let lists = picks.iter().map(|p| p.capacity()).sum::<usize>() + self.sums.len() + self.row.len();
        let heavy = self.heavy.as_ref().map_or(0, |h| 8 * h.positions.len() + 4 * (h.mass.len() + h.weights.len()));
        rows + 4 * lists + heavy + self.pyramid.as_ref().map_or(0, Pyramid::bytes) + size_of::<Self>()
    }

    /// Forgets everything and overwrites it with zeros.
    pub fn reset(&mut self) {
        self.tail.wipe();
        self.pinned.wipe();
        self.store.iter_mut().chain(self.blocks.iter_mut()).for_each(RowStore::wipe);
        self.sums.fill(0.0);
        self.row.fill(0.0);
        if let Some(pyramid) = &mut self.pyramid {
            pyramid.wipe();
        }
        if let Some(heavy) = &mut self.heavy {
            heavy.mass.fill(0.0);
            heavy.weights.fill(0.0);
            (heavy.used, heavy.last_victim) = (0, None);
        }
        (self.position, self.start, self.left) = (0, 0, 0);
        self.draw_plan();
    }

    pub(super) fn shape(&self) -> &CacheShape {
        &self.shape
    }

    /// Room for the attention weights of one kv head, where the policy needs them.
    pub(super) fn take_weights(&mut self) -> Option<Vec<f32>> {
        self.heavy.as_mut().map(|h| std::mem::take(&mut h.weights))
    }

    /// Gives the room back and adds the weights (rows x group; the held tokens come first) to what each token got so far.
    pub(super) fn give_weights(&mut self, weights: Vec<f32>) {
        if let Some(heavy) = &mut self.heavy {
            heavy.weights = weights;
        }
    }

    pub(super) fn add_mass(&mut self, weights: &[f32], group: usize) {
        if let Some(heavy) = &mut self.heavy {
            for (mass, row) in heavy.mass[..heavy.used].iter_mut().zip(weights.chunks_exact(group)) {
                *mass += row.iter().sum::<f32>();
            }
        }
    }
}

impl Heavy {
    /// The slot for the token at `position`: the next free one, or that of the token with the least attention which is
    /// not protected. The capacity is larger than what is protected, so there is always one.
    fn place(&mut self, position: u64, window: usize, globals: &[u64]) -> usize {
        let slot = if self.used < self.positions.len() {
            self.used += 1;
            self.used - 1
        } else {
            let least = position.saturating_sub(window as u64);
            let free = |p: u64| p < least;
            let candidates = (0..self.used).filter(|s| free(self.positions[*s]));
            let victim = candidates.min_by(|a, b| {
                // A global token has a row of its own outside: its slot is the first to give.
                let key =
                    |s: usize| (globals.binary_search(&self.positions[s]).is_err(), self.mass[s], self.positions[s]);
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

    fn holds(&self, position: u64) -> bool {
        self.positions[..self.used].contains(&position)
    }
}

/// Positions `low..high` as at most two ranges of slots of a ring.
fn ranges(low: u64, high: u64, slots: usize) -> [(usize, usize); 2] {
    let len = high.saturating_sub(low) as usize;
    let first = (low % slots as u64) as usize;
    let before = len.min(slots - first);
    [(first, before), (0, len - before)]
}

/// Largest magnitude of a number in single precision: the square of it, added up over a head, still is a number.
pub(super) const LARGEST: f32 = 1e16;

/// Refuses NaN, infinity and numbers beyond `limit`. One pass without branches (without their signs the bits of floats are
/// ordered as the floats are, infinity and NaN last); the search for the culprit only if there is one.
pub(super) fn check_numbers(what: &'static str, numbers: &[f32], limit: f32) -> Result<(), TemporalError> {
    let magnitude = |x: &f32| x.to_bits() & 0x7fff_ffff;
    if numbers.iter().map(magnitude).fold(0, u32::max) <= limit.to_bits() {
        return Ok(());
    }
    let index = numbers.iter().position(|x| magnitude(x) > limit.to_bits()).unwrap_or_default();
    Err(TemporalError::NotFinite { what, index })
}
