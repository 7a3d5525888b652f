//! What goes beside the tokens: caches in, answers out.

#[cfg(doc)]
use crate::head::weights::EMBEDDING_DIM;
use crate::head::{CachePool, KvCache};
use crate::track::CacheSlot;

/// The caches of the tracks of one call, by their place in it.
pub trait TrackCaches {
    /// How many tracks.
    fn tracks(&self) -> usize;
    /// One cache per layer; empty if the track has none.
    fn layers(&mut self, track: usize) -> &mut [KvCache];
}

impl<C: AsMut<[KvCache]>> TrackCaches for [C] {
    fn tracks(&self) -> usize {
        self.len()
    }

    fn layers(&mut self, track: usize) -> &mut [KvCache] {
        self[track].as_mut()
    }
}

/// The caches of tracks by their places in a pool, in the order of the tokens. A place must not come twice.
#[derive(Debug)]
pub struct PooledCaches<'a> {
    /// Where the caches are.
    pub pool: &'a mut CachePool,
    /// The track's places.
    pub slots: &'a [CacheSlot],
}

impl TrackCaches for PooledCaches<'_> {
    fn tracks(&self) -> usize {
        self.slots.len()
    }

    fn layers(&mut self, track: usize) -> &mut [KvCache] {
        self.pool.get_mut(self.slots[track]).map_or(&mut [], Vec::as_mut_slice)
    }
}

/// What the network says about each token of a call. Reuse it: it allocates only while it grows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HeadOutput {
    pub(super) tokens: usize,
    pub(super) classes: usize,
    pub(super) logits: Vec<f32>,
    pub(super) embedding_dim: usize,
    pub(super) embeddings: Vec<f32>,
    /// By token: no answer, zeros stand in its place.
    pub(super) missing: Vec<bool>,
}

impl HeadOutput {
    /// Tokens it speaks of.
    pub const fn tokens(&self) -> usize {
        self.tokens
    }

    /// Class logits of a token (natural logarithms up to a common constant), in the order of the class names.
    pub fn logits(&self, token: usize) -> &[f32] {
        &self.logits[token * self.classes..][..self.classes]
    }

    /// Embedding of a token: [`EMBEDDING_DIM`] numbers, length 1 (or all zeros, where the projection is zero). `None` if
    /// the weights have no projection head.
    pub fn embedding(&self, token: usize) -> Option<&[f32]> {
        (self.embedding_dim > 0).then(|| &self.embeddings[token * self.embedding_dim..][..self.embedding_dim])
    }

    /// Whether it speaks of this token: not beyond the tokens of the call, nor for one that was refused.
    pub fn answers(&self, token: usize) -> bool {
        token < self.tokens && !self.missing.get(token).copied().unwrap_or_default()
    }

    /// Forgets the answers of the call before.
    pub(super) fn begin(&mut self) {
        self.tokens = 0;
        self.missing.clear();
    }

    /// Replaces answers that are not finite by zeros; says which was the first.
    pub(super) fn clear_overflows(&mut self) -> Option<usize> {
        let mut first = None;
        for token in 0..self.tokens {
            let embedding = self.embedding(token).unwrap_or_default();
            if self.logits(token).iter().chain(embedding).any(|x| !x.is_finite()) {
                self.clear(token);
                first.get_or_insert(token);
            }
        }
        first
    }

    /// Zeros for a token that could not be stepped.
    pub(super) fn clear(&mut self, token: usize) {
        if self.missing.len() <= token {
            self.missing.resize(token + 1, false);
        }
        self.missing[token] = true;
        self.logits[token * self.classes..][..self.classes].fill(0.0);
        self.embeddings[token * self.embedding_dim..][..self.embedding_dim].fill(0.0);
    }
}
