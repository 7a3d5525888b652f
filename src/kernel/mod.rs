//! Numbers -> numbers: attention over rows of keys and values, quantised dot products, small matrix products.
//!
//! No type of any stage is known here. Every function exists once as [`scalar`] code, which is the specification, and as
//! vector code for `avx2` (with FMA and F16C) and `neon` (with dot product and half precision where the core has them).
//! One table is chosen at start ([`Kernel::select`]) and stays for the life of the process.
//!
//! Units: rows and vectors are `f32` unless a type says otherwise; lengths are counted in elements.

mod error;
mod quant;
mod rows;
mod scalar;
mod table;

pub use error::KernelError;
pub use quant::{BLOCK, BlockQ4, BlockQ8, blocks_for};
pub use rows::{LogWeights, Rows, Segment};
pub use table::{Kernel, KernelKind};
