//! Eight numbers of a row, whatever they are stored as.

use std::arch::aarch64::*;

use half::f16;

use super::Eight;
use crate::kernel::quant::{BlockQ4, BlockQ8};

/// A format of rows. `load` gives the numbers `8 * c..8 * c + 8`; `load_tail` the ones that are left, `rest` of them, with
/// zeros or, where blocks are filled up, whatever fills them.
///
/// # Safety
/// The row must have these numbers.
pub(super) trait Format {
    unsafe fn load(row: *const u8, c: usize) -> Eight;
    unsafe fn load_tail(row: *const u8, c: usize, rest: usize) -> Eight;
}

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct Q8;
pub(super) struct Q4;

impl Format for F32 {
    #[inline(always)]
    unsafe fn load(row: *const u8, c: usize) -> Eight {
        // SAFETY: the caller's row has 8 numbers from 8 * c on.
        unsafe {
            let at = row.cast::<f32>().add(8 * c);
            [vld1q_f32(at), vld1q_f32(at.add(4))]
        }
    }

    #[inline(always)]
    unsafe fn load_tail(row: *const u8, c: usize, rest: usize) -> Eight {
        let mut numbers = [0.0f32; 8];
        // SAFETY: `rest` numbers are left in the row.
        unsafe {
            std::ptr::copy_nonoverlapping(row.cast::<f32>().add(8 * c), numbers.as_mut_ptr(), rest.min(7));
            Self::load(numbers.as_ptr().cast(), 0)
        }
    }
}

impl Format for F16 {
    #[inline(always)]
    unsafe fn load(row: *const u8, c: usize) -> Eight {
        // SAFETY: the caller's row has 8 numbers of 2 bytes from 8 * c on.
        unsafe {
            let bits = vld1q_u16(row.cast::<u16>().add(8 * c));
            let halves = vreinterpretq_f16_u16(bits);
            [vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)]
        }
    }

    #[inline(always)]
    unsafe fn load_tail(row: *const u8, c: usize, rest: usize) -> Eight {
        let mut bits = [0u16; 8];
        // SAFETY: `rest` numbers are left in the row.
        unsafe {
            std::ptr::copy_nonoverlapping(row.cast::<u16>().add(8 * c), bits.as_mut_ptr(), rest.min(7));
            Self::load(bits.as_ptr().cast(), 0)
        }
    }
}

/// The scale at the begin of a block.
///
/// # Safety
/// Needs a readable block.
#[inline(always)]
pub(super) unsafe fn scale(block: *const u8) -> f32 {
    // SAFETY: a block begins with two bytes of scale.
    unsafe {
        let bits = vdup_n_u16(block.cast::<u16>().read_unaligned());
        vgetq_lane_f32::<0>(vcvt_f32_f16(vreinterpret_f16_u16(bits)))
    }
}

/// Signed bytes times the scale.
#[inline(always)]
fn widen(q: int8x8_t, scale: f32) -> Eight {
    // SAFETY: the baseline of this architecture.
    unsafe {
        let q = vmovl_s8(q);
        let (low, high) = (vmovl_s16(vget_low_s16(q)), vmovl_high_s16(q));
        [vmulq_n_f32(vcvtq_f32_s32(low), scale), vmulq_n_f32(vcvtq_f32_s32(high), scale)]
    }
}

impl Format for Q8 {
    #[inline(always)]
    unsafe fn load(row: *const u8, c: usize) -> Eight {
        // SAFETY: 4 times 8 numbers in a block, one byte each; the block is in the row.
        unsafe {
            let block = row.add(c / 4 * size_of::<BlockQ8>());
            widen(vld1_s8(block.add(2 + c % 4 * 8).cast()), scale(block))
        }
    }

    #[inline(always)]
    unsafe fn load_tail(row: *const u8, c: usize, _: usize) -> Eight {
        // SAFETY: blocks are whole.
        unsafe { Self::load(row, c) }
    }
}

impl Format for Q4 {
    #[inline(always)]
    unsafe fn load(row: *const u8, c: usize) -> Eight {
        // SAFETY: bytes 0..8 and 8..16 of a block hold the numbers 0..8 and 8..16 low, 16 more of them high.
        unsafe {
            let block = row.add(c / 4 * size_of::<BlockQ4>());
            let bytes = vld1_u8(block.add(2 + c % 2 * 8));
            let nibbles = if c % 4 < 2 { vand_u8(bytes, vdup_n_u8(15)) } else { vshr_n_u8::<4>(bytes) };
            widen(vsub_s8(vreinterpret_s8_u8(nibbles), vdup_n_s8(8)), scale(block))
        }
    }

    #[inline(always)]
    unsafe fn load_tail(row: *const u8, c: usize, _: usize) -> Eight {
        // SAFETY: blocks are whole.
        unsafe { Self::load(row, c) }
    }
}

/// Size of the scale that a block begins with.
pub(super) const SCALE: usize = size_of::<f16>();
