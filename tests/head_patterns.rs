//! How far the patterns are from dense attention, on amplitudes of real recordings.
//!
//! `cargo test --test head_patterns -- --no-capture` prints the table: the error of the output against dense attention
//! (f64), relative to the mean norm of the values, averaged over positions 511, 767, ... of at most 4,096 frames and over
//! six seeds of the random projections that make queries, keys and values. Features are amplitudes divided by their mean
//! in each frame and centred over the take; then either every bin is scaled to unit variance (`each bin`), or all bins by
//! one number (`as a whole`), which leaves loud bins loud. tau scales the query: a larger one makes attention sharper.
//!
//! What it shows: with `each bin` the pyramid is the nearer one in all takes for soft attention and in 14 of 15 rows in
//! all; with `as a whole` only in about a third of the rows, and in the empty room and the weak link (albany) never.

#![allow(clippy::unwrap_used, clippy::print_stderr, clippy::print_stdout)]

use std::path::{Path, PathBuf};

use aetherd::frame::recording::{self, Format, Options};
use aetherd::frame::{Decoder, DecoderSettings, Item, SampleKind};
use aetherd::head::{AetherTemporalHead, LandmarkWeight, Pattern, TemporalHeadConfig, Tensor3};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

const MOST: usize = 4096;
const SEEDS: std::ops::RangeInclusive<u64> = 1..=6;
const TAKES: [&str; 5] = [
    "ialr-esp32s3-motion/part_3.csv.bz2",
    "pulse-esp32-bedroom/breathing/resp_6rpm.csv.bz2",
    "pulse-esp32-bedroom/presence/mov_01.csv.bz2",
    "pulse-esp32-bedroom/presence/vacio_04.csv.bz2",
    "albany-esp32-har/s01.tar.bz2#BR/15BPM/s1/csi_data_1720469042.txt",
];

fn data() -> Option<PathBuf> {
    let path = std::env::var_os("AETHERD_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data"), PathBuf::from);
    if path.is_dir() {
        return Some(path);
    }
    assert!(std::env::var_os("AETHERD_REQUIRE_DATA").is_none_or(|v| v != "1"), "no recordings at {}", path.display());
    eprintln!("skipped: no recordings at {}", path.display());
    None
}

/// Standardised amplitudes of the first frames that have as many bins as the first one.
fn features(path: &Path, each_bin: bool) -> Vec<Vec<f32>> {
    let mut reader = recording::open(path, Format::Auto, &Options::default()).unwrap();
    let mut decoder = Decoder::new(DecoderSettings::default());
    let mut rows: Vec<Vec<f32>> = Vec::new();
    while let Some(unit) = reader.next() {
        if rows.len() == MOST {
            break;
        }
        unit.unwrap().decode(&mut decoder, &mut |_, item| {
            let Item::Frame(frame) = item else { return };
            let mut row: Vec<f32> = match frame.kind {
                SampleKind::Iq => {
                    frame.values.chunks_exact(2).map(|p| f32::from(p[0]).hypot(f32::from(p[1]))).collect()
                }
                SampleKind::Amplitude => frame.values.iter().map(|a| f32::from(*a)).collect(),
            };
            let mean = row.iter().sum::<f32>() / row.len() as f32;
            row.iter_mut().for_each(|a| *a /= mean.max(1e-6));
            if rows.len() < MOST && rows.first().is_none_or(|first| first.len() == row.len()) {
                rows.push(row);
            }
        });
    }
    let n = rows.len() as f32;
    let bins = rows[0].len();
    let means: Vec<f32> = (0..bins).map(|b| rows.iter().map(|r| r[b]).sum::<f32>() / n).collect();
    rows.iter_mut().for_each(|r| r.iter_mut().zip(&means).for_each(|(x, m)| *x -= m));
    let variances: Vec<f32> = (0..bins).map(|b| rows.iter().map(|r| r[b] * r[b]).sum::<f32>() / n).collect();
    let all = (variances.iter().sum::<f32>() / bins as f32).sqrt();
    for (bin, variance) in variances.iter().enumerate() {
        let own = if *variance > 1e-12 { variance.sqrt() } else { 1.0 };
        let size = if each_bin { own } else { all };
        rows.iter_mut().for_each(|r| r[bin] /= size);
    }
    rows
}

fn project(rows: &[Vec<f32>], heads: usize, dim: usize, size: f32, rng: &mut ChaCha8Rng) -> Tensor3 {
    let bins = rows[0].len();
    let size = size / (bins as f32).sqrt();
    let w: Vec<f32> = (0..bins * heads * dim)
        .map(|_| {
            let x: f32 = StandardNormal.sample(rng);
            x * size
        })
        .collect();
    let mut out = vec![0.0f32; rows.len() * heads * dim];
    for (row, out) in rows.iter().zip(out.chunks_exact_mut(heads * dim)) {
        for (x, w) in row.iter().zip(w.chunks_exact(heads * dim)) {
            out.iter_mut().zip(w).for_each(|(o, w)| *o += x * w);
        }
    }
    Tensor3::from_vec(out, rows.len(), heads, dim).unwrap()
}

fn dense(q: &[f32], k: &Tensor3, v: &Tensor3, i: usize) -> Vec<f64> {
    let scale = 1.0 / (q.len() as f64).sqrt();
    let dot = |t: usize| scale * q.iter().zip(k.row(t, 0)).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let scores: Vec<f64> = (0..=i).map(dot).collect();
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = scores.iter().map(|s| (s - most).exp()).sum();
    let mut out = vec![0.0; q.len()];
    for (t, s) in scores.iter().enumerate() {
        let weight = (s - most).exp() / sum;
        out.iter_mut().zip(v.row(t, 0)).for_each(|(o, v)| *o += weight * f64::from(*v));
    }
    out
}

fn norm(x: impl Iterator<Item = f64>) -> f64 {
    x.map(|x| x * x).sum::<f64>().sqrt()
}

#[test]
fn how_far_the_patterns_are_from_dense_attention() {
    let Some(data) = data() else { return };
    let kinds = [
        (Pattern::Compatible, LandmarkWeight::Unit),
        (Pattern::Compatible, LandmarkWeight::Count),
        (Pattern::Pyramid, LandmarkWeight::Unit),
        (Pattern::Pyramid, LandmarkWeight::Count),
    ];
    println!(
        "| take | tau | compatible | compatible + ln | pyramid without ln | pyramid + ln |\n|---|---|---|---|---|---|"
    );
    for (take, each_bin) in TAKES.iter().flat_map(|take| [(take, true), (take, false)]) {
        let rows = features(&data.join(take), each_bin);
        assert!(rows.len() > 1_000, "{take}: {} frames", rows.len());
        for tau in [0.5f32, 1.0, 2.0] {
            let mut nearer = 0;
            let mut errors = [0.0; 4];
            for seed in SEEDS {
                let mut rng = ChaCha8Rng::seed_from_u64(seed);
                let q = project(&rows, 4, 32, tau, &mut rng);
                let k = project(&rows, 1, 32, 1.0, &mut rng);
                let v = project(&rows, 1, 32, 1.0, &mut rng);
                let value_norm = (0..rows.len()).map(|t| norm(v.row(t, 0).iter().map(|x| f64::from(*x)))).sum::<f64>()
                    / rows.len() as f64;
                let exact: Vec<(usize, usize, Vec<f64>)> = (511..rows.len())
                    .step_by(256)
                    .flat_map(|i| (0..4).map(move |h| (i, h)))
                    .map(|(i, h)| (i, h, dense(q.row(i, h), &k, &v, i)))
                    .collect();
                let of_seed = kinds.map(|(pattern, landmark_weight)| {
                    let c = TemporalHeadConfig { pattern, landmark_weight, ..TemporalHeadConfig::default() };
                    let out = AetherTemporalHead::new(&c).unwrap().forward(&q, &k, &v).unwrap();
                    let error = |(i, h, exact): &(usize, usize, Vec<f64>)| {
                        norm(out.row(*i, *h).iter().zip(exact).map(|(a, b)| f64::from(*a) - b))
                    };
                    exact.iter().map(error).sum::<f64>() / exact.len() as f64 / value_norm
                });
                errors.iter_mut().zip(of_seed).for_each(|(e, s)| *e += s / SEEDS.count() as f64);
                nearer += usize::from(of_seed[3] < of_seed[0]);
            }
            let [unit, count, flat, pyramid] = errors;
            let scaled = if each_bin { "each bin" } else { "as a whole" };
            println!(
                "| {take} ({}) | {scaled} | {tau} | {unit:.3} | {count:.3} | {flat:.3} | {pyramid:.3} | {nearer} of {} |",
                rows.len(),
                SEEDS.count()
            );
            // A guard against regressions, chosen after the table had been seen. That the pyramid be nearer everywhere
            // is not so, and is not asserted.
            if each_bin && tau == 0.5 {
                assert!(pyramid < unit, "{take}: {pyramid} against {unit}");
            }
        }
    }
}
