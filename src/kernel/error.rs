//! What can be wrong with the numbers that are given.

use super::KernelKind;

/// Why a kernel refuses its arguments.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// A length does not fit the shape.
    #[error("{what}: expected {expected}, got {got}; the shape and the slices must agree")]
    Shape {
        /// The argument.
        what: &'static str,
        /// Elements or heads expected.
        expected: usize,
        /// What came.
        got: usize,
    },
    /// A number that must not be zero is.
    #[error("{0} is 0; give at least one")]
    Zero(&'static str),
    /// A length that must be a multiple of another is not.
    #[error("{what}: {got} is no multiple of {of}; slices must hold whole rows, and query heads whole groups")]
    Ragged {
        /// The argument.
        what: &'static str,
        /// Its length.
        got: usize,
        /// The divisor.
        of: usize,
    },
    /// NaN or infinity.
    #[error("{what}: element {index} is not a finite number; leave the token out instead")]
    NotFinite {
        /// The argument.
        what: &'static str,
        /// Position of the first such element.
        index: usize,
    },
    /// A block table names a block that the cache does not have.
    #[error("block table: block {got} of a cache of {blocks} blocks")]
    Block {
        /// The entry.
        got: usize,
        /// Blocks there are.
        blocks: usize,
    },
    /// A block that is full gets one token more, or one that is not full stands before others in a block table.
    #[error("block {block} holds {got} of {expected} tokens; fill each block before the next one, and no further")]
    Filling {
        /// The block.
        block: usize,
        /// Tokens in it.
        got: usize,
        /// Tokens that fit.
        expected: usize,
    },
    /// The processor lacks what a forced kernel needs.
    #[error("kernel `{kind}` does not run on this processor (it has: {have}); choose another or leave the choice open")]
    Unsupported {
        /// The kernel asked for.
        kind: KernelKind,
        /// Kernels that would run.
        have: String,
    },
    /// The process has begun with another kernel.
    #[error("kernel `{kind}` comes too late: `{now}` is in use already; choose it before the first use")]
    Chosen {
        /// The kernel asked for.
        kind: KernelKind,
        /// The one in use.
        now: KernelKind,
    },
    /// No such kernel.
    #[error("unknown kernel `{0}`; expected scalar, neon or avx2")]
    Unknown(String),
}
