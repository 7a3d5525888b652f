//! Tokens of a track -> embedding and class logits: the AETHER temporal head.
//!
//! *In*: tracks and what their links' profiles did at a fused frame. *Out*: per track an estimate. *State*: one key/value
//! cache per layer and track. A token ([`token`]) is computed for every track and fused frame, streams through the layers
//! of the model, each an attention over the track's own cache ([`AetherTemporalHead`], [`KvCache`]), and is then
//! forgotten but for what the caches keep of it.

mod cache;
mod config;
mod dense;
mod error;
mod facade;
mod features;
mod gallery;
pub mod init;
mod model;
mod pool;
mod pyramid;
pub mod schema;
mod settings;
mod sparse;
mod stage;
mod store;
mod tensor;
pub mod weights;

pub use cache::{CachePrecision, FullPolicy, KvCache};
pub use config::{LandmarkWeight, Pattern, TemporalBackendKind, TemporalHeadConfig};
pub use dense::DenseHead;
pub use error::TemporalError;
pub use facade::AetherTemporalHead;
pub use features::{TOKEN, token};
pub use gallery::Gallery;
pub use model::{HeadModel, HeadOutput, ModelError, PooledCaches, TrackCaches};
pub use pool::{CachePool, LayerCaches, PoolStats};
pub use settings::{Forgetting, Memory, Settings, Storage};
pub use sparse::SparseGqaHead;
pub use stage::{Cached, HeadError, HeadInfo, HeadStage, HeadStats, TrackEstimate};
pub use tensor::Tensor3;
pub use weights::{
    WEIGHT_BLOB_HEADER_LEN, WEIGHT_BLOB_MAGIC, WEIGHT_BLOB_VERSION, WeightBlob, WeightBlobHeader, WeightDtype,
};
