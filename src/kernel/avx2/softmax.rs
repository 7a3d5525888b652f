//! Exponentials, and sums and maxima over lanes.

use std::arch::x86_64::*;

use crate::kernel::EXP2;

/// Running state of the softmax; lanes that belong to the same query hold the same.
#[derive(Clone, Copy)]
pub(super) struct Softmax {
    pub(super) most: __m256,
    pub(super) sum: __m256,
    /// Sum of all scores, for the only question whether all of them are finite.
    pub(super) all: __m256,
}

/// Scores become exponentials, in place; adds them to the sums. Four vectors go side by side: one chain of the polynomial
/// alone would wait for itself.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn exponentials(scores: *mut f32, count: usize, mut soft: Softmax) -> Softmax {
    let mut at = 0;
    // SAFETY: `count` scores and room for 32 more, which become far less than the maximum, but finite.
    unsafe {
        let magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0), soft.most);
        let nothing = _mm256_sub_ps(_mm256_sub_ps(soft.most, magnitude), _mm256_set1_ps(1000.0));
        for i in 0..4 {
            _mm256_storeu_ps(scores.add(count + 8 * i), nothing);
        }
        while at < count {
            let score: [__m256; 4] = std::array::from_fn(|i| _mm256_loadu_ps(scores.add(at + 8 * i)));
            let total = |v: [__m256; 4]| _mm256_add_ps(_mm256_add_ps(v[0], v[1]), _mm256_add_ps(v[2], v[3]));
            soft.all = _mm256_add_ps(soft.all, total(score));
            let weight = exp2(score.map(|s| _mm256_sub_ps(s, soft.most)));
            for (i, weight) in weight.into_iter().enumerate() {
                _mm256_storeu_ps(scores.add(at + 8 * i), weight);
            }
            soft.sum = _mm256_add_ps(soft.sum, total(weight));
            at += 32;
        }
    }
    soft
}

/// Halves of lanes are added, two neighbouring vectors to one: a0+a2 a1+a3 b0+b2 b1+b3 in both halves. Blends run on more
/// ports than shuffles, so that half of it is a blend.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn fold(v: [__m256; 8]) -> [__m256; 4] {
    std::array::from_fn(|i| {
        let (a, b) = (v[2 * i], v[2 * i + 1]);
        _mm256_add_ps(_mm256_blend_ps::<0xCC>(a, b), _mm256_shuffle_ps::<0b01_00_11_10>(a, b))
    })
}

/// The rest of the sums of eight vectors' lanes, as one vector.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn sum_folded(v: [__m256; 4]) -> __m256 {
    let (low, high) = (_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
    _mm256_add_ps(_mm256_blend_ps::<0xF0>(low, high), _mm256_permute2f128_ps::<0x21>(low, high))
}

/// The maximum of all lanes of a query, in all of them.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn most_of_query<const G: usize>(v: __m256) -> __m256 {
    let mut v = _mm256_max_ps(v, _mm256_permute2f128_ps::<0x01>(v, v));
    if G <= 2 {
        v = _mm256_max_ps(v, _mm256_permute_ps::<0b01_00_11_10>(v));
    }
    if G == 1 {
        v = _mm256_max_ps(v, _mm256_permute_ps::<0b10_11_00_01>(v));
    }
    v
}

/// The sum of all lanes of a query, in all of them.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn sum_of_query<const G: usize>(v: __m256) -> __m256 {
    let mut v = _mm256_add_ps(v, _mm256_permute2f128_ps::<0x01>(v, v));
    if G <= 2 {
        v = _mm256_add_ps(v, _mm256_permute_ps::<0b01_00_11_10>(v));
    }
    if G == 1 {
        v = _mm256_add_ps(v, _mm256_permute_ps::<0b10_11_00_01>(v));
    }
    v
}

/// 2^x for x in -125..=0 and below (which gives 2^-125), relative error 2e-9 besides rounding; NaN stays.
///
/// x = n + f with f in -0.5..=0.5; a polynomial of least relative error (Remez, degree 6) gives 2^f, and n is added to
/// the exponent.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn exp2<const N: usize>(x: [__m256; N]) -> [__m256; N] {
    // 1.5 * 2^23: the sum has no bits left for a fraction, so it is rounded, and n sits in its lowest bits.
    let magic = _mm256_set1_ps(12_582_912.0);
    // The second operand wins where one is NaN.
    let x = x.map(|x| _mm256_max_ps(_mm256_set1_ps(-125.0), x));
    let shifted = x.map(|x| _mm256_add_ps(x, magic));
    let f: [__m256; N] = std::array::from_fn(|i| _mm256_sub_ps(x[i], _mm256_sub_ps(shifted[i], magic)));
    let mut p = f.map(|f| _mm256_fmadd_ps(_mm256_set1_ps(EXP2[6]), f, _mm256_set1_ps(EXP2[5])));
    for c in [EXP2[4], EXP2[3], EXP2[2], EXP2[1], EXP2[0]] {
        let c = _mm256_set1_ps(c);
        p = std::array::from_fn(|i| _mm256_fmadd_ps(p[i], f[i], c));
    }
    std::array::from_fn(|i| {
        let n = _mm256_slli_epi32::<23>(_mm256_castps_si256(shifted[i]));
        _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p[i]), n))
    })
}
