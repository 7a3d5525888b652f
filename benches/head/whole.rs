//! The whole network: projections, two layers, several tracks.

use std::hint::black_box;

use aetherd::head::init::{InitSettings, init};
use aetherd::head::{
    AetherTemporalHead, CachePrecision, FullPolicy, HeadModel, HeadOutput, KvCache, TemporalHeadConfig, WeightBlob,
    WeightDtype,
};
use aetherd::kernel::Kernel;

use crate::measure::{Effort, contest, random, rng, time};

/// Tokens a second of each track.
const RATE: f64 = 100.0;

/// Time of a step of all tracks, by kernel, precision of the weights and number of tracks.
pub fn model(effort: Effort) {
    let settings = InitSettings::default();
    let weights = init(&settings).unwrap();
    let config = TemporalHeadConfig {
        q_heads: settings.q_heads.into(),
        kv_heads: settings.kv_heads.into(),
        head_dim: settings.head_dim.into(),
        ..TemporalHeadConfig::pyramid()
    };
    println!(
        "{:<52} {:>9} {:>12} {:>11} {:>20}",
        format!("whole head, {} layers, pyramid, caches f16", settings.layers),
        "a step",
        "a token",
        "tokens/s",
        format!("core at {RATE:.0}/s each")
    );
    let vector = Kernel::select(None).unwrap();
    let scalar = Kernel::select(Some(aetherd::kernel::KernelKind::Scalar)).unwrap();
    for (kernel, dtype, tracks) in [
        (vector, WeightDtype::F32, 1),
        (vector, WeightDtype::F32, 4),
        (vector, WeightDtype::F16, 1),
        (vector, WeightDtype::F16, 4),
        (vector, WeightDtype::F16, 8),
        (scalar, WeightDtype::F16, 4),
    ] {
        let blob = WeightBlob::parse(&weights.to_bytes(dtype).unwrap()).unwrap();
        let mut model = HeadModel::new(blob, &config, kernel).unwrap();
        let head = AetherTemporalHead::with_kernel(&config, kernel).unwrap();
        let cache = || head.make_cache_with(256, CachePrecision::F16, FullPolicy::Slide).unwrap();
        let mut caches: Vec<Vec<KvCache>> =
            (0..tracks).map(|_| (0..model.layers()).map(|_| cache()).collect()).collect();
        let features = aetherd::head::schema::TOKEN_SCHEMA.features.len();
        let mut rng = rng(1);
        let tokens: Vec<Vec<f32>> = (0..64).map(|_| random(&mut rng, tracks * features)).collect();
        let mut out = HeadOutput::default();
        for i in 0..4096 / effort.shrink {
            model.step(&tokens[i % 64], caches.as_mut_slice(), &mut out).unwrap();
        }
        let mut step = |i: usize| {
            model.step(&tokens[i % 64], caches.as_mut_slice(), &mut out).unwrap();
            black_box(&mut out);
        };
        let ns = contest(effort, &mut [&mut step]).median(0);
        let each = ns / tracks as f64;
        println!(
            "{:<52} {:>9} {:>12} {:>11.0} {:>19.3}%",
            format!("{} kernel, weights {dtype:?}, {tracks} tracks", kernel.kind()),
            time(ns),
            time(each),
            1e9 / each,
            100.0 * ns * RATE / 1e9
        );
    }
}
