//! The key/value cache of one head over one token stream.
//!
//! *In*: key and value of each new token. *Out*: segments of rows for the kernel. *State*: the newest tokens in a ring by
//! absolute position (so that nothing is ever moved), an 8- or 4-bit ring behind a half-precision tail where chosen,
//! global tokens pinned outside, running means of blocks, or the pyramid. All memory is taken at construction; a
//! stream that lives for days costs what one of a minute costs, in time and bytes.

mod append;
mod heavy;
mod kind;
mod plan;

pub(in crate::head) use append::{LARGEST, check_numbers};
pub(in crate::head) use kind::CacheShape;
pub use kind::{CachePrecision, FullPolicy};

use self::heavy::Heavy;
use self::plan::Plan;
use super::TemporalError;
use super::config::{Pattern, TemporalHeadConfig};
use super::pyramid::Pyramid;
use super::store::{Numbers, RowStore};

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
