//! Which part of the past a pattern shows, and what it costs: against exact attention on random streams.

use std::hint::black_box;

use aetherd::head::{
    AetherTemporalHead, CachePrecision, FullPolicy, LandmarkWeight, TemporalBackendKind, TemporalHeadConfig,
};
use rand_distr::{Distribution, StandardNormal};

use crate::measure::{Effort, contest, rng, time};
use crate::sparse::{DIM, HEADS};

/// A slow random walk under noise, for keys, values and queries: streams whose past matters.
fn stream(n: usize, tau: f32) -> (Vec<Vec<f32>>, Vec<Vec<f32>>, Vec<Vec<f32>>) {
    let mut rng = rng(42);
    let mut walk = [0.0f32; 8];
    let projections: Vec<Vec<f32>> = (0..(HEADS + 2) * DIM)
        .map(|_| (0..16).map(|_| -> f32 { StandardNormal.sample(&mut rng) }).map(|x: f32| x / 4.0).collect())
        .collect();
    let (mut q, mut k, mut v) = (vec![], vec![], vec![]);
    for _ in 0..n {
        let noise: Vec<f32> = (0..16).map(|_| StandardNormal.sample(&mut rng)).collect();
        for (w, e) in walk.iter_mut().zip(&noise) {
            *w = 0.99 * *w + 0.14 * e;
        }
        let x: Vec<f32> = walk.iter().copied().chain(noise[8..].iter().copied()).collect();
        let y: Vec<f32> = projections.iter().map(|p| p.iter().zip(&x).map(|(p, x)| p * x).sum()).collect();
        q.push(y[..HEADS * DIM].iter().map(|q| tau * q).collect());
        k.push(y[HEADS * DIM..][..DIM].to_vec());
        v.push(y[(HEADS + 1) * DIM..].to_vec());
    }
    (q, k, v)
}

/// One line per pattern.
pub fn table(effort: Effort) {
    let n = 4096 / effort.shrink;
    println!(
        "{:<28} {:>5} {:>9} {:>10} {:>27}",
        format!("pattern, {n} tokens, f32"),
        "rows",
        "KiB",
        "a step",
        "error, tau = 0.5, 1, 2"
    );
    let exact = TemporalHeadConfig { backend: TemporalBackendKind::Dense, window: n, ..Default::default() };
    let compatible = TemporalHeadConfig::default();
    let count = TemporalHeadConfig { landmark_weight: LandmarkWeight::Count, ..compatible.clone() };
    let pyramid = TemporalHeadConfig::pyramid();
    let unit = TemporalHeadConfig { landmark_weight: LandmarkWeight::Unit, ..pyramid.clone() };
    let patterns = [
        ("dense", &exact),
        ("compatible", &compatible),
        ("compatible, ln(count)", &count),
        ("pyramid without ln(count)", &unit),
        ("pyramid", &pyramid),
    ];
    let taus = [0.5, 1.0, 2.0];
    let mut truth: Vec<Vec<f32>> = Vec::new();
    for (name, config) in patterns {
        let head = AetherTemporalHead::new(config).unwrap();
        let mut errors = Vec::new();
        let (mut rows, mut bytes, mut step_ns) = (0, 0, 0.0);
        for (which, tau) in taus.into_iter().enumerate() {
            let (q, k, v) = stream(n, tau);
            let mut cache = head.make_cache_with(n, CachePrecision::F32, FullPolicy::Slide).unwrap();
            let mut out = vec![0.0f32; HEADS * DIM];
            let mut all = Vec::with_capacity(n / 8 * HEADS * DIM);
            for i in 0..n {
                head.step_into(&q[i], &k[i], &v[i], &mut cache, &mut out).unwrap();
                if i >= n / 8 && i % 8 == 0 {
                    all.extend_from_slice(&out);
                }
            }
            if truth.len() <= which {
                truth.push(all.clone());
            }
            // As in the study of the patterns: mean distance to exact attention, relative to the mean size of the values.
            let size = |x: &[f32]| x.iter().map(|x| x * x).sum::<f32>().sqrt();
            let distance: f32 = all
                .chunks(DIM)
                .zip(truth[which].chunks(DIM))
                .map(|(a, b)| size(&a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<_>>()))
                .sum::<f32>()
                / (all.len() / DIM) as f32;
            errors.push(distance / (v.iter().map(|v| size(v)).sum::<f32>() / n as f32));
            (rows, bytes) = (cache.rows(), cache.bytes());
            if which == 0 {
                let mut step = |i: usize| {
                    head.step_into(&q[i % n], &k[i % n], &v[i % n], &mut cache, &mut out).unwrap();
                    black_box(&mut out);
                };
                step_ns = contest(effort.fewer(), &mut [&mut step]).median(0);
            }
        }
        println!(
            "{name:<28} {rows:>5} {:>9.1} {:>10} {:>9.4}{:>9.4}{:>9.4}",
            bytes as f64 / 1024.0,
            time(step_ns),
            errors[0],
            errors[1],
            errors[2]
        );
    }
}
