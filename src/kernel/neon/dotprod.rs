//! Scores of 8-bit rows with the 8-bit dot product of the core.

use std::arch::aarch64::*;

use super::rows::{SCALE, scale};
use crate::kernel::quant::{BLOCK, BlockQ8};

/// Blocks of a row at most, for which queries are kept in 8 bits.
const BLOCKS: usize = 4;

/// Whether rows of this many numbers are handled.
pub(super) const fn fits(head_dim: usize) -> bool {
    head_dim.is_multiple_of(BLOCK) && head_dim <= BLOCKS * BLOCK
}

/// `G` queries in 8 bits, each block with its own scale.
pub(super) struct Queries<const G: usize> {
    q: [[[i8; BLOCK]; G]; BLOCKS],
    /// Of a block and query; 0 from `G` on.
    scales: [[f32; 4]; BLOCKS],
}

impl<const G: usize> Queries<G> {
    /// Rounds the queries.
    ///
    /// # Safety
    /// `G` queries of `head_dim` numbers, for which [`fits`] holds.
    pub(super) unsafe fn new(queries: *const f32, head_dim: usize) -> Self {
        let mut all = Self { q: [[[0; BLOCK]; G]; BLOCKS], scales: [[0.0; 4]; BLOCKS] };
        for b in 0..head_dim / BLOCK {
            for g in 0..G {
                // SAFETY: the caller's word.
                let from = unsafe { std::slice::from_raw_parts(queries.add(g * head_dim + b * BLOCK), BLOCK) };
                let most = from.iter().fold(0.0f32, |m, v| m.max(v.abs()));
                let inverse = if most > 0.0 { 127.0 / most } else { 0.0 };
                for (q, v) in all.q[b][g].iter_mut().zip(from) {
                    *q = (v * inverse).round_ties_even() as i8;
                }
                // NaN and infinity must come out again.
                all.scales[b][g] = if from.iter().all(|v| v.is_finite()) { most / 127.0 } else { f32::NAN };
            }
        }
        all
    }

    /// Products of four rows' blocks with all queries: row by row, `G` = 4, 2 or 1 of them in a vector (the rest is 0).
    ///
    /// # Safety
    /// Needs `dotprod`; rows of `blocks` blocks.
    #[inline]
    #[target_feature(enable = "neon,dotprod")]
    pub(super) unsafe fn multiply(&self, rows: [*const u8; 4], blocks: usize) -> [float32x4_t; 4] {
        let mut sums = [vdupq_n_f32(0.0); 4];
        for b in 0..blocks {
            for (row, sum) in rows.into_iter().zip(&mut sums) {
                // SAFETY: `b` is a block of the row.
                unsafe {
                    let block = row.add(b * size_of::<BlockQ8>());
                    let k: *const i8 = block.add(SCALE).cast();
                    let (low, high) = (vld1q_s8(k), vld1q_s8(k.add(16)));
                    let dots: [int32x4_t; 4] = std::array::from_fn(|g| {
                        let Some(q) = self.q[b].get(g) else { return vdupq_n_s32(0) };
                        let sum = sdot(vdupq_n_s32(0), low, vld1q_s8(q.as_ptr()));
                        sdot(sum, high, vld1q_s8(q.as_ptr().add(16)))
                    });
                    let dots = vpaddq_s32(vpaddq_s32(dots[0], dots[1]), vpaddq_s32(dots[2], dots[3]));
                    let scales = vmulq_n_f32(vld1q_f32(self.scales[b].as_ptr()), scale(block));
                    *sum = vfmaq_f32(*sum, vcvtq_f32_s32(dots), scales);
                }
            }
        }
        sums
    }
}

/// Adds products of four bytes each to four sums. The intrinsic is not stable yet.
#[inline]
#[target_feature(enable = "neon,dotprod")]
unsafe fn sdot(mut sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: one instruction on registers, which the caller's core has.
    unsafe {
        std::arch::asm!(
            ".arch_extension dotprod",
            "sdot {sum:v}.4s, {a:v}.16b, {b:v}.16b",
            sum = inout(vreg) sum,
            a = in(vreg) a,
            b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sum
}
