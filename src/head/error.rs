//! What can go wrong in the temporal head.

use crate::kernel::KernelError;

/// Why the head refuses.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TemporalError {
    /// A value of the configuration is out of its range.
    #[error("{what}: expected {expected}, got {got}")]
    Config {
        /// The field.
        what: &'static str,
        /// Its range.
        expected: &'static str,
        /// The value.
        got: String,
    },
    /// A tensor, slice or cache has another shape than the head.
    #[error("{what}: expected {expected}, got {got}; tensors and caches must be of the head's own shape")]
    Shape {
        /// The argument.
        what: &'static str,
        /// The shape expected.
        expected: String,
        /// What came.
        got: String,
    },
    /// NaN, infinity, or a magnitude beyond the precision (65,504 in half precision); nothing was appended.
    #[error("{what}: element {index} is not a finite number within the precision; leave the token out")]
    NotFinite {
        /// Queries, keys or values.
        what: &'static str,
        /// First such element.
        index: usize,
    },
    /// A full cache whose policy is `error`.
    #[error("the cache is full ({capacity} tokens); reset it, or choose the policy slide or heavy_hitters")]
    CacheFull {
        /// Tokens it holds.
        capacity: usize,
    },
    /// Streaming needs causal attention.
    #[error("{0} needs causal attention; set `causal` or use `forward`")]
    NotCausal(&'static str),
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}
