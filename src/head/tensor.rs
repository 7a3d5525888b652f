//! Three-dimensional tensors: position, head, dimension.

use super::TemporalError;

/// A tensor of shape (seq, heads, dim), row-major single precision.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor3 {
    seq: usize,
    heads: usize,
    dim: usize,
    data: Vec<f32>,
}

impl Tensor3 {
    /// A tensor over `data`.
    ///
    /// # Errors
    /// [`TemporalError::Shape`] unless there are exactly `seq * heads * dim` numbers.
    pub fn from_vec(data: Vec<f32>, seq: usize, heads: usize, dim: usize) -> Result<Self, TemporalError> {
        let len = seq.checked_mul(heads).and_then(|n| n.checked_mul(dim));
        if len != Some(data.len()) {
            return Err(TemporalError::Shape {
                what: "tensor",
                expected: format!("{seq} x {heads} x {dim} numbers"),
                got: format!("{} numbers", data.len()),
            });
        }
        Ok(Self { seq, heads, dim, data })
    }

    /// All zeros.
    ///
    /// # Errors
    /// [`TemporalError::Shape`] where the product of the lengths does not fit memory's address range.
    pub fn zeros(seq: usize, heads: usize, dim: usize) -> Result<Self, TemporalError> {
        let len = seq.checked_mul(heads).and_then(|n| n.checked_mul(dim)).filter(|n| *n <= isize::MAX as usize / 4);
        let Some(len) = len else {
            return Err(TemporalError::Shape {
                what: "tensor",
                expected: "a size that can be addressed".to_owned(),
                got: format!("{seq} x {heads} x {dim}"),
            });
        };
        Ok(Self { seq, heads, dim, data: vec![0.0; len] })
    }

    /// Positions.
    pub const fn seq(&self) -> usize {
        self.seq
    }

    /// Heads.
    pub const fn heads(&self) -> usize {
        self.heads
    }

    /// Numbers per head.
    pub const fn dim(&self) -> usize {
        self.dim
    }

    /// All numbers, position by position.
    pub fn as_slice(&self) -> &[f32] {
        &self.data
    }

    /// All numbers, position by position.
    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        &mut self.data
    }

    /// All heads of one position. Panics beyond the end, as slices do.
    pub fn position(&self, i: usize) -> &[f32] {
        let width = self.heads * self.dim;
        &self.data[i * width..][..width]
    }

    /// One head of one position. Panics beyond the end, as slices do.
    pub fn row(&self, i: usize, head: usize) -> &[f32] {
        &self.position(i)[head * self.dim..][..self.dim]
    }

    pub(super) fn expect(&self, what: &'static str, seq: usize, heads: usize, dim: usize) -> Result<(), TemporalError> {
        if (self.seq, self.heads, self.dim) == (seq, heads, dim) {
            return Ok(());
        }
        Err(TemporalError::Shape {
            what,
            expected: format!("{seq} x {heads} x {dim}"),
            got: format!("{} x {} x {}", self.seq, self.heads, self.dim),
        })
    }
}
