//! The sparse step and the prefill against `ruvllm_sparse_attention`.

use std::hint::black_box;

use aetherd::head::{AetherTemporalHead, CachePrecision, FullPolicy, KvCache, TemporalHeadConfig, Tensor3};
use ruvllm_sparse_attention::{
    KvCache as PeerCache, KvCacheF16, SparseAttentionConfig, SubquadraticSparseAttention, Tensor3 as PeerTensor,
};

use crate::measure::{Effort, contest, random, rng, time};

/// Query heads and numbers of a head; one kv head.
pub const HEADS: usize = 4;
pub const DIM: usize = 32;

/// The peer with the default shape of our head.
pub fn peer() -> SubquadraticSparseAttention {
    let config = SparseAttentionConfig {
        window: 32,
        block_size: 16,
        global_tokens: vec![0],
        causal: true,
        use_log_stride: true,
        use_landmarks: true,
        sort_candidates: false,
    };
    SubquadraticSparseAttention::new(config).unwrap()
}

/// 64 tokens in rotation, for both sides.
pub struct Tokens {
    pub q: Vec<Vec<f32>>,
    pub k: Vec<Vec<f32>>,
    pub v: Vec<Vec<f32>>,
    pub peer_q: Vec<PeerTensor>,
    pub peer_k: Vec<PeerTensor>,
    pub peer_v: Vec<PeerTensor>,
}

pub fn tokens(seed: u64) -> Tokens {
    let mut rng = rng(seed);
    let mut rows = |n| (0..64).map(|_| random(&mut rng, n)).collect::<Vec<_>>();
    let (q, k, v) = (rows(HEADS * DIM), rows(DIM), rows(DIM));
    let tensors = |rows: &[Vec<f32>], heads| {
        rows.iter().map(|r| PeerTensor::from_vec(r.clone(), 1, heads, DIM).unwrap()).collect::<Vec<_>>()
    };
    let (peer_q, peer_k, peer_v) = (tensors(&q, HEADS), tensors(&k, 1), tensors(&v, 1));
    Tokens { q, k, v, peer_q, peer_k, peer_v }
}

/// Our cache of `capacity` tokens, full and sliding.
pub fn full_cache(head: &AetherTemporalHead, precision: CachePrecision, capacity: usize, tokens: &Tokens) -> KvCache {
    let mut cache = head.make_cache_with(capacity, precision, FullPolicy::Slide).unwrap();
    let mut out = vec![0.0; HEADS * DIM];
    for i in 0..capacity + 40 {
        head.step_into(&tokens.q[i % 64], &tokens.k[i % 64], &tokens.v[i % 64], &mut cache, &mut out).unwrap();
    }
    cache
}

/// G1, G2, G3. Ours appends a token to a full, sliding cache and attends; the peer appends one to a cache of its own (which
/// begins anew when it is full) and attends to another of `t` tokens, as it has no sliding cache.
pub fn steps(effort: Effort) {
    let head = AetherTemporalHead::new(&TemporalHeadConfig::default()).unwrap();
    let goals = [
        (128, "", "", ""),
        (1024, "G1", ">= 14 x (native 20 x)", ">= 35 x (native 16 x)"),
        (4096, "G1", ">= 14 x (native 20 x)", ">= 35 x (native 16 x)"),
        (16384, "G2", ">= 18 x (native 24 x)", ">= 35 x (native 16 x)"),
    ];
    for (t, goal, must, must_f16) in goals {
        let t = (t / effort.shrink).next_multiple_of(16);
        let (tokens, attention) = (tokens(t as u64), peer());
        let mut cache = PeerCache::new(t, 1, DIM, 16);
        let mut cache16 = KvCacheF16::new(t, 1, DIM, 16);
        for i in 0..t {
            cache.try_append(&tokens.peer_k[i % 64], &tokens.peer_v[i % 64]).unwrap();
            cache16.try_append(&tokens.peer_k[i % 64], &tokens.peer_v[i % 64]).unwrap();
        }
        let mut spare = PeerCache::new(1024, 1, DIM, 16);
        let mut spare16 = KvCacheF16::new(1024, 1, DIM, 16);
        let mut peer_step = |i: usize| {
            if spare.is_full() {
                spare.reset();
            }
            spare.try_append(&tokens.peer_k[i % 64], &tokens.peer_v[i % 64]).unwrap();
            black_box(attention.decode_step(&tokens.peer_q[i % 64], &cache).unwrap());
        };
        let mut peer_step16 = |i: usize| {
            if spare16.is_full() {
                spare16.reset();
            }
            spare16.try_append(&tokens.peer_k[i % 64], &tokens.peer_v[i % 64]).unwrap();
            black_box(cache16.decode_step_f16(&attention, &tokens.peer_q[i % 64]).unwrap());
        };
        let mut ours = full_cache(&head, CachePrecision::F32, t, &tokens);
        let mut ours16 = full_cache(&head, CachePrecision::F16, t, &tokens);
        let mut out = vec![0.0f32; HEADS * DIM];
        let mut out16 = out.clone();
        let mut step = |i: usize| {
            head.step_into(&tokens.q[i % 64], &tokens.k[i % 64], &tokens.v[i % 64], &mut ours, &mut out).unwrap();
            black_box(&mut out);
        };
        let mut step16 = |i: usize| {
            head.step_into(&tokens.q[i % 64], &tokens.k[i % 64], &tokens.v[i % 64], &mut ours16, &mut out16).unwrap();
            black_box(&mut out16);
        };
        let outcome = contest(effort, &mut [&mut step, &mut peer_step]);
        outcome.row(goal, &format!("step f32, T={t}, {} rows", ours.rows()), must);
        let outcome = contest(effort, &mut [&mut step16, &mut peer_step16]);
        outcome.row("G3", &format!("step f16, T={t}, {} rows", ours16.rows()), must_f16);
    }
}

/// G4: 64 persons in rotation.
pub fn persons(effort: Effort) {
    let head = AetherTemporalHead::new(&TemporalHeadConfig::default()).unwrap();
    let t = 4096 / effort.shrink;
    let (tokens, attention) = (tokens(4), peer());
    let mut peer_caches = Vec::new();
    for person in 0..64 {
        let mut cache = PeerCache::new(t, 1, DIM, 16);
        for i in person..person + t {
            cache.try_append(&tokens.peer_k[i % 64], &tokens.peer_v[i % 64]).unwrap();
        }
        peer_caches.push(cache);
    }
    let mut spare = PeerCache::new(1024, 1, DIM, 16);
    let mut peer_step = |i: usize| {
        if spare.is_full() {
            spare.reset();
        }
        spare.try_append(&tokens.peer_k[i % 64], &tokens.peer_v[i % 64]).unwrap();
        black_box(attention.decode_step(&tokens.peer_q[i % 61], &peer_caches[i % 64]).unwrap());
    };
    let mut ours: Vec<KvCache> = (0..64).map(|_| full_cache(&head, CachePrecision::F32, t, &tokens)).collect();
    let mut out = vec![0.0f32; HEADS * DIM];
    let mut step = |i: usize| {
        let (q, k, v) = (&tokens.q[i % 61], &tokens.k[i % 61], &tokens.v[i % 61]);
        head.step_into(q, k, v, &mut ours[i % 64], &mut out).unwrap();
        black_box(&mut out);
    };
    let outcome = contest(effort, &mut [&mut step, &mut peer_step]);
    outcome.row("G4", &format!("step f32, 64 persons in rotation, T={t}"), ">= 12 x");
}

/// G7: a whole window at once.
pub fn prefill(effort: Effort) {
    let head = AetherTemporalHead::new(&TemporalHeadConfig::default()).unwrap();
    let attention = peer();
    for n in [1024, 4096, 8192] {
        let n = n / effort.shrink;
        let mut rng = rng(n as u64);
        let rows = [random(&mut rng, n * HEADS * DIM), random(&mut rng, n * DIM), random(&mut rng, n * DIM)];
        let ours = |i: usize, heads| Tensor3::from_vec(rows[i].clone(), n, heads, DIM).unwrap();
        let (q, k, v) = (ours(0, HEADS), ours(1, 1), ours(2, 1));
        let theirs = |i: usize, heads| PeerTensor::from_vec(rows[i].clone(), n, heads, DIM).unwrap();
        let (peer_q, peer_k, peer_v) = (theirs(0, HEADS), theirs(1, 1), theirs(2, 1));
        let mut forward = |_: usize| {
            black_box(head.forward(&q, &k, &v).unwrap());
        };
        let mut peer_forward = |_: usize| {
            black_box(attention.forward_gqa(&peer_q, &peer_k, &peer_v).unwrap());
        };
        let outcome = contest(effort.fewer(), &mut [&mut forward, &mut peer_forward]);
        let each = time(outcome.median(0) / n as f64);
        outcome.row("G7", &format!("prefill, N={n} ({each} a token)"), ">= 13 x (native 19 x)");
    }
}
