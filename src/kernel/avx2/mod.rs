//! Vector code for x86-64 with AVX2, FMA and F16C.
//!
//! Every function here is `unsafe` for two reasons, both seen to by [`Kernel`](super::Kernel): the processor must have the
//! three extensions, and the shapes must have been checked.
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop, reason = "loops over registers, unrolled")]

mod decode;
mod matmul;
mod rows;

use std::arch::x86_64::*;

pub(super) use decode::sparse_decode;
pub(super) use matmul::{dot, dot_q4, dot_q8, from_f16, matmul, matmul_f16, quantize_q4, quantize_q8, to_f16};

use super::EXP2;

/// Whether this processor can run what is here.
pub(super) fn is_supported() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}

/// Mask whose first `n` of 8 lanes are set.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn first_lanes(n: usize) -> __m256i {
    _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
}

/// 2^x for x in -125..=0 and below (which gives 2^-125), relative error 2e-9 besides rounding; NaN stays.
///
/// x = n + f with f in -0.5..=0.5; a polynomial of least relative error (Remez, degree 6) gives 2^f, and n is added to
/// the exponent.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn exp2<const N: usize>(x: [__m256; N]) -> [__m256; N] {
    // 1.5 * 2^23: the sum has no bits left for a fraction, so it is rounded, and n sits in its lowest bits.
    let magic = _mm256_set1_ps(12_582_912.0);
    // The second operand wins where one is NaN.
    let x = x.map(|x| _mm256_max_ps(_mm256_set1_ps(-125.0), x));
    let shifted = x.map(|x| _mm256_add_ps(x, magic));
    let f: [__m256; N] = std::array::from_fn(|i| _mm256_sub_ps(x[i], _mm256_sub_ps(shifted[i], magic)));
    let mut p = f.map(|f| _mm256_fmadd_ps(_mm256_set1_ps(EXP2[6]), f, _mm256_set1_ps(EXP2[5])));
    for c in [EXP2[4], EXP2[3], EXP2[2], EXP2[1], EXP2[0]] {
        let c = _mm256_set1_ps(c);
        p = std::array::from_fn(|i| _mm256_fmadd_ps(p[i], f[i], c));
    }
    std::array::from_fn(|i| {
        let n = _mm256_slli_epi32::<23>(_mm256_castps_si256(shifted[i]));
        _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p[i]), n))
    })
}
