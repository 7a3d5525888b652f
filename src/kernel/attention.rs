//! Dense attention as the reference names it: flash, grouped-query, multi-query and paged.
//!
//! All of them are the same online softmax over rows that no score matrix is kept for ("Self-attention does not need O(n²)
//! memory", arXiv 2112.05682; FlashAttention, arXiv 2205.14135). Queries of a group share each row that is read (grouped-query
//! attention, arXiv 2305.13245).
//!
//! Several query tokens may be given; they are the last ones of the keys' stream. With `causal` a token sees keys up to its
//! own place only. A query that sees no key gives zeros.

use super::paged::PagedKvCache;
use super::rows::{Rows, Segment};
use super::table::Kernel;
use super::{KernelError, LogWeights, Picks};

/// Shape of an attention layer.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionConfig {
    /// Query heads.
    pub num_heads: usize,
    /// Heads of keys and values; they divide the query heads.
    pub num_kv_heads: usize,
    /// Numbers of a head.
    pub head_dim: usize,
    /// Whether a query token sees no keys after its own place.
    pub causal: bool,
    /// Factor of the scores; 1/sqrt(head_dim) where none is given.
    pub scale: Option<f32>,
}

impl AttentionConfig {
    /// Query heads that share a kv head; 0 if there is none.
    pub const fn gqa_ratio(&self) -> usize {
        match self.num_heads.checked_div(self.num_kv_heads) {
            Some(ratio) => ratio,
            None => 0,
        }
    }

    /// The factor of the scores.
    pub fn effective_scale(&self) -> f32 {
        self.scale.unwrap_or_else(|| 1.0 / (self.head_dim as f32).sqrt())
    }

    fn check(&self) -> Result<(), KernelError> {
        for (name, n) in
            [("num_heads", self.num_heads), ("num_kv_heads", self.num_kv_heads), ("head_dim", self.head_dim)]
        {
            if n == 0 {
                return Err(KernelError::Zero(name));
            }
        }
        if !self.num_heads.is_multiple_of(self.num_kv_heads) {
            return Err(KernelError::Ragged { what: "num_heads", got: self.num_heads, of: self.num_kv_heads });
        }
        for n in [self.num_heads, self.num_kv_heads] {
            if n.checked_mul(self.head_dim).is_none() {
                return Err(KernelError::Shape { what: "head_dim", expected: usize::MAX / n, got: self.head_dim });
            }
        }
        Ok(())
    }
}

impl Kernel {
    /// Attention of one head. `query` is tokens x `head_dim`, `key` and `value` are tokens x `head_dim`.
    ///
    /// # Errors
    /// Ragged or unequal lengths, no `head_dim`, numbers that are not finite.
    pub fn flash_attention(
        &self,
        query: &[f32],
        key: &[f32],
        value: &[f32],
        head_dim: usize,
        scale: f32,
        causal: bool,
    ) -> Result<Vec<f32>, KernelError> {
        let mut out = vec![0.0; query.len()];
        self.flash_attention_into(query, key, value, head_dim, scale, causal, &mut out)?;
        Ok(out)
    }

    /// As [`flash_attention`](Self::flash_attention) without allocation; after an error `out` is zero or as it was.
    ///
    /// # Errors
    /// As [`flash_attention`](Self::flash_attention).
    #[allow(clippy::too_many_arguments, reason = "the reference's arguments and a buffer")]
    pub fn flash_attention_into(
        &self,
        query: &[f32],
        key: &[f32],
        value: &[f32],
        head_dim: usize,
        scale: f32,
        causal: bool,
        out: &mut [f32],
    ) -> Result<(), KernelError> {
        let config = AttentionConfig { num_heads: 1, num_kv_heads: 1, head_dim, causal, scale: Some(scale) };
        self.grouped_query_attention_into(query, key, value, &config, out)
    }

    /// Attention with kv heads that groups of query heads share. `queries` is tokens x `num_heads` x `head_dim`, `keys` and
    /// `values` are tokens x `num_kv_heads` x `head_dim`.
    ///
    /// # Errors
    /// Ragged or unequal lengths, no heads, groups that do not come out even, numbers that are not finite.
    pub fn grouped_query_attention(
        &self,
        queries: &[f32],
        keys: &[f32],
        values: &[f32],
        config: &AttentionConfig,
    ) -> Result<Vec<f32>, KernelError> {
        let mut out = vec![0.0; queries.len()];
        self.grouped_query_attention_into(queries, keys, values, config, &mut out)?;
        Ok(out)
    }

    /// As [`grouped_query_attention`](Self::grouped_query_attention) without allocation; after an error `out` is zero or as
    /// it was.
    ///
    /// # Errors
    /// As [`grouped_query_attention`](Self::grouped_query_attention).
    pub fn grouped_query_attention_into(
        &self,
        queries: &[f32],
        keys: &[f32],
        values: &[f32],
        config: &AttentionConfig,
        out: &mut [f32],
    ) -> Result<(), KernelError> {
        config.check()?;
        let (d, kv_heads) = (config.head_dim, config.num_kv_heads);
        let (width, kv_width) = (config.num_heads * d, kv_heads * d);
        let group = config.gqa_ratio() * d;
        whole("queries", queries.len(), width)?;
        whole("keys", keys.len(), kv_width)?;
        equal("values", keys.len(), values.len())?;
        equal("out", queries.len(), out.len())?;
        let scale = config.effective_scale();
        finite("scale", &[scale])?;
        finite("queries", queries)?;
        let (tokens, kv_tokens) = (queries.len() / width, keys.len() / kv_width);
        let mut fine = true;
        for (token, (queries, out)) in queries.chunks_exact(width).zip(out.chunks_exact_mut(width)).enumerate() {
            let len = if config.causal { (kv_tokens + token + 1).saturating_sub(tokens) } else { kv_tokens };
            for head in 0..kv_heads {
                let begin = (head * d).min(keys.len());
                let rows = Rows::F32 { keys: &keys[begin..], values: &values[begin..], stride: kv_width };
                let queries = &queries[head * group..][..group];
                let out = &mut out[head * group..][..group];
                fine &= self.decode(queries, d, &[Segment::tokens(rows, len)], scale, out, None)?;
            }
        }
        if fine { Ok(()) } else { Err(explain(keys, values, out)) }
    }

    /// Attention of all query heads with a single kv head: [`grouped_query_attention`](Self::grouped_query_attention) with
    /// `num_kv_heads` 1.
    ///
    /// # Errors
    /// As there, and where the configuration has more kv heads.
    pub fn multi_query_attention(
        &self,
        queries: &[f32],
        key: &[f32],
        value: &[f32],
        config: &AttentionConfig,
    ) -> Result<Vec<f32>, KernelError> {
        let mut out = vec![0.0; queries.len()];
        self.multi_query_attention_into(queries, key, value, config, &mut out)?;
        Ok(out)
    }

    /// As [`multi_query_attention`](Self::multi_query_attention) without allocation; after an error `out` is zero or as it
    /// was.
    ///
    /// # Errors
    /// As [`multi_query_attention`](Self::multi_query_attention).
    pub fn multi_query_attention_into(
        &self,
        queries: &[f32],
        key: &[f32],
        value: &[f32],
        config: &AttentionConfig,
        out: &mut [f32],
    ) -> Result<(), KernelError> {
        equal("num_kv_heads", 1, config.num_kv_heads)?;
        self.grouped_query_attention_into(queries, key, value, config, out)
    }

    /// Attention of one token over the blocks of a table, in its order. `query` is heads x `head_dim`; the heads are a
    /// multiple of the cache's kv heads. A block that is named twice counts twice.
    ///
    /// # Errors
    /// Ragged queries, blocks that the cache does not have, a block other than the last that is not full, numbers that are
    /// not finite.
    pub fn paged_attention(
        &self,
        query: &[f32],
        cache: &PagedKvCache,
        block_tables: &[usize],
        scale: f32,
    ) -> Result<Vec<f32>, KernelError> {
        let mut out = vec![0.0; query.len()];
        self.paged_attention_into(query, cache, block_tables, scale, &mut out)?;
        Ok(out)
    }

    /// As [`paged_attention`](Self::paged_attention) without allocation; after an error `out` is zero or as it was.
    ///
    /// # Errors
    /// As [`paged_attention`](Self::paged_attention).
    pub fn paged_attention_into(
        &self,
        query: &[f32],
        cache: &PagedKvCache,
        block_tables: &[usize],
        scale: f32,
        out: &mut [f32],
    ) -> Result<(), KernelError> {
        let (d, kv_heads) = (cache.head_dim(), cache.num_kv_heads());
        if query.is_empty() {
            return Err(KernelError::Zero("query heads"));
        }
        whole("query", query.len(), kv_heads * d)?;
        equal("out", query.len(), out.len())?;
        finite("scale", &[scale])?;
        finite("query", query)?;
        let len = cache.tokens_of(block_tables)?;
        // An empty last block brings no rows, and segments have no empty blocks.
        let numbers = &block_tables[..len.div_ceil(cache.block_size())];
        let group = query.len() / kv_heads;
        let mut fine = true;
        for (head, (query, out)) in query.chunks_exact(group).zip(out.chunks_exact_mut(group)).enumerate() {
            let (keys, values) = cache.head(head);
            let segment = Segment {
                rows: Rows::F32 { keys, values, stride: d },
                len,
                picks: Some(Picks::Blocks { numbers, rows: cache.block_size() }),
                log_weights: LogWeights::Same(0.0),
            };
            fine &= self.decode(query, d, &[segment], scale, out, None)?;
        }
        // The cache takes finite numbers only, so that what is left are products beyond the range.
        if fine { Ok(()) } else { Err(explain(&[], &[], out)) }
    }
}

/// [`Kernel::flash_attention`] of one query with the process's kernel: `query` is `head_dim` numbers, `key` and `value`
/// tokens x `head_dim`. The query is the last token, so `causal` hides nothing from it.
///
/// # Errors
/// As [`Kernel::flash_attention`].
pub fn flash_attention_neon(
    query: &[f32],
    key: &[f32],
    value: &[f32],
    scale: f32,
    causal: bool,
) -> Result<Vec<f32>, KernelError> {
    Kernel::global().flash_attention(query, key, value, query.len(), scale, causal)
}

/// [`Kernel::paged_attention`] with the process's kernel.
///
/// # Errors
/// As [`Kernel::paged_attention`].
pub fn paged_attention_neon(
    query: &[f32],
    kv_cache: &PagedKvCache,
    block_tables: &[usize],
    scale: f32,
) -> Result<Vec<f32>, KernelError> {
    Kernel::global().paged_attention(query, kv_cache, block_tables, scale)
}

/// [`Kernel::grouped_query_attention`] with the process's kernel.
///
/// # Errors
/// As [`Kernel::grouped_query_attention`].
pub fn grouped_query_attention_neon(
    queries: &[f32],
    keys: &[f32],
    values: &[f32],
    config: &AttentionConfig,
) -> Result<Vec<f32>, KernelError> {
    Kernel::global().grouped_query_attention(queries, keys, values, config)
}

/// [`Kernel::multi_query_attention`] with the process's kernel.
///
/// # Errors
/// As [`Kernel::multi_query_attention`].
pub fn multi_query_attention_neon(
    queries: &[f32],
    key: &[f32],
    value: &[f32],
    config: &AttentionConfig,
) -> Result<Vec<f32>, KernelError> {
    Kernel::global().multi_query_attention(queries, key, value, config)
}

fn whole(what: &'static str, got: usize, of: usize) -> Result<(), KernelError> {
    if got.is_multiple_of(of) { Ok(()) } else { Err(KernelError::Ragged { what, got, of }) }
}

fn equal(what: &'static str, expected: usize, got: usize) -> Result<(), KernelError> {
    if expected == got { Ok(()) } else { Err(KernelError::Shape { what, expected, got }) }
}

pub(super) fn finite(what: &'static str, numbers: &[f32]) -> Result<(), KernelError> {
    match numbers.iter().position(|x| !x.is_finite()) {
        Some(index) => Err(KernelError::NotFinite { what, index }),
        None => Ok(()),
    }
}

/// Which number made a result that is not finite. Only looked for then: reading keys and values twice would cost a third.
fn explain(keys: &[f32], values: &[f32], out: &mut [f32]) -> KernelError {
    out.fill(0.0);
    for (what, numbers) in [("keys", keys), ("values", values)] {
        if let Err(error) = finite(what, numbers) {
            return error;
        }
    }
    KernelError::NotFinite { what: "scores or sums (finite numbers, but too large for single precision)", index: 0 }
}
