//! The life of a key/value cache: against a slow reference that keeps everything, full and for ever, wiped and pooled.

#![allow(clippy::unwrap_used)]

mod head_support;

use aetherd::head::{
    AetherTemporalHead, CachePool, CachePrecision, FullPolicy, KvCache, LandmarkWeight, Pattern, TemporalBackendKind,
    TemporalError, TemporalHeadConfig,
};
use aetherd::track::CacheSlot;
use aetherd::types::SensingTime;
use head_support::{Row, apart, at, attend, compatible_rows, rng, tensor};
use proptest::prelude::*;
use rand::Rng;

fn small(window: usize, block_size: usize, globals: Vec<usize>) -> TemporalHeadConfig {
    TemporalHeadConfig {
        q_heads: 4,
        kv_heads: 2,
        head_dim: 8,
        window,
        block_size,
        global_tokens: globals,
        landmark_weight: LandmarkWeight::Count,
        ..TemporalHeadConfig::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever wraps, leaves or migrates: the output is that of the rows which ought to be there.
    #[test]
    fn a_sliding_cache_is_what_the_reference_says(
        window in 0usize..20, block in 1usize..9, capacity in 9usize..70, tail in 0usize..40, globals in
        prop::collection::vec(0usize..50, 0..4), seed in any::<u64>(),
    ) {
        let c = small(window, block, globals);
        let seq = 3 * capacity + 17;
        let mut rng = rng(seed);
        let mut t = |heads, size| tensor(&mut rng, seq, heads, 8, size);
        let (q, k, v) = (t(4, 2.0), t(2, 2.0), t(2, 1.0));
        let head = AetherTemporalHead::new(&c).unwrap();
        let two_tier = tail > 0 && tail < capacity;
        // With exact rows, to the last bits; quantised, within what 8 bits and half precision allow.
        let (precision, within) = if two_tier {
            (CachePrecision::TwoTierQ8 { tail_length: tail }, 0.02)
        } else {
            (CachePrecision::F32, 2e-5)
        };
        let mut cache = head.make_cache_with(capacity, precision, FullPolicy::Slide).unwrap();
        let (mut start, blocks_held) = (0, 2 * capacity.div_ceil(block));
        for i in 0..seq {
            if i - start == capacity {
                start = (start / block + 1) * block;
            }
            let got = head.step(&at(&q, i), &at(&k, i), &at(&v, i), &mut cache).unwrap();
            let oldest_block = ((i + 1) / block).saturating_sub(blocks_held);
            let rows = compatible_rows(&c, i, start, oldest_block);
            prop_assert_eq!(cache.rows(), rows.len(), "position {}", i);
            prop_assert!(apart(got.as_slice(), &attend(&c, &q, &k, &v, i, &rows)) < within, "position {i}");
            prop_assert_eq!((cache.len(), cache.position()), (i + 1 - start, i as u64 + 1));
        }
        prop_assert_eq!(cache.left(), start as u64);
    }

    /// The victim is never protected and never one that got more attention than another that might have left.
    #[test]
    fn heavy_hitters_stay_and_the_protected_never_leave(
        window in 0usize..10, spare in 1usize..12, globals in prop::collection::vec(0usize..30, 0..3), seed in any::<u64>()
    ) {
        let c = TemporalHeadConfig { use_landmarks: false, ..small(window, 4, globals) };
        let capacity = window + 1 + spare;
        let head = AetherTemporalHead::new(&c).unwrap();
        let mut cache = head.make_cache_with(capacity, CachePrecision::F32, FullPolicy::HeavyHitters).unwrap();
        let mut rng = rng(seed);
        let seq = 4 * capacity + 40;
        let mut t = |heads, size| tensor(&mut rng, seq, heads, 8, size);
        let (q, k, v) = (t(4, 3.0), t(2, 3.0), t(2, 1.0));
        // What a keeper of everything knows: who is held, and the attention each got.
        let mut held: Vec<(usize, f64)> = Vec::new();
        for i in 0..seq {
            if held.len() == capacity {
                let global = |j: usize| c.global_tokens.contains(&j);
                let free = held.iter().enumerate().filter(|(_, (j, _))| j + window < i);
                // Globals have rows of their own, so their places are the first to go.
                let key = |(_, (j, mass)): &(usize, &(usize, f64))| (!global(*j), *mass, *j);
                let victim = free.min_by(|a, b| key(a).partial_cmp(&key(b)).unwrap()).unwrap();
                let (slot, position) = (victim.0, victim.1.0);
                held.remove(slot);
                let got = head.step(&at(&q, i), &at(&k, i), &at(&v, i), &mut cache).unwrap();
                if !global(position) {
                    prop_assert_eq!(cache.last_victim(), Some(position as u64), "at {}", i);
                }
                held.push((i, 0.0));
                check_heavy(&c, &mut held, &q, &k, &v, i, got.as_slice())?;
            } else {
                let got = head.step(&at(&q, i), &at(&k, i), &at(&v, i), &mut cache).unwrap();
                held.push((i, 0.0));
                check_heavy(&c, &mut held, &q, &k, &v, i, got.as_slice())?;
            }
            prop_assert!((i.saturating_sub(window)..=i).all(|j| held.iter().any(|(h, _)| *h == j)));
        }
        prop_assert_eq!(cache.len(), capacity);
    }
}

/// The output is that of everything held; adds the attention of this step to what each got.
fn check_heavy(
    c: &TemporalHeadConfig,
    held: &mut [(usize, f64)],
    q: &aetherd::head::Tensor3,
    k: &aetherd::head::Tensor3,
    v: &aetherd::head::Tensor3,
    i: usize,
    got: &[f32],
) -> Result<(), TestCaseError> {
    let mut tokens: Vec<usize> = held.iter().map(|(j, _)| *j).collect();
    tokens.extend(c.global_tokens.iter().filter(|g| **g <= i && !held.iter().any(|(j, _)| j == *g)));
    tokens[held.len()..].sort_unstable();
    let mut rows: Vec<Row> = tokens.iter().map(|t| Row { tokens: vec![*t], weight: 1.0 }).collect();
    let unique = tokens[held.len()..].windows(2).all(|w| w[0] != w[1]);
    if !unique {
        let mut seen = Vec::new();
        rows.retain(|r| {
            !seen.contains(&r.tokens[0]) && {
                seen.push(r.tokens[0]);
                true
            }
        });
    }
    prop_assert!(apart(got, &attend(c, q, k, v, i, &rows)) < 2e-5, "position {i}");
    for head in 0..c.q_heads {
        let kv = head / (c.q_heads / c.kv_heads);
        let score = |j: usize| {
            let dot: f64 = k.row(j, kv).iter().zip(q.row(i, head)).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            dot / (c.head_dim as f64).sqrt()
        };
        let total: f64 = rows.iter().map(|r| score(r.tokens[0]).exp()).sum();
        for (j, mass) in held.iter_mut() {
            *mass += score(*j).exp() / total;
        }
    }
    Ok(())
}

#[test]
fn quantised_rows_keep_small_values_beside_large_keys() {
    // Values at a twentieth of the keys' size: with one scale for both, 4 bits would lose them (peer: 132 to 153 %).
    let c = TemporalHeadConfig { backend: TemporalBackendKind::Dense, ..TemporalHeadConfig::default() };
    let head = AetherTemporalHead::new(&c).unwrap();
    let seq = 600;
    let mut rng = rng(3);
    let q = tensor(&mut rng, seq, 4, 32, 0.5);
    let k = tensor(&mut rng, seq, 1, 32, 2.0);
    let mut v = tensor(&mut rng, seq, 1, 32, 0.1);
    // A mean that is not zero, so that relative errors mean something.
    v.as_mut_slice().iter_mut().for_each(|x| *x += 0.05);
    let exact = head.forward(&q, &k, &v).unwrap();
    let size = exact.as_slice().iter().map(|x| x.abs()).sum::<f32>() / exact.as_slice().len() as f32;
    for (precision, tolerance) in [
        (CachePrecision::F16, 0.002),
        (CachePrecision::TwoTierQ8 { tail_length: 64 }, 0.02),
        (CachePrecision::TwoTierQ4 { tail_length: 64 }, 0.25),
    ] {
        let mut cache = head.make_cache_with(seq, precision, FullPolicy::Error).unwrap();
        let mut worst = 0.0f32;
        for i in 0..seq {
            let out = head.step(&at(&q, i), &at(&k, i), &at(&v, i), &mut cache).unwrap();
            worst = worst.max(apart(out.as_slice(), exact.position(i)) / size);
        }
        assert!(worst < tolerance && worst > 0.0, "{precision:?}: {worst}");
    }
}

fn fill(head: &AetherTemporalHead, cache: &mut KvCache, seed: u64, n: usize) -> Vec<f32> {
    let c = head.config().clone();
    let mut rng = rng(seed);
    let (q, kv) = (c.q_heads * c.head_dim, c.kv_heads * c.head_dim);
    let (mut out, mut row) = (vec![0.0; q], vec![0.0f32; q + 2 * kv]);
    for _ in 0..n {
        row.iter_mut().for_each(|x| *x = rng.random::<f32>() - 0.5);
        let (a, b) = row.split_at(q);
        head.step_into(a, &b[..kv], &b[kv..], cache, &mut out).unwrap();
    }
    out
}

#[test]
fn a_full_cache_does_what_its_policy_says_and_a_reset_one_is_new() {
    let head = AetherTemporalHead::new(&TemporalHeadConfig::default()).unwrap();
    let mut cache = head.make_cache(40).unwrap();
    fill(&head, &mut cache, 1, 40);
    assert!(cache.is_full());
    let (q, kv) = (vec![0.0; 128], vec![0.0; 32]);
    let error = head.step_into(&q, &kv, &kv, &mut cache, &mut [0.0; 128]).unwrap_err();
    assert_eq!(error, TemporalError::CacheFull { capacity: 40 });
    assert_eq!((cache.len(), cache.position()), (40, 40), "as before");
    cache.reset();
    assert!(cache.is_empty() && !cache.is_full());
    let mut fresh = head.make_cache(40).unwrap();
    assert_eq!(fill(&head, &mut cache, 2, 33), fill(&head, &mut fresh, 2, 33));
    for (capacity, precision, policy) in [
        (0, CachePrecision::F32, FullPolicy::Error),
        (15, CachePrecision::F32, FullPolicy::Slide),
        (33, CachePrecision::F32, FullPolicy::HeavyHitters),
        (64, CachePrecision::TwoTierQ8 { tail_length: 0 }, FullPolicy::Slide),
        (64, CachePrecision::TwoTierQ4 { tail_length: 64 }, FullPolicy::Slide),
        (64, CachePrecision::TwoTierQ4 { tail_length: 32 }, FullPolicy::HeavyHitters),
    ] {
        let made = head.make_cache_with(capacity, precision, policy);
        assert!(matches!(made, Err(TemporalError::Config { .. })), "{capacity} {precision:?} {policy:?}");
    }
}

/// A stream of days costs what one of minutes costs: rows and bytes here, time in the bench.
#[test]
fn bytes_and_rows_are_bounded_for_ever() {
    let steps = std::env::var("AETHERD_TEST_SOAK_STEPS").ok().and_then(|s| s.parse().ok()).unwrap_or(200_000);
    let pyramid = TemporalHeadConfig::pyramid();
    let plain = TemporalHeadConfig::default();
    for (config, precision, policy) in [
        (&pyramid, CachePrecision::F32, FullPolicy::Slide),
        (&plain, CachePrecision::F32, FullPolicy::Slide),
        (&plain, CachePrecision::TwoTierQ8 { tail_length: 256 }, FullPolicy::Slide),
        (&plain, CachePrecision::F16, FullPolicy::HeavyHitters),
    ] {
        let head = AetherTemporalHead::new(config).unwrap();
        let capacity = if policy == FullPolicy::HeavyHitters { 256 } else { 2048 };
        let mut cache = head.make_cache_with(capacity, precision, policy).unwrap();
        fill(&head, &mut cache, 1, 10_000);
        let (bytes, rows) = (cache.bytes(), cache.rows());
        let used = allocation_counter::measure(|| {
            fill_without_allocating(&head, &mut cache, steps);
        });
        assert_eq!(used.count_total, 0, "{policy:?}");
        assert_eq!(cache.bytes(), bytes);
        let most = match policy {
            _ if config.pattern == Pattern::Pyramid => 33 + 1 + 1 + 2 * config.pyramid_levels,
            FullPolicy::HeavyHitters => capacity + 1 + 20,
            // One more stride and one more mean for every doubling of the stream, as long as they are held.
            _ => rows + 2,
        };
        assert!(cache.rows() <= most, "{policy:?}: {rows} rows at 10,000 tokens, {} now", cache.rows());
        assert!(cache.position() == 10_000 + steps as u64);
    }
}

fn fill_without_allocating(head: &AetherTemporalHead, cache: &mut KvCache, steps: usize) {
    let mut out = [0.0f32; 128];
    let mut q = [0.0f32; 128];
    for i in 0..steps {
        // Cheap numbers of all phases; the first one keeps changing.
        q[i % 128] = ((i * 7919) % 1000) as f32 / 500.0 - 1.0;
        let kv: [f32; 32] = std::array::from_fn(|d| q[(d + i) % 128]);
        head.step_into(&q, &kv, &kv, cache, &mut out).unwrap();
    }
    assert!(out.iter().all(|x| x.is_finite()));
}

#[test]
fn bytes_per_token_are_as_computed() {
    let head = AetherTemporalHead::new(&TemporalHeadConfig::default()).unwrap();
    for (precision, most) in [
        (CachePrecision::F32, 256.0 + 33.0),
        (CachePrecision::F16, 128.0 + 17.0),
        (CachePrecision::TwoTierQ8 { tail_length: 256 }, 84.0),
        (CachePrecision::TwoTierQ4 { tail_length: 256 }, 54.0),
    ] {
        let mut bytes = 0;
        let info = allocation_counter::measure(|| {
            let cache = head.make_cache_with(4096, precision, FullPolicy::Slide).unwrap();
            bytes = cache.bytes();
        });
        let per_token = info.bytes_max as f64 / 4096.0;
        assert!(per_token <= most, "{precision:?}: {per_token}");
        let own = bytes as f64;
        assert!((own / info.bytes_max as f64 - 1.0).abs() < 0.02, "{precision:?}: {own} against {}", info.bytes_max);
    }
}

fn pool(places: usize, budget_in_caches: usize) -> (CachePool, AetherTemporalHead) {
    let head = AetherTemporalHead::new(&TemporalHeadConfig::pyramid()).unwrap();
    let made = head.clone();
    let each = CachePool::new(1, usize::MAX, {
        let h = head.clone();
        move || Ok(vec![h.make_cache(1)?, h.make_cache(1)?])
    });
    let budget = each.unwrap().bytes_each() * budget_in_caches;
    let make = move || Ok(vec![made.make_cache(1)?, made.make_cache(1)?]);
    (CachePool::new(places, budget, make).unwrap(), head)
}

#[test]
fn the_pool_keeps_its_budget_and_gives_up_lost_tracks_oldest_first() {
    let (mut pool, head) = pool(8, 3);
    let (t, s) = (SensingTime, CacheSlot);
    assert!((0..3).all(|i| pool.acquire(s(i), t(i64::from(i)))));
    assert!(!pool.acquire(s(3), t(3)), "three active ones, nobody gives way");
    assert_eq!((pool.stats().held, pool.stats().refused, pool.stats().evicted), (3, 1, 0));
    pool.set_lost(s(2), Some(t(10)));
    pool.set_lost(s(1), Some(t(20)));
    for cache in pool.get_mut(s(2)).unwrap() {
        fill(&head, cache, 1, 50);
    }
    assert!(pool.acquire(s(3), t(30)));
    assert!(!pool.holds(s(2)) && pool.holds(s(1)), "the one lost longest gave way");
    assert!(pool.get_mut(s(3)).unwrap().iter().all(KvCache::is_empty), "and its cache was wiped");
    pool.set_lost(s(1), None);
    assert!(!pool.acquire(s(4), t(40)), "found again, it is safe");
    pool.release(s(0));
    assert_eq!(pool.stats().spare_bytes, pool.bytes_each());
    assert!(pool.acquire(s(4), t(50)) && pool.acquire(s(4), t(60)), "again changes nothing");
    let stats = pool.stats();
    assert_eq!((stats.held, stats.evicted, stats.refused, stats.spare_bytes), (3, 1, 2, 0));
    assert!(stats.active_bytes + stats.lost_bytes + stats.spare_bytes <= pool.budget_bytes());
    assert!(!pool.acquire(s(99), t(0)), "no such place");
}

#[test]
fn the_older_cache_survives_a_merge() {
    let (t, s) = (SensingTime, CacheSlot);
    for (first, second, moves) in [(0, 1, false), (1, 0, true)] {
        let (mut pool, head) = pool(4, 4);
        // The survivor is at place 0; who came first is the older one.
        assert!(pool.acquire(s(first), t(1)) && pool.acquire(s(second), t(2)));
        fill(&head, &mut pool.get_mut(s(first)).unwrap()[0], 1, 7);
        assert_eq!(pool.merge(s(0), s(1)), moves);
        assert_eq!(pool.get_mut(s(0)).unwrap()[0].position(), 7);
        assert!(!pool.holds(s(1)) && pool.stats().held == 1);
    }
    let (mut pool, head) = pool(4, 4);
    assert!(pool.acquire(s(1), t(1)));
    fill(&head, &mut pool.get_mut(s(1)).unwrap()[0], 1, 5);
    assert!(pool.merge(s(0), s(1)), "the survivor's own was given up: it takes the other's");
    assert_eq!(pool.get_mut(s(0)).unwrap()[0].position(), 5);
    assert!(!pool.merge(s(0), s(0)) && !pool.merge(s(2), s(3)) && pool.stats().held == 1);
}
