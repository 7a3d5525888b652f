//! What happens inside: activations of new weights.

#![allow(clippy::unwrap_used)]

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::head::init::{InitSettings, init};
use crate::head::weights::WeightDtype;

fn variance(x: &[f32]) -> f32 {
    let mean = x.iter().sum::<f32>() / x.len() as f32;
    x.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / x.len() as f32
}

/// Queries, keys, values and attention scores of new weights have a variance between 0.8 and 1.25 in every layer, class
/// logits too (mean over seeds), for tokens of unit variance. So softmax neither saturates nor goes flat at the start.
#[test]
fn new_weights_keep_activations_at_unit_variance() {
    let band = 0.8..1.25;
    let (tokens, layers) = (400, 4);
    let mut sums = vec![[0.0f32; 4]; layers];
    let mut logits = 0.0;
    let seeds = 8;
    for seed in 0..seeds {
        let settings = InitSettings { seed, layers: layers as u16, ..Default::default() };
        let blob = WeightBlob::parse(&init(&settings).unwrap().to_bytes(WeightDtype::F32).unwrap()).unwrap();
        let header = *blob.header();
        let mut model = HeadModel::new(blob, &TemporalHeadConfig::default(), Kernel::select(None).unwrap()).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(1_000 + seed);
        let bound = 3f32.sqrt();
        let x: Vec<f32> = (0..tokens * 16).map(|_| rng.random_range(-bound..bound)).collect();
        let mut out = HeadOutput::default();
        // The layers one after the other as `forward` runs them; the activations of the last one are left in the scratch.
        let (attention, s) = (&model.attention, &mut model.scratch);
        model.weights.normalise(&x, &mut s.residual).unwrap();
        resize(&mut s.attended, tokens * header.q_width());
        for (layer, sums) in sums.iter_mut().enumerate() {
            model.weights.project_in(layer, s).unwrap();
            let (heads, dim) = (usize::from(header.n_q_heads), usize::from(header.head_dim));
            // Scores of each query with the keys of other tokens.
            let scores: Vec<f32> = (0..tokens * heads)
                .map(|i| {
                    let key = &s.k[(i * 7 + 3) % tokens * dim..][..dim];
                    s.q[i * dim..][..dim].iter().zip(key).map(|(q, k)| q * k).sum::<f32>() / (dim as f32).sqrt()
                })
                .collect();
            for (sum, x) in sums.iter_mut().zip([&s.q, &s.k, &s.v, &scores]) {
                *sum += variance(x);
            }
            let tensor = |x: &[f32], heads| Tensor3::from_vec(tokens, heads, dim, x.to_vec()).unwrap();
            let kv = usize::from(header.n_kv_heads);
            let done = attention.forward(&tensor(&s.q, heads), &tensor(&s.k, kv), &tensor(&s.v, kv)).unwrap();
            s.attended.copy_from_slice(done.as_slice());
            model.weights.project_out(layer, s).unwrap();
        }
        model.weights.finish(s, tokens, &mut out).unwrap();
        logits += variance(&out.logits) / seeds as f32;
    }
    for (layer, sums) in sums.iter().enumerate() {
        for (name, sum) in ["queries", "keys", "values", "scores"].iter().zip(sums) {
            let mean = sum / seeds as f32;
            assert!(band.contains(&mean), "{name} of layer {layer}: variance {mean}");
        }
    }
    assert!(band.contains(&logits), "logits: variance {logits}");
}

#[test]
fn length_is_one_or_zero() {
    for (given, expected) in [
        ([3.0, -4.0], [0.6, -0.8]),
        ([0.0, 0.0], [0.0, 0.0]),
        ([1e-30, 0.0], [1.0, 0.0]),
        ([3e38, 3e38], [0.5f32.sqrt(); 2]),
        ([1e-45, 0.0], [0.0, 0.0]),
    ] {
        let mut v = given;
        layers::to_unit_length(&mut v);
        assert!(v.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{given:?} -> {v:?}");
    }
}
