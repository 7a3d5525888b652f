//! Attention of one token: scores, softmax and mean in two passes over a piece of rows, which all queries share.
//!
//! Queries are taken `G` = 4, 2 or 1 at a time and rows 16 / G at a time, so that there are sixteen sums on the way and
//! sixteen scores come out: number = row * G + query. As the AVX2 kernel but for the width; see there.

use std::arch::aarch64::*;
use std::f32::consts::LOG2_E;
use std::mem::MaybeUninit;

use super::rows::{F16, F32, Format, Q4, Q8};
use super::softmax::{Softmax, exp2, exponentials, over_query};
use super::{DOTPROD, Eight, FP16, dotprod, half};
use crate::kernel::chunk::{self, Chunk, ROWS, Span};
use crate::kernel::rows::Segment;

/// As the scalar function of this name. False if a score or a result is not finite. `FEATURES` tells what may be used of
/// the core beside its baseline: [`DOTPROD`] for scores of 8-bit rows, [`FP16`] for those of half precision.
///
/// # Safety
/// Needs these features; shapes must have been checked.
pub(in crate::kernel) unsafe fn sparse_decode<const FEATURES: u8>(
    queries: &[f32],
    head_dim: usize,
    segments: &[Segment<'_>],
    scale: f32,
    out: &mut [f32],
    weights: Option<&mut [f32]>,
) -> bool {
    let group = queries.len() / head_dim;
    let weights = weights.map_or(std::ptr::null_mut(), |w| w.as_mut_ptr());
    let mut finite = true;
    let mut first = 0;
    while first < group {
        // SAFETY: `first` is below the group, so all stay inside what was checked; at least as many queries are left as
        // are taken, and D is the head dimension or 0.
        unsafe {
            let task = Task {
                queries: queries.as_ptr().add(first * head_dim),
                out: out.as_mut_ptr().add(first * head_dim),
                weights: if weights.is_null() { weights } else { weights.add(first) },
                group,
                head_dim,
                segments,
                scale: scale * LOG2_E,
            };
            first += match (group - first, head_dim) {
                (4.., 32) => task.run::<4, 32, FEATURES>(&mut finite),
                (4.., _) => task.run::<4, 0, FEATURES>(&mut finite),
                (2.., _) => task.run::<2, 0, FEATURES>(&mut finite),
                _ => task.run::<1, 0, FEATURES>(&mut finite),
            };
        }
    }
    finite
}

/// What is asked, for some of the queries.
pub(super) struct Task<'a> {
    pub(super) queries: *const f32,
    out: *mut f32,
    /// Where the weight of the first row and query goes, or null; `group` further is the next row.
    weights: *mut f32,
    group: usize,
    pub(super) head_dim: usize,
    segments: &'a [Segment<'a>],
    /// In units of log 2.
    pub(super) scale: f32,
}

type Scores = [MaybeUninit<f32>; ROWS * 4 + 16];

impl Task<'_> {
    /// Attention of G queries; D is the head dimension, or 0 if it is not known here. Gives G.
    unsafe fn run<const G: usize, const D: usize, const FEATURES: u8>(&self, finite: &mut bool) -> usize {
        let mut chunk = Chunk::new(self.segments);
        let mut scores: Scores = [const { MaybeUninit::uninit() }; ROWS * 4 + 16];
        let scores: *mut f32 = scores.as_mut_ptr().cast();
        let mut in_bytes: Option<dotprod::Queries<G>> = None;
        let mut in_halves: Option<Option<half::Queries<G>>> = None;
        let mut done = 0;
        // SAFETY (this function): the scores hold ROWS * G numbers and 16 more; the chunk has at most ROWS rows, each as
        // long as the head; pointers to queries, results and weights are the caller's word.
        unsafe {
            let zero = vdupq_n_f32(0.0);
            let mut soft = Softmax { most: vdupq_n_f32(f32::NEG_INFINITY), sum: zero, all: zero };
            loop {
                let rows = chunk.advance(LOG2_E);
                if rows == 0 {
                    break;
                }
                let before = soft.most;
                let mut start = 0;
                for run in chunk.runs() {
                    let span = start..run.end;
                    soft.most = match run.format {
                        chunk::Format::F32 => self.score::<F32, G, D>(&chunk, span, scores, soft.most),
                        chunk::Format::F16 if FEATURES & FP16 != 0 && half::fits(self.head_dim) => {
                            let queries =
                                in_halves.get_or_insert_with(|| half::Queries::new(self.queries, self.head_dim));
                            match queries {
                                Some(queries) => self.score_f16::<G, D>(&chunk, queries, span, scores, soft.most),
                                None => self.score::<F16, G, D>(&chunk, span, scores, soft.most),
                            }
                        }
                        chunk::Format::F16 => self.score::<F16, G, D>(&chunk, span, scores, soft.most),
                        chunk::Format::Q8 if FEATURES & DOTPROD != 0 && dotprod::fits(self.head_dim) => {
                            let queries =
                                in_bytes.get_or_insert_with(|| dotprod::Queries::new(self.queries, self.head_dim));
                            self.score_q8(&chunk, queries, span, scores, soft.most)
                        }
                        chunk::Format::Q8 => self.score::<Q8, G, D>(&chunk, span, scores, soft.most),
                        chunk::Format::Q4 => self.score::<Q4, G, D>(&chunk, span, scores, soft.most),
                    };
                    start = run.end;
                }
                soft.most = over_query::<G>(soft.most, vmaxq_f32);
                if !self.weights.is_null() {
                    self.keep::<G>(scores, done, rows);
                }
                if done > 0 {
                    // Results so far were relative to a lower maximum.
                    let factor = exp2(vsubq_f32(before, soft.most));
                    soft.sum = vmulq_f32(soft.sum, factor);
                    self.multiply_out::<G>(factor);
                }
                soft = exponentials(scores, rows * G, soft);
                let mut start = 0;
                for run in chunk.runs() {
                    let span = Span { start, end: run.end, to_value: run.to_value };
                    let fresh = done + start == 0;
                    match run.format {
                        chunk::Format::F32 => self.accumulate::<F32, G, D>(&chunk, span, scores, fresh),
                        chunk::Format::F16 => self.accumulate::<F16, G, D>(&chunk, span, scores, fresh),
                        chunk::Format::Q8 => self.accumulate::<Q8, G, D>(&chunk, span, scores, fresh),
                        chunk::Format::Q4 => self.accumulate::<Q4, G, D>(&chunk, span, scores, fresh),
                    }
                    start = run.end;
                }
                done += rows;
            }
            if done == 0 {
                std::ptr::write_bytes(self.out, 0, G * self.head_dim);
                return G;
            }
            let inverse = vdivq_f32(vdupq_n_f32(1.0), over_query::<G>(soft.sum, vaddq_f32));
            let results = self.multiply_out::<G>(inverse);
            if !self.weights.is_null() {
                self.finish_weights::<G>(done, soft.most, inverse);
            }
            *finite &= vaddvq_f32(soft.all).is_finite() && results.is_finite();
        }
        G
    }

    /// Adds the values of a span of rows, times their weights, to the results; `fresh` begins them.
    #[inline(always)]
    unsafe fn accumulate<F: Format, const G: usize, const D: usize>(
        &self,
        chunk: &Chunk<'_>,
        span: Span,
        weights: *const f32,
        fresh: bool,
    ) {
        let d = if D == 0 { self.head_dim } else { D };
        let mut c = 0;
        // SAFETY: rows of the span are in the list, and their eights up to d / 8 in the rows and results.
        unsafe {
            while c + 2 <= d / 8 {
                self.columns::<F, G, 2>(d, c, chunk, span, weights, fresh);
                c += 2;
            }
            if c < d / 8 {
                self.columns::<F, G, 1>(d, c, chunk, span, weights, fresh);
                c += 1;
            }
            let rest = d % 8;
            if rest > 0 {
                for g in 0..G {
                    let mut sums = [0.0f32; 8];
                    let out = self.out.add(g * d + 8 * c);
                    if !fresh {
                        std::ptr::copy_nonoverlapping(out, sums.as_mut_ptr(), rest);
                    }
                    let mut sum: Eight = F32::load(sums.as_ptr().cast(), 0);
                    for i in span.start..span.end {
                        let v = F::load_tail(chunk.value(i, span.to_value), c, rest);
                        let weight = *weights.add(i * G + g);
                        sum = [vfmaq_n_f32(sum[0], v[0], weight), vfmaq_n_f32(sum[1], v[1], weight)];
                    }
                    vst1q_f32(sums.as_mut_ptr(), sum[0]);
                    vst1q_f32(sums.as_mut_ptr().add(4), sum[1]);
                    std::ptr::copy_nonoverlapping(sums.as_ptr(), out, rest);
                }
            }
        }
    }

    /// `C` eights of all results from eight `c` on.
    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "inlined inner loop")]
    unsafe fn columns<F: Format, const G: usize, const C: usize>(
        &self,
        d: usize,
        c: usize,
        chunk: &Chunk<'_>,
        span: Span,
        weights: *const f32,
        fresh: bool,
    ) {
        // SAFETY: as in `accumulate`.
        unsafe {
            let mut sums = [[[vdupq_n_f32(0.0); 2]; C]; G];
            if !fresh {
                for (g, sums) in sums.iter_mut().enumerate() {
                    for (v, sum) in sums.iter_mut().enumerate() {
                        *sum = F32::load(self.out.add(g * d).cast(), c + v);
                    }
                }
            }
            for i in span.start..span.end {
                let row = chunk.value(i, span.to_value);
                let value: [Eight; C] = std::array::from_fn(|v| F::load(row, c + v));
                for (g, sums) in sums.iter_mut().enumerate() {
                    let weight = *weights.add(i * G + g);
                    for (sum, v) in sums.iter_mut().zip(value) {
                        *sum = [vfmaq_n_f32(sum[0], v[0], weight), vfmaq_n_f32(sum[1], v[1], weight)];
                    }
                }
            }
            for (g, sums) in sums.into_iter().enumerate() {
                for (v, sum) in sums.into_iter().enumerate() {
                    let out = self.out.add(g * d + 8 * (c + v));
                    vst1q_f32(out, sum[0]);
                    vst1q_f32(out.add(4), sum[1]);
                }
            }
        }
    }

    /// Multiplies each result by its query's factor; gives their sum.
    #[inline(always)]
    unsafe fn multiply_out<const G: usize>(&self, factor: float32x4_t) -> f32 {
        let mut lanes = [0.0f32; 4];
        let mut all = 0.0;
        // SAFETY: G results of head_dim numbers.
        unsafe {
            vst1q_f32(lanes.as_mut_ptr(), factor);
            for (g, factor) in lanes.into_iter().enumerate().take(G) {
                let out = std::slice::from_raw_parts_mut(self.out.add(g * self.head_dim), self.head_dim);
                let (fours, rest) = out.as_chunks_mut::<4>();
                let mut sum = vdupq_n_f32(0.0);
                for four in fours {
                    let product = vmulq_n_f32(vld1q_f32(four.as_ptr()), factor);
                    vst1q_f32(four.as_mut_ptr(), product);
                    sum = vaddq_f32(sum, product);
                }
                for x in rest {
                    *x *= factor;
                    all += *x;
                }
                all += vaddvq_f32(sum);
            }
        }
        all
    }

    /// Writes the scores of a chunk where the weights go.
    unsafe fn keep<const G: usize>(&self, scores: *const f32, done: usize, rows: usize) {
        for i in 0..rows {
            for g in 0..G {
                // SAFETY: the weights have a place for every row and query.
                unsafe { *self.weights.add((done + i) * self.group + g) = *scores.add(i * G + g) }
            }
        }
    }

    /// Makes weights of the scores that are kept there.
    unsafe fn finish_weights<const G: usize>(&self, rows: usize, most: float32x4_t, inverse: float32x4_t) {
        let mut lanes = [0.0f32; 4];
        for i in 0..rows {
            // SAFETY: as in `keep`.
            unsafe {
                let at = self.weights.add(i * self.group);
                std::ptr::copy_nonoverlapping(at, lanes.as_mut_ptr(), G);
                let weight = exp2(vsubq_f32(vld1q_f32(lanes.as_ptr()), most));
                vst1q_f32(lanes.as_mut_ptr(), vmulq_f32(weight, inverse));
                std::ptr::copy_nonoverlapping(lanes.as_ptr(), at, G);
            }
        }
    }
}
