//! Eight numbers of a row, whatever they are stored as.

use std::arch::x86_64::*;

use crate::kernel::quant::{BlockQ4, BlockQ8};

/// A format of rows. `load` gives the numbers `8 * c..8 * c + 8`; `load_tail` the ones that are left, `rest` of them, with
/// zeros or, where blocks are filled up, whatever fills them.
///
/// # Safety
/// Needs AVX2 and F16C, and a row that has these numbers.
pub(super) trait Format {
    /// Whether rows are blocks with a scale; then `load_raw` leaves the scale out, and `scale_of` gives that of a row of
    /// one block.
    const SCALED: bool = false;
    #[inline(always)]
    unsafe fn load_raw(row: *const u8, c: usize) -> __m256 {
        // SAFETY: the caller's word.
        unsafe { Self::load(row, c) }
    }
    #[inline(always)]
    unsafe fn scale_of(_row: *const u8) -> f32 {
        1.0
    }
    unsafe fn load(row: *const u8, c: usize) -> __m256;
    unsafe fn load_tail(row: *const u8, c: usize, rest: usize) -> __m256;
}

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct Q8;
pub(super) struct Q4;

impl Format for F32 {
    #[inline(always)]
    unsafe fn load(row: *const u8, c: usize) -> __m256 {
        // SAFETY: the caller's row has 8 numbers from 8 * c on.
        unsafe { _mm256_loadu_ps(row.cast::<f32>().add(8 * c)) }
    }

    #[inline(always)]
    unsafe fn load_tail(row: *const u8, c: usize, rest: usize) -> __m256 {
        // SAFETY: masked lanes are not read; the others are in the row.
        unsafe { _mm256_maskload_ps(row.cast::<f32>().add(8 * c), super::first_lanes(rest)) }
    }
}

impl Format for F16 {
    #[inline(always)]
    unsafe fn load(row: *const u8, c: usize) -> __m256 {
        // SAFETY: the caller's row has 8 numbers of 2 bytes from 8 * c on.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(row.cast::<u16>().add(8 * c).cast())) }
    }

    #[inline(always)]
    unsafe fn load_tail(row: *const u8, c: usize, rest: usize) -> __m256 {
        let mut bits = [0u16; 8];
        // SAFETY: `rest` numbers are left in the row; there is no masked load of 16-bit lanes, so they are copied.
        unsafe {
            std::ptr::copy_nonoverlapping(row.cast::<u16>().add(8 * c), bits.as_mut_ptr(), rest.min(7));
            _mm256_cvtph_ps(_mm_loadu_si128(bits.as_ptr().cast()))
        }
    }
}

/// The scale at the begin of a block, in all lanes.
///
/// # Safety
/// Needs AVX2 and F16C and a readable block.
#[inline(always)]
unsafe fn scale(block: *const u8) -> __m256 {
    // SAFETY: a block begins with two bytes of scale.
    unsafe {
        let bits = block.cast::<u16>().read_unaligned();
        _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(bits))))
    }
}

impl Format for Q8 {
    const SCALED: bool = true;

    #[inline(always)]
    unsafe fn load_raw(row: *const u8, c: usize) -> __m256 {
        // SAFETY: 4 times 8 numbers in a block, one byte each; the block is in the row.
        unsafe {
            let block = row.add(c / 4 * size_of::<BlockQ8>());
            let q = _mm_loadl_epi64(block.add(2 + c % 4 * 8).cast());
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q))
        }
    }

    #[inline(always)]
    unsafe fn scale_of(row: *const u8) -> f32 {
        // SAFETY: a block begins with its scale.
        unsafe { _mm256_cvtss_f32(scale(row)) }
    }

    #[inline(always)]
    unsafe fn load(row: *const u8, c: usize) -> __m256 {
        // SAFETY: as there.
        unsafe { _mm256_mul_ps(scale(row.add(c / 4 * size_of::<BlockQ8>())), Self::load_raw(row, c)) }
    }

    #[inline(always)]
    unsafe fn load_tail(row: *const u8, c: usize, _: usize) -> __m256 {
        // SAFETY: blocks are whole.
        unsafe { Self::load(row, c) }
    }
}

impl Format for Q4 {
    const SCALED: bool = true;

    #[inline(always)]
    unsafe fn load_raw(row: *const u8, c: usize) -> __m256 {
        // SAFETY: bytes 0..8 and 8..16 of a block hold the numbers 0..8 and 8..16 low, 16 more of them high.
        unsafe {
            let block = row.add(c / 4 * size_of::<BlockQ4>());
            let bytes = _mm_loadl_epi64(block.add(2 + c % 2 * 8).cast());
            let bytes = if c % 4 < 2 { bytes } else { _mm_srli_epi16::<4>(bytes) };
            let q = _mm_sub_epi8(_mm_and_si128(bytes, _mm_set1_epi8(15)), _mm_set1_epi8(8));
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q))
        }
    }

    #[inline(always)]
    unsafe fn scale_of(row: *const u8) -> f32 {
        // SAFETY: a block begins with its scale.
        unsafe { _mm256_cvtss_f32(scale(row)) }
    }

    #[inline(always)]
    unsafe fn load(row: *const u8, c: usize) -> __m256 {
        // SAFETY: as there.
        unsafe { _mm256_mul_ps(scale(row.add(c / 4 * size_of::<BlockQ4>())), Self::load_raw(row, c)) }
    }

    #[inline(always)]
    unsafe fn load_tail(row: *const u8, c: usize, _: usize) -> __m256 {
        // SAFETY: blocks are whole.
        unsafe { Self::load(row, c) }
    }
}
