//! [`AetherTemporalHead`]: either backend by name.

use super::cache::{CachePrecision, FullPolicy, KvCache};
use super::dense::DenseHead;
use super::sparse::{Core, SparseGqaHead};
use super::{TemporalBackendKind, TemporalError, TemporalHeadConfig, Tensor3};
use crate::kernel::Kernel;

/// The temporal head: attention of one layer, over a window or token by token.
///
/// The interface is that of the AETHER proposal; what it left open (the dense backend, the life of a cache) is here.
#[derive(Debug, Clone)]
pub enum AetherTemporalHead {
    /// Sparse grouped-query attention.
    SparseGqa(SparseGqaHead),
    /// Exact attention.
    Dense(DenseHead),
}

impl AetherTemporalHead {
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
        Ok(match config.backend {
            TemporalBackendKind::SparseGqa => Self::SparseGqa(SparseGqaHead::with_kernel(config, kernel)?),
            TemporalBackendKind::Dense => Self::Dense(DenseHead::with_kernel(config, kernel)?),
        })
    }

    fn core(&self) -> &Core {
        match self {
            Self::SparseGqa(head) => head.core(),
            Self::Dense(head) => head.core(),
        }
    }

    /// Its configuration.
    pub fn config(&self) -> &TemporalHeadConfig {
        self.core().config()
    }

    /// Its kernel.
    pub fn kernel(&self) -> &'static Kernel {
        self.core().kernel()
    }

    /// Attention of a whole window: q of shape (seq, q_heads, head_dim), k and v of (seq, kv_heads, head_dim); the result
    /// has the shape of q. Pooling is the caller's.
    ///
    /// # Errors
    /// [`TemporalError::Shape`] and [`TemporalError::NotFinite`].
    pub fn forward(&self, q: &Tensor3, k: &Tensor3, v: &Tensor3) -> Result<Tensor3, TemporalError> {
        match self {
            Self::SparseGqa(head) => head.forward(q, k, v),
            Self::Dense(head) => head.forward(q, k, v),
        }
    }

    /// Appends one token's key and value to `cache` and gives its attention; all tensors of seq 1.
    ///
    /// # Errors
    /// [`TemporalError::Shape`] (also for a cache of another head), [`TemporalError::NotFinite`],
    /// [`TemporalError::CacheFull`]; the cache is then as before.
    pub fn step(&self, q: &Tensor3, k: &Tensor3, v: &Tensor3, cache: &mut KvCache) -> Result<Tensor3, TemporalError> {
        self.core().step(q, k, v, cache)
    }

    /// As [`step`](Self::step) on slices (q_heads x head_dim and kv_heads x head_dim), allocating nothing.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn step_into(
        &self,
        q: &[f32],
        k: &[f32],
        v: &[f32],
        cache: &mut KvCache,
        out: &mut [f32],
    ) -> Result<(), TemporalError> {
        self.core().step_into(q, k, v, cache, out)
    }

    /// A single-precision cache of `capacity` tokens that says when it is full.
    ///
    /// # Errors
    /// [`TemporalError::Config`], and [`TemporalError::NotCausal`] for heads that look ahead.
    pub fn make_cache(&self, capacity: usize) -> Result<KvCache, TemporalError> {
        self.make_cache_with(capacity, CachePrecision::F32, FullPolicy::Error)
    }

    /// A cache of choice.
    ///
    /// # Errors
    /// As [`make_cache`](Self::make_cache), and [`TemporalError::Config`] where precision, policy and capacity do not fit.
    pub fn make_cache_with(
        &self,
        capacity: usize,
        precision: CachePrecision,
        policy: FullPolicy,
    ) -> Result<KvCache, TemporalError> {
        self.core().make_cache(capacity, precision, policy)
    }
}
