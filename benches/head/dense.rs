//! Attention to everything: `ruvllm` and Candle.

use std::hint::black_box;

use aetherd::head::{AetherTemporalHead, CachePrecision, TemporalBackendKind, TemporalHeadConfig};
use aetherd::kernel::{AttentionConfig, Kernel};
use candle_core::{D, Device, Tensor};
use candle_nn::attention::{AttnMask, flash_attn};
use ruvllm::kernels::{AttentionConfig as PeerConfig, multi_query_attention_neon};
use ruvllm::types::Precision;
use ruvllm::{KvCacheConfig, TwoTierKvCache};

use crate::measure::{Effort, contest, random, rng};
use crate::sparse::{DIM, HEADS, full_cache, tokens};

/// G8: 4096 tokens, the newest 256 in half precision, 4 query heads on one kv head. Ours appends and attends with all heads
/// at once; the peer attends four times, as its cache knows one query head.
pub fn two_tier(effort: Effort) {
    let t = 4096 / effort.shrink;
    let tail_length = 256 / effort.shrink;
    let tokens = tokens(8);
    let dense = TemporalHeadConfig { backend: TemporalBackendKind::Dense, window: t - 1, ..Default::default() };
    let head = AetherTemporalHead::new(&dense).unwrap();
    for (name, precision, peer_precision) in [
        ("q8", CachePrecision::TwoTierQ8 { tail_length }, Precision::Q8),
        ("q4", CachePrecision::TwoTierQ4 { tail_length }, Precision::Q4),
    ] {
        let mut ours = full_cache(&head, precision, t, &tokens);
        let mut out = vec![0.0f32; HEADS * DIM];
        let peer = TwoTierKvCache::new(KvCacheConfig {
            tail_length,
            tail_precision: Precision::FP16,
            store_precision: peer_precision,
            max_tokens: t,
            num_kv_heads: 1,
            head_dim: DIM,
            migration_batch: 64,
        });
        (0..t).for_each(|i| peer.append(&tokens.k[i % 64], &tokens.v[i % 64]).unwrap());
        let mut step = |i: usize| {
            head.step_into(&tokens.q[i % 64], &tokens.k[i % 64], &tokens.v[i % 64], &mut ours, &mut out).unwrap();
            black_box(&mut out);
        };
        let scale = 1.0 / (DIM as f32).sqrt();
        let mut peer_step = |i: usize| {
            for q in tokens.q[i % 64].chunks(DIM) {
                black_box(peer.attend(q, scale).unwrap());
            }
        };
        let outcome = contest(effort.fewer(), &mut [&mut step, &mut peer_step]);
        outcome.row("G8", &format!("two-tier attend {name}, {} rows", ours.rows()), ">= 20 x");
    }
}

/// G10: 4 query heads on one kv head, single precision.
pub fn multi_query(effort: Effort) {
    let kernel = Kernel::select(None).unwrap();
    let n = 4096 / effort.shrink;
    let mut rng = rng(10);
    let (k, v) = (random(&mut rng, n * DIM), random(&mut rng, n * DIM));
    let queries: Vec<Vec<f32>> = (0..64).map(|_| random(&mut rng, HEADS * DIM)).collect();
    let config = AttentionConfig { num_heads: HEADS, num_kv_heads: 1, head_dim: DIM, causal: false, scale: None };
    let scale = config.effective_scale();
    let mut out = vec![0.0f32; HEADS * DIM];
    let mut ours = |i: usize| {
        kernel.multi_query_attention_into(&queries[i % 64], &k, &v, &config, &mut out).unwrap();
        black_box(&mut out);
    };
    let peer_config =
        PeerConfig { num_heads: HEADS, num_kv_heads: 1, head_dim: DIM, max_seq_len: n, causal: false, scale };
    let mut ruvllm = |i: usize| {
        black_box(multi_query_attention_neon(&queries[i % 64], &k, &v, &peer_config));
    };
    let outcome = contest(effort, &mut [&mut ours, &mut ruvllm]);
    outcome.row("G10", &format!("dense (4,1,32), kv={n}, ruvllm MQA"), ">= 10 x");

    let device = Device::Cpu;
    let tensor = |x: &[f32], shape: (usize, usize, usize, usize)| Tensor::from_slice(x, shape, &device).unwrap();
    // Heads that share rows may go as rows of one product: the best that matmul can do here.
    let (keys, values) = (tensor(&k, (1, 1, n, DIM)).t().unwrap().contiguous().unwrap(), tensor(&v, (1, 1, n, DIM)));
    let rows: Vec<Tensor> = queries.iter().map(|q| tensor(q, (1, 1, HEADS, DIM))).collect();
    let mut matmul = |i: usize| {
        let scores = (rows[i % 64].matmul(&keys).unwrap() * f64::from(scale)).unwrap();
        let weights = candle_nn::ops::softmax(&scores, D::Minus1).unwrap();
        black_box(weights.matmul(&values).unwrap());
    };
    let outcome = contest(effort, &mut [&mut ours, &mut matmul]);
    outcome.row("G10", &format!("dense (4,1,32), kv={n}, Candle matmul"), ">= 2 x (the better of two)");
    let (keys, values) = (tensor(&k, (1, n, 1, DIM)), tensor(&v, (1, n, 1, DIM)));
    let heads: Vec<Tensor> = queries.iter().map(|q| tensor(q, (1, 1, HEADS, DIM))).collect();
    let mut flash = |i: usize| {
        black_box(flash_attn::<f32>(&heads[i % 64], &keys, &values, scale, AttnMask::None, None, None).unwrap());
    };
    let outcome = contest(effort, &mut [&mut ours, &mut flash]);
    outcome.row("G10", &format!("dense (4,1,32), kv={n}, Candle flash decode"), ">= 2 x (the better of two)");
}
