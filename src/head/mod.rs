//! Tokens of a track -> embedding and class logits: the AETHER temporal head.

mod features;
pub mod init;
pub mod schema;
pub mod weights;

pub use features::{TOKEN, token};
pub use weights::{
    WEIGHT_BLOB_HEADER_LEN, WEIGHT_BLOB_MAGIC, WEIGHT_BLOB_VERSION, WeightBlob, WeightBlobHeader, WeightDtype,
};
