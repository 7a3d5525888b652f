//! What a cache is: its numbers, its policy, the head it is made for.

#[cfg(doc)]
use crate::head::TemporalError;
use crate::head::config::{LandmarkWeight, Pattern, TemporalBackendKind, TemporalHeadConfig};

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

/// What a cache is made for; a head takes only caches of its own shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::head) struct CacheShape {
    pub(in crate::head) backend: TemporalBackendKind,
    pub(in crate::head) kv_heads: usize,
    pub(in crate::head) head_dim: usize,
    pub(in crate::head) window: usize,
    pub(in crate::head) block_size: usize,
    pub(in crate::head) globals: Vec<u64>,
    pub(in crate::head) use_log_stride: bool,
    pub(in crate::head) use_landmarks: bool,
    pub(in crate::head) landmark_weight: LandmarkWeight,
    pub(in crate::head) pattern: Pattern,
    pub(in crate::head) pyramid_levels: usize,
}

impl CacheShape {
    pub(in crate::head) fn of(config: &TemporalHeadConfig) -> Self {
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
