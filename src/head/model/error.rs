//! Why the network cannot be built or run.

use crate::head::TemporalError;
use crate::head::weights::WeightError;
use crate::kernel::KernelError;

/// Why the network cannot be built or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The weight file.
    #[error(transparent)]
    Weights(#[from] WeightError),
    /// Weights and settings are of different shapes.
    #[error("{what}: the weights have {weights}, the configuration of the head says {config}; make them agree")]
    Mismatch {
        /// The dimension.
        what: &'static str,
        /// As the weights have it.
        weights: usize,
        /// As the configuration has it.
        config: usize,
    },
    /// A length that does not fit.
    #[error("{what}: expected {expected}, got {got}; give whole tokens, and one set of caches for each")]
    Shape {
        /// The argument.
        what: &'static str,
        /// Elements expected.
        expected: usize,
        /// What came.
        got: usize,
    },
    /// NaN or infinity in a token.
    #[error("token {token}: feature {feature} (`{name}`) is not a finite number; leave the token out instead")]
    NotFinite {
        /// Which token of the call.
        token: usize,
        /// Which of its numbers.
        feature: usize,
        /// Its name.
        name: &'static str,
    },
    /// The caches of a track's layers hold different numbers of tokens.
    #[error("caches of token {token}: layer {layer} has seen {got} tokens, layer 0 {expected}; reset them together")]
    OutOfStep {
        /// Which token of the call.
        token: usize,
        /// The layer.
        layer: usize,
        /// Tokens of layer 0.
        expected: u64,
        /// Tokens of this layer.
        got: u64,
    },
    /// The attention of one track refused; the other tracks of the call have been stepped.
    #[error("attention of token {token} in layer {layer}")]
    Attention {
        /// Which token of the call.
        token: usize,
        /// The layer.
        layer: usize,
        /// Why.
        source: TemporalError,
    },
    /// Numbers beyond single precision.
    #[error("token {token}: its answer is not finite; the weights are too large for such tokens: use others")]
    Overflow {
        /// Which token of the call.
        token: usize,
    },
    /// The attention core refuses the configuration, or a window.
    #[error("attention")]
    Head(#[source] TemporalError),
    /// A matrix product.
    #[error("projection")]
    Kernel(#[from] KernelError),
}
