//! Keys and values in blocks that sequences share out among each other (PagedAttention, arXiv 2309.06180).

use super::KernelError;
use super::attention::finite;

/// A pool of blocks of `block_size` tokens. Which blocks belong to a sequence, and in which order, is told by its block
/// table, a list of block numbers that the caller keeps.
///
/// In memory: kv head x block x slot x `head_dim`, so that the rows of a head lie side by side.
#[derive(Debug, Clone)]
pub struct PagedKvCache {
    block_size: usize,
    num_kv_heads: usize,
    head_dim: usize,
    keys: Vec<f32>,
    values: Vec<f32>,
    /// Tokens in each block.
    filled: Vec<usize>,
}

impl PagedKvCache {
    /// Empty blocks.
    ///
    /// # Errors
    /// A size of 0, or more numbers than memory can have.
    pub fn new(blocks: usize, block_size: usize, num_kv_heads: usize, head_dim: usize) -> Result<Self, KernelError> {
        let sizes =
            [("blocks", blocks), ("block_size", block_size), ("num_kv_heads", num_kv_heads), ("head_dim", head_dim)];
        let mut total = 1usize;
        for (name, size) in sizes {
            if size == 0 {
                return Err(KernelError::Zero(name));
            }
            let most = isize::MAX as usize / size_of::<f32>() / total;
            if size > most {
                return Err(KernelError::Shape { what: name, expected: most, got: size });
            }
            total *= size;
        }
        let (keys, values) = (vec![0.0; total], vec![0.0; total]);
        Ok(Self { block_size, num_kv_heads, head_dim, keys, values, filled: vec![0; blocks] })
    }

    /// Writes one token into the next free slot of a block: `keys` and `values` are kv heads x `head_dim`. Gives the slot.
    ///
    /// # Errors
    /// No such block, a full block, other lengths, numbers that are not finite. Nothing is written then.
    pub fn append(&mut self, block: usize, keys: &[f32], values: &[f32]) -> Result<usize, KernelError> {
        let slot = self.len(block)?;
        if slot == self.block_size {
            return Err(KernelError::Filling { block, got: slot, expected: self.block_size });
        }
        let expected = self.num_kv_heads * self.head_dim;
        for (what, numbers) in [("keys", keys), ("values", values)] {
            if numbers.len() != expected {
                return Err(KernelError::Shape { what, expected, got: numbers.len() });
            }
            finite(what, numbers)?;
        }
        for head in 0..self.num_kv_heads {
            let to = ((head * self.filled.len() + block) * self.block_size + slot) * self.head_dim;
            let from = head * self.head_dim;
            self.keys[to..][..self.head_dim].copy_from_slice(&keys[from..][..self.head_dim]);
            self.values[to..][..self.head_dim].copy_from_slice(&values[from..][..self.head_dim]);
        }
        self.filled[block] += 1;
        Ok(slot)
    }

    /// Makes a block empty.
    ///
    /// # Errors
    /// No such block.
    pub fn clear(&mut self, block: usize) -> Result<(), KernelError> {
        self.len(block)?;
        self.filled[block] = 0;
        Ok(())
    }

    /// Tokens in a block.
    ///
    /// # Errors
    /// No such block.
    pub fn len(&self, block: usize) -> Result<usize, KernelError> {
        let blocks = self.filled.len();
        self.filled.get(block).copied().ok_or(KernelError::Block { got: block, blocks })
    }

    /// Blocks there are.
    pub fn num_blocks(&self) -> usize {
        self.filled.len()
    }

    /// Tokens that fit in a block.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// Heads of keys and values.
    pub fn num_kv_heads(&self) -> usize {
        self.num_kv_heads
    }

    /// Numbers of a head.
    pub fn head_dim(&self) -> usize {
        self.head_dim
    }

    /// Tokens of the sequence with this table. All blocks but the last that has any must be full.
    pub(super) fn tokens_of(&self, table: &[usize]) -> Result<usize, KernelError> {
        let mut tokens = 0;
        let mut short: Option<usize> = None;
        for &block in table {
            let len = self.len(block)?;
            if let Some(block) = short.filter(|_| len > 0) {
                return Err(KernelError::Filling { block, got: self.filled[block], expected: self.block_size });
            }
            if len < self.block_size {
                short = short.or(Some(block));
            }
            tokens += len;
        }
        Ok(tokens)
    }

    /// Keys and values of a head, all blocks.
    pub(super) fn head(&self, head: usize) -> (&[f32], &[f32]) {
        let len = self.filled.len() * self.block_size * self.head_dim;
        (&self.keys[head * len..][..len], &self.values[head * len..][..len])
    }
}
