//! Scores of rows in half precision with the half-precision arithmetic of the core (`fp16`, ARMv8.2): eight products an
//! instruction instead of four, and no conversion of rows.
//!
//! A sum of half precision keeps three digits, so sums are kept short: four products a lane and one addition of two lanes, and
//! everything beyond that in single precision. Queries are rounded to half precision like the keys that they meet; the
//! error of a score is then of the size of the error that storing the keys has made already. Values are not summed this
//! way: those sums go over all rows.
//!
//! Each query is first divided by a power of two that makes its largest number at most 1/8. Eight products of it with any
//! numbers of half precision are then within its range, so finite rows give finite scores.
//!
//! The widening products (`fmlal`, feature `fhm`) would be exact, but are no more products an instruction than single
//! precision has, and the cores of the boards that this is for (Cortex-A76, A78AE) do not have them.

use std::arch::aarch64::*;

/// Numbers of a row at most for which queries are kept in half precision.
const MOST: usize = 128;
/// Eights of a row in a sum of half precision.
const SHORT: usize = 4;
/// Queries are made no larger than 2 to this.
const LARGEST: i32 = -3;

/// Whether rows of this many numbers are handled.
pub(super) const fn fits(head_dim: usize) -> bool {
    head_dim.is_multiple_of(8) && head_dim <= MOST
}

/// `G` queries in half precision.
pub(super) struct Queries<const G: usize> {
    q: [[u16; MOST]; G],
    /// What each query was divided by; number `l` belongs to query `l % G`.
    powers: [f32; 4],
}

impl<const G: usize> Queries<G> {
    /// Rounds the queries. `None` where half precision is not for them: one is not finite, or so large that small keys would
    /// be lost.
    ///
    /// # Safety
    /// `G` queries of `head_dim` numbers, for which [`fits`] holds.
    pub(super) unsafe fn new(queries: *const f32, head_dim: usize) -> Option<Self> {
        let mut all = Self { q: [[0; MOST]; G], powers: [1.0; 4] };
        for g in 0..G {
            // SAFETY: the caller's word.
            let from = unsafe { std::slice::from_raw_parts(queries.add(g * head_dim), head_dim) };
            // NaN is above everything here.
            let most = from.iter().fold(0, |m, v| v.to_bits().wrapping_shl(1).max(m)) >> 1;
            // Exponent of the power of two that is next above.
            let above = (most >> 23) as i32 - 126;
            if above > 10 {
                return None;
            }
            // A query of nothing but tiny numbers is divided by as little as that.
            let power = above.max(-20) - LARGEST;
            let (divide, multiply) = (two_to(-power), two_to(power));
            for (to, from) in all.q[g].as_chunks_mut::<8>().0.iter_mut().zip(from.as_chunks::<8>().0) {
                // SAFETY: eight numbers on both sides; the baseline of this architecture.
                unsafe {
                    let low = vcvt_f16_f32(vmulq_n_f32(vld1q_f32(from.as_ptr()), divide));
                    let all = vcvt_high_f16_f32(low, vmulq_n_f32(vld1q_f32(from.as_ptr().add(4)), divide));
                    vst1q_u16(to.as_mut_ptr(), vreinterpretq_u16_f16(all));
                }
            }
            all.powers.iter_mut().skip(g).step_by(G).for_each(|p| *p = multiply);
        }
        Some(all)
    }

    /// Products of 16 / `G` rows with all queries; number = row * G + query. Rows beyond those are not read.
    ///
    /// # Safety
    /// Needs `fp16`; rows of `head_dim` numbers.
    #[inline(always)]
    pub(super) unsafe fn multiply(&self, row: [*const u8; 16], head_dim: usize) -> [float32x4_t; 4] {
        // SAFETY: eights of the rows and queries below head_dim / 8.
        unsafe {
            let powers = vld1q_f32(self.powers.as_ptr());
            let mut totals = [vdupq_n_f32(0.0); 4];
            let mut first = 0;
            while first < head_dim / 8 {
                let end = (first + SHORT).min(head_dim / 8);
                let mut sums = [vdupq_n_u16(0); 16];
                for c in first..end {
                    let q: [uint16x8_t; G] = std::array::from_fn(|g| vld1q_u16(self.q[g].as_ptr().add(8 * c)));
                    for r in 0..16 / G {
                        let k = vld1q_u16(row[r].cast::<u16>().add(8 * c));
                        for g in 0..G {
                            sums[r * G + g] = fmla(sums[r * G + g], k, q[g]);
                        }
                    }
                }
                for (i, total) in totals.iter_mut().enumerate() {
                    let v = &sums[4 * i..];
                    let (a, b) = (halves(faddp(v[0], v[1])), halves(faddp(v[2], v[3])));
                    *total = vfmaq_f32(*total, vpaddq_f32(vpaddq_f32(a[0], a[1]), vpaddq_f32(b[0], b[1])), powers);
                }
                first = end;
            }
            totals
        }
    }
}

/// 2 to the power of `n`, -126 to 127.
const fn two_to(n: i32) -> f32 {
    f32::from_bits(((n + 127) as u32) << 23)
}

/// Eight numbers in single precision.
#[inline(always)]
unsafe fn halves(bits: uint16x8_t) -> super::Eight {
    // SAFETY: the baseline of this architecture.
    unsafe {
        let halves = vreinterpretq_f16_u16(bits);
        [vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)]
    }
}

/// Adds eight products to eight sums, rounded once. The intrinsic is not stable yet.
#[inline(always)]
unsafe fn fmla(mut sum: uint16x8_t, a: uint16x8_t, b: uint16x8_t) -> uint16x8_t {
    // SAFETY: one instruction on registers, which the caller's core has.
    unsafe {
        std::arch::asm!(
            ".arch_extension fp16",
            "fmla {sum:v}.8h, {a:v}.8h, {b:v}.8h",
            sum = inout(vreg) sum,
            a = in(vreg) a,
            b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sum
}

/// Sums of neighbours: four of `a`, then four of `b`. The intrinsic is not stable yet.
#[inline(always)]
unsafe fn faddp(a: uint16x8_t, b: uint16x8_t) -> uint16x8_t {
    let sum: uint16x8_t;
    // SAFETY: one instruction on registers, which the caller's core has.
    unsafe {
        std::arch::asm!(
            ".arch_extension fp16",
            "faddp {sum:v}.8h, {a:v}.8h, {b:v}.8h",
            sum = lateout(vreg) sum,
            a = in(vreg) a,
            b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sum
}
