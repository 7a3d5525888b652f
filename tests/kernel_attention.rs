//! Dense attention under the reference's names, and the defects of its public implementations that must not come back.
#![allow(clippy::unwrap_used)]

use aetherd::kernel::{
    AttentionConfig, Kernel, KernelError, KernelKind, PagedKvCache, Rows, Segment, flash_attention_neon,
    grouped_query_attention_neon, multi_query_attention_neon, paged_attention_neon,
};
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Largest difference to the naive result in double precision; numbers are -1..1.
const EXACT: f64 = 5e-6;

fn kernels() -> Vec<&'static Kernel> {
    [KernelKind::Scalar, KernelKind::Avx2, KernelKind::Neon]
        .into_iter()
        .filter_map(|kind| Kernel::select(Some(kind)).ok())
        .collect()
}

fn random(rng: &mut ChaCha8Rng, n: usize) -> Vec<f32> {
    (0..n).map(|_| rng.random_range(-1.0f32..1.0)).collect()
}

fn config(num_heads: usize, num_kv_heads: usize, head_dim: usize, causal: bool) -> AttentionConfig {
    AttentionConfig { num_heads, num_kv_heads, head_dim, causal, scale: None }
}

/// Softmax attention as it is written on paper: every query head by itself, masked scores left out.
fn naive(q: &[f32], k: &[f32], v: &[f32], c: &AttentionConfig) -> Vec<f64> {
    let (d, heads, kv) = (c.head_dim, c.num_heads, c.num_kv_heads);
    let (tokens, len) = (q.len() / heads / d, k.len() / kv / d);
    let mut out = vec![0.0; q.len()];
    for t in 0..tokens {
        for h in 0..heads {
            let seen: Vec<usize> = (0..len).filter(|j| !c.causal || j + tokens <= len + t).collect();
            let at = |j: usize| (j * kv + h / (heads / kv)) * d;
            let query = &q[(t * heads + h) * d..][..d];
            let score = |j: &usize| -> f64 {
                let dot: f64 = query.iter().zip(&k[at(*j)..]).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                dot * f64::from(c.effective_scale())
            };
            let scores: Vec<f64> = seen.iter().map(score).collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().map(|s| (s - most).exp()).sum();
            for (j, s) in seen.iter().zip(&scores) {
                for i in 0..d {
                    out[(t * heads + h) * d + i] += (s - most).exp() / sum * f64::from(v[at(*j) + i]);
                }
            }
        }
    }
    out
}

fn near(got: &[f32], want: &[f64]) -> bool {
    got.len() == want.len() && got.iter().zip(want).all(|(g, w)| (f64::from(*g) - w).abs() <= EXACT)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 1 } else { 200 }, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn grouped_query_attention_is_softmax_attention(
        seed: u64, kv in 1usize..=3, ratio in 1usize..=8, d in 1usize..=40, tokens in 1usize..=4, len in 0usize..=40, causal: bool,
    ) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let c = config(kv * ratio, kv, d, causal);
        let (q, k, v) =
            (random(&mut rng, tokens * kv * ratio * d), random(&mut rng, len * kv * d), random(&mut rng, len * kv * d));
        let want = naive(&q, &k, &v, &c);
        for kernel in kernels() {
            let got = kernel.grouped_query_attention(&q, &k, &v, &c).unwrap();
            prop_assert!(near(&got, &want), "{}: {got:?} {want:?}", kernel.kind());
        }
        prop_assert!(near(&grouped_query_attention_neon(&q, &k, &v, &c).unwrap(), &want));
        if kv == 1 {
            prop_assert!(near(&multi_query_attention_neon(&q, &k, &v, &c).unwrap(), &want));
        }
        if kv * ratio == 1 {
            let scale = c.effective_scale();
            let got = Kernel::global().flash_attention(&q, &k, &v, d, scale, causal).unwrap();
            prop_assert!(near(&got, &want));
            if tokens == 1 {
                prop_assert!(near(&flash_attention_neon(&q, &k, &v, scale, causal).unwrap(), &want));
            }
        }
    }

    #[test]
    fn paged_attention_is_attention_over_the_table(
        seed: u64, kv in 1usize..=3, ratio in 1usize..=5, d in 1usize..=40, size in 1usize..=9, len in 0usize..=60,
    ) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let c = config(kv * ratio, kv, d, false);
        let (q, k, v) = (random(&mut rng, kv * ratio * d), random(&mut rng, len * kv * d), random(&mut rng, len * kv * d));
        // Every second block belongs to another sequence, and ours come in a mixed order.
        let own = len.div_ceil(size);
        let mut cache = PagedKvCache::new(2 * own + 1, size, kv, d).unwrap();
        let mut table: Vec<usize> = (0..own).map(|b| 2 * b).collect();
        for i in (1..own).rev() {
            table.swap(i, rng.random_range(0..=i));
        }
        for (t, (k, v)) in k.chunks(kv * d).zip(v.chunks(kv * d)).enumerate() {
            prop_assert_eq!(cache.append(table[t / size], k, v).unwrap(), t % size);
            if t % size == 0 {
                let other = random(&mut rng, kv * d);
                cache.append(table[t / size] + 1, &other, &other).unwrap();
            }
        }
        let want = naive(&q, &k, &v, &c);
        for kernel in kernels() {
            let got = kernel.paged_attention(&q, &cache, &table, c.effective_scale()).unwrap();
            prop_assert!(near(&got, &want), "{}: {got:?} {want:?}", kernel.kind());
        }
        prop_assert!(near(&paged_attention_neon(&q, &cache, &table, c.effective_scale()).unwrap(), &want));
    }
}

#[test]
fn causal_hides_the_future_and_only_that() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let (d, len) = (16, 12);
    let c = config(4, 2, d, true);
    let q = random(&mut rng, 5 * 4 * d);
    let (mut k, mut v) = (random(&mut rng, len * 2 * d), random(&mut rng, len * 2 * d));
    for kernel in kernels() {
        let before = kernel.grouped_query_attention(&q, &k, &v, &c).unwrap();
        let open = kernel.grouped_query_attention(&q, &k, &v, &config(4, 2, d, false)).unwrap();
        assert_ne!(before, open, "{}: causal has no effect", kernel.kind());
        // The last key changes: four of five tokens must not see it, the last one must.
        let (old_k, old_v) = (k.clone(), v.clone());
        k[(len - 1) * 2 * d..].fill(0.9);
        v[(len - 1) * 2 * d..].fill(-0.9);
        let after = kernel.grouped_query_attention(&q, &k, &v, &c).unwrap();
        let (before_last, after_last) = (&before[..4 * 4 * d], &after[..4 * 4 * d]);
        // Miri's exponentials are random in their last digit.
        let same = before_last.iter().zip(after_last).all(|(a, b)| a == b || cfg!(miri) && (a - b).abs() < 1e-5);
        assert!(same, "{}: the future is seen", kernel.kind());
        assert_ne!(before[4 * 4 * d..], after[4 * 4 * d..], "{}", kernel.kind());
        (k, v) = (old_k, old_v);
    }
}

#[test]
fn more_causal_queries_than_keys_see_nothing_at_first() {
    for kernel in kernels() {
        let out = kernel.flash_attention(&[1.0; 6], &[1.0, 2.0], &[3.0, 4.0], 2, 1.0, true).unwrap();
        assert_eq!(out, [0.0, 0.0, 0.0, 0.0, 3.0, 4.0], "{}", kernel.kind());
    }
}

#[test]
fn no_keys_give_zeros_of_the_right_length() {
    for kernel in kernels() {
        assert_eq!(kernel.flash_attention(&[1.0; 4], &[], &[], 4, 0.5, false).unwrap(), [0.0; 4]);
        assert_eq!(kernel.grouped_query_attention(&[1.0; 32], &[], &[], &config(4, 2, 8, true)).unwrap(), [0.0; 32]);
        let cache = PagedKvCache::new(3, 4, 2, 8).unwrap();
        assert_eq!(kernel.paged_attention(&[1.0; 32], &cache, &[2, 0], 0.5).unwrap(), [0.0; 32]);
        assert_eq!(kernel.paged_attention(&[1.0; 32], &cache, &[], 0.5).unwrap(), [0.0; 32]);
    }
}

#[test]
fn ragged_shapes_are_errors() {
    use KernelError::{Ragged, Shape, Zero};
    let c = config(4, 2, 8, false);
    for kernel in kernels() {
        let gqa = |q: usize, k: usize, v: usize, c: &AttentionConfig| {
            kernel.grouped_query_attention(&vec![0.5; q], &vec![0.5; k], &vec![0.5; v], c).unwrap_err()
        };
        assert!(matches!(gqa(31, 32, 32, &c), Ragged { what: "queries", got: 31, of: 32 }));
        assert!(matches!(gqa(32, 33, 33, &c), Ragged { what: "keys", got: 33, of: 16 }));
        assert!(matches!(gqa(32, 32, 16, &c), Shape { what: "values", expected: 32, got: 16 }));
        assert!(matches!(gqa(24, 32, 32, &config(3, 2, 8, false)), Ragged { what: "num_heads", got: 3, of: 2 }));
        assert!(matches!(gqa(32, 32, 32, &config(0, 2, 8, false)), Zero("num_heads")));
        assert!(matches!(gqa(32, 32, 32, &config(4, 0, 8, false)), Zero("num_kv_heads")));
        assert!(matches!(gqa(32, 32, 32, &config(4, 2, 0, false)), Zero("head_dim")));
        assert!(matches!(gqa(32, 32, 32, &config(4, 2, usize::MAX / 2, false)), Shape { what: "head_dim", .. }));
        let mqa = kernel.multi_query_attention(&[0.5; 32], &[0.5; 16], &[0.5; 16], &c).unwrap_err();
        assert!(matches!(mqa, Shape { what: "num_kv_heads", expected: 1, got: 2 }));
        let flash = |q: &[f32], k: &[f32], v: &[f32], d| kernel.flash_attention(q, k, v, d, 1.0, false).unwrap_err();
        assert!(matches!(flash(&[0.5; 8], &[0.5; 15], &[0.5; 15], 8), Ragged { what: "keys", .. }));
        assert!(matches!(flash(&[0.5; 8], &[0.5; 16], &[0.5; 8], 8), Shape { what: "values", .. }));
        assert!(matches!(flash(&[0.5; 8], &[0.5; 16], &[0.5; 16], 0), Zero("head_dim")));
        let mut out = [0.0; 7];
        let short = kernel.flash_attention_into(&[0.5; 8], &[0.5; 8], &[0.5; 8], 8, 1.0, false, &mut out).unwrap_err();
        assert!(matches!(short, Shape { what: "out", expected: 8, got: 7 }));
    }
    assert!(matches!(flash_attention_neon(&[], &[], &[], 1.0, false).unwrap_err(), Zero("head_dim")));
    assert_eq!(config(4, 0, 8, false).gqa_ratio(), 0);
    assert_eq!(config(4, 2, 16, false).effective_scale(), 0.25);
}

#[test]
fn numbers_that_are_not_finite_are_named() {
    let c = config(2, 1, 8, false);
    for kernel in kernels() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for index in [0, 7, 8, 39] {
                for (what, which) in [("queries", 0), ("keys", 1), ("values", 2)] {
                    let mut all = [vec![0.5f32; 16], vec![0.5; 40], vec![0.5; 40]];
                    let index = index.min(all[which].len() - 1);
                    all[which][index] = bad;
                    let mut out = [1.0; 16];
                    let error =
                        kernel.grouped_query_attention_into(&all[0], &all[1], &all[2], &c, &mut out).unwrap_err();
                    assert_eq!(error, KernelError::NotFinite { what, index }, "{}: {bad}", kernel.kind());
                    assert!(out.iter().all(|x| x.is_finite()), "{}: {bad} got out", kernel.kind());
                }
            }
        }
        // As large as can be: still right.
        let large = kernel.flash_attention(&[1e18; 8], &[[1e18f32; 8], [-1e18; 8]].concat(), &[2.5; 16], 8, 1.0, false);
        assert_eq!(large.unwrap(), [2.5; 8], "{}", kernel.kind());
        let negative = kernel.flash_attention(&[1e18; 8], &[-1e18; 24], &[2.5; 24], 8, 1.0, false);
        assert_eq!(negative.unwrap(), [2.5; 8], "{}", kernel.kind());
        let huge = [f32::MAX; 8];
        let error = kernel.grouped_query_attention(&[f32::MAX; 16], &huge, &huge, &c).unwrap_err();
        assert!(matches!(error, KernelError::NotFinite { .. }), "{error}");
        let nan = AttentionConfig { scale: Some(f32::NAN), ..c.clone() };
        let error = kernel.grouped_query_attention(&[1.0; 16], &[1.0; 8], &[1.0; 8], &nan).unwrap_err();
        assert_eq!(error, KernelError::NotFinite { what: "scale", index: 0 });
    }
}

#[test]
fn block_tables_decide_what_is_seen() {
    let mut cache = PagedKvCache::new(4, 2, 2, 4).unwrap();
    for block in 0..4 {
        for slot in 0..2 {
            let key = [0.1 * block as f32; 8];
            let value: Vec<f32> =
                (0..8).map(|i| (10 * block + slot) as f32 + if i < 4 { 0.0 } else { 100.0 }).collect();
            cache.append(block, &key, &value).unwrap();
        }
    }
    for kernel in kernels() {
        // Equal keys within a block: the mean of its values, of each kv head for its own queries.
        let out = kernel.paged_attention(&[1.0; 16], &cache, &[2], 0.5).unwrap();
        assert_eq!(out, [[20.5f32; 8], [120.5; 8]].concat(), "{}", kernel.kind());
        let out = kernel.paged_attention(&[0.0; 16], &cache, &[3, 1], 0.5).unwrap();
        assert_eq!(out, [[20.5f32; 8], [120.5; 8]].concat(), "{}", kernel.kind());
        let error = kernel.paged_attention(&[0.0; 16], &cache, &[1, 4], 0.5).unwrap_err();
        assert_eq!(error, KernelError::Block { got: 4, blocks: 4 });
        let error = kernel.paged_attention(&[0.0; 12], &cache, &[1], 0.5).unwrap_err();
        assert_eq!(error, KernelError::Ragged { what: "query", got: 12, of: 8 });
        assert_eq!(kernel.paged_attention(&[], &cache, &[1], 0.5).unwrap_err(), KernelError::Zero("query heads"));
        let error = kernel.paged_attention(&[f32::NAN; 8], &cache, &[1], 0.5).unwrap_err();
        assert_eq!(error, KernelError::NotFinite { what: "query", index: 0 });
    }
}

#[test]
fn blocks_fill_in_order() {
    let mut cache = PagedKvCache::new(3, 2, 1, 4).unwrap();
    cache.append(0, &[1.0; 4], &[1.0; 4]).unwrap();
    cache.append(1, &[1.0; 4], &[1.0; 4]).unwrap();
    let half = KernelError::Filling { block: 0, got: 1, expected: 2 };
    assert_eq!(Kernel::global().paged_attention(&[1.0; 4], &cache, &[0, 1], 1.0).unwrap_err(), half);
    cache.append(0, &[1.0; 4], &[1.0; 4]).unwrap();
    assert!(Kernel::global().paged_attention(&[1.0; 4], &cache, &[0, 1, 2], 1.0).is_ok());
    let full = KernelError::Filling { block: 0, got: 2, expected: 2 };
    assert_eq!(cache.append(0, &[1.0; 4], &[1.0; 4]).unwrap_err(), full);
    assert_eq!(cache.append(3, &[1.0; 4], &[1.0; 4]).unwrap_err(), KernelError::Block { got: 3, blocks: 3 });
    let nan = KernelError::NotFinite { what: "values", index: 0 };
    assert_eq!(cache.append(1, &[1.0; 4], &[f32::NAN; 4]).unwrap_err(), nan);
    let wide = KernelError::Shape { what: "keys", expected: 4, got: 5 };
    assert_eq!(cache.append(1, &[1.0; 5], &[1.0; 5]).unwrap_err(), wide);
    assert_eq!(cache.len(1).unwrap(), 1, "a refused token takes a slot");
    cache.clear(0).unwrap();
    assert_eq!(cache.len(0).unwrap(), 0);
    assert_eq!(PagedKvCache::new(0, 1, 1, 1).unwrap_err(), KernelError::Zero("blocks"));
    assert!(matches!(PagedKvCache::new(2, usize::MAX / 8, 2, 8).unwrap_err(), KernelError::Shape { .. }));
}

/// The public crate takes a query of another width than the cache and cuts it off.
#[test]
fn widths_of_queries_and_rows_are_compared() {
    let rows = [0.5f32; 64];
    let mut out = [0.0; 32];
    for kernel in kernels() {
        let mut run = |queries: usize, d: usize, stride: usize, len: usize| {
            let segment = Segment::tokens(Rows::F32 { keys: &rows, values: &rows[32..], stride }, len);
            kernel.sparse_decode(&vec![0.5; queries], d, &[segment], 1.0, &mut out[..queries.min(32)], None)
        };
        assert!(run(32, 32, 64, 1).is_ok());
        assert!(matches!(run(32, 32, 64, 2).unwrap_err(), KernelError::Shape { what: "keys", expected: 96, got: 64 }));
        assert!(matches!(run(32, 32, 33, 2).unwrap_err(), KernelError::Shape { what: "keys", .. }));
        assert!(matches!(run(32, 32, 1, 2).unwrap_err(), KernelError::Shape { what: "values", expected: 33, got: 32 }));
        assert!(matches!(run(31, 32, 64, 1).unwrap_err(), KernelError::Ragged { .. }));
        assert!(matches!(run(0, 32, 64, 1).unwrap_err(), KernelError::Ragged { .. }));
        assert!(matches!(run(8, 0, 64, 1).unwrap_err(), KernelError::Zero("head_dim")));
        assert!(matches!(run(32, 32, usize::MAX / 2, 4).unwrap_err(), KernelError::Shape { what: "rows", .. }));
        assert!(matches!(run(16, 16, usize::MAX, 1), Ok(())), "a single row has no next one");
        let many = Segment::tokens(Rows::F32 { keys: &rows, values: &rows, stride: 0 }, usize::MAX);
        let error = kernel.sparse_decode(&[0.5; 32], 32, &[many, many], 1.0, &mut [0.0; 32], Some(&mut [0.0; 2]));
        assert!(matches!(error.unwrap_err(), KernelError::Shape { what: "weights", expected: usize::MAX, got: 2 }));
        let picked = |picks: &[u32]| {
            let segment = Segment::picked(Rows::F32 { keys: &rows, values: &rows[32..], stride: 32 }, picks);
            kernel.sparse_decode(&[0.5; 32], 32, &[segment], 1.0, &mut [0.0; 32], None)
        };
        assert!(picked(&[0, 0]).is_ok());
        assert!(matches!(picked(&[0, 1]).unwrap_err(), KernelError::Shape { what: "values", expected: 64, got: 32 }));
        assert!(matches!(picked(&[u32::MAX]).unwrap_err(), KernelError::Shape { what: "keys", .. }));
    }
}
