//! The key/value cache over long streams: what stays, what leaves, what it costs, and the pool that owns all of them.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use aetherd::head::{
    AetherTemporalHead, CachePool, CachePrecision, FullPolicy, KvCache, LandmarkWeight, Pattern, TemporalBackendKind,
    TemporalError, TemporalHeadConfig,
};
use aetherd::track::CacheSlot;
use aetherd::types::SensingTime;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const PRECISIONS: [CachePrecision; 4] = [
    CachePrecision::F32,
    CachePrecision::F16,
    CachePrecision::TwoTierQ8 { tail_length: 9 },
    CachePrecision::TwoTierQ4 { tail_length: 9 },
];

fn small() -> TemporalHeadConfig {
    TemporalHeadConfig { head_dim: 8, window: 8, block_size: 4, ..TemporalHeadConfig::default() }
}

fn step(head: &AetherTemporalHead, cache: &mut KvCache, rng: &mut ChaCha8Rng) -> Vec<f32> {
    let c = head.config();
    let mut numbers = |n: usize| (0..n).map(|_| rng.random_range(-1.0f32..1.0)).collect::<Vec<_>>();
    let (q, k, v) =
        (numbers(c.q_heads * c.head_dim), numbers(c.kv_heads * c.head_dim), numbers(c.kv_heads * c.head_dim));
    let mut out = vec![0.0; c.q_heads * c.head_dim];
    head.step_into(&q, &k, &v, cache, &mut out).unwrap();
    assert!(out.iter().all(|x| x.is_finite()));
    out
}

/// Everything is kept, candidates are found by their definition, f64: what a sliding cache of `capacity` must give.
fn sliding_reference(c: &TemporalHeadConfig, capacity: usize, q: &[f32], k: &[Vec<f32>], v: &[Vec<f32>]) -> Vec<f32> {
    let i = k.len() - 1;
    // The oldest block leaves whenever a token comes for which there is no room.
    let mut first = 0;
    for t in 0..k.len() {
        if t - first == capacity {
            first = (first / c.block_size + 1) * c.block_size;
        }
    }
    let mut tokens: Vec<usize> = (i.saturating_sub(c.window)..=i).collect();
    tokens.extend(c.global_tokens.iter().copied().filter(|g| *g <= i));
    tokens.extend((0..63).map(|e| 1usize << e).take_while(|s| *s <= i).map(|s| i - s).filter(|t| *t >= first));
    tokens.sort_unstable();
    tokens.dedup();
    let complete = (i + 1) / c.block_size;
    let kept = 2 * capacity.div_ceil(c.block_size);
    let mut blocks: Vec<usize> = Vec::new();
    if complete > 0 {
        let pivot = complete - 1;
        blocks.extend([Some(pivot), pivot.checked_sub(1)].into_iter().flatten());
        blocks.extend((1..63).map(|e| 1usize << e).take_while(|s| *s <= pivot).map(|s| pivot - s));
        blocks.retain(|b| b + kept >= complete);
    }
    let mean = |x: &[Vec<f32>], t: std::ops::Range<usize>| -> Vec<f64> {
        let n = t.len() as f64;
        (0..c.head_dim).map(|d| x[t.clone()].iter().map(|r| f64::from(r[d])).sum::<f64>() / n).collect()
    };
    let rows: Vec<(Vec<f64>, Vec<f64>)> = tokens
        .iter()
        .map(|t| *t..t + 1)
        .chain(blocks.iter().map(|b| b * c.block_size..(b + 1) * c.block_size))
        .map(|t| (mean(k, t.clone()), mean(v, t)))
        .collect();
    let scale = 1.0 / (c.head_dim as f64).sqrt();
    q.chunks(c.head_dim)
        .flat_map(|q| {
            let dot = |k: &[f64]| q.iter().zip(k).map(|(a, b)| f64::from(*a) * b).sum::<f64>();
            let w: Vec<f64> = rows.iter().map(|(k, _)| (scale * dot(k)).exp()).collect();
            let sum: f64 = w.iter().sum();
            (0..c.head_dim)
                .map(|d| (w.iter().zip(&rows).map(|(w, r)| w * r.1[d]).sum::<f64>() / sum) as f32)
                .collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn a_sliding_cache_is_right_at_every_phase_and_never_fails() {
    let c = TemporalHeadConfig { global_tokens: vec![0, 5, 30], ..small() };
    let head = AetherTemporalHead::new(&c).unwrap();
    let tolerances = [1e-5, 3e-3, 2e-2, 0.3];
    for capacity in if cfg!(miri) { 13..15 } else { 13..46 } {
        for (precision, tolerance) in PRECISIONS.into_iter().zip(tolerances) {
            let mut cache = head.make_cache_with(capacity, precision, FullPolicy::Slide).unwrap();
            let mut rng = ChaCha8Rng::seed_from_u64(capacity as u64);
            let (mut k, mut v) = (Vec::new(), Vec::new());
            let bytes = cache.bytes();
            for i in 0..if cfg!(miri) { 40 } else { 300 } {
                let mut row = |n: usize| (0..n).map(|_| rng.random_range(-1.0f32..1.0)).collect::<Vec<_>>();
                let q = row(c.q_heads * c.head_dim);
                k.push(row(c.head_dim));
                v.push(row(c.head_dim));
                let mut out = vec![0.0; q.len()];
                head.step_into(&q, &k[i], &v[i], &mut cache, &mut out).unwrap();
                let expected = sliding_reference(&c, capacity, &q, &k, &v);
                let apart = out.iter().zip(&expected).fold(0.0f32, |m, (a, b)| m.max((a - b).abs()));
                assert!(apart <= tolerance, "{precision:?}, capacity {capacity}, token {i}: {apart}");
                assert!(cache.len() <= capacity);
                assert_eq!((cache.position(), cache.bytes()), (i as u64 + 1, bytes));
            }
        }
    }
}

#[test]
fn an_error_policy_refuses_and_changes_nothing() {
    let head = AetherTemporalHead::new(&small()).unwrap();
    let mut cache = head.make_cache_with(20, CachePrecision::F32, FullPolicy::Error).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for _ in 0..20 {
        step(&head, &mut cache, &mut rng);
    }
    assert!(cache.is_full());
    let mut out = [0.0; 32];
    let refused = head.step_into(&[0.0; 32], &[0.0; 8], &[0.0; 8], &mut cache, &mut out);
    assert!(matches!(refused, Err(TemporalError::CacheFull { capacity: 20 })));
    assert_eq!((cache.len(), cache.position()), (20, 20));
    cache.reset();
    step(&head, &mut cache, &mut rng);
    assert_eq!(cache.len(), 1);
}

/// With all keys zero every token weighs the same, so an output of indicator values is the weight of each token: 1/T each.
#[test]
fn a_pyramid_counts_every_token_once() {
    for (levels, window, block, globals) in
        [(12, 4, 2, vec![0]), (2, 3, 4, vec![]), (3, 0, 1, vec![2, 3]), (1, 5, 3, vec![0, 1, 2, 7])]
    {
        let total = if cfg!(miri) { 20 } else { 160 };
        let c = TemporalHeadConfig {
            q_heads: 1,
            head_dim: total,
            window,
            block_size: block,
            global_tokens: globals.clone(),
            pattern: Pattern::Pyramid,
            landmark_weight: LandmarkWeight::Count,
            pyramid_levels: levels,
            ..TemporalHeadConfig::default()
        };
        let head = AetherTemporalHead::new(&c).unwrap();
        let mut cache = head.make_cache_with(1, CachePrecision::F32, FullPolicy::Slide).unwrap();
        let zero = vec![0.0; total];
        for t in 0..total {
            let mut v = zero.clone();
            v[t] = 1.0;
            let mut out = zero.clone();
            head.step_into(&zero, &zero, &v, &mut cache, &mut out).unwrap();
            let share = 1.0 / (t + 1) as f32;
            for (j, w) in out.iter().enumerate() {
                let expected = if j <= t { share } else { 0.0 };
                assert!((w - expected).abs() < 1e-5, "token {j} weighs {w} at {t}, not {expected}");
            }
            let blocks = t.saturating_sub(window) / block;
            let used = ((blocks + 1).ilog2() as usize).min(levels);
            let most = window + 1 + globals.len() + 1 + 2 * used;
            assert!(cache.rows() <= most, "{} rows at {t}, at most {most}", cache.rows());
            assert_eq!(cache.tokens_in_rows(), t as u64 + 1);
        }
    }
}

/// Tokens that draw attention stay; the window and pinned tokens stay whatever they draw.
#[test]
fn heavy_hitters_stay_and_protected_tokens_never_leave() {
    let c = TemporalHeadConfig { use_landmarks: false, global_tokens: vec![0, 3], q_heads: 2, kv_heads: 1, ..small() };
    let head = AetherTemporalHead::new(&c).unwrap();
    let mut cache = head.make_cache_with(16, CachePrecision::F32, FullPolicy::HeavyHitters).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let mut out = [0.0; 16];
    let mut gone = std::collections::BTreeSet::new();
    for t in 0..if cfg!(miri) { 40u64 } else { 2_000 } {
        let mut k = [0.0f32; 8];
        k.iter_mut().for_each(|x| *x = rng.random_range(-0.1..0.1));
        // Token 10 is what every query asks for.
        k[0] = if t == 10 { 4.0 } else { 0.0 };
        let mut q = [0.0f32; 16];
        (q[0], q[8]) = (4.0, 4.0);
        // The value says who is seen.
        let v = std::array::from_fn::<f32, 8, _>(|d| if d == 0 { f32::from(u8::from(t == 10)) } else { 0.0 });
        head.step_into(&q, &k, &v, &mut cache, &mut out).unwrap();
        assert!(cache.len() <= 16);
        if let Some(victim) = cache.last_victim()
            && gone.insert(victim)
        {
            assert!(victim + 8 < t, "token {victim} left at {t}, inside the window");
            assert!(![0, 3, 10].contains(&victim), "token {victim} left");
        }
        if t >= 10 {
            assert!(out[0] > 0.9, "the heavy hitter is seen at {t}: {}", out[0]);
        }
    }
    assert!(gone.len() > 15);
    // S3 of the public crate: with everything protected the first token, the sink, left.
    let tight = head.make_cache_with(8, CachePrecision::F32, FullPolicy::HeavyHitters);
    assert!(matches!(tight, Err(TemporalError::Config { .. })));
}

/// Nothing that a cache refuses leaves a trace: neither NaN, infinity, nor what half precision cannot hold (S6).
#[test]
fn numbers_that_are_none_are_refused() {
    for policy in [FullPolicy::Slide, FullPolicy::HeavyHitters] {
        for precision in [CachePrecision::F32, CachePrecision::F16] {
            let head = AetherTemporalHead::new(&small()).unwrap();
            let make = || head.make_cache_with(16, precision, policy).unwrap();
            let (mut clean, mut dirty) = (make(), make());
            let mut rngs = [ChaCha8Rng::seed_from_u64(4), ChaCha8Rng::seed_from_u64(4)];
            for t in 0..50 {
                let mut bad = [0.5f32; 8];
                bad[t % 8] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX][t % 4];
                let mut out = [0.0; 32];
                let before = dirty.position();
                let (q, good) = ([0.5f32; 32], [0.5f32; 8]);
                let mut bad_q = q;
                bad_q[31] = bad[t % 8];
                for (q, k, v) in [(&q, &bad, &good), (&q, &good, &bad), (&bad_q, &good, &good)] {
                    let refused = head.step_into(q, k, v, &mut dirty, &mut out);
                    assert!(
                        matches!(refused, Err(TemporalError::NotFinite { .. })),
                        "{precision:?} {policy:?} {t}: {refused:?}"
                    );
                }
                assert_eq!(dirty.position(), before);
                let [a, b] = &mut rngs;
                assert_eq!(step(&head, &mut clean, a), step(&head, &mut dirty, b));
            }
        }
    }
}

/// S1, S2: a cache of another shape is refused, whatever differs.
#[test]
fn a_cache_of_another_head_is_refused() {
    let base = small();
    let head = AetherTemporalHead::new(&base).unwrap();
    let others = [
        TemporalHeadConfig { block_size: 8, ..base.clone() },
        TemporalHeadConfig { block_size: 64, ..base.clone() },
        TemporalHeadConfig { head_dim: 16, ..base.clone() },
        TemporalHeadConfig { kv_heads: 2, ..base.clone() },
        TemporalHeadConfig { window: 9, ..base.clone() },
        TemporalHeadConfig { global_tokens: vec![1], ..base.clone() },
        TemporalHeadConfig { use_landmarks: false, ..base.clone() },
        TemporalHeadConfig { pattern: Pattern::Pyramid, ..base.clone() },
        TemporalHeadConfig { backend: TemporalBackendKind::Dense, ..base.clone() },
    ];
    for other in others {
        let mut cache = AetherTemporalHead::new(&other)
            .unwrap()
            .make_cache_with(200, CachePrecision::F16, FullPolicy::Slide)
            .unwrap();
        let mut out = [0.0; 32];
        let refused = head.step_into(&[0.0; 32], &[0.0; 8], &[0.0; 8], &mut cache, &mut out);
        assert!(matches!(refused, Err(TemporalError::Shape { .. })), "{other:?}");
        assert!(cache.is_empty());
    }
    let mut cache = head.make_cache_with(20, CachePrecision::F32, FullPolicy::Slide).unwrap();
    let mut out = [0.0; 32];
    for (q, k, v) in [(31, 8, 8), (32, 7, 8), (32, 8, 16), (0, 0, 0)] {
        let refused = head.step_into(&vec![0.0; q], &vec![0.0; k], &vec![0.0; v], &mut cache, &mut out);
        assert!(matches!(refused, Err(TemporalError::Shape { .. })));
        assert!(cache.is_empty());
    }
}

/// As many steps as `AETHERD_TEST_SOAK_STEPS` says: bytes and rows are bounded, nothing is allocated, the sink stays.
#[test]
fn days_cost_what_minutes_cost() {
    let steps = std::env::var("AETHERD_TEST_SOAK_STEPS").ok().and_then(|s| s.parse().ok());
    let steps: u64 = steps.unwrap_or(if cfg!(miri) { 50 } else { 100_000 });
    let cases = [
        (TemporalHeadConfig::default(), CachePrecision::F32, FullPolicy::Slide),
        (TemporalHeadConfig::default(), CachePrecision::TwoTierQ8 { tail_length: 64 }, FullPolicy::Slide),
        (TemporalHeadConfig::pyramid(), CachePrecision::F16, FullPolicy::Slide),
        (TemporalHeadConfig::default(), CachePrecision::F16, FullPolicy::HeavyHitters),
    ];
    for (c, precision, policy) in cases {
        let head = AetherTemporalHead::new(&c).unwrap();
        let mut cache = head.make_cache_with(256, precision, policy).unwrap();
        let mut out = vec![0.0; 128];
        let mut rows = 0;
        let bytes = cache.bytes();
        let mut run = |from: u64, to: u64, cache: &mut KvCache| {
            for t in from..to {
                // Cheap numbers, the same for every run.
                let x = |n: u64| {
                    ((t.wrapping_mul(2_654_435_761).wrapping_add(n * 40_503) >> 7) & 1023) as f32 / 512.0 - 1.0
                };
                let k: [f32; 32] = std::array::from_fn(|d| x(d as u64));
                let v: [f32; 32] = std::array::from_fn(|d| x(d as u64 + 32));
                let q: [f32; 128] = std::array::from_fn(|d| x(d as u64 + 64));
                head.step_into(&q, &k, &v, cache, &mut out).unwrap();
                rows = rows.max(cache.rows());
            }
        };
        let early = steps.min(10_000) / 2;
        let chunk = early / 2;
        run(0, early - chunk, &mut cache);
        let clock = std::time::Instant::now();
        run(early - chunk, early, &mut cache);
        let at_first = clock.elapsed();
        let counted = allocation_counter::measure(|| run(early, steps - chunk, &mut cache));
        let clock = std::time::Instant::now();
        run(steps - chunk, steps, &mut cache);
        let at_last = clock.elapsed();
        println!("{precision:?} {policy:?}: {chunk} steps took {at_first:?} at first, {at_last:?} after {steps}");
        if head.kernel().kind() != aetherd::kernel::KernelKind::Scalar {
            assert_eq!(counted.count_total, 0, "{precision:?} {policy:?} allocates");
        }
        assert_eq!((cache.bytes(), cache.position()), (bytes, steps));
        let most = if policy == FullPolicy::HeavyHitters { 256 + 12 } else { 33 + 1 + 1 + 24 };
        assert!(rows <= most, "{rows} rows, at most {most}");
        assert!(out.iter().all(|x| x.is_finite()));
    }
}

/// Bytes of a token of the default head at 4,096 tokens, a tail of 256: 84 in 8 bits and 54 in 4 at most, by allocator.
#[test]
#[cfg_attr(miri, ignore)]
fn a_cache_takes_the_bytes_it_says() {
    let head = AetherTemporalHead::new(&TemporalHeadConfig::default()).unwrap();
    let cases = [
        (CachePrecision::F32, 300.0),
        (CachePrecision::F16, 150.0),
        (CachePrecision::TwoTierQ8 { tail_length: 256 }, 84.0),
        (CachePrecision::TwoTierQ4 { tail_length: 256 }, 54.0),
    ];
    for (precision, most) in cases {
        let mut cache = None;
        let counted = allocation_counter::measure(|| {
            cache = Some(head.make_cache_with(4096, precision, FullPolicy::Slide).unwrap());
        });
        let (heap, says) = (counted.bytes_current as f64, cache.unwrap().bytes() as f64);
        println!("{precision:?}: {:.1} bytes a token", heap / 4096.0);
        assert!((heap - says).abs() < 1024.0, "{precision:?}: {heap} on the heap, says {says}");
        assert!(heap / 4096.0 <= most, "{precision:?}: {} bytes a token", heap / 4096.0);
    }
}

fn pool(places: usize, tracks: usize) -> (AetherTemporalHead, CachePool) {
    let head = AetherTemporalHead::new(&small()).unwrap();
    let make = {
        let head = head.clone();
        move || {
            let cache = || head.make_cache_with(20, CachePrecision::F32, FullPolicy::Slide);
            Ok(vec![cache()?, cache()?])
        }
    };
    let each: usize = make().unwrap().iter().map(KvCache::bytes).sum();
    let pool = CachePool::new(places, tracks * each + each / 2, make).unwrap();
    (head, pool)
}

#[test]
fn a_pool_keeps_its_budget_and_wipes_what_it_takes_back() {
    let (head, mut pool) = pool(8, 3);
    let [a, b, c, d] = [0, 1, 2, 3].map(CacheSlot);
    let at = SensingTime;
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    assert!(pool.acquire(a, at(1)) && pool.acquire(b, at(2)) && pool.acquire(c, at(3)));
    step(&head, &mut pool.get_mut(a).unwrap()[0], &mut rng);
    assert!(!pool.acquire(d, at(4)), "three are active, nobody gives");
    assert_eq!((pool.stats().held, pool.stats().refused), (3, 1));
    pool.set_lost(b, Some(at(10)));
    pool.set_lost(a, Some(at(5)));
    assert!(pool.acquire(d, at(11)));
    assert!(!pool.holds(a) && pool.holds(b), "lost longest gives first");
    assert_eq!(pool.stats().evicted, 1);
    assert!(pool.get_mut(d).unwrap().iter().all(KvCache::is_empty), "the next track gets empty caches");
    let bytes = |p: &CachePool| p.stats().active_bytes + p.stats().lost_bytes + p.stats().spare_bytes;
    assert!(bytes(&pool) <= pool.budget_bytes());
    // Steady coming and going allocates nothing.
    let counted = allocation_counter::measure(|| {
        for t in 0..50 {
            pool.release(d);
            assert!(pool.acquire(d, at(20 + t)));
        }
    });
    assert_eq!(counted.count_total, 0);
    for slot in [a, b, c, d] {
        pool.release(slot);
    }
    assert_eq!((pool.stats().held, bytes(&pool)), (0, 3 * pool.bytes_each()));
    assert!(!pool.acquire(CacheSlot(8), at(99)), "no such place");
}

#[test]
fn the_older_cache_survives_a_merge() {
    let (head, mut pool) = pool(4, 4);
    let (old, new) = (CacheSlot(0), CacheSlot(1));
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for (survivor, ended) in [(old, new), (new, old)] {
        pool.acquire(old, SensingTime(1));
        pool.acquire(new, SensingTime(2));
        for _ in 0..5 {
            step(&head, &mut pool.get_mut(old).unwrap()[0], &mut rng);
        }
        assert_eq!(pool.merge(survivor, ended), survivor == new);
        assert_eq!(pool.get_mut(survivor).unwrap()[0].position(), 5);
        assert!(!pool.holds(ended));
        pool.release(survivor);
        assert_eq!(pool.stats().held, 0);
    }
}
