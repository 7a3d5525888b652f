//! The whole network: tokens of several tracks -> an embedding and class logits for each.
//!
//! *In*: one token per track ([`TOKEN_SCHEMA`]), the tracks' caches. *Out*: [`HeadOutput`]. *State*: weights, scratch
//! memory; everything that belongs to a track is in its caches, one [`KvCache`] per layer.
//!
//! Per layer: RMSNorm, projections to queries, keys and values, attention over the track's cache, projection back, residual
//! sum. The projections of all tracks are one matrix product each, because at these sizes reading the weights costs more
//! than the arithmetic. Class logits are taken from the final residual, the embedding from the last layer's attention.
//!
//! Zhang and Sennrich, "Root mean square layer normalization" (2019).

mod error;
mod layers;
mod output;
#[cfg(test)]
mod tests;

pub use error::ModelError;
use layers::{Scratch, Weights, resize};
pub use output::{HeadOutput, PooledCaches, TrackCaches};

use super::schema::TOKEN_SCHEMA;
use super::weights::{FLAG_GAINS, WeightBlob, WeightError, WeightInfo, WeightTensor};
use super::{AetherTemporalHead, KvCache, TemporalHeadConfig, Tensor3};
use crate::kernel::Kernel;

/// The network.
#[derive(Debug)]
pub struct HeadModel {
    weights: Weights,
    attention: AetherTemporalHead,
    scratch: Scratch,
}

impl HeadModel {
    /// Puts weights and attention together.
    ///
    /// Heads and width of `config` must be those of the weights; its pattern, window and block are settings of the attention.
    ///
    /// # Errors
    /// [`ModelError`] where the weights have no information block, are for other tokens, or of another shape than `config`;
    /// or where the attention refuses `config`.
    pub fn new(blob: WeightBlob, config: &TemporalHeadConfig, kernel: &'static Kernel) -> Result<Self, ModelError> {
        let info = blob.info().ok_or(WeightError::NoInfo)?;
        info.check_schema(&TOKEN_SCHEMA)?;
        let header = *blob.header();
        for (what, weights, config) in [
            ("query heads", usize::from(header.n_q_heads), config.q_heads),
            ("key/value heads", usize::from(header.n_kv_heads), config.kv_heads),
            ("numbers per head", usize::from(header.head_dim), config.head_dim),
        ] {
            if weights != config {
                return Err(ModelError::Mismatch { what, weights, config });
            }
        }
        let attention = AetherTemporalHead::with_kernel(config, kernel).map_err(ModelError::Head)?;
        let mut gains = vec![1.0; (usize::from(header.n_layers) + 1) * usize::from(header.input_dim)];
        if header.has(FLAG_GAINS) {
            gains.clear();
            let layers = (0..usize::from(header.n_layers)).map(WeightTensor::Gain);
            for tensor in layers.chain([WeightTensor::FinalGain]) {
                gains.extend(blob.tensor(tensor).expect("its flag is set").to_f32());
            }
        }
        let mean = info.normalisation.mean.clone();
        let scale = info.normalisation.std.iter().map(|s| 1.0 / s).collect();
        let weights = Weights { blob, kernel, mean, scale, gains };
        Ok(Self { weights, attention, scratch: Scratch::default() })
    }

    /// What the weights are for. Embeddings and logits mean nothing unless it says `trained`.
    pub fn info(&self) -> &WeightInfo {
        self.weights.blob.info().expect("checked when the model was built")
    }

    /// The weight file.
    pub const fn weights(&self) -> &WeightBlob {
        &self.weights.blob
    }

    /// Layers, which is also the number of caches per track.
    pub fn layers(&self) -> usize {
        usize::from(self.weights.blob.header().n_layers)
    }

    /// The attention that all layers share; it makes the caches.
    pub const fn attention(&self) -> &AetherTemporalHead {
        &self.attention
    }

    /// One token for each of several tracks: tokens are tracks x features. Appends to every track's caches.
    ///
    /// Allocates nothing once `out` and the scratch memory have grown to the number of tracks.
    ///
    /// # Errors
    /// [`ModelError`]. What is wrong with shapes or tokens is found before any cache is touched. Where the attention refuses
    /// one track (a full cache under the policy `error`, numbers that overflow), the others are stepped all the same, `out`
    /// holds zeros for the refused one, and its caches are as they were, or reset if some layers had the token already.
    pub fn step<C: TrackCaches + ?Sized>(
        &mut self,
        tokens: &[f32],
        caches: &mut C,
        out: &mut HeadOutput,
    ) -> Result<(), ModelError> {
        let Self { weights, attention, scratch } = self;
        out.begin();
        let header = *weights.blob.header();
        let n = weights.count(tokens)?;
        if caches.tracks() != n {
            return Err(ModelError::Shape { what: "sets of caches", expected: n, got: caches.tracks() });
        }
        let layers = usize::from(header.n_layers);
        for token in 0..n {
            in_step(token, caches.layers(token), layers)?;
        }
        weights.normalise(tokens, &mut scratch.residual)?;
        scratch.failed.clear();
        scratch.failed.resize(n, false);
        let (q_width, kv_width) = (header.q_width(), header.kv_width());
        resize(&mut scratch.attended, n * q_width);
        let mut refused = None;
        for layer in 0..layers {
            weights.project_in(layer, scratch)?;
            for token in 0..n {
                if scratch.failed[token] {
                    continue;
                }
                let q = &scratch.q[token * q_width..][..q_width];
                let kv = token * kv_width..(token + 1) * kv_width;
                let attended = &mut scratch.attended[token * q_width..][..q_width];
                let cache = &mut caches.layers(token)[layer];
                if let Err(source) = attention.step_into(q, &scratch.k[kv.clone()], &scratch.v[kv], cache, attended) {
                    refused.get_or_insert(ModelError::Attention { token, layer, source });
                    scratch.failed[token] = true;
                    if layer > 0 {
                        caches.layers(token).iter_mut().for_each(KvCache::reset);
                    }
                }
            }
            for (token, _) in scratch.failed.iter().enumerate().filter(|(_, failed)| **failed) {
                scratch.attended[token * q_width..][..q_width].fill(0.0);
            }
            weights.project_out(layer, scratch)?;
        }
        weights.finish(scratch, n, out)?;
        for (token, _) in scratch.failed.iter().enumerate().filter(|(_, failed)| **failed) {
            out.clear(token);
        }
        let overflow = out.clear_overflows().map(|token| ModelError::Overflow { token });
        refused.or(overflow).map_or(Ok(()), Err)
    }

    /// All tokens of one track at once, tokens x features, from an empty past: what [`step`](Self::step) gives one by one.
    /// No cache is needed and none is filled.
    ///
    /// # Errors
    /// [`ModelError`], as for [`step`](Self::step).
    pub fn forward(&mut self, tokens: &[f32], out: &mut HeadOutput) -> Result<(), ModelError> {
        let Self { weights, attention, scratch } = self;
        out.begin();
        let header = *weights.blob.header();
        let n = weights.count(tokens)?;
        weights.normalise(tokens, &mut scratch.residual)?;
        let (q_heads, kv_heads, dim) =
            (usize::from(header.n_q_heads), usize::from(header.n_kv_heads), usize::from(header.head_dim));
        resize(&mut scratch.attended, n * header.q_width());
        for layer in 0..usize::from(header.n_layers) {
            weights.project_in(layer, scratch)?;
            let tensor =
                |values: &[f32], heads| Tensor3::from_vec(values.to_vec(), n, heads, dim).map_err(ModelError::Head);
            let (q, k, v) =
                (tensor(&scratch.q, q_heads)?, tensor(&scratch.k, kv_heads)?, tensor(&scratch.v, kv_heads)?);
            let attended = attention.forward(&q, &k, &v).map_err(ModelError::Head)?;
            scratch.attended.copy_from_slice(attended.as_slice());
            weights.project_out(layer, scratch)?;
        }
        weights.finish(scratch, n, out)?;
        out.clear_overflows().map_or(Ok(()), |token| Err(ModelError::Overflow { token }))
    }
}

/// Checks that a track has a cache for every layer, all with the same number of tokens.
fn in_step(token: usize, caches: &[KvCache], layers: usize) -> Result<(), ModelError> {
    if caches.len() != layers {
        return Err(ModelError::Shape { what: "caches of a track", expected: layers, got: caches.len() });
    }
    let expected = caches[0].position();
    match caches.iter().enumerate().find(|(_, c)| c.position() != expected) {
        Some((layer, cache)) => Err(ModelError::OutOfStep { token, layer, expected, got: cache.position() }),
        None => Ok(()),
    }
}
