//! Attention of one token: every kernel against a naive softmax in double precision.
#![allow(clippy::unwrap_used)]

use aetherd::kernel::{BLOCK, BlockQ4, BlockQ8, Kernel, KernelKind, LogWeights, Picks, Rows, Segment, blocks_for};
use half::f16;
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Largest difference to the exact result of the same stored numbers, relative to the largest value and for queries of
/// size 1: a score of single precision is wrong in its last digits, the more the larger it is.
const EXACT: f64 = 2e-6;

/// The same where queries are rounded to 8 bits for rows of 8 bits (`neon+dotprod`): half a step of 1/127 of the largest
/// number, averaged over the numbers of a row.
const ROUNDED_QUERY: f64 = 1e-2;

/// The same where scores of rows of half precision are made with arithmetic of half precision (`neon+fp16`): queries
/// rounded to 11 bits, and sums of four products.
const HALF_SUMS: f64 = 1e-3;

/// Kernels of this machine.
fn kernels() -> Vec<&'static Kernel> {
    [KernelKind::Scalar, KernelKind::Avx2, KernelKind::Neon]
        .into_iter()
        .filter_map(|kind| Kernel::select(Some(kind)).ok())
        .collect()
}

/// Storage of a segment; `offset` elements are in front of the first row, so that it is not aligned.
struct Stored {
    f32: Vec<f32>,
    f16: Vec<f16>,
    q8: Vec<BlockQ8>,
    q4: Vec<BlockQ4>,
    kind: usize,
    offset: usize,
    stride: usize,
    width: usize,
    len: usize,
    log_weights: Option<Vec<f32>>,
    same: f32,
    picks: Option<Vec<u32>>,
}

impl Stored {
    fn random(
        rng: &mut ChaCha8Rng,
        d: usize,
        kind: usize,
        len: usize,
        gap: usize,
        weights: usize,
        value_size: f32,
    ) -> Self {
        let offset = rng.random_range(0..4);
        let width = if kind < 2 { d } else { blocks_for(d) };
        let stride = 2 * width + gap;
        let mut s = Self {
            f32: vec![],
            f16: vec![],
            q8: vec![],
            q4: vec![],
            kind,
            offset,
            stride,
            width,
            len,
            log_weights: None,
            same: 0.0,
            picks: None,
        };
        // Exactly as long as it must be: reading on is out of bounds.
        let total = if len == 0 { 0 } else { offset + (len - 1) * stride + 2 * width };
        s.f32 = vec![f32::NAN; if kind == 0 { total } else { 0 }];
        s.f16 = vec![f16::NAN; if kind == 1 { total } else { 0 }];
        s.q8 = vec![BlockQ8 { scale: f16::NAN, q: [99; BLOCK] }; if kind == 2 { total } else { 0 }];
        s.q4 = vec![BlockQ4 { scale: f16::NAN, q: [99; BLOCK / 2] }; if kind == 3 { total } else { 0 }];
        for i in 0..len {
            for value in [false, true] {
                let at = offset + i * stride + if value { width } else { 0 };
                let size = if value { value_size } else { 1.0 };
                let row: Vec<f32> = (0..d).map(|_| size * rng.random_range(-1.0f32..1.0)).collect();
                match kind {
                    0 => s.f32[at..at + d].copy_from_slice(&row),
                    1 => (0..d).for_each(|j| s.f16[at + j] = f16::from_f32(row[j])),
                    2 => row.chunks(BLOCK).enumerate().for_each(|(j, c)| s.q8[at + j] = BlockQ8::quantize(c)),
                    _ => row.chunks(BLOCK).enumerate().for_each(|(j, c)| s.q4[at + j] = BlockQ4::quantize(c)),
                }
            }
        }
        match weights {
            0 => {}
            1 => s.same = rng.random_range(0.0..4.0),
            _ => s.log_weights = Some((0..len).map(|_| rng.random_range(-1.0..5.0)).collect()),
        }
        if len > 0 && rng.random_bool(0.4) {
            // Any order, rows left out and rows repeated.
            s.picks = Some((0..len).map(|_| rng.random_range(0..len as u32)).collect());
        }
        s
    }

    fn segment(&self) -> Segment<'_> {
        let (o, w, stride) = (self.offset.min(self.total()), self.width.min(self.total()), self.stride);
        let v = (o + w).min(self.total());
        let rows = match self.kind {
            0 => Rows::F32 { keys: &self.f32[o..], values: &self.f32[v..], stride },
            1 => Rows::F16 { keys: &self.f16[o..], values: &self.f16[v..], stride },
            2 => Rows::Q8 { keys: &self.q8[o..], values: &self.q8[v..], stride },
            _ => Rows::Q4 { keys: &self.q4[o..], values: &self.q4[v..], stride },
        };
        let log_weights = self.log_weights.as_deref().map_or(LogWeights::Same(self.same), LogWeights::Each);
        Segment { rows, len: self.len, picks: self.picks.as_deref().map(Picks::Rows), log_weights }
    }

    fn total(&self) -> usize {
        self.f32.len() + self.f16.len() + self.q8.len() + self.q4.len()
    }
}

/// Softmax attention as it is written on paper. Results and weights (rows x queries).
fn naive(queries: &[f32], d: usize, segments: &[Segment<'_>], scale: f32) -> (Vec<f64>, Vec<f64>) {
    let group = queries.len() / d;
    let rows: usize = segments.iter().map(|s| s.len).sum();
    let (mut out, mut weights) = (vec![0.0; queries.len()], vec![0.0; rows * group]);
    let mut row = vec![0.0f32; d];
    for g in 0..group {
        let mut scores = vec![];
        let mut values = vec![];
        for s in segments {
            for i in 0..s.len {
                s.read(i, false, &mut row);
                let dot: f64 = row.iter().zip(&queries[g * d..]).map(|(k, q)| f64::from(*k) * f64::from(*q)).sum();
                scores.push(dot * f64::from(scale) + f64::from(s.log_weight(i)));
                s.read(i, true, &mut row);
                values.push(row.clone());
            }
        }
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().map(|s| (s - most).exp()).sum();
        for (n, (s, v)) in scores.iter().zip(&values).enumerate() {
            let p = (s - most).exp() / sum;
            weights[n * group + g] = p;
            (0..d).for_each(|j| out[g * d + j] += p * f64::from(v[j]));
        }
    }
    (out, weights)
}

fn check(seed: u64, group: usize, d: usize, shape: &[(usize, usize, usize, usize)], value_size: f32, query_size: f32) {
    // Miri takes a thousand times as long.
    let small = |n: usize, most: usize| if cfg!(miri) { n.min(most) } else { n };
    let (group, d) = (small(group, 3), small(d, 33));
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let offset = rng.random_range(0..3usize);
    let queries: Vec<f32> = (0..offset + group * d).map(|_| query_size * rng.random_range(-1.0f32..1.0)).collect();
    let queries = &queries[offset..];
    let stored: Vec<Stored> = shape
        .iter()
        .map(|&(kind, len, gap, w)| Stored::random(&mut rng, d, kind, small(len, 3), gap, w, value_size))
        .collect();
    let segments: Vec<Segment<'_>> = stored.iter().map(Stored::segment).collect();
    let scale = 1.0 / (d as f32).sqrt();
    let tolerance = EXACT * f64::from(2.0 + query_size);
    let (want, want_weights) = naive(queries, d, &segments, scale);
    let exact = tolerance;
    for kernel in kernels() {
        let has = |feature: &str, kind| {
            kernel.features().split('+').any(|f| f == feature) && shape.iter().any(|s| s.0 == kind && s.1 > 0)
        };
        let rounded = match (has("dotprod", 2), has("fp16", 1)) {
            (true, _) => ROUNDED_QUERY,
            (false, true) => HALF_SUMS,
            (false, false) => 0.0,
        };
        let tolerance = exact + rounded * f64::from(query_size);
        let mut out = vec![f32::NAN; offset + group * d];
        let out = &mut out[offset..];
        kernel.sparse_decode(queries, d, &segments, scale, out, None).unwrap();
        for (got, want) in out.iter().zip(&want) {
            let error = (f64::from(*got) - want).abs();
            assert!(error <= tolerance * f64::from(value_size), "{}: {got} for {want}", kernel.kind());
        }
        let mut again = vec![f32::NAN; group * d];
        let mut weights = vec![f32::NAN; want_weights.len()];
        kernel.sparse_decode(queries, d, &segments, scale, &mut again, Some(&mut weights)).unwrap();
        // Miri's exponentials are random in their last digit.
        let same = out.iter().zip(&again).all(|(a, b)| a == b || cfg!(miri) && (a - b).abs() < 1e-4);
        assert!(same, "{}: weights change the result", kernel.kind());
        for (got, want) in weights.iter().zip(&want_weights) {
            assert!(
                (f64::from(*got) - want).abs() <= tolerance * want + 1e-9,
                "{}: weight {got} for {want}",
                kernel.kind()
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 1 } else { 400 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_kernel_is_softmax_attention(
        seed: u64,
        group in 1usize..=9,
        d in 1usize..=130,
        shape in proptest::collection::vec((0usize..4, 0usize..40, 0usize..5, 0usize..3), 0..8),
        small: bool,
    ) {
        check(seed, group, d, &shape, if small { 0.05 } else { 1.0 }, 3.0);
    }

    #[test]
    fn usual_shapes_and_long_streams(
        seed: u64,
        group in 1usize..=8,
        d in proptest::sample::select(vec![8usize, 16, 32, 64]),
        kind in 0usize..4,
        len in 0usize..=300,
        singles in 0usize..20,
        weights in 0usize..3,
    ) {
        let mut shape = vec![(kind, len, 0, weights)];
        shape.extend((0..singles).map(|i| (kind, 1, 0, if i % 2 == 0 { weights } else { 0 })));
        check(seed, group, d, &shape, 1.0, 20.0);
    }
}
