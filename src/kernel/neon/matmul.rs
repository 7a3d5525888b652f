//! Dot products, products of a few rows with a matrix, conversions.

use std::arch::aarch64::*;

use half::f16;

use super::Eight;
use super::rows::{F16, F32, Format, Q4, Q8};
use crate::kernel::quant::{BlockQ4, BlockQ8};

/// Sum of products.
///
/// # Safety
/// The lengths must fit.
pub(in crate::kernel) unsafe fn dot(a: &[f32], b: &[f32]) -> f32 {
    // SAFETY: `b` has as many numbers as `a`.
    unsafe { dot_row::<F32>(a, b.as_ptr().cast()) }
}

/// As the scalar function of this name.
///
/// # Safety
/// The lengths must fit.
pub(in crate::kernel) unsafe fn dot_q8(a: &[f32], b: &[BlockQ8]) -> f32 {
    // SAFETY: the blocks hold as many numbers as `a`.
    unsafe { dot_row::<Q8>(a, b.as_ptr().cast()) }
}

/// As the scalar function of this name.
///
/// # Safety
/// The lengths must fit.
pub(in crate::kernel) unsafe fn dot_q4(a: &[f32], b: &[BlockQ4]) -> f32 {
    // SAFETY: the blocks hold as many numbers as `a`.
    unsafe { dot_row::<Q4>(a, b.as_ptr().cast()) }
}

#[inline(always)]
unsafe fn dot_row<F: Format>(a: &[f32], row: *const u8) -> f32 {
    let left: *const u8 = a.as_ptr().cast();
    // SAFETY: eights stay below the length, the last one is what is left.
    unsafe {
        let mut sums = [vdupq_n_f32(0.0); 4];
        let mut add = |i: usize, a: Eight, b: Eight| {
            sums[2 * i] = vfmaq_f32(sums[2 * i], a[0], b[0]);
            sums[2 * i + 1] = vfmaq_f32(sums[2 * i + 1], a[1], b[1]);
        };
        for c in 0..a.len() / 8 {
            add(c % 2, F32::load(left, c), F::load(row, c));
        }
        let (c, rest) = (a.len() / 8, a.len() % 8);
        if rest > 0 {
            add(0, F32::load_tail(left, c, rest), F::load_tail(row, c, rest));
        }
        vaddvq_f32(vaddq_f32(vaddq_f32(sums[0], sums[1]), vaddq_f32(sums[2], sums[3])))
    }
}

/// As the scalar function of this name.
///
/// # Safety
/// The lengths must fit.
pub(in crate::kernel) unsafe fn matmul(x: &[f32], w: &[f32], inputs: usize, y: &mut [f32]) {
    // SAFETY: the caller's word.
    unsafe { product::<F32>(x, w.as_ptr().cast(), w.len() / inputs, 4, inputs, y) }
}

/// As the scalar function of this name.
///
/// # Safety
/// The lengths must fit.
pub(in crate::kernel) unsafe fn matmul_f16(x: &[f32], w: &[f16], inputs: usize, y: &mut [f32]) {
    // SAFETY: the caller's word.
    unsafe { product::<F16>(x, w.as_ptr().cast(), w.len() / inputs, 2, inputs, y) }
}

/// Rows of x go in fours, so that four of them share each vector of W that is loaded; sums stay in registers over all inputs.
#[inline(always)]
unsafe fn product<F: Format>(x: &[f32], w: *const u8, outputs: usize, bytes: usize, inputs: usize, y: &mut [f32]) {
    let rows = x.len() / inputs;
    let mut row = 0;
    while row < rows {
        // SAFETY: `row` is below the number of rows, and as many are left as are taken.
        unsafe {
            let tile = Tile {
                x: x.as_ptr().add(row * inputs),
                w,
                y: y.as_mut_ptr().add(row * outputs),
                inputs,
                outputs,
                row_bytes: outputs * bytes,
            };
            row += match rows - row {
                4.. => tile.rows::<F, 4, 2>(),
                2.. => tile.rows::<F, 2, 4>(),
                _ => tile.rows::<F, 1, 4>(),
            };
        }
    }
}

struct Tile {
    x: *const f32,
    w: *const u8,
    y: *mut f32,
    inputs: usize,
    outputs: usize,
    row_bytes: usize,
}

impl Tile {
    /// All columns of `R` rows, `C` eights at a time; gives `R`.
    #[inline(always)]
    unsafe fn rows<F: Format, const R: usize, const C: usize>(&self) -> usize {
        let whole = self.outputs / 8;
        let mut c = 0;
        // SAFETY: eights stay below the number of outputs; the last one is what is left.
        unsafe {
            while c + C <= whole {
                self.columns::<F, R, C>(c, 8);
                c += C;
            }
            while c < whole {
                self.columns::<F, R, 1>(c, 8);
                c += 1;
            }
            let rest = self.outputs % 8;
            if rest > 0 {
                self.columns::<F, R, 1>(c, rest);
            }
        }
        R
    }

    /// `C` eights, of which the last one has `width` numbers.
    #[inline(always)]
    unsafe fn columns<F: Format, const R: usize, const C: usize>(&self, c: usize, width: usize) {
        // SAFETY: as in `rows`.
        unsafe {
            let mut sums = [[[vdupq_n_f32(0.0); 2]; C]; R];
            for i in 0..self.inputs {
                let row = self.w.add(i * self.row_bytes);
                let w: [Eight; C] =
                    std::array::from_fn(
                        |v| {
                            if width == 8 { F::load(row, c + v) } else { F::load_tail(row, c + v, width) }
                        },
                    );
                for (r, sums) in sums.iter_mut().enumerate() {
                    let x = *self.x.add(r * self.inputs + i);
                    for (sum, w) in sums.iter_mut().zip(w) {
                        *sum = [vfmaq_n_f32(sum[0], w[0], x), vfmaq_n_f32(sum[1], w[1], x)];
                    }
                }
            }
            for (r, sums) in sums.into_iter().enumerate() {
                for (v, sum) in sums.into_iter().enumerate() {
                    let mut numbers = [0.0f32; 8];
                    vst1q_f32(numbers.as_mut_ptr(), sum[0]);
                    vst1q_f32(numbers.as_mut_ptr().add(4), sum[1]);
                    let y = self.y.add(r * self.outputs + 8 * (c + v));
                    std::ptr::copy_nonoverlapping(numbers.as_ptr(), y, width.min(8));
                }
            }
        }
    }
}

/// Rounds to half precision, ties to even.
///
/// # Safety
/// The lengths must fit.
pub(in crate::kernel) unsafe fn to_f16(from: &[f32], to: &mut [f16]) {
    let (from4, from_rest) = from.as_chunks::<4>();
    let (to4, to_rest) = to.as_chunks_mut::<4>();
    for (from, to) in from4.iter().zip(to4) {
        // SAFETY: four numbers at both ends.
        unsafe {
            let half = vcvt_f16_f32(vld1q_f32(from.as_ptr()));
            vst1_u16(to.as_mut_ptr().cast(), vreinterpret_u16_f16(half));
        }
    }
    to_rest.iter_mut().zip(from_rest).for_each(|(to, from)| *to = f16::from_f32(*from));
}

/// Reads half precision.
///
/// # Safety
/// The lengths must fit.
pub(in crate::kernel) unsafe fn from_f16(from: &[f16], to: &mut [f32]) {
    let (from8, from_rest) = from.as_chunks::<8>();
    let (to8, to_rest) = to.as_chunks_mut::<8>();
    for (from, to) in from8.iter().zip(to8) {
        // SAFETY: eight numbers at both ends.
        unsafe {
            let numbers = F16::load(from.as_ptr().cast(), 0);
            vst1q_f32(to.as_mut_ptr(), numbers[0]);
            vst1q_f32(to.as_mut_ptr().add(4), numbers[1]);
        }
    }
    to_rest.iter_mut().zip(from_rest).for_each(|(to, from)| *to = from.to_f32());
}
