//! Memory for rows of keys and values, all of it taken at construction.

use bytemuck::{Pod, Zeroable};
use half::f16;
use half::slice::HalfFloatSliceExt;

use crate::kernel::{BLOCK, BlockQ4, BlockQ8, LogWeights, Rows, Segment, blocks_for};

/// In which numbers rows are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Numbers {
    F32,
    F16,
    Q8,
    Q4,
}

/// A cache line. Memory made of lines begins at one, so that no vector load of a row spans two.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u32; 16]);

/// Lines for `n` numbers of `size` bytes.
fn lines(n: usize, size: usize) -> Vec<Line> {
    vec![Line::zeroed(); (n * size).div_ceil(size_of::<Line>())]
}

#[derive(Debug, Clone)]
enum Data {
    /// `f32`, zeros behind the last row.
    F32(Vec<Line>),
    /// `f16`, zeros behind the last row.
    F16(Vec<Line>),
    Q8(Vec<BlockQ8>),
    Q4(Vec<BlockQ4>),
}

/// `slots` rows for each of `heads` kv heads; key and value of a row side by side, the rows of a head one after the other.
#[derive(Debug, Clone)]
pub(super) struct RowStore {
    heads: usize,
    slots: usize,
    dim: usize,
    data: Data,
}

impl RowStore {
    pub(super) fn new(numbers: Numbers, heads: usize, slots: usize, dim: usize) -> Self {
        let rows = heads * slots;
        let blocks = 2 * blocks_for(dim);
        let data = match numbers {
            Numbers::F32 => Data::F32(lines(rows * 2 * dim, size_of::<f32>())),
            Numbers::F16 => Data::F16(lines(rows * 2 * dim, size_of::<f16>())),
            Numbers::Q8 => Data::Q8(vec![BlockQ8 { scale: f16::ZERO, q: [0; BLOCK] }; rows * blocks]),
            Numbers::Q4 => Data::Q4(vec![BlockQ4 { scale: f16::ZERO, q: [0; BLOCK / 2] }; rows * blocks]),
        };
        Self { heads, slots, dim, data }
    }

    pub(super) const fn slots(&self) -> usize {
        self.slots
    }

    /// Bytes taken.
    pub(super) fn bytes(&self) -> usize {
        match &self.data {
            Data::F32(v) | Data::F16(v) => size_of_val(v.as_slice()),
            Data::Q8(v) => size_of_val(v.as_slice()),
            Data::Q4(v) => size_of_val(v.as_slice()),
        }
    }

    /// Overwrites everything with zeros.
    pub(super) fn wipe(&mut self) {
        match &mut self.data {
            Data::F32(v) | Data::F16(v) => v.fill(Line::zeroed()),
            Data::Q8(v) => v.fill(BlockQ8 { scale: f16::ZERO, q: [0; BLOCK] }),
            Data::Q4(v) => v.fill(BlockQ4 { scale: f16::ZERO, q: [0; BLOCK / 2] }),
        }
    }

    fn row(&self, head: usize, slot: usize) -> usize {
        debug_assert!(head < self.heads && slot < self.slots);
        head * self.slots + slot
    }

    /// Writes one row.
    pub(super) fn write(&mut self, head: usize, slot: usize, key: &[f32], value: &[f32]) {
        let (row, dim) = (self.row(head, slot), self.dim);
        let blocks = blocks_for(dim);
        match &mut self.data {
            Data::F32(v) => {
                let v: &mut [f32] = bytemuck::cast_slice_mut(v);
                let (k, rest) = v[row * 2 * dim..][..2 * dim].split_at_mut(dim);
                k.copy_from_slice(key);
                rest.copy_from_slice(value);
            }
            Data::F16(v) => {
                let v: &mut [f16] = bytemuck::cast_slice_mut(v);
                let (k, rest) = v[row * 2 * dim..][..2 * dim].split_at_mut(dim);
                k.convert_from_f32_slice(key);
                rest.convert_from_f32_slice(value);
            }
            Data::Q8(v) => {
                let parts = key.chunks(BLOCK).chain(value.chunks(BLOCK));
                for (o, x) in v[row * 2 * blocks..][..2 * blocks].iter_mut().zip(parts) {
                    *o = BlockQ8::quantize(x);
                }
            }
            Data::Q4(v) => {
                let parts = key.chunks(BLOCK).chain(value.chunks(BLOCK));
                for (o, x) in v[row * 2 * blocks..][..2 * blocks].iter_mut().zip(parts) {
                    *o = BlockQ4::quantize(x);
                }
            }
        }
    }

    /// Reads one row.
    pub(super) fn read(&self, head: usize, slot: usize, key: &mut [f32], value: &mut [f32]) {
        let all = Segment::tokens(self.rows(head), self.slots);
        all.read(slot, false, key);
        all.read(slot, true, value);
    }

    /// All rows of a head.
    pub(super) fn rows(&self, head: usize) -> Rows<'_> {
        let (dim, blocks) = (self.dim, blocks_for(self.dim));
        let values = self.slots * 2 * dim;
        let quantised = self.slots * 2 * blocks;
        match &self.data {
            Data::F32(v) => {
                let v: &[f32] = &bytemuck::cast_slice(v)[head * values..][..values];
                Rows::F32 { keys: v, values: v.get(dim..).unwrap_or_default(), stride: 2 * dim }
            }
            Data::F16(v) => {
                let v: &[f16] = &bytemuck::cast_slice(v)[head * values..][..values];
                Rows::F16 { keys: v, values: v.get(dim..).unwrap_or_default(), stride: 2 * dim }
            }
            Data::Q8(v) => {
                let v = &v[head * quantised..][..quantised];
                Rows::Q8 { keys: v, values: v.get(blocks..).unwrap_or_default(), stride: 2 * blocks }
            }
            Data::Q4(v) => {
                let v = &v[head * quantised..][..quantised];
                Rows::Q4 { keys: v, values: v.get(blocks..).unwrap_or_default(), stride: 2 * blocks }
            }
        }
    }

    /// `len` rows of a head from `slot` on.
    pub(super) fn range(&self, head: usize, slot: usize, len: usize) -> Segment<'_> {
        let rows = match self.rows(head) {
            Rows::F32 { keys, values, stride } => {
                Rows::F32 { keys: from(keys, slot * stride), values: from(values, slot * stride), stride }
            }
            Rows::F16 { keys, values, stride } => {
                Rows::F16 { keys: from(keys, slot * stride), values: from(values, slot * stride), stride }
            }
            Rows::Q8 { keys, values, stride } => {
                Rows::Q8 { keys: from(keys, slot * stride), values: from(values, slot * stride), stride }
            }
            Rows::Q4 { keys, values, stride } => {
                Rows::Q4 { keys: from(keys, slot * stride), values: from(values, slot * stride), stride }
            }
        };
        Segment::tokens(rows, len)
    }

    /// Picked rows of a head.
    pub(super) fn picked<'a>(&'a self, head: usize, picks: &'a [u32], weights: LogWeights<'a>) -> Segment<'a> {
        Segment::picked(self.rows(head), picks).weighted(weights)
    }
}

fn from<T>(all: &[T], start: usize) -> &[T] {
    all.get(start..).unwrap_or_default()
}
