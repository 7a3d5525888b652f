//! The whole network against a slow reference, streaming against a window, and what it refuses.

#![allow(clippy::unwrap_used)]

use aetherd::head::init::{InitSettings, class_names, init};
use aetherd::head::schema::TOKEN_SCHEMA;
use aetherd::head::weights::{Normalisation, SchemaId, WeightTensor, WeightTensors};
use aetherd::head::{
    CachePool, HeadModel, HeadOutput, KvCache, ModelError, PooledCaches, TemporalBackendKind, TemporalHeadConfig,
    WeightBlob, WeightDtype,
};
use aetherd::kernel::Kernel;
use aetherd::track::CacheSlot;
use aetherd::types::SensingTime;
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const INPUT: usize = 16;

/// New weights with gains and statistics that are not the identity.
fn weights(seed: u64, layers: u16, kv: u16, group: u16, dim: u16) -> WeightTensors {
    let (q_heads, classes) = (kv * group, class_names(5));
    let settings =
        InitSettings { seed, layers, q_heads, kv_heads: kv, head_dim: dim, classes, ..InitSettings::default() };
    let mut weights = init(&settings).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 77);
    weights.gains.as_mut().unwrap().iter_mut().for_each(|g| *g = rng.random_range(0.5..1.5));
    let info = weights.info.as_mut().unwrap();
    info.normalisation = Normalisation {
        mean: (0..INPUT).map(|_| rng.random_range(-1.0..1.0)).collect(),
        std: (0..INPUT).map(|_| rng.random_range(0.5..2.0)).collect(),
    };
    weights
}

fn blob(weights: &WeightTensors, dtype: WeightDtype) -> WeightBlob {
    WeightBlob::parse(&weights.to_bytes(dtype).unwrap()).unwrap()
}

fn tokens(seed: u64, n: usize) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..n * INPUT).map(|_| rng.random_range(-2.0f32..2.0)).collect()
}

fn config(weights: &WeightTensors) -> TemporalHeadConfig {
    TemporalHeadConfig {
        q_heads: weights.n_q_heads.into(),
        kv_heads: weights.n_kv_heads.into(),
        head_dim: weights.head_dim.into(),
        ..TemporalHeadConfig::default()
    }
}

/// Exact attention over everything before.
fn dense(weights: &WeightTensors) -> TemporalHeadConfig {
    TemporalHeadConfig { backend: TemporalBackendKind::Dense, ..config(weights) }
}

/// The daemon's pattern, with sizes that a short stream fills.
fn pyramid(weights: &WeightTensors) -> TemporalHeadConfig {
    let TemporalHeadConfig { q_heads, kv_heads, head_dim, .. } = config(weights);
    TemporalHeadConfig { q_heads, kv_heads, head_dim, window: 8, block_size: 4, ..TemporalHeadConfig::pyramid() }
}

fn model(weights: &WeightTensors, dtype: WeightDtype, config: &TemporalHeadConfig) -> HeadModel {
    HeadModel::new(blob(weights, dtype), config, Kernel::select(None).unwrap()).unwrap()
}

fn caches(model: &HeadModel, capacity: usize) -> Vec<KvCache> {
    (0..model.layers()).map(|_| model.attention().make_cache(capacity).unwrap()).collect()
}

/// Every token of a stream through `step`: (logits, embedding) of each.
fn streamed(model: &mut HeadModel, tokens: &[f32]) -> Vec<(Vec<f32>, Vec<f32>)> {
    let mut tracks = [caches(model, tokens.len() / INPUT)];
    let mut out = HeadOutput::default();
    let mut answers = Vec::new();
    for token in tokens.chunks(INPUT) {
        model.step(token, &mut tracks[..], &mut out).unwrap();
        answers.push((out.logits(0).to_vec(), out.embedding(0).unwrap_or_default().to_vec()));
    }
    answers
}

fn near(a: &[f32], b: &[f32], tolerance: f32) {
    assert_eq!(a.len(), b.len());
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "element {i}: {a} and {b}");
    }
}

/// The network in double precision, as docs/weights.md describes it, dense attention over everything before.
fn reference(blob: &WeightBlob, tokens: &[f32]) -> Vec<(Vec<f32>, Vec<f32>)> {
    let header = *blob.header();
    let (layers, dim) = (usize::from(header.n_layers), usize::from(header.head_dim));
    let (heads, kv) = (usize::from(header.n_q_heads), usize::from(header.n_kv_heads));
    let tensor = |t: WeightTensor| blob.tensor(t).unwrap().to_f32();
    let times = |x: &[f64], t: WeightTensor| -> Vec<f64> {
        let (w, (rows, columns)) = (tensor(t), t.shape(&header));
        (0..columns).map(|c| (0..rows).map(|r| x[r] * f64::from(w[r * columns + c])).sum()).collect()
    };
    let norm = |x: &[f64], t: WeightTensor| -> Vec<f64> {
        let rms = (x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64 + 1e-5).sqrt();
        x.iter().zip(tensor(t)).map(|(x, g)| x / rms * f64::from(g)).collect()
    };
    let statistics = &blob.info().unwrap().normalisation;
    let mut past = vec![(Vec::<Vec<f64>>::new(), Vec::<Vec<f64>>::new()); layers];
    let mut answers = Vec::new();
    for token in tokens.chunks(INPUT) {
        let scaled = token.iter().zip(&statistics.mean).zip(&statistics.std);
        let mut x: Vec<f64> = scaled.map(|((x, m), s)| (f64::from(*x) - f64::from(*m)) / f64::from(*s)).collect();
        let mut attended = Vec::new();
        for (layer, (keys, values)) in past.iter_mut().enumerate() {
            let h = norm(&x, WeightTensor::Gain(layer));
            let q = times(&h, WeightTensor::Wq(layer));
            keys.push(times(&h, WeightTensor::Wk(layer)));
            values.push(times(&h, WeightTensor::Wv(layer)));
            attended.clear();
            for head in 0..heads {
                let at = head / (heads / kv) * dim;
                let score =
                    |k: &Vec<f64>| (0..dim).map(|i| q[head * dim + i] * k[at + i]).sum::<f64>() / (dim as f64).sqrt();
                let weights: Vec<f64> = keys.iter().map(|k| score(k).exp()).collect();
                let sum: f64 = weights.iter().sum();
                for i in 0..dim {
                    attended.push(weights.iter().zip(values.iter()).map(|(w, v)| w * v[at + i]).sum::<f64>() / sum);
                }
            }
            let back = times(&attended, WeightTensor::Wo(layer));
            x.iter_mut().zip(back).for_each(|(x, y)| *x += y);
        }
        let logits = times(&norm(&x, WeightTensor::FinalGain), WeightTensor::Classifier);
        let hidden: Vec<f64> = times(&attended, WeightTensor::Projection1).iter().map(|x| x.max(0.0)).collect();
        let embedding = times(&hidden, WeightTensor::Projection2);
        let length = embedding.iter().map(|x| x * x).sum::<f64>().sqrt();
        let single = |x: Vec<f64>, by: f64| x.into_iter().map(|x| (x / by) as f32).collect::<Vec<f32>>();
        answers.push((single(logits, 1.0), single(embedding, length)));
    }
    answers
}

#[test]
fn the_network_is_the_one_that_is_documented() {
    for (layers, kv, group, dim) in [(1, 1, 1, 8), (2, 1, 4, 32), (3, 2, 3, 5)] {
        let weights = weights(5, layers, kv, group, dim);
        let tokens = tokens(6, 40);
        for dtype in [WeightDtype::F32, WeightDtype::F16] {
            // The reference reads the same numbers, so half precision costs no tolerance.
            let expected = reference(&blob(&weights, dtype), &tokens);
            let got = streamed(&mut model(&weights, dtype, &dense(&weights)), &tokens);
            for (got, expected) in got.iter().zip(&expected) {
                near(&got.0, &expected.0, 1e-4);
                near(&got.1, &expected.1, 1e-4);
                assert!((got.1.iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-5);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn stepping_gives_what_the_window_gives(seed in any::<u64>(), layers in 1u16..4, kv in 1u16..3, group in 1u16..5,
                                            dim in 1u16..40, n in 1usize..150, half in any::<bool>(), which in 0usize..3) {
        let weights = weights(seed, layers, kv, group, dim);
        let config = [dense, config, pyramid][which](&weights);
        let dtype = if half { WeightDtype::F16 } else { WeightDtype::F32 };
        let mut model = model(&weights, dtype, &config);
        let tokens = tokens(seed, n);
        let steps = streamed(&mut model, &tokens);
        let mut out = HeadOutput::default();
        model.forward(&tokens, &mut out).unwrap();
        prop_assert_eq!(out.tokens(), n);
        for (token, step) in steps.iter().enumerate() {
            near(&step.0, out.logits(token), 2e-4);
            near(&step.1, out.embedding(token).unwrap(), 2e-4);
        }
    }

    #[test]
    fn tracks_do_not_see_each_other(seed in any::<u64>(), tracks in 1usize..7, n in 1usize..40) {
        let weights = weights(seed, 2, 1, 4, 32);
        let mut model = model(&weights, WeightDtype::F32, &config(&weights));
        let streams: Vec<Vec<f32>> = (0..tracks).map(|t| tokens(seed ^ t as u64, n)).collect();
        let alone: Vec<_> = streams.iter().map(|s| streamed(&mut model, s)).collect();
        let mut together: Vec<Vec<KvCache>> = (0..tracks).map(|_| caches(&model, n)).collect();
        let mut out = HeadOutput::default();
        for i in 0..n {
            let batch: Vec<f32> = streams.iter().flat_map(|s| &s[i * INPUT..][..INPUT]).copied().collect();
            model.step(&batch, &mut together[..], &mut out).unwrap();
            for (track, alone) in alone.iter().enumerate() {
                near(out.logits(track), &alone[i].0, 1e-5);
                near(out.embedding(track).unwrap(), &alone[i].1, 1e-5);
            }
        }
    }
}

#[test]
fn the_future_changes_nothing() {
    let weights = weights(9, 2, 1, 4, 32);
    let mut model = model(&weights, WeightDtype::F32, &config(&weights));
    let mut tokens = tokens(10, 100);
    let (mut before, mut after) = (HeadOutput::default(), HeadOutput::default());
    model.forward(&tokens, &mut before).unwrap();
    tokens[60 * INPUT..].iter_mut().for_each(|x| *x = -*x);
    model.forward(&tokens, &mut after).unwrap();
    for token in 0..100 {
        let same = before.logits(token) == after.logits(token) && before.embedding(token) == after.embedding(token);
        assert_eq!(same, token < 60, "{token}");
    }
}

#[test]
fn what_does_not_fit_is_refused_before_a_cache_is_touched() {
    let weights = weights(1, 2, 1, 4, 32);
    let mut model = model(&weights, WeightDtype::F32, &config(&weights));
    let mut out = HeadOutput::default();
    let mut tracks = vec![caches(&model, 8), caches(&model, 8)];
    let good = tokens(2, 2);
    let mut says =
        |tokens: &[f32], tracks: &mut [Vec<KvCache>]| model.step(tokens, tracks, &mut out).unwrap_err().to_string();
    assert!(says(&good[..20], &mut tracks).contains("numbers of the tokens: expected 32, got 20"));
    assert!(says(&[], &mut tracks).contains("expected 16, got 0"));
    assert!(says(&good, &mut tracks[..1]).contains("sets of caches: expected 2, got 1"));
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut bad = good.clone();
        bad[16 + 13] = value;
        assert!(says(&bad, &mut tracks).contains("token 1: feature 13 (`speed`)"));
    }
    let last = tracks[1].pop().unwrap();
    assert!(says(&good, &mut tracks).contains("caches of a track: expected 2, got 1"));
    tracks[1].push(last);
    assert!(tracks.iter().flatten().all(|c| c.position() == 0));
    model.step(&good, &mut tracks[..], &mut out).unwrap();
    tracks[1][1].reset();
    let message = model.step(&good, &mut tracks[..], &mut out).unwrap_err().to_string();
    assert!(message.contains("token 1: layer 1 has seen 0 tokens, layer 0 1"), "{message}");
}

#[test]
fn weights_of_another_kind_are_refused() {
    let good = weights(1, 2, 1, 4, 32);
    let says = |weights: &WeightTensors, config: &TemporalHeadConfig| {
        HeadModel::new(blob(weights, WeightDtype::F32), config, Kernel::select(None).unwrap()).unwrap_err().to_string()
    };
    let fits = config(&good);
    for (config, what) in [
        (TemporalHeadConfig { q_heads: 8, ..fits.clone() }, "query heads: the weights have 4"),
        (TemporalHeadConfig { kv_heads: 2, ..fits.clone() }, "key/value heads: the weights have 1"),
        (TemporalHeadConfig { head_dim: 16, ..fits.clone() }, "numbers per head: the weights have 32"),
    ] {
        assert!(says(&good, &config).contains(what), "{}", says(&good, &config));
    }
    let mut foreign = good.clone();
    foreign.info.as_mut().unwrap().schema = SchemaId { name: "other-1".to_owned(), hash: "12".to_owned() };
    let message = says(&foreign, &fits);
    assert!(message.contains("`other-1`") && message.contains(TOKEN_SCHEMA.name), "{message}");
    let mut bare = good.clone();
    bare.info = None;
    assert!(says(&bare, &fits).contains("no information block"));
    let mut narrow = good;
    narrow.input_dim = 15;
    narrow.payload.truncate(2 * 2 * 15 * (128 + 32) + 15 * 5);
    narrow.gains = None;
    let statistics = &mut narrow.info.as_mut().unwrap().normalisation;
    statistics.mean.pop();
    statistics.std.pop();
    assert!(says(&narrow, &fits).contains("features of a token: expected 16 by its schema `aetherd-token-1`, got 15"));
}

#[test]
fn without_its_section_there_is_no_embedding_and_gains_are_one() {
    let mut with = weights(3, 1, 1, 2, 8);
    with.gains.as_mut().unwrap().fill(1.0);
    let mut without = with.clone();
    (without.gains, without.projection) = (None, None);
    let tokens = tokens(4, 5);
    let a = streamed(&mut model(&with, WeightDtype::F32, &config(&with)), &tokens);
    let b = streamed(&mut model(&without, WeightDtype::F32, &config(&with)), &tokens);
    for (a, b) in a.iter().zip(&b) {
        assert_eq!(a.0, b.0);
        assert!(a.1.len() == 128 && b.1.is_empty());
    }
}

#[test]
fn a_track_that_is_refused_does_not_harm_the_others() {
    let weights = weights(1, 2, 1, 4, 32);
    let mut model = model(&weights, WeightDtype::F32, &config(&weights));
    let mut out = HeadOutput::default();
    let mut tracks = vec![caches(&model, 2), caches(&model, 50), caches(&model, 50)];
    let stream: Vec<Vec<f32>> = (0..3).map(|i| tokens(i, 3)).collect();
    let alone = streamed(&mut model, &stream[1]);
    for (i, expected) in alone.iter().enumerate() {
        let batch: Vec<f32> = stream.iter().flat_map(|s| &s[i * INPUT..][..INPUT]).copied().collect();
        let done = model.step(&batch, &mut tracks[..], &mut out);
        assert_eq!(done.is_err(), i == 2);
        if let Err(error) = done {
            assert!(matches!(error, ModelError::Attention { token: 0, layer: 0, .. }), "{error}");
            assert!(out.logits(0).iter().chain(out.embedding(0).unwrap()).all(|x| *x == 0.0));
        }
        near(out.logits(1), &expected.0, 1e-5);
    }
    assert_eq!(tracks.iter().map(|t| t[0].position()).collect::<Vec<_>>(), [2, 3, 3]);
    assert!(tracks.iter().all(|t| t[0].position() == t[1].position()));
}

#[test]
fn numbers_beyond_single_precision_are_an_error_and_never_an_answer() {
    let mut weights = weights(1, 2, 1, 4, 32);
    // Values of the second layer overflow: finite weights, no finite answer.
    let layer = 2 * INPUT * (128 + 32);
    let values = layer + INPUT * (128 + 32);
    weights.payload[values..values + INPUT * 32].fill(3e38);
    let mut model = model(&weights, WeightDtype::F32, &config(&weights));
    let mut tracks = [caches(&model, 8)];
    let mut out = HeadOutput::default();
    for _ in 0..2 {
        let error = model.step(&tokens(1, 1), &mut tracks[..], &mut out).unwrap_err();
        assert!(matches!(error, ModelError::Attention { token: 0, layer: 1, .. }), "{error}");
        assert!(out.logits(0).iter().chain(out.embedding(0).unwrap()).all(|x| *x == 0.0));
        assert!(tracks[0].iter().all(|c| c.position() == 0), "reset, since layer 0 had the token already");
    }
    weights.payload[values..values + INPUT * 32].fill(0.0);
    let classifier = 2 * layer;
    weights.payload[classifier..].fill(3e38);
    let mut model = self::model(&weights, WeightDtype::F32, &config(&weights));
    let error = model.step(&tokens(1, 1), &mut [caches(&model, 8)][..], &mut out);
    assert!(matches!(error, Err(ModelError::Overflow { token: 0 })), "{error:?}");
    assert!(out.logits(0).iter().all(|x| *x == 0.0));
}

#[test]
fn stepping_allocates_nothing() {
    let weights = weights(1, 2, 1, 4, 32);
    for dtype in [WeightDtype::F32, WeightDtype::F16] {
        let mut model = model(&weights, dtype, &config(&weights));
        let mut tracks: Vec<Vec<KvCache>> = (0..4).map(|_| caches(&model, 256)).collect();
        let mut out = HeadOutput::default();
        let stream = tokens(1, 4);
        model.step(&stream, &mut tracks[..], &mut out).unwrap();
        let used = allocation_counter::measure(|| {
            for _ in 0..200 {
                model.step(&stream, &mut tracks[..], &mut out).unwrap();
            }
            model.step(&stream[..32], &mut tracks[..2], &mut out).unwrap();
        });
        assert_eq!(used.count_total, 0, "{used:?}");
    }
}

#[test]
fn tracks_in_a_pool_are_stepped_by_their_places() {
    let weights = weights(1, 2, 1, 4, 32);
    let mut model = model(&weights, WeightDtype::F32, &pyramid(&weights));
    let attention = model.attention().clone();
    let make = move || (0..2).map(|_| attention.make_cache(64)).collect();
    let mut pool = CachePool::new(4, usize::MAX, make).unwrap();
    let slots = [CacheSlot(3), CacheSlot(1)];
    assert!(slots.iter().all(|s| pool.acquire(*s, SensingTime(0))));
    let streams = [tokens(1, 20), tokens(2, 20)];
    let alone = streams.each_ref().map(|s| streamed(&mut model, s));
    let mut out = HeadOutput::default();
    for i in 0..20 {
        let batch: Vec<f32> = streams.iter().flat_map(|s| &s[i * INPUT..][..INPUT]).copied().collect();
        model.step(&batch, &mut PooledCaches { pool: &mut pool, slots: &slots }, &mut out).unwrap();
        for (track, alone) in alone.iter().enumerate() {
            near(out.logits(track), &alone[i].0, 1e-5);
        }
    }
    let none = [CacheSlot(0)];
    let error = model.step(&streams[0][..INPUT], &mut PooledCaches { pool: &mut pool, slots: &none }, &mut out);
    assert!(error.unwrap_err().to_string().contains("caches of a track: expected 2, got 0"));
}
