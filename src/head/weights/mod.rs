//! `.rvne` weight files: bytes -> named tensors of a checked shape, and back.
//!
//! Little endian throughout. Header and payload are those of version 1 of the RuView family (ADR-095/096), whose readers
//! never pinned down an order inside the payload; the order here is our convention. Sections of ours follow behind flag
//! bits, in the order of their bits, each as a length in bytes (u32) and its contents:
//!
//! | part | bytes | contents |
//! |---|---|---|
//! | header | 24 | magic u32 `0x52564E45`, version u16 = 1, flags u8, reserved u8 = 0, input_dim, n_q_heads, n_kv_heads, head_dim, n_layers, n_classes (u16 each), payload length in bytes u32 |
//! | payload | as the header says | per layer Wq (input x q·hd), Wk (input x kv·hd), Wv (same), Wo (q·hd x input); then the classifier (input x classes) |
//! | flag bit 1 | 4 + length | RMSNorm gains: one vector of `input` numbers per layer, then a final one |
//! | flag bit 2 | 4 + length | projection head: q·hd x 128, then 128 x 128, without biases |
//! | flag bit 3 | 4 + length | [`WeightInfo`] as JSON in UTF-8, at most 64 KiB |
//! | end | 4 | CRC-32 (IEEE) of everything before |
//!
//! Matrices are row-major, y = x W. Flag bit 0 says that payload and sections 1 and 2 are half precision; without it they
//! are single precision. Since header, prefixes and lengths are multiples of the element size, each tensor is aligned for
//! its type as soon as the file is, and is used in place.
//!
//! A file is checked completely when it is opened: shape against lengths before anything else, then the check sum, then
//! that each number is finite, then the JSON block. Nothing is allocated by a length that a file merely claims.

mod blob;
mod error;
mod header;
mod info;
mod layout;
mod write;

pub use blob::{WeightBlob, WeightValues};
pub use error::WeightError;
pub use header::{
    FLAG_F16, FLAG_GAINS, FLAG_INFO, FLAG_PROJECTION, WEIGHT_BLOB_HEADER_LEN, WEIGHT_BLOB_MAGIC, WEIGHT_BLOB_VERSION,
    WeightBlobHeader, WeightDtype,
};
pub use info::{Normalisation, SchemaId, WeightInfo};
pub use layout::{EMBEDDING_DIM, WeightTensor};
pub use write::WeightTensors;
