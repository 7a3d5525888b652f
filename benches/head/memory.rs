//! What is allocated, what is held, and what a full cache costs.

use std::hint::black_box;

use aetherd::head::{AetherTemporalHead, CachePrecision, FullPolicy, TemporalHeadConfig, Tensor3};
use ruvllm_sparse_attention::KvCache as PeerCache;

use crate::measure::{Effort, contest};
use crate::sparse::{DIM, HEADS, full_cache, peer, tokens};

/// G5: allocations of append and step.
pub fn allocations(effort: Effort) {
    let head = AetherTemporalHead::new(&TemporalHeadConfig::default()).unwrap();
    let t = 4096 / effort.shrink;
    let tokens = tokens(5);
    let mut cache = full_cache(&head, CachePrecision::F32, t, &tokens);
    let mut out = vec![0.0f32; HEADS * DIM];
    let ours = allocation_counter::measure(|| {
        for i in 0..1000 {
            head.step_into(&tokens.q[i % 64], &tokens.k[i % 64], &tokens.v[i % 64], &mut cache, &mut out).unwrap();
        }
    });
    let attention = peer();
    let mut peer_cache = PeerCache::new(t, 1, DIM, 16);
    (0..t).for_each(|i| peer_cache.try_append(&tokens.peer_k[i % 64], &tokens.peer_v[i % 64]).unwrap());
    let theirs = allocation_counter::measure(|| {
        black_box(attention.decode_step(&tokens.peer_q[0], &peer_cache).unwrap());
    });
    println!(
        "G5   {:<44} {:>12} {:>12} {:>9}  {:>15}  0",
        format!("allocations a step, T={t}"),
        format!("{} in 1000", ours.count_total),
        format!("{}, {} B", theirs.count_total, theirs.bytes_total),
        "",
        ""
    );
}

/// G6: a token for a full cache, block means kept right.
pub fn full_append(effort: Effort) {
    let head = AetherTemporalHead::new(&TemporalHeadConfig::default()).unwrap();
    let t = 4096 / effort.shrink;
    let tokens = tokens(6);
    let mut cache = full_cache(&head, CachePrecision::F32, t, &tokens);
    let tensor = |rows: &[Vec<f32>]| -> Vec<Tensor3> {
        rows.iter().map(|r| Tensor3::from_vec(r.clone(), 1, 1, DIM).unwrap()).collect()
    };
    let (k, v) = (tensor(&tokens.k), tensor(&tokens.v));
    let mut append = |i: usize| {
        cache.append(&k[i % 64], &v[i % 64]).unwrap();
        black_box(&mut cache);
    };
    let mut peer_cache = PeerCache::new(t, 1, DIM, 16);
    (0..t).for_each(|i| peer_cache.try_append(&tokens.peer_k[i % 64], &tokens.peer_v[i % 64]).unwrap());
    // Scores that make the oldest token leave, as ours does.
    let scores: Vec<f32> = (0..t).map(|i| i as f32).collect();
    let mut peer_append = |i: usize| {
        peer_cache.evict_and_append(&tokens.peer_k[i % 64], &tokens.peer_v[i % 64], &scores, &[0], 32).unwrap();
        black_box(&mut peer_cache);
    };
    let outcome = contest(effort, &mut [&mut append, &mut peer_append]);
    outcome.row("G6", &format!("append to a full cache, T={t}"), ">= 1000 x (<= 55 ns: 4000 x)");
}

/// G9: bytes of a cache by the allocator.
pub fn bytes(effort: Effort) {
    let head = AetherTemporalHead::new(&TemporalHeadConfig::default()).unwrap();
    let t = 4096 / effort.shrink;
    let tail_length = 256 / effort.shrink;
    for (name, precision, must) in [
        ("q8", CachePrecision::TwoTierQ8 { tail_length }, "<= 84"),
        ("q4", CachePrecision::TwoTierQ4 { tail_length }, "<= 54"),
        ("f16", CachePrecision::F16, ""),
        ("f32", CachePrecision::F32, ""),
    ] {
        let mut made = None;
        let info = allocation_counter::measure(|| {
            made = Some(head.make_cache_with(t, precision, FullPolicy::Slide).unwrap());
        });
        let said = made.map_or(0, |cache| cache.bytes());
        println!(
            "G9   {:<44} {:>12} {:>12} {:>9}  {:>15}  {must}",
            format!("bytes a token, {name}, capacity {t}"),
            format!("{:.1}", info.bytes_current as f64 / t as f64),
            format!("says {:.1}", said as f64 / t as f64),
            "",
            ""
        );
    }
}
