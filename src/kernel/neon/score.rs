//! Scores of rows: products with the queries, times the scale. Three ways: in single precision, whatever the rows are
//! stored as, and with what newer cores have for rows of half precision and of 8 bits.

use std::arch::aarch64::*;

use super::Eight;
use super::decode::Task;
use super::rows::{F32, Format};
use super::{dotprod, half};
use crate::kernel::chunk::Chunk;
use crate::kernel::quant::BLOCK;

impl Task<'_> {
    /// Scores of the rows of a span of the chunk, in units of log 2; gives the maximum by lane.
    #[inline(always)]
    pub(super) unsafe fn score<F: Format, const G: usize, const D: usize>(
        &self,
        chunk: &Chunk<'_>,
        span: std::ops::Range<usize>,
        scores: *mut f32,
        mut most: float32x4_t,
    ) -> float32x4_t {
        let d = if D == 0 { self.head_dim } else { D };
        let mut at = span.start;
        while at < span.end {
            // SAFETY: row numbers are kept below the end; loads stay below the head dimension.
            unsafe {
                let mut sums = [vdupq_n_f32(0.0); 16];
                let row: [*const u8; 16] =
                    std::array::from_fn(|r| chunk.key((at + r.min(16 / G - 1)).min(span.end - 1)));
                for c in 0..d / 8 {
                    let q: [Eight; G] = std::array::from_fn(|g| F32::load(self.queries.add(g * d).cast(), c));
                    for r in 0..16 / G {
                        let k = F::load(row[r], c);
                        for g in 0..G {
                            sums[r * G + g] = vfmaq_f32(vfmaq_f32(sums[r * G + g], k[0], q[g][0]), k[1], q[g][1]);
                        }
                    }
                }
                if !d.is_multiple_of(8) {
                    let (c, rest) = (d / 8, d % 8);
                    let q: [Eight; G] =
                        std::array::from_fn(|g| F32::load_tail(self.queries.add(g * d).cast(), c, rest));
                    for r in 0..16 / G {
                        let k = F::load_tail(row[r], c, rest);
                        for g in 0..G {
                            sums[r * G + g] = vfmaq_f32(vfmaq_f32(sums[r * G + g], k[0], q[g][0]), k[1], q[g][1]);
                        }
                    }
                }
                let sums: [float32x4_t; 4] = std::array::from_fn(|i| {
                    let v = &sums[4 * i..];
                    vpaddq_f32(vpaddq_f32(v[0], v[1]), vpaddq_f32(v[2], v[3]))
                });
                most = self.put::<G>(sums, chunk, at, span.end, scores, most);
            }
            at += 16 / G;
        }
        most
    }

    /// As `score`, with queries of 8 bits.
    #[inline(always)]
    pub(super) unsafe fn score_q8<const G: usize>(
        &self,
        chunk: &Chunk<'_>,
        queries: &dotprod::Queries<G>,
        span: std::ops::Range<usize>,
        scores: *mut f32,
        mut most: float32x4_t,
    ) -> float32x4_t {
        let mut at = span.start;
        while at < span.end {
            // SAFETY: as in `score`; this is called where the core has the instruction and the shape fits.
            unsafe {
                let row = |r: usize| chunk.key((at + r).min(span.end - 1));
                let mut numbers = [0.0f32; 16];
                for four in 0..4 / G {
                    let rows = std::array::from_fn(|r| row(4 * four + r));
                    let sums = queries.multiply(rows, self.head_dim / BLOCK);
                    let mut lanes = [0.0f32; 4];
                    for (r, sum) in sums.into_iter().enumerate() {
                        vst1q_f32(lanes.as_mut_ptr(), sum);
                        numbers[(4 * four + r) * G..][..G].copy_from_slice(&lanes[..G]);
                    }
                }
                let sums = std::array::from_fn(|i| vld1q_f32(numbers.as_ptr().add(4 * i)));
                most = self.put::<G>(sums, chunk, at, span.end, scores, most);
            }
            at += 16 / G;
        }
        most
    }

    /// As `score`, with queries of half precision.
    #[inline(always)]
    pub(super) unsafe fn score_f16<const G: usize, const D: usize>(
        &self,
        chunk: &Chunk<'_>,
        queries: &half::Queries<G>,
        span: std::ops::Range<usize>,
        scores: *mut f32,
        mut most: float32x4_t,
    ) -> float32x4_t {
        let d = if D == 0 { self.head_dim } else { D };
        let mut at = span.start;
        while at < span.end {
            // SAFETY: as in `score`; this is called where the core has the instructions and the shape fits.
            unsafe {
                let row = std::array::from_fn(|r| chunk.key((at + r.min(16 / G - 1)).min(span.end - 1)));
                let sums = queries.multiply(row, d);
                most = self.put::<G>(sums, chunk, at, span.end, scores, most);
            }
            at += 16 / G;
        }
        most
    }

    /// Scales sixteen products, adds log weights and writes them; those beyond `end` repeat the last row, so they do not
    /// change the maximum.
    #[inline(always)]
    unsafe fn put<const G: usize>(
        &self,
        sums: [float32x4_t; 4],
        chunk: &Chunk<'_>,
        at: usize,
        end: usize,
        scores: *mut f32,
        mut most: float32x4_t,
    ) -> float32x4_t {
        // SAFETY: row numbers are kept below the end; the last scores may reach 16 numbers too far, where there is room.
        unsafe {
            for (i, sum) in sums.into_iter().enumerate() {
                let mut score = vmulq_n_f32(sum, self.scale);
                if chunk.is_weighted() {
                    let w: [f32; 4] =
                        std::array::from_fn(|l| *chunk.log_weights().add((at + (4 * i + l) / G).min(end - 1)));
                    score = vaddq_f32(score, vld1q_f32(w.as_ptr()));
                }
                most = vmaxq_f32(most, score);
                vst1q_f32(scores.add(at * G + 4 * i), score);
            }
        }
        most
    }
}
