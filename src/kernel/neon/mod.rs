//! Vector code for aarch64.
//!
//! Every core has what the plain functions need: 128-bit vectors with FMA and the conversion from and to half precision
//! (`fcvtl`, `fcvtn`). Two more things are used where the core has them, for scores: the 8-bit dot product (`sdot`) for rows
//! of 8 bits, whose queries are then rounded to 8 bits as well, with a scale of their own; and half-precision arithmetic for
//! rows of half precision (see `half`). Everything else is computed in single precision.
//!
//! Functions are `unsafe` for the shapes, which [`Kernel`](super::Kernel) checks.
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop, reason = "loops over registers, unrolled")]

mod decode;
mod dotprod;
mod half;
mod matmul;
mod rows;
mod score;
mod softmax;

use std::arch::aarch64::*;

pub(super) use super::scalar::{quantize_q4, quantize_q8};
pub(super) use decode::sparse_decode;
pub(super) use matmul::{dot, dot_q4, dot_q8, from_f16, matmul, matmul_f16, to_f16};

/// The 8-bit dot product, as a bit of a set of features.
pub(super) const DOTPROD: u8 = 1;
/// Half-precision arithmetic, as a bit of a set of features.
pub(super) const FP16: u8 = 2;

/// Features of this core.
pub(super) fn features() -> u8 {
    let mut all = 0;
    if std::arch::is_aarch64_feature_detected!("dotprod") {
        all |= DOTPROD;
    }
    if std::arch::is_aarch64_feature_detected!("fp16") {
        all |= FP16;
    }
    all
}

/// Eight numbers.
type Eight = [float32x4_t; 2];
