//! Which bin each value of a frame is: the order of the radio's buffer, and which bins carry a measurement.

use serde::{Deserialize, Serialize};

/// Order of the bins in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// 64 bins of one training field in FFT order: 0..31, -32..-1.
    #[default]
    Natural64,
    /// 64 bins ascending, -32..31, DC in the middle (C5, C6).
    Centred64,
    /// Legacy and high-throughput training field, each as `Natural64`.
    LltfHt128,
    /// A number of bins whose order is not known.
    Unknown(u16),
}

impl Layout {
    /// Number of bins.
    pub fn len(self) -> usize {
        match self {
            Self::Natural64 | Self::Centred64 => 64,
            Self::LltfHt128 => 128,
            Self::Unknown(n) => usize::from(n),
        }
    }
}
