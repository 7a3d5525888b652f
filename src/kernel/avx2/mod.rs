//! Vector code for x86-64 with AVX2, FMA and F16C.
//!
//! Every function here is `unsafe` for two reasons, both seen to by [`Kernel`](super::Kernel): the processor must have the
//! three extensions, and the shapes must have been checked.
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop, reason = "loops over registers, unrolled")]

mod decode;
mod matmul;
mod rows;
mod softmax;

use std::arch::x86_64::*;

pub(super) use decode::sparse_decode;
pub(super) use matmul::{dot, dot_q4, dot_q8, from_f16, matmul, matmul_f16, quantize_q4, quantize_q8, to_f16};

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
