//! Why a weight file is refused.

use std::io;
use std::path::PathBuf;

use super::WeightTensor;

/// Why weights cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightError {
    /// The file system said no.
    #[error("cannot {what} {}", path.display())]
    Io {
        /// `open`, `map`, `write`, …
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// A directory, a pipe, a device.
    #[error("{} is not a regular file; give the path of an .rvne file", .0.display())]
    NotAFile(PathBuf),
    /// Not this format.
    #[error("not an .rvne file: expected the magic number 0x52564e45 at byte 0, got {got:#010x}{hint}")]
    Magic {
        /// The first four bytes, little endian.
        got: u32,
        /// What it may be instead, and the cure.
        hint: &'static str,
    },
    /// Another version.
    #[error("version {0} of .rvne, expected 1; use an aetherd that knows it, or write the weights again with this one")]
    Version(u16),
    /// Flag bits without a meaning here.
    #[error(
        "unknown flag bit{} {bits} (flags {flags:#04x}); known are 0 half precision, 1 gains, 2 projection head, \
         3 information; use the aetherd that wrote the file, or a newer one",
        if .bits.contains(' ') { "s" } else { "" }
    )]
    Flags {
        /// The unknown bits by number.
        bits: String,
        /// The whole byte.
        flags: u8,
    },
    /// Byte 7.
    #[error("reserved byte 7 of the header is {0}, expected 0; write the weights again with this aetherd")]
    Reserved(u8),
    /// A dimension that cannot be.
    #[error("{what} is {got}, expected {expected}; the file is damaged or was not written for this network")]
    Dimension {
        /// Field of the header.
        what: &'static str,
        /// What came.
        got: u64,
        /// What can be.
        expected: String,
    },
    /// The file ends too early or too late, or a length in it does not fit the shape.
    #[error("{what}: expected {expected} bytes by the shape in the header, got {got}; {cure}")]
    Length {
        /// The part.
        what: &'static str,
        /// Bytes expected.
        expected: u128,
        /// Bytes there are, or that the file says there are.
        got: u128,
        /// What to do.
        cure: &'static str,
    },
    /// A length that does not fit the format.
    #[error("{what}: {got} bytes, at most {limit} fit the format; {cure}")]
    TooLarge {
        /// The part.
        what: &'static str,
        /// What came.
        got: u128,
        /// What fits.
        limit: u128,
        /// What to do.
        cure: &'static str,
    },
    /// Check sum.
    #[error(
        "CRC-32 {got:08x} expected from the last four bytes, computed {computed:08x}; the file is damaged: copy it again"
    )]
    Crc {
        /// As the file says.
        got: u32,
        /// As it is.
        computed: u32,
    },
    /// NaN or infinity.
    #[error(
        "{tensor}: element {index} is {value}, expected a finite number; the training diverged: use an earlier checkpoint"
    )]
    NotFinite {
        /// Where.
        tensor: WeightTensor,
        /// Element within the tensor, row-major.
        index: usize,
        /// What came.
        value: f32,
    },
    /// A number that half precision cannot hold.
    #[error("{tensor}: element {index} is {value}, beyond ±65504 of half precision; write single precision")]
    NotHalf {
        /// Where.
        tensor: WeightTensor,
        /// Element within the tensor, row-major.
        index: usize,
        /// What came.
        value: f32,
    },
    /// The JSON block is not what it should be.
    #[error("information block (JSON) is not valid; write the weights again")]
    Json(#[source] serde_json::Error),
    /// The JSON block disagrees with the shape or with itself.
    #[error("information block: {what}: expected {expected}, got {got}; write the weights again")]
    Info {
        /// The field.
        what: &'static str,
        /// What would be right.
        expected: String,
        /// What came.
        got: String,
    },
    /// Nothing says what the inputs and classes mean.
    #[error(
        "the weights have no information block (flag bit 3): expected feature schema, classes and normalisation; \
         write them again with one, they cannot be used safely without"
    )]
    NoInfo,
    /// Trained on tokens of another meaning.
    #[error(
        "weights are for the feature schema `{theirs}` (hash {their_hash}), this aetherd computes `{ours}` (hash {our_hash}); \
         use weights trained for `{ours}`, or the aetherd that they were trained with"
    )]
    Schema {
        /// Schema of the file.
        theirs: String,
        /// Its hash.
        their_hash: String,
        /// Schema of this program.
        ours: &'static str,
        /// Its hash.
        our_hash: String,
    },
    /// It is there already.
    #[error("{} exists; give --force to write over it", .0.display())]
    Exists(PathBuf),
}
