//! Dot products, products of a few rows with a matrix, conversions.

use std::arch::x86_64::*;

use half::f16;

use super::first_lanes;
use super::rows::{F16, F32, Format, Q4, Q8};
use crate::kernel::quant::{BlockQ4, BlockQ8};

/// Sum of products.
///
/// # Safety
/// Needs AVX2, FMA and F16C; the lengths must fit.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::kernel) unsafe fn dot(a: &[f32], b: &[f32]) -> f32 {
    // SAFETY: `b` has as many numbers as `a`.
    unsafe { dot_row::<F32>(a, b.as_ptr().cast()) }
}

/// As the scalar function of this name.
///
/// # Safety
/// Needs AVX2, FMA and F16C; the lengths must fit.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::kernel) unsafe fn dot_q8(a: &[f32], b: &[BlockQ8]) -> f32 {
    // SAFETY: the blocks hold as many numbers as `a`.
    unsafe { dot_row::<Q8>(a, b.as_ptr().cast()) }
}

/// As the scalar function of this name.
///
/// # Safety
/// Needs AVX2, FMA and F16C; the lengths must fit.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::kernel) unsafe fn dot_q4(a: &[f32], b: &[BlockQ4]) -> f32 {
    // SAFETY: the blocks hold as many numbers as `a`.
    unsafe { dot_row::<Q4>(a, b.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn dot_row<F: Format>(a: &[f32], row: *const u8) -> f32 {
    let mut sums = [_mm256_setzero_ps(); 4];
    let whole = a.len() / 8;
    let mut c = 0;
    // SAFETY: vector numbers stay below the length, the last one is masked.
    unsafe {
        while c + 4 <= whole {
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = _mm256_fmadd_ps(_mm256_loadu_ps(a.as_ptr().add(8 * (c + i))), F::load(row, c + i), *sum);
            }
            c += 4;
        }
        while c < whole {
            sums[0] = _mm256_fmadd_ps(_mm256_loadu_ps(a.as_ptr().add(8 * c)), F::load(row, c), sums[0]);
            c += 1;
        }
        let rest = a.len() % 8;
        if rest > 0 {
            let left = _mm256_maskload_ps(a.as_ptr().add(8 * c), first_lanes(rest));
            sums[1] = _mm256_fmadd_ps(left, F::load_tail(row, c, rest), sums[1]);
        }
    }
    let sum = _mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3]));
    let sum = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps::<1>(sum));
    let sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
    _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)))
}

/// As the scalar function of this name.
///
/// # Safety
/// Needs AVX2, FMA and F16C; the lengths must fit.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::kernel) unsafe fn matmul(x: &[f32], w: &[f32], inputs: usize, y: &mut [f32]) {
    // SAFETY: the caller's word.
    unsafe { product::<F32>(x, w.as_ptr().cast(), w.len() / inputs, 4, inputs, y) }
}

/// As the scalar function of this name.
///
/// # Safety
/// Needs AVX2, FMA and F16C; the lengths must fit.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::kernel) unsafe fn matmul_f16(x: &[f32], w: &[f16], inputs: usize, y: &mut [f32]) {
    // SAFETY: the caller's word.
    unsafe { product::<F16>(x, w.as_ptr().cast(), w.len() / inputs, 2, inputs, y) }
}

/// Rows of x go in fours, so that four of them share each vector of W that is loaded; sums stay in registers over all inputs.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
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
                _ => tile.rows::<F, 1, 8>(),
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
    /// All columns of `R` rows, `C` vectors at a time; gives `R`.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn rows<F: Format, const R: usize, const C: usize>(&self) -> usize {
        let whole = self.outputs / 8;
        let mut c = 0;
        // SAFETY: vector numbers stay below the number of outputs; the last one is masked.
        unsafe {
            while c + C <= whole {
                self.columns::<F, R, C>(c);
                c += C;
            }
            while c < whole {
                self.columns::<F, R, 1>(c);
                c += 1;
            }
            let rest = self.outputs % 8;
            if rest > 0 {
                let mut sums = [_mm256_setzero_ps(); R];
                for i in 0..self.inputs {
                    let w = F::load_tail(self.w.add(i * self.row_bytes), c, rest);
                    for (r, sum) in sums.iter_mut().enumerate() {
                        *sum = _mm256_fmadd_ps(_mm256_broadcast_ss(&*self.x.add(r * self.inputs + i)), w, *sum);
                    }
                }
                for (r, sum) in sums.into_iter().enumerate() {
                    _mm256_maskstore_ps(self.y.add(r * self.outputs + 8 * c), first_lanes(rest), sum);
                }
            }
        }
        R
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn columns<F: Format, const R: usize, const C: usize>(&self, c: usize) {
        let mut sums = [[_mm256_setzero_ps(); C]; R];
        // SAFETY: as in `rows`.
        unsafe {
            for i in 0..self.inputs {
                let row = self.w.add(i * self.row_bytes);
                let w: [__m256; C] = std::array::from_fn(|v| F::load(row, c + v));
                for (r, sums) in sums.iter_mut().enumerate() {
                    let x = _mm256_broadcast_ss(&*self.x.add(r * self.inputs + i));
                    for (sum, w) in sums.iter_mut().zip(w) {
                        *sum = _mm256_fmadd_ps(x, w, *sum);
                    }
                }
            }
            for (r, sums) in sums.into_iter().enumerate() {
                for (v, sum) in sums.into_iter().enumerate() {
                    _mm256_storeu_ps(self.y.add(r * self.outputs + 8 * (c + v)), sum);
                }
            }
        }
    }
}

/// Rounds to half precision, ties to even.
///
/// # Safety
/// Needs AVX2, FMA and F16C; the lengths must fit.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::kernel) unsafe fn to_f16(from: &[f32], to: &mut [f16]) {
    let (from8, from_rest) = from.as_chunks::<8>();
    let (to8, to_rest) = to.as_chunks_mut::<8>();
    for (from, to) in from8.iter().zip(to8) {
        // SAFETY: eight numbers at both ends.
        unsafe {
            let half = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(from.as_ptr()));
            _mm_storeu_si128(to.as_mut_ptr().cast(), half);
        }
    }
    to_rest.iter_mut().zip(from_rest).for_each(|(to, from)| *to = f16::from_f32(*from));
}

/// Reads half precision.
///
/// # Safety
/// Needs AVX2, FMA and F16C; the lengths must fit.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::kernel) unsafe fn from_f16(from: &[f16], to: &mut [f32]) {
    let (from8, from_rest) = from.as_chunks::<8>();
    let (to8, to_rest) = to.as_chunks_mut::<8>();
    for (from, to) in from8.iter().zip(to8) {
        // SAFETY: eight numbers at both ends.
        unsafe { _mm256_storeu_ps(to.as_mut_ptr(), F16::load(from.as_ptr().cast(), 0)) };
    }
    to_rest.iter_mut().zip(from_rest).for_each(|(to, from)| *to = from.to_f32());
}

/// The scalar code, compiled for wider vectors: the same result to the bit.
///
/// # Safety
/// Needs AVX2, FMA and F16C; the lengths must fit.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::kernel) unsafe fn quantize_q8(from: &[f32], to: &mut [BlockQ8]) {
    crate::kernel::scalar::quantize_q8(from, to);
}

/// The scalar code, compiled for wider vectors: the same result to the bit.
///
/// # Safety
/// Needs AVX2, FMA and F16C; the lengths must fit.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::kernel) unsafe fn quantize_q4(from: &[f32], to: &mut [BlockQ4]) {
    crate::kernel::scalar::quantize_q4(from, to);
}
