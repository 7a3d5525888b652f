//! Exponentials, and sums and maxima over lanes.

use std::arch::aarch64::*;

use crate::kernel::EXP2;

/// Running state of the softmax; lanes that belong to the same query hold the same maximum.
#[derive(Clone, Copy)]
pub(super) struct Softmax {
    pub(super) most: float32x4_t,
    pub(super) sum: float32x4_t,
    /// Sum of all scores, for the only question whether all of them are finite.
    pub(super) all: float32x4_t,
}

/// Scores become exponentials, in place; adds them to the sums. Two vectors go side by side, as the chain of the polynomial
/// would wait for itself.
///
/// # Safety
/// `count` scores and room for 8 more.
#[inline(always)]
pub(super) unsafe fn exponentials(scores: *mut f32, count: usize, mut soft: Softmax) -> Softmax {
    let mut at = 0;
    // SAFETY: the caller's word. What lies beyond the last score becomes far less than the maximum, but finite.
    unsafe {
        let nothing = vsubq_f32(vsubq_f32(soft.most, vabsq_f32(soft.most)), vdupq_n_f32(1000.0));
        vst1q_f32(scores.add(count), nothing);
        vst1q_f32(scores.add(count + 4), nothing);
        while at < count {
            let (a, b) = (vld1q_f32(scores.add(at)), vld1q_f32(scores.add(at + 4)));
            soft.all = vaddq_f32(soft.all, vaddq_f32(a, b));
            let (a, b) = (exp2(vsubq_f32(a, soft.most)), exp2(vsubq_f32(b, soft.most)));
            soft.sum = vaddq_f32(soft.sum, vaddq_f32(a, b));
            vst1q_f32(scores.add(at), a);
            vst1q_f32(scores.add(at + 4), b);
            at += 8;
        }
    }
    soft
}

/// 2^x, as in the AVX2 kernel.
#[inline(always)]
pub(super) fn exp2(x: float32x4_t) -> float32x4_t {
    // SAFETY: the baseline of this architecture.
    unsafe {
        // NaN stays.
        let x = vmaxq_f32(x, vdupq_n_f32(-125.0));
        let n = vrndnq_f32(x);
        let f = vsubq_f32(x, n);
        let mut p = vdupq_n_f32(EXP2[6]);
        p = vfmaq_f32(vdupq_n_f32(EXP2[5]), p, f);
        p = vfmaq_f32(vdupq_n_f32(EXP2[4]), p, f);
        p = vfmaq_f32(vdupq_n_f32(EXP2[3]), p, f);
        p = vfmaq_f32(vdupq_n_f32(EXP2[2]), p, f);
        p = vfmaq_f32(vdupq_n_f32(EXP2[1]), p, f);
        p = vfmaq_f32(vdupq_n_f32(EXP2[0]), p, f);
        let n = vshlq_n_s32::<23>(vcvtq_s32_f32(n));
        vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(p), n))
    }
}

/// Combines all lanes of a query, in all of them.
#[inline(always)]
pub(super) fn over_query<const G: usize>(
    mut v: float32x4_t,
    f: unsafe fn(float32x4_t, float32x4_t) -> float32x4_t,
) -> float32x4_t {
    // SAFETY: the baseline of this architecture.
    unsafe {
        if G <= 2 {
            v = f(v, vextq_f32::<2>(v, v));
        }
        if G == 1 {
            v = f(v, vrev64q_f32(v));
        }
    }
    v
}
