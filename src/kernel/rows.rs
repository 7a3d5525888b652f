//! Rows of keys and values as a kernel sees them: borrowed, of one precision, at a fixed stride.

use half::f16;

use super::KernelError;
use super::quant::{BlockQ4, BlockQ8, blocks_for};

/// Keys and values of consecutive tokens of one kv head. `keys` and `values` begin at the first row; the next row begins
/// `stride` elements (blocks, for quantised kinds) later. So `k|v|k|v` in one buffer and separate tensors both fit.
#[derive(Debug, Clone, Copy)]
pub enum Rows<'a> {
    /// Single precision.
    F32 {
        /// First key on.
        keys: &'a [f32],
        /// First value on.
        values: &'a [f32],
        /// Elements from row to row.
        stride: usize,
    },
    /// Half precision.
    F16 {
        /// First key on.
        keys: &'a [f16],
        /// First value on.
        values: &'a [f16],
        /// Elements from row to row.
        stride: usize,
    },
    /// 8-bit blocks.
    Q8 {
        /// First key on.
        keys: &'a [BlockQ8],
        /// First value on.
        values: &'a [BlockQ8],
        /// Blocks from row to row.
        stride: usize,
    },
    /// 4-bit blocks.
    Q4 {
        /// First key on.
        keys: &'a [BlockQ4],
        /// First value on.
        values: &'a [BlockQ4],
        /// Blocks from row to row.
        stride: usize,
    },
}

/// What is added to the scores of a segment's rows before the softmax: the logarithm of how many tokens a row stands for.
#[derive(Debug, Clone, Copy)]
pub enum LogWeights<'a> {
    /// The same for all rows; 0 for single tokens.
    Same(f32),
    /// One for each row.
    Each(&'a [f32]),
}

/// Which rows of the slices a segment has.
#[derive(Debug, Clone, Copy)]
pub enum Picks<'a> {
    /// These, in any order.
    Rows(&'a [u32]),
    /// Whole blocks of `rows` rows, in any order: block b holds the rows from b * rows on. The last block may be cut short
    /// by the segment's length.
    Blocks {
        /// Numbers of the blocks.
        numbers: &'a [usize],
        /// Rows in a block.
        rows: usize,
    },
}

/// Rows that take part in one softmax, beside those of other segments. Few segments with lists of picks are faster than
/// many of one row.
#[derive(Debug, Clone, Copy)]
pub struct Segment<'a> {
    /// The rows.
    pub rows: Rows<'a>,
    /// How many of them.
    pub len: usize,
    /// Which rows; the first `len` where nothing is given.
    pub picks: Option<Picks<'a>>,
    /// Added to their scores.
    pub log_weights: LogWeights<'a>,
}

impl<'a> Segment<'a> {
    /// `len` rows that count once each.
    pub const fn tokens(rows: Rows<'a>, len: usize) -> Self {
        Self { rows, len, picks: None, log_weights: LogWeights::Same(0.0) }
    }

    /// The rows of these numbers, which count once each.
    pub const fn picked(rows: Rows<'a>, picks: &'a [u32]) -> Self {
        Self { rows, len: picks.len(), picks: Some(Picks::Rows(picks)), log_weights: LogWeights::Same(0.0) }
    }

    /// `len` rows in blocks of `rows` rows, of these numbers.
    pub const fn blocks(from: Rows<'a>, numbers: &'a [usize], rows: usize, len: usize) -> Self {
        Self { rows: from, len, picks: Some(Picks::Blocks { numbers, rows }), log_weights: LogWeights::Same(0.0) }
    }

    /// The same rows, which count as these tell.
    #[must_use]
    pub const fn weighted(self, log_weights: LogWeights<'a>) -> Self {
        Self { log_weights, ..self }
    }

    /// Checks that the slices hold the rows, each of `head_dim` numbers. Vector code relies on it.
    #[inline]
    pub fn check(&self, head_dim: usize) -> Result<(), KernelError> {
        if self.len == 0 {
            return Ok(());
        }
        let (keys, values, stride, width) = match self.rows {
            Rows::F32 { keys, values, stride } => (keys.len(), values.len(), stride, head_dim),
            Rows::F16 { keys, values, stride } => (keys.len(), values.len(), stride, head_dim),
            Rows::Q8 { keys, values, stride } => (keys.len(), values.len(), stride, blocks_for(head_dim)),
            Rows::Q4 { keys, values, stride } => (keys.len(), values.len(), stride, blocks_for(head_dim)),
        };
        let last = match self.picks {
            None => self.len - 1,
            Some(Picks::Rows(picks)) => {
                if picks.len() != self.len {
                    return Err(KernelError::Shape { what: "picks", expected: self.len, got: picks.len() });
                }
                picks.iter().fold(0, |most, &pick| most.max(pick)) as usize
            }
            Some(Picks::Blocks { rows: 0, .. }) => return Err(KernelError::Zero("rows of a block")),
            Some(Picks::Blocks { numbers, rows }) => {
                let expected = self.len.div_ceil(rows);
                if numbers.len() != expected {
                    return Err(KernelError::Shape { what: "block numbers", expected, got: numbers.len() });
                }
                // The rows of a last block that is cut short are asked for as well: simpler, and pools have them.
                let most = numbers.iter().copied().max().unwrap_or(0);
                most.checked_mul(rows).and_then(|n| n.checked_add(rows - 1)).unwrap_or(usize::MAX)
            }
        };
        let least = last.checked_mul(stride).and_then(|n| n.checked_add(width));
        let least = least.ok_or(KernelError::Shape { what: "rows", expected: usize::MAX, got: keys })?;
        if keys < least {
            return Err(KernelError::Shape { what: "keys", expected: least, got: keys });
        }
        if values < least {
            return Err(KernelError::Shape { what: "values", expected: least, got: values });
        }
        match self.log_weights {
            LogWeights::Each(w) if w.len() != self.len => {
                Err(KernelError::Shape { what: "log weights", expected: self.len, got: w.len() })
            }
            _ => Ok(()),
        }
    }

    /// The log weight of row `i`.
    pub fn log_weight(&self, i: usize) -> f32 {
        match self.log_weights {
            LogWeights::Same(w) => w,
            LogWeights::Each(w) => w[i],
        }
    }

    /// Key (`value` false) or value of row `i` as single precision, for reference code.
    pub fn read(&self, i: usize, value: bool, out: &mut [f32]) {
        let i = match self.picks {
            None => i,
            Some(Picks::Rows(picks)) => picks[i] as usize,
            Some(Picks::Blocks { numbers, rows }) => numbers[i / rows] * rows + i % rows,
        };
        match self.rows {
            Rows::F32 { keys, values, stride } => {
                let from = if value { values } else { keys };
                out.copy_from_slice(&from[i * stride..][..out.len()]);
            }
            Rows::F16 { keys, values, stride } => {
                let from = if value { values } else { keys };
                for (o, x) in out.iter_mut().zip(&from[i * stride..]) {
                    *o = x.to_f32();
                }
            }
            Rows::Q8 { keys, values, stride } => {
                let from = if value { values } else { keys };
                for (o, block) in out.chunks_mut(super::BLOCK).zip(&from[i * stride..]) {
                    block.dequantize(o);
                }
            }
            Rows::Q4 { keys, values, stride } => {
                let from = if value { values } else { keys };
                for (o, block) in out.chunks_mut(super::BLOCK).zip(&from[i * stride..]) {
                    block.dequantize(o);
                }
            }
        }
    }
}
