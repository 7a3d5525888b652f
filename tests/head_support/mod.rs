//! Random tensors, and attention computed slowly in double precision from all that was ever seen.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use aetherd::head::{LandmarkWeight, TemporalHeadConfig, Tensor3};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// Uniform numbers of at most `size`.
pub fn tensor(rng: &mut ChaCha8Rng, seq: usize, heads: usize, dim: usize, size: f32) -> Tensor3 {
    let data = (0..seq * heads * dim).map(|_| (rng.random::<f32>() * 2.0 - 1.0) * size).collect();
    Tensor3::from_vec(data, seq, heads, dim).unwrap()
}

/// One position as a tensor of its own.
pub fn at(t: &Tensor3, i: usize) -> Tensor3 {
    Tensor3::from_vec(t.position(i).to_vec(), 1, t.heads(), t.dim()).unwrap()
}

/// Largest difference.
pub fn apart(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// A row that takes part: which tokens it is the mean of, and the weight of that mean.
pub struct Row {
    pub tokens: Vec<usize>,
    pub weight: f64,
}

/// Softmax attention of position `i` over `rows`, heads after each other.
pub fn attend(c: &TemporalHeadConfig, q: &Tensor3, k: &Tensor3, v: &Tensor3, i: usize, rows: &[Row]) -> Vec<f32> {
    let mut out = Vec::new();
    let mean = |t: &Tensor3, row: &Row, head: usize| -> Vec<f64> {
        let sum = |d: usize| row.tokens.iter().map(|j| f64::from(t.row(*j, head)[d])).sum::<f64>();
        (0..t.dim()).map(|d| sum(d) / row.tokens.len() as f64).collect()
    };
    for head in 0..c.q_heads {
        let kv = head / (c.q_heads / c.kv_heads);
        let score = |row: &Row| {
            let dot: f64 = mean(k, row, kv).iter().zip(q.row(i, head)).map(|(k, q)| k * f64::from(*q)).sum();
            dot / (c.head_dim as f64).sqrt() + row.weight.ln()
        };
        let scores: Vec<f64> = rows.iter().map(score).collect();
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = scores.iter().map(|s| (s - most).exp()).sum();
        let mut sum = vec![0.0; c.head_dim];
        for (row, score) in rows.iter().zip(&scores) {
            let p = (score - most).exp() / total;
            sum.iter_mut().zip(mean(v, row, kv)).for_each(|(s, v)| *s += p * v);
        }
        out.extend(sum.iter().map(|s| *s as f32));
    }
    out
}

/// The rows of the compatible pattern at position `i` in a stream of which the tokens from `start` on are held, and means
/// from block `oldest_block` on.
pub fn compatible_rows(c: &TemporalHeadConfig, i: usize, start: usize, oldest_block: usize) -> Vec<Row> {
    let mut tokens: Vec<usize> = (i.saturating_sub(c.window).max(start)..=i).collect();
    tokens.extend(c.global_tokens.iter().filter(|g| **g <= i));
    if c.use_log_stride {
        let strides = (0..63).map(|k| 1usize << k).take_while(|s| *s <= i);
        tokens.extend(strides.map(|s| i - s).filter(|j| *j >= start));
    }
    tokens.sort_unstable();
    tokens.dedup();
    let mut rows: Vec<Row> = tokens.into_iter().map(|t| Row { tokens: vec![t], weight: 1.0 }).collect();
    let complete = (i + 1) / c.block_size;
    if c.use_landmarks && complete > 0 {
        let pivot = complete - 1;
        let mut blocks = vec![pivot, pivot.saturating_sub(1)];
        if c.use_log_stride {
            blocks.extend((0..63).map(|k| 1usize << k).take_while(|s| *s <= pivot).map(|s| pivot - s));
        }
        blocks.sort_unstable();
        blocks.dedup();
        let weight = if c.landmark_weight == LandmarkWeight::Count { c.block_size as f64 } else { 1.0 };
        let of = |b: usize| (b * c.block_size..(b + 1) * c.block_size).collect();
        rows.extend(blocks.into_iter().filter(|b| *b >= oldest_block).map(|b| Row { tokens: of(b), weight }));
    }
    rows
}
