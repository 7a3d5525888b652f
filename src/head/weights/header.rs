//! The first 24 bytes.

use std::fmt;

use super::WeightError;

/// `RVNE` read as a big-endian number; the file holds it little endian, so its first byte is `E`.
pub const WEIGHT_BLOB_MAGIC: u32 = 0x5256_4E45;
/// The version that is read and written.
pub const WEIGHT_BLOB_VERSION: u16 = 1;
/// Bytes of the header.
pub const WEIGHT_BLOB_HEADER_LEN: usize = 24;

/// Flag bit 0: numbers are half precision.
pub const FLAG_F16: u8 = 1 << 0;
/// Flag bit 1: RMSNorm gains follow.
pub const FLAG_GAINS: u8 = 1 << 1;
/// Flag bit 2: a projection head follows.
pub const FLAG_PROJECTION: u8 = 1 << 2;
/// Flag bit 3: a JSON block follows.
pub const FLAG_INFO: u8 = 1 << 3;
/// Widest attention output; keeps every product of dimensions within 32 bits.
const MAX_WIDTH: u64 = 1 << 16;
const KNOWN_FLAGS: u8 = FLAG_F16 | FLAG_GAINS | FLAG_PROJECTION | FLAG_INFO;

/// Precision of the stored numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WeightDtype {
    /// Single precision, 4 bytes.
    F32,
    /// Half precision, 2 bytes.
    F16,
}

impl WeightDtype {
    /// Bytes per number.
    pub const fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
        }
    }
}

impl fmt::Display for WeightDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
        })
    }
}

/// Shape and precision of a network, as the file begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeightBlobHeader {
    /// `FLAG_…` bits.
    pub flags: u8,
    /// Numbers of a token; width of the residual stream.
    pub input_dim: u16,
    /// Query heads.
    pub n_q_heads: u16,
    /// Key/value heads; divides the query heads.
    pub n_kv_heads: u16,
    /// Numbers per head.
    pub head_dim: u16,
    /// Layers.
    pub n_layers: u16,
    /// Classes.
    pub n_classes: u16,
    /// Bytes of the payload.
    pub weights_len: u32,
}

impl WeightBlobHeader {
    /// Reads and checks the header: magic, version, flags, dimensions, and that the payload length fits them. Reads the
    /// first [`WEIGHT_BLOB_HEADER_LEN`] bytes only.
    ///
    /// # Errors
    /// [`WeightError`] by name of the field.
    pub fn parse(bytes: &[u8]) -> Result<Self, WeightError> {
        let Some(head) = bytes.first_chunk::<WEIGHT_BLOB_HEADER_LEN>() else {
            return Err(WeightError::Length {
                what: "header",
                expected: WEIGHT_BLOB_HEADER_LEN as u128,
                got: bytes.len() as u128,
                cure: "the file is cut off: copy it again",
            });
        };
        let word = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let long = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let magic = long(0);
        if magic != WEIGHT_BLOB_MAGIC {
            let hint = if magic == WEIGHT_BLOB_MAGIC.swap_bytes() {
                ": the same in big-endian order; write the file in little-endian order"
            } else {
                "; give a weight file, for example one of `aetherd head init`"
            };
            return Err(WeightError::Magic { got: magic, hint });
        }
        if word(4) != WEIGHT_BLOB_VERSION {
            return Err(WeightError::Version(word(4)));
        }
        if head[7] != 0 {
            return Err(WeightError::Reserved(head[7]));
        }
        let header = Self {
            flags: head[6],
            input_dim: word(8),
            n_q_heads: word(10),
            n_kv_heads: word(12),
            head_dim: word(14),
            n_layers: word(16),
            n_classes: word(18),
            weights_len: long(20),
        };
        header.check()?;
        Ok(header)
    }

    /// Checks flags, dimensions and the payload length against each other.
    ///
    /// # Errors
    /// [`WeightError`] by name of the field.
    pub fn check(&self) -> Result<(), WeightError> {
        let unknown = self.flags & !KNOWN_FLAGS;
        if unknown != 0 {
            let bits: Vec<String> = (0..8).filter(|b| unknown >> b & 1 == 1).map(|b| b.to_string()).collect();
            return Err(WeightError::Flags { bits: bits.join(" and "), flags: self.flags });
        }
        for (what, got) in [
            ("input_dim", self.input_dim),
            ("n_q_heads", self.n_q_heads),
            ("n_kv_heads", self.n_kv_heads),
            ("head_dim", self.head_dim),
            ("n_layers", self.n_layers),
            ("n_classes", self.n_classes),
        ] {
            if got == 0 {
                return Err(WeightError::Dimension { what, got: 0, expected: "at least 1".to_owned() });
            }
        }
        if !self.n_q_heads.is_multiple_of(self.n_kv_heads) {
            let expected = format!("a divisor of the {} query heads", self.n_q_heads);
            return Err(WeightError::Dimension { what: "n_kv_heads", got: self.n_kv_heads.into(), expected });
        }
        let width = u64::from(self.n_q_heads) * u64::from(self.head_dim);
        if width > MAX_WIDTH {
            let expected = format!("at most {MAX_WIDTH}");
            return Err(WeightError::Dimension { what: "n_q_heads x head_dim", got: width, expected });
        }
        let expected = self.payload_elements() * self.dtype().size() as u128;
        if expected != u128::from(self.weights_len) {
            return Err(WeightError::Length {
                what: "payload length in the header",
                expected,
                got: self.weights_len.into(),
                cure: "the header is damaged, or the file is of another network",
            });
        }
        Ok(())
    }

    /// The 24 bytes.
    pub fn to_bytes(&self) -> [u8; WEIGHT_BLOB_HEADER_LEN] {
        let mut out = [0; WEIGHT_BLOB_HEADER_LEN];
        out[0..4].copy_from_slice(&WEIGHT_BLOB_MAGIC.to_le_bytes());
        out[4..6].copy_from_slice(&WEIGHT_BLOB_VERSION.to_le_bytes());
        out[6] = self.flags;
        let words = [self.input_dim, self.n_q_heads, self.n_kv_heads, self.head_dim, self.n_layers, self.n_classes];
        for (to, word) in out[8..20].chunks_exact_mut(2).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        out[20..24].copy_from_slice(&self.weights_len.to_le_bytes());
        out
    }

    /// Precision of the payload and of the sections that hold numbers.
    pub const fn dtype(&self) -> WeightDtype {
        if self.flags & FLAG_F16 == 0 { WeightDtype::F32 } else { WeightDtype::F16 }
    }

    /// Whether the section behind a `FLAG_…` bit is there.
    pub const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Width of the queries and of the attention output: heads times numbers per head.
    pub const fn q_width(&self) -> usize {
        self.n_q_heads as usize * self.head_dim as usize
    }

    /// Width of the keys, and of the values.
    pub const fn kv_width(&self) -> usize {
        self.n_kv_heads as usize * self.head_dim as usize
    }

    /// Numbers in the payload; cannot overflow, whatever the dimensions.
    pub const fn payload_elements(&self) -> u128 {
        let input = self.input_dim as u128;
        let heads = self.n_q_heads as u128 + self.n_kv_heads as u128;
        let layer = 2 * input * heads * self.head_dim as u128;
        self.n_layers as u128 * layer + input * self.n_classes as u128
    }
}
