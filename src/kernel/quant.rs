//! Blocks of 32 quantised values with a half-precision scale: the layouts known as Q8_0 and Q4_0 (GGML).

use bytemuck::{Pod, Zeroable};
use half::f16;

/// Values in a block.
pub const BLOCK: usize = 32;

/// Blocks that hold `len` values; the last one is filled up with zeros.
pub const fn blocks_for(len: usize) -> usize {
    len.div_ceil(BLOCK)
}

/// 32 values as signed bytes: value = scale * q. 34 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ8 {
    /// Largest magnitude divided by 127.
    pub scale: f16,
    /// Rounded to the nearest, ties to even.
    pub q: [i8; BLOCK],
}

/// 32 values as 4-bit numbers: value = scale * (nibble - 8); byte i holds value i low and value i + 16 high. 18 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ4 {
    /// The value of the largest magnitude, divided by -8.
    pub scale: f16,
    /// Two values a byte.
    pub q: [u8; BLOCK / 2],
}

impl BlockQ8 {
    /// Quantises up to [`BLOCK`] finite values; missing ones count as zero.
    #[inline(always)]
    pub fn quantize(values: &[f32]) -> Self {
        let most = values.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        // The scale as it will be read back, so that rounding it costs no second error.
        let scale = f16::from_f32(most / 127.0);
        let inverse = if scale.to_f32() > 0.0 { 1.0 / scale.to_f32() } else { 0.0 };
        let mut q = [0i8; BLOCK];
        for (q, v) in q.iter_mut().zip(values) {
            *q = (v * inverse).round_ties_even().clamp(-127.0, 127.0) as i8;
        }
        Self { scale, q }
    }

    /// Writes up to [`BLOCK`] values.
    pub fn dequantize(&self, out: &mut [f32]) {
        let scale = self.scale.to_f32();
        for (o, q) in out.iter_mut().zip(self.q) {
            *o = scale * f32::from(q);
        }
    }
}

impl BlockQ4 {
    /// Quantises up to [`BLOCK`] finite values; missing ones count as zero.
    #[inline(always)]
    pub fn quantize(values: &[f32]) -> Self {
        let most = values.iter().copied().fold(0.0f32, |m, v| if v.abs() > m.abs() { v } else { m });
        let scale = f16::from_f32(most / -8.0);
        let inverse = if scale.to_f32() == 0.0 { 0.0 } else { 1.0 / scale.to_f32() };
        let nibble =
            |v: Option<&f32>| ((v.copied().unwrap_or(0.0) * inverse).round_ties_even() + 8.0).clamp(0.0, 15.0) as u8;
        let q = std::array::from_fn(|i| nibble(values.get(i)) | nibble(values.get(i + BLOCK / 2)) << 4);
        Self { scale, q }
    }

    /// Writes up to [`BLOCK`] values.
    pub fn dequantize(&self, out: &mut [f32]) {
        let scale = self.scale.to_f32();
        for (i, o) in out.iter_mut().enumerate().take(BLOCK) {
            let byte = self.q[i % (BLOCK / 2)];
            let nibble = if i < BLOCK / 2 { byte & 15 } else { byte >> 4 };
            *o = scale * (f32::from(nibble) - 8.0);
        }
    }
}
