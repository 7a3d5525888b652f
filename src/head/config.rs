//! Shape and pattern of a head.

use super::TemporalError;

/// Which attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TemporalBackendKind {
    /// Every cached token: exact, and the yardstick.
    Dense,
    /// A sparse pattern over grouped query heads.
    SparseGqa,
}

/// Which part of the past a sparse head looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// Window, globals, log strides and means of blocks at log strides: what the crate `ruvllm_sparse_attention` does.
    Compatible,
    /// Window, globals and means of blocks that tile the whole rest of the past, the larger the older.
    Pyramid,
}

/// What the mean of a block weighs in the softmax.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LandmarkWeight {
    /// As one token.
    Unit,
    /// As the tokens it stands for: the logarithm of their number is added to its score.
    Count,
}

/// Shape and pattern of a head. The default is that of the AETHER proposal; [`Pattern::Pyramid`] wants
/// [`LandmarkWeight::Count`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemporalHeadConfig {
    /// Which attention.
    pub backend: TemporalBackendKind,
    /// Query heads; a multiple of `kv_heads`.
    pub q_heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Numbers per head.
    pub head_dim: usize,
    /// Newest tokens that are attended one by one, beside the present one.
    pub window: usize,
    /// Tokens in a block.
    pub block_size: usize,
    /// A token sees no later one. Needed for streaming.
    pub causal: bool,
    /// Positions that every later token sees.
    pub global_tokens: Vec<usize>,
    /// Look at tokens and blocks 1, 2, 4, 8, ... back (compatible pattern).
    pub use_log_stride: bool,
    /// Look at means of blocks (compatible pattern).
    pub use_landmarks: bool,
    /// What a mean weighs.
    pub landmark_weight: LandmarkWeight,
    /// Which part of the past.
    pub pattern: Pattern,
    /// Sizes of blocks in a pyramid: the largest hold `block_size * 2^(levels - 1)` tokens and, as the oldest ones, all
    /// that is older.
    pub pyramid_levels: usize,
}

impl Default for TemporalHeadConfig {
    fn default() -> Self {
        Self {
            backend: TemporalBackendKind::SparseGqa,
            q_heads: 4,
            kv_heads: 1,
            head_dim: 32,
            window: 32,
            block_size: 16,
            causal: true,
            global_tokens: vec![0],
            use_log_stride: true,
            use_landmarks: true,
            landmark_weight: LandmarkWeight::Unit,
            pattern: Pattern::Compatible,
            pyramid_levels: 12,
        }
    }
}

/// Widest head, most heads and longest window: far beyond any use, and far from overflow.
const MOST: usize = 1 << 16;
/// Most global tokens.
const MOST_GLOBALS: usize = 64;

impl TemporalHeadConfig {
    /// The daemon's pattern: the whole past as a pyramid, every mean weighing as many tokens as it stands for.
    pub fn pyramid() -> Self {
        Self { pattern: Pattern::Pyramid, landmark_weight: LandmarkWeight::Count, ..Self::default() }
    }

    /// Checks every value.
    ///
    /// # Errors
    /// [`TemporalError::Config`] names the first that is wrong.
    pub fn validate(&self) -> Result<(), TemporalError> {
        let check = |what, expected, got: usize, ok: bool| {
            if ok { Ok(()) } else { Err(TemporalError::Config { what, expected, got: got.to_string() }) }
        };
        let size = "1 to 65536";
        check("q_heads", size, self.q_heads, (1..=MOST).contains(&self.q_heads))?;
        check("kv_heads", size, self.kv_heads, (1..=MOST).contains(&self.kv_heads))?;
        check("head_dim", size, self.head_dim, (1..=MOST).contains(&self.head_dim))?;
        check("block_size", size, self.block_size, (1..=MOST).contains(&self.block_size))?;
        check("window", "0 to 65536", self.window, self.window <= MOST)?;
        let multiple = self.q_heads.is_multiple_of(self.kv_heads);
        check("q_heads", "a multiple of kv_heads", self.q_heads, multiple)?;
        let globals = &self.global_tokens;
        check("global_tokens", "at most 64 of them", globals.len(), globals.len() <= MOST_GLOBALS)?;
        check("pyramid_levels", "1 to 40", self.pyramid_levels, (1..=40).contains(&self.pyramid_levels))?;
        if self.pattern == Pattern::Pyramid && !self.causal {
            return Err(TemporalError::NotCausal("the pyramid pattern"));
        }
        Ok(())
    }

    /// Query heads that share a kv head.
    pub const fn group(&self) -> usize {
        self.q_heads / self.kv_heads
    }

    /// 1 / sqrt(head_dim).
    pub fn scale(&self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }

    /// Global positions in ascending order, each once.
    pub(super) fn globals(&self) -> Vec<u64> {
        let mut globals: Vec<u64> = self.global_tokens.iter().map(|g| *g as u64).collect();
        globals.sort_unstable();
        globals.dedup();
        globals
    }
}
