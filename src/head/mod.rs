//! Tokens of a track -> embedding and class logits: the AETHER temporal head.

mod features;

pub use features::{TOKEN, token};
