//! The attention of the head against others: the public crate `ruvllm_sparse_attention`, and a slow softmax in double
//! precision.

#![allow(clippy::unwrap_used)]

mod head_support;

use aetherd::head::{
    AetherTemporalHead, CachePrecision, FullPolicy, LandmarkWeight, Pattern, TemporalBackendKind, TemporalError,
    TemporalHeadConfig, Tensor3,
};
use aetherd::kernel::{Kernel, KernelKind};
use head_support::{Row, apart, at, attend, rng, tensor};
use proptest::prelude::*;
use ruvllm_sparse_attention::{AttentionBackend, SubquadraticSparseAttention, Tensor3 as TheirTensor};
use ruvllm_sparse_attention::{KvCache as TheirCache, KvCacheF16 as TheirHalfCache, SparseAttentionConfig};

/// Single precision against single precision in another order of summation, values of size 1 to 2.
const F32: f32 = 2e-5;
/// Half-precision rows against single precision.
const F16: f32 = 4e-3;

fn theirs(t: &Tensor3) -> TheirTensor {
    TheirTensor::from_vec(t.as_slice().to_vec(), t.seq(), t.heads(), t.dim()).unwrap()
}

fn their_attention(c: &TemporalHeadConfig) -> SubquadraticSparseAttention {
    SubquadraticSparseAttention::new(SparseAttentionConfig {
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

fn configs() -> impl Strategy<Value = TemporalHeadConfig> {
    let shape = (1usize..4, 1usize..9, prop::sample::select(vec![1usize, 3, 8, 16, 31, 32, 33, 64]));
    let pattern = (0usize..50, 1usize..20, prop::collection::vec(0usize..60, 0..4), any::<bool>(), any::<bool>());
    (shape, pattern).prop_map(|((kv_heads, group, head_dim), (window, block_size, globals, strides, landmarks))| {
        TemporalHeadConfig {
            q_heads: kv_heads * group,
            kv_heads,
            head_dim,
            window,
            block_size,
            global_tokens: globals,
            use_log_stride: strides,
            use_landmarks: landmarks,
            ..TemporalHeadConfig::default()
        }
    })
}

fn qkv(c: &TemporalHeadConfig, seq: usize, seed: u64) -> (Tensor3, Tensor3, Tensor3) {
    let mut rng = rng(seed);
    let mut t = |heads, size| tensor(&mut rng, seq, heads, c.head_dim, size);
    (t(c.q_heads, 2.0), t(c.kv_heads, 2.0), t(c.kv_heads, 1.0))
}

/// Streams everything and compares every `every`-th position and the last with `forward`.
fn streams_like(head: &AetherTemporalHead, q: &Tensor3, k: &Tensor3, v: &Tensor3, every: usize) -> f32 {
    let all = head.forward(q, k, v).unwrap();
    let mut cache = head.make_cache(q.seq()).unwrap();
    let mut worst = 0.0f32;
    for i in 0..q.seq() {
        let one = head.step(&at(q, i), &at(k, i), &at(v, i), &mut cache).unwrap();
        if i % every == 0 || i + 1 == q.seq() {
            worst = worst.max(apart(one.as_slice(), all.position(i)));
        }
    }
    worst
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn forward_is_that_of_the_public_crate(c in configs(), causal in any::<bool>(), seq in 1usize..200, seed in any::<u64>()) {
        let c = TemporalHeadConfig { causal, ..c };
        let (q, k, v) = qkv(&c, seq, seed);
        let ours = AetherTemporalHead::new(&c).unwrap().forward(&q, &k, &v).unwrap();
        let peer = their_attention(&c);
        let grouped = peer.forward_gqa(&theirs(&q), &theirs(&k), &theirs(&v)).unwrap();
        prop_assert!(apart(ours.as_slice(), &grouped.data) < F32);
        if c.q_heads == c.kv_heads {
            let plain = peer.forward(&theirs(&q), &theirs(&k), &theirs(&v)).unwrap();
            prop_assert!(apart(ours.as_slice(), &plain.data) < F32);
        }
    }

    #[test]
    fn step_is_that_of_the_public_crate_and_forward_is_steps(c in configs(), seq in 1usize..200, seed in any::<u64>()) {
        let (q, k, v) = qkv(&c, seq, seed);
        let head = AetherTemporalHead::new(&c).unwrap();
        prop_assert!(streams_like(&head, &q, &k, &v, 1) < F32);
        let peer = their_attention(&c);
        let mut cache = head.make_cache(seq).unwrap();
        let mut half = head.make_cache_with(seq, CachePrecision::F16, FullPolicy::Error).unwrap();
        let mut their_cache = TheirCache::new(seq, c.kv_heads, c.head_dim, c.block_size);
        let mut their_half = TheirHalfCache::new(seq, c.kv_heads, c.head_dim, c.block_size);
        for i in 0..seq {
            let (q, k, v) = (at(&q, i), at(&k, i), at(&v, i));
            their_cache.try_append(&theirs(&k), &theirs(&v)).unwrap();
            their_half.try_append(&theirs(&k), &theirs(&v)).unwrap();
            let want = peer.decode_step(&theirs(&q), &their_cache).unwrap();
            let got = head.step(&q, &k, &v, &mut cache).unwrap();
            prop_assert!(apart(got.as_slice(), &want.data) < F32, "position {i}");
            let want = their_half.decode_step_f16(&peer, &theirs(&q)).unwrap();
            let got = head.step(&q, &k, &v, &mut half).unwrap();
            prop_assert!(apart(got.as_slice(), &want.data) < F16, "half precision, position {i}");
        }
    }

    #[test]
    fn dense_is_a_plain_softmax(c in configs(), causal in any::<bool>(), seq in 1usize..60, seed in any::<u64>()) {
        let c = TemporalHeadConfig { backend: TemporalBackendKind::Dense, causal, ..c };
        let (q, k, v) = qkv(&c, seq, seed);
        let head = AetherTemporalHead::new(&c).unwrap();
        let all = head.forward(&q, &k, &v).unwrap();
        for i in 0..seq {
            let seen = if causal { i + 1 } else { seq };
            let rows: Vec<Row> = (0..seen).map(|j| Row { tokens: vec![j], weight: 1.0 }).collect();
            prop_assert!(apart(all.position(i), &attend(&c, &q, &k, &v, i, &rows)) < F32);
        }
        if causal {
            prop_assert!(streams_like(&head, &q, &k, &v, 1) < F32);
        }
    }

    #[test]
    fn every_kernel_gives_the_same(c in configs(), pyramid in any::<bool>(), seq in 1usize..120, seed in any::<u64>()) {
        let pattern = if pyramid { Pattern::Pyramid } else { Pattern::Compatible };
        let c = TemporalHeadConfig { pattern, landmark_weight: LandmarkWeight::Count, ..c };
        let (q, k, v) = qkv(&c, seq, seed);
        let scalar = AetherTemporalHead::with_kernel(&c, Kernel::select(Some(KernelKind::Scalar)).unwrap()).unwrap();
        let best = AetherTemporalHead::new(&c).unwrap();
        let (a, b) = (scalar.forward(&q, &k, &v).unwrap(), best.forward(&q, &k, &v).unwrap());
        prop_assert!(apart(a.as_slice(), b.as_slice()) < F32);
    }

    #[test]
    fn no_later_token_matters(c in configs(), kind in 0usize..3, seq in 2usize..120, seed in any::<u64>()) {
        let c = match kind {
            0 => c,
            1 => TemporalHeadConfig { backend: TemporalBackendKind::Dense, ..c },
            _ => TemporalHeadConfig { pattern: Pattern::Pyramid, landmark_weight: LandmarkWeight::Count, ..c },
        };
        let head = AetherTemporalHead::new(&c).unwrap();
        let (q, k, v) = qkv(&c, seq, seed);
        let cut = (seed % seq as u64) as usize;
        let other = qkv(&c, seq, seed ^ 1);
        let splice = |a: &Tensor3, b: &Tensor3| {
            let width = a.heads() * a.dim();
            let data = [&a.as_slice()[..cut * width], &b.as_slice()[cut * width..]].concat();
            Tensor3::from_vec(data, seq, a.heads(), a.dim()).unwrap()
        };
        let before = head.forward(&q, &k, &v).unwrap();
        let after = head.forward(&splice(&q, &other.0), &splice(&k, &other.1), &splice(&v, &other.2)).unwrap();
        let width = c.q_heads * c.head_dim;
        prop_assert_eq!(&before.as_slice()[..cut * width], &after.as_slice()[..cut * width]);
    }

    #[test]
    fn a_pyramid_counts_every_token_once(
        c in configs(), levels in 1usize..7, seq in 1usize..400, at_token in 0usize..400, seed in any::<u64>()
    ) {
        let c = TemporalHeadConfig {
            pattern: Pattern::Pyramid, landmark_weight: LandmarkWeight::Count, pyramid_levels: levels, ..c
        };
        let head = AetherTemporalHead::new(&c).unwrap();
        let (q, _, _) = qkv(&c, seq, seed);
        let marked = at_token % seq;
        // All keys equal, one value 1: what comes out is the weight of that token, 1 / tokens if it is counted once.
        let keys = Tensor3::zeros(seq, c.kv_heads, c.head_dim).unwrap();
        let mut values = keys.clone();
        let width = c.kv_heads * c.head_dim;
        values.as_mut_slice()[marked * width..(marked + 1) * width].fill(1.0);
        let mut cache = head.make_cache(1).unwrap();
        for i in 0..seq {
            let out = head.step(&at(&q, i), &at(&keys, i), &at(&values, i), &mut cache).unwrap();
            let want = if marked <= i { 1.0 / (i + 1) as f32 } else { 0.0 };
            prop_assert!(out.as_slice().iter().all(|x| (x - want).abs() < 1e-6), "token {marked} at {i}: {out:?}");
            prop_assert_eq!(cache.tokens_in_rows(), i as u64 + 1);
            let blocks = (i + 1).div_ceil(c.block_size) as f64;
            let in_use = (blocks.log2().floor() as usize + 1).min(levels);
            prop_assert!(cache.rows() <= c.window + 1 + c.global_tokens.len() + 1 + 2 * in_use);
        }
        // Prefill is the same to the last bit.
        let prefill = head.forward(&q, &keys, &values).unwrap();
        prop_assert_eq!(prefill.position(seq - 1), streamed_last(&head, &q, &keys, &values).as_slice());
    }
}

fn streamed_last(head: &AetherTemporalHead, q: &Tensor3, k: &Tensor3, v: &Tensor3) -> Vec<f32> {
    let mut cache = head.make_cache(1).unwrap();
    let mut last = Vec::new();
    for i in 0..q.seq() {
        last = head.step(&at(q, i), &at(k, i), &at(v, i), &mut cache).unwrap().as_slice().to_vec();
    }
    last
}

#[test]
fn long_streams_of_the_default_head() {
    let shapes = [(1, 4, 32, 4096), (1, 1, 32, 2500), (2, 8, 16, 1025), (1, 8, 64, 700)];
    for (n, (kv_heads, group, head_dim, seq)) in shapes.into_iter().enumerate() {
        let c = TemporalHeadConfig { q_heads: kv_heads * group, kv_heads, head_dim, ..TemporalHeadConfig::default() };
        let (q, k, v) = qkv(&c, seq, n as u64);
        let head = AetherTemporalHead::new(&c).unwrap();
        let all = head.forward(&q, &k, &v).unwrap();
        let peer = their_attention(&c).forward_gqa(&theirs(&q), &theirs(&k), &theirs(&v)).unwrap();
        assert!(apart(all.as_slice(), &peer.data) < F32);
        assert!(streams_like(&head, &q, &k, &v, 97) < F32);
        let pyramid = TemporalHeadConfig { pattern: Pattern::Pyramid, landmark_weight: LandmarkWeight::Count, ..c };
        let head = AetherTemporalHead::new(&pyramid).unwrap();
        assert_eq!(
            head.forward(&q, &k, &v).unwrap().position(seq - 1),
            streamed_last(&head, &q, &k, &v).as_slice(),
            "prefill of a pyramid is streaming"
        );
    }
}

#[test]
fn what_does_not_fit_is_an_error_and_never_a_panic() {
    let c = TemporalHeadConfig::default();
    let head = AetherTemporalHead::new(&c).unwrap();
    for wrong in [
        TemporalHeadConfig { q_heads: 0, ..c.clone() },
        TemporalHeadConfig { kv_heads: 0, ..c.clone() },
        TemporalHeadConfig { kv_heads: 3, ..c.clone() },
        TemporalHeadConfig { head_dim: 0, ..c.clone() },
        TemporalHeadConfig { block_size: 0, ..c.clone() },
        TemporalHeadConfig { head_dim: usize::MAX, ..c.clone() },
        TemporalHeadConfig { pyramid_levels: 0, ..c.clone() },
        TemporalHeadConfig { global_tokens: vec![0; 1000], ..c.clone() },
    ] {
        assert!(matches!(AetherTemporalHead::new(&wrong), Err(TemporalError::Config { .. })), "{wrong:?}");
    }
    let looks_ahead = AetherTemporalHead::new(&TemporalHeadConfig { causal: false, ..c.clone() }).unwrap();
    assert!(matches!(looks_ahead.make_cache(8), Err(TemporalError::NotCausal(_))));

    let (q, k, v) = qkv(&c, 3, 1);
    assert!(matches!(head.forward(&k, &k, &v), Err(TemporalError::Shape { what: "q", .. })));
    assert!(matches!(head.forward(&q, &k, &at(&v, 0)), Err(TemporalError::Shape { what: "v", .. })));
    let mut bad = k.clone();
    bad.as_mut_slice()[40] = f32::NAN;
    assert!(matches!(head.forward(&q, &bad, &v), Err(TemporalError::NotFinite { what: "k", index: 40 })));

    let mut cache = head.make_cache(8).unwrap();
    assert!(matches!(head.step(&q, &k, &v, &mut cache), Err(TemporalError::Shape { .. })), "three tokens at once");
    let narrow = Tensor3::zeros(1, 1, 16).unwrap();
    assert!(matches!(head.step(&at(&q, 0), &narrow, &narrow, &mut cache), Err(TemporalError::Shape { .. })));
    let error = head.step(&at(&q, 0), &at(&bad, 1), &at(&v, 0), &mut cache).unwrap_err();
    assert!(matches!(error, TemporalError::NotFinite { what: "k", index: 8 }), "{error}");
    assert!(cache.is_empty(), "nothing was appended");
    // A cache made for other blocks or another width is refused, whatever it holds.
    for other in [
        TemporalHeadConfig { block_size: 8, ..c.clone() },
        TemporalHeadConfig { head_dim: 64, ..c.clone() },
        TemporalHeadConfig { global_tokens: vec![1], ..c.clone() },
        TemporalHeadConfig { backend: TemporalBackendKind::Dense, ..c.clone() },
    ] {
        let mut cache = AetherTemporalHead::new(&other).unwrap().make_cache(8).unwrap();
        let refused = head.step(&at(&q, 0), &at(&k, 0), &at(&v, 0), &mut cache);
        assert!(matches!(refused, Err(TemporalError::Shape { what: "cache", .. })), "{other:?}");
    }
    assert_eq!(head.forward(&zero(4), &zero(1), &zero(1)).unwrap().seq(), 0);
    assert!(Tensor3::from_vec(vec![0.0; 5], 1, 2, 3).is_err() && Tensor3::zeros(usize::MAX, 2, 2).is_err());
}

fn zero(heads: usize) -> Tensor3 {
    Tensor3::zeros(0, heads, 32).unwrap()
}
