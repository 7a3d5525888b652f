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
mod softmax;

use std::arch::aarch64::*;

pub(super) use super::scalar::{quantize_q4, quantize_q8};
pub(super) use decode::{sparse_decode, sparse_decode_dotprod};
pub(super) use matmul::{dot, dot_q4, dot_q8, from_f16, matmul, matmul_f16, to_f16};

/// Whether this core has the 8-bit dot product.
pub(super) fn has_dotprod() -> bool {
    std::arch::is_aarch64_feature_detected!("dotprod")
}

/// Eight numbers.
type Eight = [float32x4_t; 2];
