//! Full caches against a slow reference that keeps everything, and every kernel against the scalar one.

#![allow(clippy::unwrap_used)]

mod head_support;

use aetherd::head::{AetherTemporalHead, CachePrecision, FullPolicy, LandmarkWeight, Pattern, TemporalHeadConfig};
use aetherd::kernel::{Kernel, KernelKind};
use head_support::{Row, apart, at, attend, compatible_rows, rng, tensor};
use proptest::prelude::*;

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
                // Globals have rows of their own, so their places are the first to go, in order.
                let key = |(_, (j, mass)): &(usize, &(usize, f64))| (!global(*j), if global(*j) { 0.0 } else { *mass }, *j);
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

    #[test]
    fn every_kernel_gives_the_same(
        window in 0usize..40, block in 1usize..20, group in 1usize..9, head_dim in 1usize..70, pyramid: bool,
        seq in 1usize..120, seed in any::<u64>(),
    ) {
        let pattern = if pyramid { Pattern::Pyramid } else { Pattern::Compatible };
        let c = TemporalHeadConfig { q_heads: 2 * group, head_dim, pattern, ..small(window, block, vec![0]) };
        let mut rng = rng(seed);
        let mut t = |heads, size| tensor(&mut rng, seq, heads, head_dim, size);
        let (q, k, v) = (t(2 * group, 2.0), t(2, 2.0), t(2, 1.0));
        let scalar = AetherTemporalHead::with_kernel(&c, Kernel::select(Some(KernelKind::Scalar)).unwrap()).unwrap();
        let best = AetherTemporalHead::new(&c).unwrap();
        let (a, b) = (scalar.forward(&q, &k, &v).unwrap(), best.forward(&q, &k, &v).unwrap());
        prop_assert!(apart(a.as_slice(), b.as_slice()) < 2e-5);
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
