//! Attention of the temporal head against the public crate it is compatible with, against plain f64 arithmetic, and
//! against itself: streaming and whole sequences, all patterns, no look ahead.

#![allow(clippy::unwrap_used)]

use aetherd::head::{
    AetherTemporalHead, CachePrecision, FullPolicy, LandmarkWeight, Pattern, TemporalBackendKind, TemporalError,
    TemporalHeadConfig, Tensor3,
};
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use ruvllm_sparse_attention as oracle;

const CASES: u32 = if cfg!(miri) { 2 } else { 48 };

fn random(rng: &mut ChaCha8Rng, seq: usize, heads: usize, dim: usize, size: f32) -> Tensor3 {
    let data = (0..seq * heads * dim).map(|_| rng.random_range(-size..size)).collect();
    Tensor3::from_vec(data, seq, heads, dim).unwrap()
}

fn qkv(c: &TemporalHeadConfig, seq: usize, seed: u64) -> [Tensor3; 3] {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let q = random(&mut rng, seq, c.q_heads, c.head_dim, 2.0);
    let k = random(&mut rng, seq, c.kv_heads, c.head_dim, 1.0);
    let v = random(&mut rng, seq, c.kv_heads, c.head_dim, 1.0);
    [q, k, v]
}

fn one(t: &Tensor3, i: usize) -> Tensor3 {
    Tensor3::from_vec(t.position(i).to_vec(), 1, t.heads(), t.dim()).unwrap()
}

/// The largest difference, relative to the largest number of `b`.
fn apart(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let most = b.iter().fold(1e-3f32, |m, x| m.max(x.abs()));
    a.iter().zip(b).fold(0.0f32, |m, (a, b)| m.max((a - b).abs())) / most
}

fn near(what: &str, a: &[f32], b: &[f32], tolerance: f32) {
    assert!(a.iter().all(|x| x.is_finite()), "{what}: not finite");
    let apart = apart(a, b);
    assert!(apart <= tolerance, "{what}: {apart:e} apart, {tolerance:e} allowed");
}

fn stream(head: &AetherTemporalHead, [q, k, v]: &[Tensor3; 3], precision: CachePrecision) -> Vec<f32> {
    let mut cache = head.make_cache_with(q.seq().max(2), precision, FullPolicy::Error).unwrap();
    let step = |i| head.step(&one(q, i), &one(k, i), &one(v, i), &mut cache).unwrap();
    (0..q.seq()).map(step).flat_map(|out| out.as_slice().to_vec()).collect()
}

fn theirs(t: &Tensor3) -> oracle::Tensor3 {
    oracle::Tensor3::from_vec(t.as_slice().to_vec(), t.seq(), t.heads(), t.dim()).unwrap()
}

fn their_head(c: &TemporalHeadConfig) -> oracle::SubquadraticSparseAttention {
    oracle::SubquadraticSparseAttention::new(oracle::SparseAttentionConfig {
        window: c.window,
        block_size: c.block_size,
        global_tokens: c.global_tokens.clone(),
        causal: c.causal,
        use_log_stride: c.use_log_stride,
        use_landmarks: c.use_landmarks,
        sort_candidates: false,
    })
    .unwrap()
}

/// Softmax over rows (key, value, tokens it counts as) in f64.
fn softmax(query: &[f32], rows: &[(Vec<f64>, Vec<f64>, f64)]) -> Vec<f32> {
    let scale = 1.0 / (query.len() as f64).sqrt();
    let dot = |k: &[f64]| query.iter().zip(k).map(|(a, b)| f64::from(*a) * b).sum::<f64>();
    let scores: Vec<f64> = rows.iter().map(|(k, _, n)| scale * dot(k) + n.ln()).collect();
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = scores.iter().map(|s| (s - most).exp()).sum();
    let mut out = vec![0.0f64; query.len()];
    for (s, (_, v, _)) in scores.iter().zip(rows) {
        out.iter_mut().zip(v).for_each(|(o, v)| *o += (s - most).exp() / sum * v);
    }
    out.iter().map(|o| *o as f32).collect()
}

/// Mean key and value of some tokens.
fn mean(k: &Tensor3, v: &Tensor3, head: usize, tokens: &[usize], count: f64) -> (Vec<f64>, Vec<f64>, f64) {
    let of = |t: &Tensor3| {
        let mut sum = vec![0.0f64; t.dim()];
        for i in tokens {
            sum.iter_mut().zip(t.row(*i, head)).for_each(|(s, x)| *s += f64::from(*x) / tokens.len() as f64);
        }
        sum
    };
    (of(k), of(v), count)
}

/// Which past tokens each row of a pyramid stands for, by building it anew from a list of blocks.
fn pyramid_rows(c: &TemporalHeadConfig, i: usize) -> Vec<Vec<usize>> {
    let left = i.saturating_sub(c.window);
    let free = |t: &usize| !c.global_tokens.contains(t);
    let mut levels: Vec<Vec<Vec<usize>>> = vec![Vec::new(); c.pyramid_levels];
    for block in 0..left / c.block_size {
        let mut next: Vec<usize> = (block * c.block_size..(block + 1) * c.block_size).filter(free).collect();
        if next.is_empty() {
            continue;
        }
        let last = levels.len() - 1;
        for (at, level) in levels.iter_mut().enumerate() {
            level.push(next);
            if level.len() < 3 {
                break;
            }
            let mut two = level.remove(0);
            two.extend(level.remove(0));
            if at == last {
                level.insert(0, two);
                break;
            }
            next = two;
        }
    }
    let running: Vec<usize> = (left / c.block_size * c.block_size..left).filter(free).collect();
    let rows = levels.into_iter().flatten().chain(Some(running).filter(|r| !r.is_empty()));
    let window = (left..=i).map(|t| vec![t]);
    let globals = c.global_tokens.iter().filter(|g| **g < left).map(|g| vec![*g]);
    rows.chain(window).chain(globals).collect()
}

prop_compose! {
    fn shapes()(
        kv_heads in 1usize..4,
        group in 1usize..9,
        head_dim in prop::sample::select(vec![1usize, 3, 8, 16, 31, 32, 33, 40]),
        window in 0usize..40,
        block_size in 1usize..20,
        globals in prop::collection::btree_set(0usize..60, 0..4),
        use_log_stride: bool,
        use_landmarks: bool,
        count: bool,
        levels in 1usize..6,
    ) -> TemporalHeadConfig {
        TemporalHeadConfig {
            q_heads: kv_heads * group, kv_heads, head_dim, window, block_size, use_log_stride, use_landmarks,
            global_tokens: globals.into_iter().collect(),
            landmark_weight: if count { LandmarkWeight::Count } else { LandmarkWeight::Unit },
            pyramid_levels: levels,
            ..TemporalHeadConfig::default()
        }
    }
}

fn lengths() -> impl Strategy<Value = usize> {
    let most = if cfg!(miri) { 12 } else { 300 };
    prop_oneof![8 => 1usize..60, 2 => 60usize..most.max(61)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn streaming_is_the_whole_sequence(c in shapes(), seq in lengths(), pyramid: bool, dense: bool, seed: u64) {
        let pattern = if pyramid { Pattern::Pyramid } else { Pattern::Compatible };
        let backend = if dense { TemporalBackendKind::Dense } else { TemporalBackendKind::SparseGqa };
        let c = TemporalHeadConfig { pattern, backend, ..c };
        let head = AetherTemporalHead::new(&c).unwrap();
        let all = qkv(&c, seq, seed);
        let whole = head.forward(&all[0], &all[1], &all[2]).unwrap();
        let streamed = stream(&head, &all, CachePrecision::F32);
        if pyramid && !dense {
            prop_assert_eq!(whole.as_slice(), &streamed[..], "a pyramid is the same numbers both ways");
        }
        near("step and forward", &streamed, whole.as_slice(), 1e-4);
    }

    #[test]
    fn the_public_crate_gives_the_same(c in shapes(), seq in lengths(), causal: bool, seed: u64) {
        let c = TemporalHeadConfig { landmark_weight: LandmarkWeight::Unit, causal, ..c };
        let all @ [q, k, v] = &qkv(&c, seq, seed);
        let head = AetherTemporalHead::new(&c).unwrap();
        let whole = head.forward(q, k, v).unwrap();
        let crate_head = their_head(&c);
        let expected = crate_head.forward_gqa(&theirs(q), &theirs(k), &theirs(v)).unwrap();
        near("forward and the crate", whole.as_slice(), &expected.data, 1e-4);
        if c.q_heads == c.kv_heads {
            use oracle::AttentionBackend as _;
            let equal = crate_head.forward(&theirs(q), &theirs(k), &theirs(v)).unwrap();
            near("equal heads", whole.as_slice(), &equal.data, 1e-4);
        }
        if causal {
            let mut cache = oracle::KvCache::new(seq, c.kv_heads, c.head_dim, c.block_size);
            let mut expected = Vec::new();
            for i in 0..seq {
                cache.append(&theirs(&one(k, i)), &theirs(&one(v, i)));
                expected.extend(crate_head.decode_step(&theirs(&one(q, i)), &cache).unwrap().data);
            }
            near("step and the crate", &stream(&head, all, CachePrecision::F32), &expected, 1e-4);
        }
    }

    #[test]
    fn dense_is_a_plain_softmax(c in shapes(), seq in 1usize..60, causal: bool, seed: u64) {
        let c = TemporalHeadConfig { backend: TemporalBackendKind::Dense, causal, ..c };
        let [q, k, v] = &qkv(&c, seq, seed);
        let out = AetherTemporalHead::new(&c).unwrap().forward(q, k, v).unwrap();
        for i in 0..seq {
            for h in 0..c.q_heads {
                let kv = h / c.group();
                let seen = 0..if causal { i + 1 } else { seq };
                let rows: Vec<_> = seen.map(|t| mean(k, v, kv, &[t], 1.0)).collect();
                near("dense", out.row(i, h), &softmax(q.row(i, h), &rows), 1e-4);
            }
        }
    }

    #[test]
    fn a_pyramid_is_what_its_definition_says(c in shapes(), seq in lengths(), seed: u64) {
        let c = TemporalHeadConfig { pattern: Pattern::Pyramid, ..c };
        let [q, k, v] = &qkv(&c, seq, seed);
        let out = AetherTemporalHead::new(&c).unwrap().forward(q, k, v).unwrap();
        for i in (0..seq).rev().step_by(7) {
            let rows = pyramid_rows(&c, i);
            let mut all: Vec<usize> = rows.iter().flatten().copied().collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..=i).collect::<Vec<_>>(), "every token once");
            for h in 0..c.q_heads {
                let weigh = |n: usize| if c.landmark_weight == LandmarkWeight::Count { n as f64 } else { 1.0 };
                let rows: Vec<_> = rows.iter().map(|r| mean(k, v, h / c.group(), r, weigh(r.len()))).collect();
                near("pyramid", out.row(i, h), &softmax(q.row(i, h), &rows), 2e-4);
            }
        }
    }

    #[test]
    fn the_future_changes_nothing(c in shapes(), seq in 2usize..90, kind in 0..3, cut in 0.0f64..1.0, seed: u64) {
        let c = match kind {
            0 => c,
            1 => TemporalHeadConfig { pattern: Pattern::Pyramid, ..c },
            _ => TemporalHeadConfig { backend: TemporalBackendKind::Dense, ..c },
        };
        let cut = ((seq as f64 * cut) as usize).clamp(1, seq - 1);
        let all = qkv(&c, seq, seed);
        let mut other = all.clone();
        let later = qkv(&c, seq, seed ^ 1);
        for (t, l) in other.iter_mut().zip(&later) {
            let from = cut * t.heads() * t.dim();
            t.as_mut_slice()[from..].copy_from_slice(&l.as_slice()[from..]);
        }
        let head = AetherTemporalHead::new(&c).unwrap();
        let past = cut * c.q_heads * c.head_dim;
        let forward = |[q, k, v]: &[Tensor3; 3]| head.forward(q, k, v).unwrap().as_slice().to_vec();
        prop_assert_eq!(&forward(&all)[..past], &forward(&other)[..past]);
        prop_assert_ne!(&forward(&all)[past..], &forward(&other)[past..]);
        let streamed = |all| stream(&head, all, CachePrecision::F16);
        prop_assert_eq!(&streamed(&all)[..past], &streamed(&other)[..past]);
    }
}

/// The lengths that the shapes above are too slow for.
#[test]
#[cfg_attr(miri, ignore)]
fn long_sequences() {
    for (seq, seed) in [(4096, 1), (1025, 2)] {
        let c = TemporalHeadConfig { q_heads: 4, head_dim: 32, ..TemporalHeadConfig::default() };
        let all @ [q, k, v] = &qkv(&c, seq, seed);
        let head = AetherTemporalHead::new(&c).unwrap();
        let whole = head.forward(q, k, v).unwrap();
        near("step", &stream(&head, all, CachePrecision::F32), whole.as_slice(), 1e-4);
        let expected = their_head(&c).forward_gqa(&theirs(q), &theirs(k), &theirs(v)).unwrap();
        near("crate", whole.as_slice(), &expected.data, 1e-4);
        let c = TemporalHeadConfig::pyramid();
        let head = AetherTemporalHead::new(&c).unwrap();
        let out = head.forward(q, k, v).unwrap();
        assert_eq!(out.as_slice(), stream(&head, all, CachePrecision::F32));
        let rows: Vec<_> = pyramid_rows(&c, seq - 1).iter().map(|r| mean(k, v, 0, r, r.len() as f64)).collect();
        near("pyramid", out.row(seq - 1, 0), &softmax(q.row(seq - 1, 0), &rows), 2e-4);
    }
}

/// Values of a twentieth of the keys' size: a scale shared by both would drown them.
const F16_TOLERANCE: f32 = 4e-3;
const Q8_TOLERANCE: f32 = 2e-2;
const Q4_TOLERANCE: f32 = 0.25;

#[test]
#[cfg_attr(miri, ignore)]
fn low_precision_is_within_its_tolerance() {
    let c = TemporalHeadConfig { kv_heads: 2, q_heads: 8, ..TemporalHeadConfig::default() };
    for backend in [TemporalBackendKind::Dense, TemporalBackendKind::SparseGqa] {
        let c = TemporalHeadConfig { backend, ..c.clone() };
        let head = AetherTemporalHead::new(&c).unwrap();
        for seed in 0..4 {
            let mut all = qkv(&c, 400, seed);
            all[2].as_mut_slice().iter_mut().for_each(|x| *x *= 0.05);
            let exact = stream(&head, &all, CachePrecision::F32);
            let cases = [
                (CachePrecision::F16, F16_TOLERANCE),
                (CachePrecision::TwoTierQ8 { tail_length: 20 }, Q8_TOLERANCE),
                (CachePrecision::TwoTierQ4 { tail_length: 20 }, Q4_TOLERANCE),
            ];
            for (precision, tolerance) in cases {
                // Outputs of late positions are small means: they are what the tolerance is relative to.
                let width = c.q_heads * c.head_dim;
                let out = stream(&head, &all, precision);
                near(&format!("{precision:?}"), &out[300 * width..], &exact[300 * width..], tolerance);
                assert!(apart(&out, &exact) > 1e-6, "{precision:?} is not single precision");
            }
        }
    }
}

#[test]
fn half_precision_is_that_of_the_public_crate() {
    let c = TemporalHeadConfig { head_dim: 16, ..TemporalHeadConfig::default() };
    let seq = if cfg!(miri) { 4 } else { 200 };
    let all @ [q, k, v] = &qkv(&c, seq, 5);
    let crate_head = their_head(&c);
    let mut cache = oracle::KvCacheF16::new(seq, 1, 16, c.block_size);
    let mut expected = Vec::new();
    for i in 0..seq {
        cache.try_append(&theirs(&one(k, i)), &theirs(&one(v, i))).unwrap();
        expected.extend(cache.decode_step_f16(&crate_head, &theirs(&one(q, i))).unwrap().data);
    }
    let head = AetherTemporalHead::new(&c).unwrap();
    near("f16", &stream(&head, all, CachePrecision::F16), &expected, F16_TOLERANCE);
}

/// With a window over everything and no landmarks the pattern is dense attention; with landmarks it is not (S7 of the
/// public crate, whose words claim it).
#[test]
fn a_window_over_everything_is_dense() {
    let c = TemporalHeadConfig { window: 64, use_landmarks: false, head_dim: 8, ..TemporalHeadConfig::default() };
    let [q, k, v] = &qkv(&c, 60, 3);
    let out = |c: &TemporalHeadConfig| AetherTemporalHead::new(c).unwrap().forward(q, k, v).unwrap();
    let dense = out(&TemporalHeadConfig { backend: TemporalBackendKind::Dense, ..c.clone() });
    near("dense", out(&c).as_slice(), dense.as_slice(), 1e-5);
    near(
        "pyramid",
        out(&TemporalHeadConfig { pattern: Pattern::Pyramid, ..c.clone() }).as_slice(),
        dense.as_slice(),
        1e-5,
    );
    let marked = out(&TemporalHeadConfig { use_landmarks: true, ..c });
    assert!(apart(marked.as_slice(), dense.as_slice()) > 1e-3);
}

#[test]
fn heads_and_tensors_of_no_sense_are_refused() {
    let base = TemporalHeadConfig::default();
    let wrong = [
        TemporalHeadConfig { block_size: 0, ..base.clone() },
        TemporalHeadConfig { q_heads: 0, ..base.clone() },
        TemporalHeadConfig { kv_heads: 3, ..base.clone() },
        TemporalHeadConfig { head_dim: 0, ..base.clone() },
        TemporalHeadConfig { pyramid_levels: 0, ..base.clone() },
    ];
    for c in wrong {
        assert!(matches!(AetherTemporalHead::new(&c), Err(TemporalError::Config { .. })), "{c:?}");
    }
    let blind = TemporalHeadConfig { causal: false, pattern: Pattern::Pyramid, ..base.clone() };
    assert!(matches!(AetherTemporalHead::new(&blind), Err(TemporalError::NotCausal(_))));
    let head = AetherTemporalHead::new(&base).unwrap();
    let [q, k, v] = qkv(&base, 4, 1);
    let short = qkv(&base, 3, 1);
    let narrow = qkv(&TemporalHeadConfig { head_dim: 16, ..base.clone() }, 4, 1);
    assert!(matches!(head.forward(&q, &short[1], &v), Err(TemporalError::Shape { .. })));
    assert!(matches!(head.forward(&q, &k, &narrow[2]), Err(TemporalError::Shape { .. })));
    assert!(matches!(head.forward(&narrow[0], &k, &v), Err(TemporalError::Shape { .. })));
    let mut bad = k.clone();
    bad.as_mut_slice()[70] = f32::NAN;
    assert!(matches!(head.forward(&q, &bad, &v), Err(TemporalError::NotFinite { index: 70, .. })));
    assert!(Tensor3::zeros(usize::MAX, 2, 2).is_err());
    assert!(Tensor3::from_vec(vec![0.0; 5], 1, 2, 3).is_err());
    let out = head.forward(&q, &k, &v).unwrap();
    assert_eq!((out.seq(), out.heads(), out.dim()), (4, 4, 32));
}
