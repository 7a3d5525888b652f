//! Settings of the temporal head.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How a track's cache remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Memory {
    /// The whole past in block means whose size doubles with distance.
    Pyramid,
    /// Window, log strides and block means of the cached past, as the published crate has them.
    Compatible,
}

/// In which numbers a cache stores keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Storage {
    /// Single precision.
    F32,
    /// Half precision.
    F16,
    /// Half precision for the newest `tail_tokens`, 8-bit blocks behind them.
    Q8,
    /// The same with 4-bit blocks.
    Q4,
}

/// What leaves a full cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Forgetting {
    /// The oldest block.
    Slide,
    /// The tokens that got the least attention so far; window and first token stay.
    HeavyHitters,
}

/// Settings of the temporal head and its caches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Stream the tokens of tracks through the head.
    pub enabled: bool,
    /// Weight file (.rvne); without one random weights that are marked untrained.
    pub weights: Option<PathBuf>,
    /// Attention kernel: auto, scalar, neon or avx2.
    pub kernel: String,
    /// How a cache remembers.
    pub memory: Memory,
    /// In which numbers.
    pub storage: Storage,
    /// What leaves a full cache (compatible memory; a pyramid is never full).
    pub forgetting: Forgetting,
    /// Newest tokens that are always attended one by one.
    pub window_tokens: usize,
    /// Tokens in a block.
    pub block_tokens: usize,
    /// Tokens a cache holds (compatible memory).
    pub cache_tokens: usize,
    /// Newest tokens kept in half precision (q8 and q4 storage).
    pub tail_tokens: usize,
    /// Memory for the caches of all tracks, MiB. Where it is not enough, lost tracks give theirs up first.
    pub cache_budget_mib: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enabled: true,
            weights: None,
            kernel: "auto".to_owned(),
            memory: Memory::Pyramid,
            storage: Storage::F32,
            forgetting: Forgetting::Slide,
            window_tokens: 32,
            block_tokens: 16,
            cache_tokens: 4096,
            tail_tokens: 256,
            cache_budget_mib: 16.0,
        }
    }
}
