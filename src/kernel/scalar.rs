//! The specification: short, plain, never optimised. Vector kernels are tested against it.

use half::f16;

use super::Segment;
use super::quant::{BlockQ4, BlockQ8};

/// One token's attention: for each of the `queries.len() / head_dim` queries of one kv head, softmax over the rows of all
/// segments together of `scale * q.k + log weight`, then the mean of the values under it. No rows at all give zeros.
///
/// `weights`, where wanted, receives the softmax weight of every row for every query, row by row (rows x queries). False if
/// a score or a result is not finite.
pub(super) fn sparse_decode(
    queries: &[f32],
    head_dim: usize,
    segments: &[Segment<'_>],
    scale: f32,
    out: &mut [f32],
    mut weights: Option<&mut [f32]>,
) -> bool {
    let group = queries.len() / head_dim;
    let mut row = vec![0.0f32; head_dim];
    let mut finite = true;
    for (head, (query, out)) in queries.chunks_exact(head_dim).zip(out.chunks_exact_mut(head_dim)).enumerate() {
        let mut scores = Vec::new();
        for segment in segments {
            for i in 0..segment.len {
                segment.read(i, false, &mut row);
                scores.push(scale * dot(query, &row) + segment.log_weight(i));
            }
        }
        out.fill(0.0);
        let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f32 = scores.iter().map(|s| (s - most).exp()).sum();
        let mut n = 0;
        for segment in segments {
            for i in 0..segment.len {
                let p = (scores[n] - most).exp() / sum;
                segment.read(i, true, &mut row);
                out.iter_mut().zip(&row).for_each(|(o, v)| *o += p * v);
                if let Some(weights) = weights.as_deref_mut() {
                    weights[n * group + head] = p;
                }
                n += 1;
            }
        }
        finite &= scores.iter().chain(&*out).all(|x| x.is_finite());
    }
    finite
}

/// Sum of products.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// `a` times the blocks read as numbers.
pub(super) fn dot_q8(a: &[f32], b: &[BlockQ8]) -> f32 {
    let mut values = [0.0f32; super::BLOCK];
    let parts = a.chunks(super::BLOCK).zip(b);
    parts
        .map(|(a, b)| {
            b.dequantize(&mut values);
            dot(a, &values)
        })
        .sum()
}

/// `a` times the blocks read as numbers.
pub(super) fn dot_q4(a: &[f32], b: &[BlockQ4]) -> f32 {
    let mut values = [0.0f32; super::BLOCK];
    let parts = a.chunks(super::BLOCK).zip(b);
    parts
        .map(|(a, b)| {
            b.dequantize(&mut values);
            dot(a, &values)
        })
        .sum()
}

/// `y = x W`: x is rows x inputs, W inputs x outputs, y rows x outputs, all row-major.
pub(super) fn matmul(x: &[f32], w: &[f32], inputs: usize, y: &mut [f32]) {
    let outputs = w.len() / inputs;
    for (x, y) in x.chunks_exact(inputs).zip(y.chunks_exact_mut(outputs)) {
        y.fill(0.0);
        for (x, w) in x.iter().zip(w.chunks_exact(outputs)) {
            y.iter_mut().zip(w).for_each(|(y, w)| *y += x * w);
        }
    }
}

/// As [`matmul`] with weights in half precision.
pub(super) fn matmul_f16(x: &[f32], w: &[f16], inputs: usize, y: &mut [f32]) {
    let outputs = w.len() / inputs;
    for (x, y) in x.chunks_exact(inputs).zip(y.chunks_exact_mut(outputs)) {
        y.fill(0.0);
        for (x, w) in x.iter().zip(w.chunks_exact(outputs)) {
            y.iter_mut().zip(w).for_each(|(y, w)| *y += x * w.to_f32());
        }
    }
}

/// Rounds to half precision, ties to even.
pub(super) fn to_f16(from: &[f32], to: &mut [f16]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = f16::from_f32(*from));
}

/// Reads half precision.
pub(super) fn from_f16(from: &[f16], to: &mut [f32]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = from.to_f32());
}

/// Quantises block by block.
#[inline(always)]
pub(super) fn quantize_q8(from: &[f32], to: &mut [BlockQ8]) {
    to.iter_mut().zip(from.chunks(super::BLOCK)).for_each(|(to, from)| *to = BlockQ8::quantize(from));
}

/// Quantises block by block.
#[inline(always)]
pub(super) fn quantize_q4(from: &[f32], to: &mut [BlockQ4]) {
    to.iter_mut().zip(from.chunks(super::BLOCK)).for_each(|(to, from)| *to = BlockQ4::quantize(from));
}
