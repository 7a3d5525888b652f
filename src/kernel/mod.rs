//! Numbers -> numbers: attention over rows of keys and values, quantised dot products, small matrix products.
//!
//! No type of any stage is known here. Every function exists once as [`scalar`] code, which is the specification, and as
//! vector code for `avx2` (with FMA and F16C) and `neon` (with dot product and half precision where the core has them).
//! One table is chosen at start ([`Kernel::select`]) and stays for the life of the process.
//!
//! Units: rows and vectors are `f32` unless a type says otherwise; lengths are counted in elements.

mod attention;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod chunk;
mod error;
#[cfg(target_arch = "aarch64")]
mod neon;
mod paged;
mod quant;
mod rows;
mod scalar;
mod table;

pub use attention::{
    AttentionConfig, flash_attention_neon, grouped_query_attention_neon, multi_query_attention_neon,
    paged_attention_neon,
};
pub use error::KernelError;
pub use paged::PagedKvCache;
pub use quant::{BLOCK, BlockQ4, BlockQ8, blocks_for};
pub use rows::{LogWeights, Picks, Rows, Segment};
pub use table::{Kernel, KernelKind};

/// Coefficients of a polynomial for 2^f, f in -0.5..=0.5, of least relative error (1.9e-9; found with the Remez exchange).
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const EXP2: [f32; 7] =
    [1.0, std::f32::consts::LN_2, 0.240_226_46, 0.055_503_286, 0.009_618_489, 0.001_339_993_1, 0.000_153_458_12];
