//! Vector code for aarch64.
//!
//! Every core has what the plain functions need: 128-bit vectors with FMA and the conversion from and to half precision
//! (`fcvtl`, `fcvtn`). Arithmetic in half precision is not used even where a core has it: sums of 32 products would keep
//! three digits of the four that are stored. Where the core has the 8-bit dot product (`sdot`), scores of 8-bit rows are made with it;
//! the queries are then rounded to 8 bits as well, with a scale of their own.
//!
//! Functions are `unsafe` for the shapes, which [`Kernel`](super::Kernel) checks.
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop, reason = "loops over registers, unrolled")]

mod decode;
mod dotprod;
mod matmul;
mod rows;

use std::arch::aarch64::*;

pub(super) use super::scalar::{quantize_q4, quantize_q8};
pub(super) use decode::{sparse_decode, sparse_decode_dotprod};
pub(super) use matmul::{dot, dot_q4, dot_q8, from_f16, matmul, matmul_f16, to_f16};

use super::EXP2;

/// Whether this core has the 8-bit dot product.
pub(super) fn has_dotprod() -> bool {
    std::arch::is_aarch64_feature_detected!("dotprod")
}

/// Eight numbers.
type Eight = [float32x4_t; 2];

/// 2^x, as in the AVX2 kernel.
#[inline(always)]
fn exp2(x: float32x4_t) -> float32x4_t {
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
