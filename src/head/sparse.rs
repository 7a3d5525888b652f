//! Sparse grouped-query attention: prefill over a window and streaming over a cache.

use super::cache::{CachePrecision, CacheShape, FullPolicy, KvCache, LARGEST, check_numbers};
use super::config::{LandmarkWeight, Pattern, TemporalHeadConfig};
use super::{TemporalError, Tensor3};
use crate::kernel::{Kernel, LogWeights, Rows, Segment};

/// The sparse head.
#[derive(Debug, Clone)]
pub struct SparseGqaHead {
    core: Core,
}

/// What both backends share: shape, kernel, and streaming.
#[derive(Debug, Clone)]
pub(super) struct Core {
    config: TemporalHeadConfig,
    shape: CacheShape,
    kernel: &'static Kernel,
}

impl Core {
    pub(super) fn new(config: &TemporalHeadConfig, kernel: &'static Kernel) -> Result<Self, TemporalError> {
        config.validate()?;
        Ok(Self { shape: CacheShape::of(config), config: config.clone(), kernel })
    }

    pub(super) const fn config(&self) -> &TemporalHeadConfig {
        &self.config
    }

    pub(super) const fn kernel(&self) -> &'static Kernel {
        self.kernel
    }

    pub(super) fn make_cache(
        &self,
        capacity: usize,
        precision: CachePrecision,
        policy: FullPolicy,
    ) -> Result<KvCache, TemporalError> {
        KvCache::new(&self.config, capacity, precision, policy)
    }

    pub(super) fn step(
        &self,
        q: &Tensor3,
        k: &Tensor3,
        v: &Tensor3,
        cache: &mut KvCache,
    ) -> Result<Tensor3, TemporalError> {
        let c = &self.config;
        q.expect("q", 1, c.q_heads, c.head_dim)?;
        k.expect("k", 1, c.kv_heads, c.head_dim)?;
        v.expect("v", 1, c.kv_heads, c.head_dim)?;
        let mut out = Tensor3::zeros(1, c.q_heads, c.head_dim)?;
        self.step_into(q.as_slice(), k.as_slice(), v.as_slice(), cache, out.as_mut_slice())?;
        Ok(out)
    }

    pub(super) fn step_into(
        &self,
        q: &[f32],
        k: &[f32],
        v: &[f32],
        cache: &mut KvCache,
        out: &mut [f32],
    ) -> Result<(), TemporalError> {
        let c = &self.config;
        if *cache.shape() != self.shape {
            return Err(TemporalError::Shape {
                what: "cache",
                expected: format!("{:?}", self.shape),
                got: format!("{:?}", cache.shape()),
            });
        }
        for (what, len) in [("q", q.len()), ("out", out.len())] {
            if len != c.q_heads * c.head_dim {
                let (expected, got) = (format!("{} x {} numbers", c.q_heads, c.head_dim), format!("{len} numbers"));
                return Err(TemporalError::Shape { what, expected, got });
            }
        }
        // Under heavy_hitters one such query would stay in the weights for ever.
        check_numbers("q", q, LARGEST)?;
        cache.append_rows(k, v)?;
        cache.draw_plan();
        let (group, scale) = (c.group(), c.scale());
        let width = group * c.head_dim;
        let mut weights = cache.take_weights();
        let mut result = Ok(());
        for head in 0..c.kv_heads {
            let (queries, out) = (&q[head * width..][..width], &mut out[head * width..][..width]);
            let segments = cache.segments(head);
            let rows: usize = segments.iter().map(|s| s.len).sum();
            let wanted = weights.as_mut().map(|w| &mut w[..rows * group]);
            let done = self.kernel.sparse_decode(queries, c.head_dim, &segments, scale, out, wanted);
            if let (Ok(()), Some(weights)) = (&done, &weights) {
                cache.add_mass(weights, group);
            }
            result = result.and(done);
        }
        // Also after an error: the cache needs the room for its next step.
        if let Some(weights) = weights {
            cache.give_weights(weights);
        }
        Ok(result?)
    }

    /// Checks q, k, v of a whole window and gives its length.
    pub(super) fn check_window(&self, q: &Tensor3, k: &Tensor3, v: &Tensor3) -> Result<usize, TemporalError> {
        let c = &self.config;
        q.expect("q", q.seq(), c.q_heads, c.head_dim)?;
        k.expect("k", q.seq(), c.kv_heads, c.head_dim)?;
        v.expect("v", q.seq(), c.kv_heads, c.head_dim)?;
        for (what, t) in [("q", q), ("k", k), ("v", v)] {
            check_numbers(what, t.as_slice(), LARGEST)?;
        }
        Ok(q.seq())
    }

    /// `len` rows of a head of k and v from `first` on.
    pub(super) fn window_rows<'a>(&self, k: &'a Tensor3, v: &'a Tensor3, head: usize, first: usize) -> Rows<'a> {
        let (dim, stride) = (self.config.head_dim, self.config.kv_heads * self.config.head_dim);
        let at = first * stride + head * dim;
        let from = |t: &'a Tensor3| t.as_slice().get(at..).unwrap_or_default();
        Rows::F32 { keys: from(k), values: from(v), stride }
    }
}

impl SparseGqaHead {
    /// A head with the best kernel of this processor.
    ///
    /// # Errors
    /// [`TemporalError::Config`] for a configuration that is not valid.
    pub fn new(config: &TemporalHeadConfig) -> Result<Self, TemporalError> {
        Self::with_kernel(config, Kernel::select(None)?)
    }

    /// A head with a kernel of choice.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_kernel(config: &TemporalHeadConfig, kernel: &'static Kernel) -> Result<Self, TemporalError> {
        Ok(Self { core: Core::new(config, kernel)? })
    }

    pub(super) const fn core(&self) -> &Core {
        &self.core
    }

    /// Attention of a whole window: q of shape (seq, q_heads, head_dim), k and v of (seq, kv_heads, head_dim); the result
    /// has the shape of q. Position i gets what [`AetherTemporalHead::step`](super::AetherTemporalHead::step) gives at
    /// its i-th call on a cache that is never full.
    ///
    /// # Errors
    /// [`TemporalError::Shape`] and [`TemporalError::NotFinite`].
    pub fn forward(&self, q: &Tensor3, k: &Tensor3, v: &Tensor3) -> Result<Tensor3, TemporalError> {
        let core = &self.core;
        let seq = core.check_window(q, k, v)?;
        let c = &core.config;
        let mut out = Tensor3::zeros(seq, c.q_heads, c.head_dim)?;
        if seq == 0 {
            return Ok(out);
        }
        let width = c.q_heads * c.head_dim;
        if c.pattern == Pattern::Pyramid {
            // What a pyramid holds depends on all tokens before, so prefill is streaming.
            let mut cache = core.make_cache(1, CachePrecision::F32, FullPolicy::Slide)?;
            for (i, out) in out.as_mut_slice().chunks_exact_mut(width).enumerate() {
                core.step_into(q.position(i), k.position(i), v.position(i), &mut cache, out)?;
            }
            return Ok(out);
        }
        let means = Means::of(core, k, v);
        let mean_weight = match c.landmark_weight {
            LandmarkWeight::Unit => 0.0,
            LandmarkWeight::Count => (c.block_size as f32).ln(),
        };
        let (mut picks, mut blocks) = (Vec::new(), Vec::new());
        let group = c.group() * c.head_dim;
        for (i, out) in out.as_mut_slice().chunks_exact_mut(width).enumerate() {
            let (low, high) = candidates(c, &core.shape.globals, i, seq, &mut picks);
            block_candidates(c, i, seq, &mut blocks);
            // The last block of a window that is not causal may be short.
            let short = blocks.last().is_some_and(|b| (*b as usize + 1) * c.block_size > seq);
            let weights: Vec<f32> = if short && c.landmark_weight == LandmarkWeight::Count {
                let size = |b: &u32| ((*b as usize + 1) * c.block_size).min(seq) - *b as usize * c.block_size;
                blocks.iter().map(|b| (size(b) as f32).ln()).collect()
            } else {
                Vec::new()
            };
            let weigh = if weights.is_empty() { LogWeights::Same(mean_weight) } else { LogWeights::Each(&weights) };
            for head in 0..c.kv_heads {
                let segments = [
                    Segment::tokens(core.window_rows(k, v, head, low), high - low),
                    Segment::picked(core.window_rows(k, v, head, 0), &picks),
                    Segment::picked(means.rows(head), &blocks).weighted(weigh),
                ];
                let queries = &q.position(i)[head * group..][..group];
                let out = &mut out[head * group..][..group];
                core.kernel.sparse_decode(queries, c.head_dim, &segments, c.scale(), out, None)?;
            }
        }
        Ok(out)
    }
}

/// The window of position `i` (first, behind the last); everything else it looks at goes into `picks`.
fn candidates(c: &TemporalHeadConfig, globals: &[u64], i: usize, seq: usize, picks: &mut Vec<u32>) -> (usize, usize) {
    picks.clear();
    let low = i.saturating_sub(c.window);
    let high = if c.causal { i + 1 } else { (i + c.window + 1).min(seq) };
    let outside = |j: usize| j < low || j >= high;
    for &g in globals {
        if let Ok(j) = usize::try_from(g)
            && j < seq
            && outside(j)
            && (!c.causal || j <= i)
        {
            picks.push(j as u32);
        }
    }
    if c.use_log_stride {
        let mut stride = 1;
        while stride < seq {
            let back = i.checked_sub(stride);
            let forward = (!c.causal && i + stride < seq).then_some(i + stride);
            for j in back.into_iter().chain(forward) {
                if outside(j) && globals.binary_search(&(j as u64)).is_err() {
                    picks.push(j as u32);
                }
            }
            stride *= 2;
        }
    }
    (low, high)
}

/// The blocks whose means position `i` looks at, in ascending order.
fn block_candidates(c: &TemporalHeadConfig, i: usize, seq: usize, blocks: &mut Vec<u32>) {
    blocks.clear();
    if !c.use_landmarks {
        return;
    }
    let all = seq.div_ceil(c.block_size);
    let (available, pivot) = if c.causal {
        let complete = (i + 1) / c.block_size;
        let Some(pivot) = complete.checked_sub(1) else { return };
        (complete, pivot)
    } else {
        (all, i / c.block_size)
    };
    let own = i / c.block_size;
    let mut pick = |b: usize| {
        if c.causal || b != own {
            blocks.push(b as u32);
        }
    };
    (pivot.saturating_sub(1)..=(pivot + 1).min(available - 1)).for_each(&mut pick);
    if c.use_log_stride {
        let mut stride = 1;
        while stride < all {
            if pivot >= stride {
                pick(pivot - stride);
            }
            if !c.causal && pivot + stride < all {
                pick(pivot + stride);
            }
            stride *= 2;
        }
    }
    blocks.sort_unstable();
    blocks.dedup();
}

/// Means of all blocks of a window, key and value side by side.
struct Means {
    blocks: usize,
    dim: usize,
    data: Vec<f32>,
}

impl Means {
    fn of(core: &Core, k: &Tensor3, v: &Tensor3) -> Self {
        let c = &core.config;
        let (dim, blocks) = (c.head_dim, if c.use_landmarks { k.seq().div_ceil(c.block_size) } else { 0 });
        let mut data = vec![0.0f32; c.kv_heads * blocks * 2 * dim];
        for head in 0..c.kv_heads {
            for i in 0..if blocks > 0 { k.seq() } else { 0 } {
                let block = i / c.block_size;
                let count = ((block + 1) * c.block_size).min(k.seq()) - block * c.block_size;
                let share = 1.0 / count as f32;
                let row = &mut data[(head * blocks + block) * 2 * dim..][..2 * dim];
                for (m, x) in row.iter_mut().zip(k.row(i, head).iter().chain(v.row(i, head))) {
                    *m += x * share;
                }
            }
        }
        Self { blocks, dim, data }
    }

    fn rows(&self, head: usize) -> Rows<'_> {
        let data = self.data.get(head * self.blocks * 2 * self.dim..).unwrap_or_default();
        Rows::F32 { keys: data, values: data.get(self.dim..).unwrap_or_default(), stride: 2 * self.dim }
    }
}
