//! Which tensor lies where.

use std::fmt;
use std::ops::Range;

use super::WeightError;
use super::header::{FLAG_GAINS, FLAG_INFO, FLAG_PROJECTION, WEIGHT_BLOB_HEADER_LEN, WeightBlobHeader};
use super::info::INFO_LIMIT;

/// Width of the embedding.
pub const EMBEDDING_DIM: usize = 128;
const _: () = assert!(EMBEDDING_DIM == crate::track::EMBEDDING, "tracks carry the embeddings of the format");

/// A tensor by name. Layers count from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WeightTensor {
    /// Queries: input x q·hd.
    Wq(usize),
    /// Keys: input x kv·hd.
    Wk(usize),
    /// Values: input x kv·hd.
    Wv(usize),
    /// Back to the residual stream: q·hd x input.
    Wo(usize),
    /// Class logits: input x classes.
    Classifier,
    /// RMSNorm gain before a layer: input.
    Gain(usize),
    /// RMSNorm gain before the classifier: input.
    FinalGain,
    /// First matrix of the projection head: q·hd x 128.
    Projection1,
    /// Second one: 128 x 128.
    Projection2,
}

impl fmt::Display for WeightTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wq(l) => write!(f, "Wq of layer {l}"),
            Self::Wk(l) => write!(f, "Wk of layer {l}"),
            Self::Wv(l) => write!(f, "Wv of layer {l}"),
            Self::Wo(l) => write!(f, "Wo of layer {l}"),
            Self::Classifier => f.write_str("classifier"),
            Self::Gain(l) => write!(f, "RMSNorm gain of layer {l}"),
            Self::FinalGain => f.write_str("final RMSNorm gain"),
            Self::Projection1 => f.write_str("projection head, matrix 1"),
            Self::Projection2 => f.write_str("projection head, matrix 2"),
        }
    }
}

impl WeightTensor {
    /// Rows and columns (a gain is one row).
    pub const fn shape(self, header: &WeightBlobHeader) -> (usize, usize) {
        let input = header.input_dim as usize;
        match self {
            Self::Wq(_) => (input, header.q_width()),
            Self::Wk(_) | Self::Wv(_) => (input, header.kv_width()),
            Self::Wo(_) => (header.q_width(), input),
            Self::Classifier => (input, header.n_classes as usize),
            Self::Gain(_) | Self::FinalGain => (1, input),
            Self::Projection1 => (header.q_width(), EMBEDDING_DIM),
            Self::Projection2 => (EMBEDDING_DIM, EMBEDDING_DIM),
        }
    }

    /// Every tensor of a file with this header, in the order of the file.
    pub fn all(header: &WeightBlobHeader) -> impl Iterator<Item = Self> + use<> {
        let layers = usize::from(header.n_layers);
        let gains = if header.has(FLAG_GAINS) { layers } else { 0 };
        let projection = header.has(FLAG_PROJECTION);
        (0..layers)
            .flat_map(|l| [Self::Wq(l), Self::Wk(l), Self::Wv(l), Self::Wo(l)])
            .chain([Self::Classifier])
            .chain((0..gains).map(Self::Gain))
            .chain((gains > 0).then_some(Self::FinalGain))
            .chain(projection.then_some([Self::Projection1, Self::Projection2]).into_iter().flatten())
    }
}

/// Byte ranges of the parts of a file whose length has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    /// First byte of the gains' contents, if they are there.
    gains: Option<usize>,
    projection: Option<usize>,
    pub(super) info: Option<Range<usize>>,
}

impl Layout {
    /// Walks through the parts of `bytes`; every length is compared with what the shape asks for before it is believed.
    pub(super) fn of(header: &WeightBlobHeader, bytes: &[u8]) -> Result<Self, WeightError> {
        let size = header.dtype().size();
        let mut walk = Walk { bytes, at: WEIGHT_BLOB_HEADER_LEN };
        walk.skip("payload", header.weights_len as usize)?;
        let (gains, projection) = (gain_elements(header) * size, projection_elements(header) * size);
        let gains = walk.section(header, FLAG_GAINS, "RMSNorm gains", |_| Ok(gains))?.map(|r| r.start);
        let projection = walk.section(header, FLAG_PROJECTION, "projection head", |_| Ok(projection))?.map(|r| r.start);
        let info = walk.section(header, FLAG_INFO, "information block", |says| {
            if says > INFO_LIMIT {
                let cure = "shorten the text in it";
                let (got, limit) = (says as u128, INFO_LIMIT as u128);
                return Err(WeightError::TooLarge { what: "information block", got, limit, cure });
            }
            Ok(says)
        })?;
        walk.skip("check sum", 4)?;
        if walk.at != bytes.len() {
            return Err(WeightError::Length {
                what: "file",
                expected: walk.at as u128,
                got: bytes.len() as u128,
                cure: "something follows the check sum: copy the file again",
            });
        }
        Ok(Self { gains, projection, info })
    }

    /// Where a tensor lies; `None` if the file does not have it.
    pub(super) fn range(&self, header: &WeightBlobHeader, tensor: WeightTensor) -> Option<Range<usize>> {
        let elements = |t: WeightTensor| {
            let (rows, columns) = t.shape(header);
            rows * columns
        };
        let layer = 2 * (elements(WeightTensor::Wq(0)) + elements(WeightTensor::Wk(0)));
        let layers = usize::from(header.n_layers);
        let (wq, wk) = (elements(WeightTensor::Wq(0)), elements(WeightTensor::Wk(0)));
        let input = usize::from(header.input_dim);
        let (start, elements_before) = match tensor {
            WeightTensor::Wq(l) | WeightTensor::Wk(l) | WeightTensor::Wv(l) | WeightTensor::Wo(l) => {
                if l >= layers {
                    return None;
                }
                let within = match tensor {
                    WeightTensor::Wq(_) => 0,
                    WeightTensor::Wk(_) => wq,
                    WeightTensor::Wv(_) => wq + wk,
                    _ => wq + 2 * wk,
                };
                (WEIGHT_BLOB_HEADER_LEN, l * layer + within)
            }
            WeightTensor::Classifier => (WEIGHT_BLOB_HEADER_LEN, layers * layer),
            WeightTensor::Gain(l) if l >= layers => return None,
            WeightTensor::Gain(l) => (self.gains?, l * input),
            WeightTensor::FinalGain => (self.gains?, layers * input),
            WeightTensor::Projection1 => (self.projection?, 0),
            WeightTensor::Projection2 => (self.projection?, elements(WeightTensor::Projection1)),
        };
        let size = header.dtype().size();
        let start = start + elements_before * size;
        Some(start..start + elements(tensor) * size)
    }
}

/// Numbers in the section of gains.
pub(super) fn gain_elements(header: &WeightBlobHeader) -> usize {
    (usize::from(header.n_layers) + 1) * usize::from(header.input_dim)
}

/// Numbers in the section of the projection head.
pub(super) fn projection_elements(header: &WeightBlobHeader) -> usize {
    header.q_width() * EMBEDDING_DIM + EMBEDDING_DIM * EMBEDDING_DIM
}

struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Walk<'_> {
    fn skip(&mut self, what: &'static str, len: usize) -> Result<Range<usize>, WeightError> {
        let left = self.bytes.len() - self.at;
        if left < len {
            let cure = "the file is cut off: copy it again";
            return Err(WeightError::Length { what, expected: len as u128, got: left as u128, cure });
        }
        let range = self.at..self.at + len;
        self.at = range.end;
        Ok(range)
    }

    /// A length and so many bytes, if the flag is set. `expected` gets the length that the file says.
    fn section(
        &mut self,
        header: &WeightBlobHeader,
        flag: u8,
        what: &'static str,
        expected: impl FnOnce(usize) -> Result<usize, WeightError>,
    ) -> Result<Option<Range<usize>>, WeightError> {
        if !header.has(flag) {
            return Ok(None);
        }
        let prefix = self.skip(what, 4)?;
        let says = self.bytes[prefix].iter().rev().fold(0u32, |n, &b| n << 8 | u32::from(b)) as usize;
        let expected = expected(says)?;
        if says != expected {
            let cure = "the file is damaged, or of another network";
            return Err(WeightError::Length { what, expected: expected as u128, got: says as u128, cure });
        }
        self.skip(what, expected).map(Some)
    }
}
