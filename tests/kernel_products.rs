//! Dot products, matrix products, conversions and quantisation; the choice of a kernel.
#![allow(clippy::unwrap_used)]

use aetherd::kernel::{BLOCK, BlockQ4, BlockQ8, Kernel, KernelError, KernelKind, Rows, Segment, blocks_for};
use half::f16;
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Largest difference of a sum of products to the exact one, relative to the sum of their magnitudes.
const SUM: f64 = 1e-6;
/// Mean difference of attention over stored rows to attention over the numbers that were stored, relative to the size of
/// the values; keys and queries of size 1, 32 numbers.
const F16: f64 = 5e-4;
/// As [`F16`], 8 bits.
const Q8: f64 = 5e-3;
/// As [`F16`], 4 bits.
const Q4: f64 = 6e-2;

fn kernels() -> Vec<&'static Kernel> {
    [KernelKind::Scalar, KernelKind::Avx2, KernelKind::Neon]
        .into_iter()
        .filter_map(|kind| Kernel::select(Some(kind)).ok())
        .collect()
}

fn random(rng: &mut ChaCha8Rng, n: usize) -> Vec<f32> {
    (0..n).map(|_| rng.random_range(-1.0f32..1.0)).collect()
}

/// Sum of products and of their magnitudes.
fn exact(a: impl Iterator<Item = (f32, f32)>) -> (f64, f64) {
    a.fold((0.0, 0.0), |(sum, size), (a, b)| {
        let product = f64::from(a) * f64::from(b);
        (sum + product, size + product.abs())
    })
}

fn near(got: f32, (want, size): (f64, f64)) -> bool {
    (f64::from(got) - want).abs() <= SUM * size + 1e-12
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 1 } else { 300 }, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn dot_products(seed: u64, len in 0usize..=200, offset in 0usize..4) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (a, b) = (random(&mut rng, offset + len), random(&mut rng, offset + len));
        let (a, b) = (&a[offset..], &b[offset..]);
        for kernel in kernels() {
            let mut q8 = vec![BlockQ8 { scale: f16::NAN, q: [0; BLOCK] }; blocks_for(len)];
            let mut q4 = vec![BlockQ4 { scale: f16::NAN, q: [0; BLOCK / 2] }; blocks_for(len)];
            kernel.quantize_q8(b, &mut q8).unwrap();
            kernel.quantize_q4(b, &mut q4).unwrap();
            prop_assert_eq!(&q8, &b.chunks(BLOCK).map(BlockQ8::quantize).collect::<Vec<_>>(), "{}", kernel.kind());
            prop_assert_eq!(&q4, &b.chunks(BLOCK).map(BlockQ4::quantize).collect::<Vec<_>>(), "{}", kernel.kind());
            let (mut read8, mut read4) = (vec![0.0; len], vec![0.0; len]);
            read8.chunks_mut(BLOCK).zip(&q8).for_each(|(to, b)| b.dequantize(to));
            read4.chunks_mut(BLOCK).zip(&q4).for_each(|(to, b)| b.dequantize(to));
            let pairs = |b: &[f32]| exact(a.iter().copied().zip(b.iter().copied()));
            prop_assert!(near(kernel.dot(a, b).unwrap(), pairs(b)), "{}", kernel.kind());
            prop_assert!(near(kernel.dot_q8(a, &q8).unwrap(), pairs(&read8)), "{}", kernel.kind());
            prop_assert!(near(kernel.dot_q4(a, &q4).unwrap(), pairs(&read4)), "{}", kernel.kind());
        }
    }

    #[test]
    fn matrix_products(seed: u64, rows in 0usize..=9, inputs in 1usize..=40, outputs in 1usize..=150, offset in 0usize..4) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (x, w) = (random(&mut rng, offset + rows * inputs), random(&mut rng, offset + inputs * outputs));
        let (x, w) = (&x[offset..], &w[offset..]);
        let halves: Vec<f16> = w.iter().map(|w| f16::from_f32(*w)).collect();
        for kernel in kernels() {
            let mut y = vec![f32::NAN; rows * outputs];
            let mut y16 = y.clone();
            kernel.matmul(x, w, inputs, &mut y).unwrap();
            kernel.matmul_f16(x, &halves, inputs, &mut y16).unwrap();
            for r in 0..rows {
                for o in 0..outputs {
                    let want = exact((0..inputs).map(|i| (x[r * inputs + i], w[i * outputs + o])));
                    prop_assert!(near(y[r * outputs + o], want), "{}", kernel.kind());
                    let want = exact((0..inputs).map(|i| (x[r * inputs + i], halves[i * outputs + o].to_f32())));
                    prop_assert!(near(y16[r * outputs + o], want), "{}", kernel.kind());
                }
            }
        }
    }

    #[test]
    fn half_precision(numbers in proptest::collection::vec(proptest::num::f32::ANY, 0..70)) {
        for kernel in kernels() {
            let mut halves = vec![f16::ZERO; numbers.len()];
            kernel.to_f16(&numbers, &mut halves).unwrap();
            let mut back = vec![0.0; numbers.len()];
            kernel.from_f16(&halves, &mut back).unwrap();
            for ((x, h), b) in numbers.iter().zip(&halves).zip(&back) {
                let want = f16::from_f32(*x);
                prop_assert!(want.to_bits() == h.to_bits() || x.is_nan() && h.is_nan(), "{}: {x}", kernel.kind());
                prop_assert!(b.to_bits() == h.to_f32().to_bits() || b.is_nan() && h.is_nan());
            }
        }
    }
}

/// Stored rows against the numbers they were made of; values a twentieth of the keys, which a scale that is shared by
/// both would not survive.
#[test]
fn stored_rows_keep_keys_and_values_apart() {
    let (d, rows, group) = (32, 60, 4);
    for value_size in [1.0f32, 0.05] {
        for kernel in kernels() {
            let mut rng = ChaCha8Rng::seed_from_u64(7);
            let mut error = [0.0f64; 3];
            let rounds = if cfg!(miri) { 1 } else { 50 };
            for _ in 0..rounds {
                let (q, k) = (random(&mut rng, group * d), random(&mut rng, rows * d));
                let v: Vec<f32> = random(&mut rng, rows * d).iter().map(|x| x * value_size).collect();
                let (k16, v16): (Vec<f16>, Vec<f16>) =
                    k.iter().zip(&v).map(|(k, v)| (f16::from_f32(*k), f16::from_f32(*v))).unzip();
                let q8 = |x: &[f32]| x.chunks(BLOCK).map(BlockQ8::quantize).collect::<Vec<_>>();
                let q4 = |x: &[f32]| x.chunks(BLOCK).map(BlockQ4::quantize).collect::<Vec<_>>();
                let run = |rows_: Rows<'_>| {
                    let mut out = vec![0.0; group * d];
                    kernel.sparse_decode(&q, d, &[Segment::tokens(rows_, rows)], 1.0, &mut out, None).unwrap();
                    out
                };
                let want = run(Rows::F32 { keys: &k, values: &v, stride: d });
                let got = [
                    run(Rows::F16 { keys: &k16, values: &v16, stride: d }),
                    run(Rows::Q8 { keys: &q8(&k), values: &q8(&v), stride: 1 }),
                    run(Rows::Q4 { keys: &q4(&k), values: &q4(&v), stride: 1 }),
                ];
                for (error, got) in error.iter_mut().zip(got) {
                    let all: f64 = got.iter().zip(&want).map(|(a, b)| f64::from((a - b).abs())).sum();
                    *error += all / f64::from(value_size) / (rounds * group * d) as f64;
                }
            }
            for (error, (name, most)) in error.into_iter().zip([("f16", F16), ("q8", Q8), ("q4", Q4)]) {
                assert!(error > 0.0 && error <= most, "{} {name}, values of {value_size}: {error}", kernel.kind());
            }
        }
    }
}

#[test]
fn blocks_round_to_the_nearest_and_stay_in_range() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    for size in [1e-3f32, 1.0, 300.0] {
        let numbers: Vec<f32> = random(&mut rng, BLOCK).iter().map(|x| x * size).collect();
        let most = numbers.iter().fold(0.0f32, |m, x| m.max(x.abs()));
        let (mut q8, mut q4) = ([0.0; BLOCK], [0.0; BLOCK]);
        BlockQ8::quantize(&numbers).dequantize(&mut q8);
        BlockQ4::quantize(&numbers).dequantize(&mut q4);
        for i in 0..BLOCK {
            // Half a step, and what the scale loses in half precision.
            assert!((q8[i] - numbers[i]).abs() <= most / 127.0 * 0.5 * 1.07, "{size} {i}");
            // Of the side whose sign the largest number does not have, the last step is missing.
            assert!((q4[i] - numbers[i]).abs() <= most / 8.0 * 1.01, "{size} {i}");
        }
    }
    assert_eq!(BlockQ8::quantize(&[0.0; BLOCK]).q, [0; BLOCK]);
    assert_eq!(BlockQ4::quantize(&[]).q, [0x88; BLOCK / 2]);
}

#[test]
fn lengths_must_fit() {
    for kernel in kernels() {
        let q8 = [BlockQ8::quantize(&[1.0]); 2];
        let q4 = [BlockQ4::quantize(&[1.0]); 2];
        assert!(matches!(kernel.dot(&[1.0], &[]).unwrap_err(), KernelError::Shape { .. }));
        assert!(matches!(kernel.dot_q8(&[1.0; 32], &q8).unwrap_err(), KernelError::Shape { .. }));
        assert!(matches!(kernel.dot_q4(&[1.0; 65], &q4).unwrap_err(), KernelError::Shape { .. }));
        let matmul = |x: usize, w: usize, inputs, y: usize| {
            let halves = vec![f16::ONE; w];
            let a = kernel.matmul(&vec![1.0; x], &vec![1.0; w], inputs, &mut vec![0.0; y]).unwrap_err();
            let b = kernel.matmul_f16(&vec![1.0; x], &halves, inputs, &mut vec![0.0; y]).unwrap_err();
            assert_eq!(a, b);
            a
        };
        assert_eq!(matmul(4, 8, 0, 8), KernelError::Zero("inputs"));
        assert_eq!(matmul(4, 0, 4, 0), KernelError::Zero("outputs"));
        assert!(matches!(matmul(5, 8, 4, 2), KernelError::Ragged { what: "x", .. }));
        assert!(matches!(matmul(4, 9, 4, 2), KernelError::Ragged { what: "weights", .. }));
        assert!(matches!(matmul(8, 8, 4, 3), KernelError::Shape { what: "y", expected: 4, got: 3 }));
        assert!(kernel.to_f16(&[1.0], &mut []).is_err());
        assert!(kernel.from_f16(&[f16::ONE], &mut []).is_err());
        assert!(kernel.quantize_q8(&[1.0; 33], &mut q8[..1].to_vec()).is_err());
        assert!(kernel.quantize_q4(&[1.0; 33], &mut q4[..1].to_vec()).is_err());
    }
}

#[test]
fn kernels_are_chosen_once() {
    let best = Kernel::select(None).unwrap();
    let expected = match std::env::consts::ARCH {
        "aarch64" => KernelKind::Neon,
        _ if kernels().iter().any(|k| k.kind() == KernelKind::Avx2) => KernelKind::Avx2,
        _ => KernelKind::Scalar,
    };
    assert_eq!(best.kind(), expected);
    assert!(best.features().starts_with(&best.kind().to_string()));
    assert_eq!(Kernel::select(Some(KernelKind::Scalar)).unwrap().features(), "scalar");
    let foreign = if cfg!(target_arch = "aarch64") { KernelKind::Avx2 } else { KernelKind::Neon };
    let error = Kernel::select(Some(foreign)).unwrap_err();
    assert!(matches!(error, KernelError::Unsupported { .. }) && error.to_string().contains("scalar"), "{error}");
    assert_eq!("neon".parse::<KernelKind>().unwrap(), KernelKind::Neon);
    assert_eq!("sse".parse::<KernelKind>().unwrap_err(), KernelError::Unknown("sse".to_owned()));

    assert!(Kernel::set_global(Some(foreign)).is_err());
    let chosen = Kernel::set_global(Some(KernelKind::Scalar)).unwrap();
    assert_eq!(Kernel::global().kind(), chosen.kind());
    assert!(Kernel::set_global(Some(KernelKind::Scalar)).is_ok(), "the same choice again");
    if best.kind() != KernelKind::Scalar {
        let error = Kernel::set_global(None).unwrap_err();
        assert_eq!(error, KernelError::Chosen { kind: best.kind(), now: KernelKind::Scalar });
    }
}

#[test]
fn vector_kernels_allocate_nothing() {
    let kernel = Kernel::select(None).unwrap();
    let (q, rows) = ([0.5f32; 128], vec![0.25f32; 300 * 64]);
    let mut out = [0.0; 128];
    let info = allocation_counter::measure(|| {
        let segment = Segment::tokens(Rows::F32 { keys: &rows, values: &rows[32..], stride: 64 }, 300);
        kernel.sparse_decode(&q, 32, &[segment], 1.0, &mut out, None).unwrap();
    });
    assert!(kernel.kind() == KernelKind::Scalar || info.count_total == 0, "{} allocations", info.count_total);
    assert_eq!(out, [0.25; 128]);
}
