//! The head as a stage: which track streams through which cache, and what is known of it.
//!
//! *In*: at every tick the tracks and those that ended; at every fused frame what the profiles of the links did. *Out*:
//! [`TrackEstimate`]s, from trained weights only; counts of tokens and bytes in any case. *State*: the pool of caches, per
//! cached track the number of tokens and the time of the last one, the gallery.
//!
//! The life of a cache: taken when a track becomes active; frozen while it is lost (nothing appended, nothing read);
//! going on when it is found, the gap being a feature of the next token; wiped and given back when the track ends, whose
//! embedding then moves to the gallery. Where two tracks merge the older cache survives. Over the budget lost tracks give
//! theirs up, the one lost longest first.

use super::features::{TOKEN, token};
use super::gallery::Gallery;
use super::init::{InitSettings, init};
use super::model::{HeadModel, HeadOutput, ModelError, PooledCaches};
use super::settings::{Forgetting, Memory, Settings, Storage};
use super::weights::{WeightBlob, WeightDtype, WeightError};
use super::{
    CachePool, CachePrecision, FullPolicy, KvCache, LandmarkWeight, LayerCaches, Pattern, PoolStats, TemporalError,
    TemporalHeadConfig,
};
use crate::kernel::{Kernel, KernelError, KernelKind};
use crate::signal::LinkChange;
use crate::track::{CacheSlot, EndReason, Lifecycle, PoseTrack, TrackEnded, TrackId};
use crate::types::SensingTime;

/// Places for caches; the tracker hands out slots below this number.
const PLACES: usize = 256;
/// An embedding is kept for this long after its track ended, seconds.
const GALLERY_S: f64 = 3600.0;
/// Largest budget taken literally, MiB.
const MOST_MIB: f64 = 65_536.0;

/// Why there is no head.
#[derive(Debug, thiserror::Error)]
pub enum HeadError {
    /// The kernel that was asked for.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The weight file.
    #[error("weights {path}: {source}")]
    Weights {
        /// The file, or that there is none.
        path: String,
        /// What is wrong with it.
        source: WeightError,
    },
    /// Weights and settings do not fit.
    #[error("temporal head: {0}")]
    Model(#[from] ModelError),
    /// The caches cannot be made as configured.
    #[error("temporal head: {0}")]
    Cache(#[from] TemporalError),
}

/// What a trained head says of a track, of its newest token.
#[derive(Debug, Clone, PartialEq)]
pub struct TrackEstimate {
    /// Which track.
    pub track: TrackId,
    /// Re-identification embedding, of length 1.
    pub embedding: Vec<f32>,
    /// Class logits, in the order of the class names.
    pub logits: Vec<f32>,
}

/// What is cached of a track.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cached {
    /// Tokens streamed since it became active.
    pub tokens: u64,
    /// Bytes of its caches, all layers.
    pub bytes: u64,
}

/// The head in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadInfo {
    /// Kernel, with the features of the processor it uses.
    pub kernel: String,
    /// Which weights.
    pub weights: String,
    /// Whether they were trained.
    pub trained: bool,
    /// Memory, storage, and what leaves a full cache.
    pub policy: String,
}

/// The head in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeadStats {
    /// Bytes of caches of active tracks.
    pub active_bytes: u64,
    /// Of lost ones.
    pub lost_bytes: u64,
    /// Kept for the next ones.
    pub spare_bytes: u64,
    /// Limit for all of them.
    pub budget_bytes: u64,
    /// Caches of lost tracks given up for the budget.
    pub evicted: u64,
    /// Tracks that got no cache.
    pub refused: u64,
    /// Tokens streamed.
    pub tokens: u64,
    /// Tokens the model refused: numbers beyond its precision.
    pub failed: u64,
    /// Embeddings of people who left.
    pub gallery: u64,
}

/// A track that has caches.
#[derive(Debug, Clone, Copy)]
struct Stream {
    track: TrackId,
    slot: CacheSlot,
    tokens: u64,
    last: Option<SensingTime>,
}

/// The stage.
#[derive(Debug)]
pub struct HeadStage {
    model: HeadModel,
    pool: CachePool,
    info: HeadInfo,
    gallery: Gallery,
    streams: Vec<Stream>,
    /// Tracks that asked for a cache in vain: they are not asked again, and counted once.
    refused: Vec<TrackId>,
    batch: Vec<f32>,
    /// Index of the stream of each token in the batch, and its slot.
    of: Vec<usize>,
    slots: Vec<CacheSlot>,
    output: HeadOutput,
    estimates: Vec<TrackEstimate>,
    tokens: u64,
    failed: u64,
}

/// The attention as configured, for weights of this shape.
fn attention(settings: &Settings, weights: &WeightBlob) -> TemporalHeadConfig {
    let header = weights.header();
    let pyramid = settings.memory == Memory::Pyramid;
    TemporalHeadConfig {
        q_heads: header.n_q_heads.into(),
        kv_heads: header.n_kv_heads.into(),
        head_dim: header.head_dim.into(),
        window: settings.window_tokens,
        block_size: settings.block_tokens,
        pattern: if pyramid { Pattern::Pyramid } else { Pattern::Compatible },
        landmark_weight: if pyramid { LandmarkWeight::Count } else { LandmarkWeight::Unit },
        ..TemporalHeadConfig::default()
    }
}

impl HeadStage {
    /// The head as configured; `None` where it is switched off.
    ///
    /// # Errors
    /// [`HeadError`] for a kernel that does not run here, a bad weight file, or settings that do not fit.
    pub fn load(settings: &Settings) -> Result<Option<Self>, HeadError> {
        if !settings.enabled {
            return Ok(None);
        }
        let forced = match settings.kernel.as_str() {
            "auto" => None,
            name => Some(name.parse::<KernelKind>()?),
        };
        let kernel = Kernel::select(forced)?;
        if let Err(error) = Kernel::set_global(forced) {
            tracing::debug!(%error, "the functions of the library go on with another kernel");
        }
        let (weights, name) = match &settings.weights {
            Some(path) => {
                let name = path.display().to_string();
                let open = WeightBlob::open(path);
                (open.map_err(|source| HeadError::Weights { path: name.clone(), source })?, name)
            }
            None => (untrained()?, "embedded".to_owned()),
        };
        let config = attention(settings, &weights);
        let model = HeadModel::new(weights, &config, kernel)?;
        let (layers, heads) = (model.layers(), model.attention().clone());
        let tail_length = settings.tail_tokens;
        let precision = match settings.storage {
            Storage::F32 => CachePrecision::F32,
            Storage::F16 => CachePrecision::F16,
            Storage::Q8 => CachePrecision::TwoTierQ8 { tail_length },
            Storage::Q4 => CachePrecision::TwoTierQ4 { tail_length },
        };
        let policy = match settings.forgetting {
            Forgetting::Slide => FullPolicy::Slide,
            Forgetting::HeavyHitters => FullPolicy::HeavyHitters,
        };
        let capacity = settings.cache_tokens;
        let make = move || (0..layers).map(|_| heads.make_cache_with(capacity, precision, policy)).collect();
        let budget = settings.cache_budget_mib.clamp(0.0, MOST_MIB) * 1_048_576.0;
        let pool = CachePool::new(PLACES, budget as usize, make)?;
        if pool.bytes_each() > pool.budget_bytes() {
            let (each, budget) = (pool.bytes_each(), pool.budget_bytes());
            tracing::warn!(each, budget, "head.cache_budget_mib has no room for a single track: nobody gets a cache");
        }
        let trained = model.info().trained;
        let storage = format!("{:?}", settings.storage).to_lowercase();
        let info = HeadInfo {
            kernel: kernel.features(),
            weights: if trained { name } else { format!("{name}, untrained") },
            trained,
            policy: match (settings.memory, settings.forgetting) {
                (Memory::Pyramid, _) => format!("pyramid, {storage}"),
                (Memory::Compatible, Forgetting::Slide) => format!("slide, {storage}"),
                (Memory::Compatible, Forgetting::HeavyHitters) => format!("heavy hitters, {storage}"),
            },
        };
        Ok(Some(Self::new(model, pool, info)))
    }

    fn new(model: HeadModel, pool: CachePool, info: HeadInfo) -> Self {
        Self {
            model,
            pool,
            info,
            gallery: Gallery::new(GALLERY_S),
            streams: Vec::with_capacity(PLACES),
            refused: Vec::with_capacity(PLACES),
            batch: Vec::with_capacity(PLACES * TOKEN),
            of: Vec::with_capacity(PLACES),
            slots: Vec::with_capacity(PLACES),
            output: HeadOutput::default(),
            estimates: Vec::new(),
            tokens: 0,
            failed: 0,
        }
    }

    /// The tracks as of a tick, and those that ended since the last one.
    pub fn tick(&mut self, now: SensingTime, tracks: &[PoseTrack], ended: &[TrackEnded]) {
        for end in ended {
            self.end(end, tracks);
        }
        self.gallery.expire(now);
        // Who is found is safe before anybody asks for memory.
        for track in tracks {
            if let Some(slot) = track.slot {
                self.pool.set_lost(slot, (track.lifecycle == Lifecycle::Lost).then_some(track.seen));
            }
        }
        for track in tracks {
            let Some(slot) = track.slot else { continue };
            let stream = self.streams.iter().position(|s| s.track == track.id);
            match stream {
                // Its cache was given up: if it is found again it begins anew.
                Some(i) if !self.pool.holds(slot) => {
                    self.streams.remove(i);
                }
                Some(_) => continue,
                None => {}
            }
            let known = self.refused.contains(&track.id);
            if track.lifecycle == Lifecycle::Lost || known && !self.pool.has_room() {
                continue;
            }
            if self.pool.acquire(slot, now) {
                self.refused.retain(|t| *t != track.id);
                self.streams.push(Stream { track: track.id, slot, tokens: 0, last: None });
            } else if !known {
                self.refused.push(track.id);
            }
        }
    }

    fn end(&mut self, end: &TrackEnded, tracks: &[PoseTrack]) {
        self.refused.retain(|t| *t != end.track);
        if let Some(i) = self.estimates.iter().position(|e| e.track == end.track) {
            let estimate = self.estimates.swap_remove(i);
            if end.reason == EndReason::TimedOut {
                self.gallery.insert(end.track, end.at, &estimate.embedding);
            }
        }
        let ended = self.streams.iter().position(|s| s.track == end.track).map(|i| self.streams.swap_remove(i));
        let survivor = match end.reason {
            EndReason::MergedInto(survivor) => tracks.iter().find(|t| t.id == survivor),
            _ => None,
        };
        let Some((survivor, place)) = survivor.and_then(|s| Some((s.id, s.slot?))) else {
            if let Some(slot) = end.slot {
                self.pool.release(slot);
            }
            return;
        };
        // Without a slot of its own to give back, the ended one has left it to the survivor, with what is in it.
        let moved = end.slot.is_none_or(|slot| self.pool.merge(place, slot));
        if let (true, Some(ended)) = (moved, ended) {
            self.refused.retain(|t| *t != survivor);
            self.streams.retain(|s| s.track != survivor);
            self.streams.push(Stream { track: survivor, slot: place, ..ended });
        }
    }

    /// A fused frame: one token for every active track whose links gave something.
    pub fn fused(&mut self, at: SensingTime, tracks: &[PoseTrack], changes: &[Option<LinkChange>]) {
        self.batch.clear();
        self.of.clear();
        self.slots.clear();
        for track in tracks.iter().filter(|t| t.lifecycle == Lifecycle::Active) {
            let Some(i) = self.streams.iter().position(|s| s.track == track.id) else { continue };
            let stream = self.streams[i];
            if !self.pool.holds(stream.slot) {
                continue;
            }
            let mut numbers = [0.0; TOKEN];
            if token(track, changes, stream.last.map(|t| at.secs_since(t)), &mut numbers) {
                self.batch.extend_from_slice(&numbers);
                self.of.push(i);
                self.slots.push(stream.slot);
            }
        }
        if self.slots.is_empty() {
            return;
        }
        let mut caches = PooledCaches { pool: &mut self.pool, slots: &self.slots };
        if let Err(error) = self.model.step(&self.batch, &mut caches, &mut self.output) {
            tracing::debug!(%error, "a token was refused");
        }
        for (n, &i) in self.of.iter().enumerate() {
            let stream = &mut self.streams[i];
            if self.output.answers(n) {
                (stream.tokens, stream.last) = (stream.tokens + 1, Some(at));
                self.tokens += 1;
                continue;
            }
            // Counted, and shown in the metrics; the track goes on with its next token, from the beginning where the
            // model had to reset its caches.
            self.failed += 1;
            let reset = |caches: &mut LayerCaches| caches.iter().all(KvCache::is_empty);
            if self.pool.get_mut(stream.slot).is_some_and(reset) {
                (stream.tokens, stream.last) = (0, None);
            }
        }
        if self.info.trained {
            self.keep_estimates();
        }
    }

    fn keep_estimates(&mut self) {
        for (n, &i) in self.of.iter().enumerate().filter(|(n, _)| self.output.answers(*n)) {
            let track = self.streams[i].track;
            let known = self.estimates.iter().position(|e| e.track == track);
            let place = known.unwrap_or_else(|| {
                self.estimates.push(TrackEstimate { track, embedding: Vec::new(), logits: Vec::new() });
                self.estimates.len() - 1
            });
            let estimate = &mut self.estimates[place];
            estimate.embedding.clear();
            estimate.embedding.extend_from_slice(self.output.embedding(n).unwrap_or_default());
            estimate.logits.clear();
            estimate.logits.extend_from_slice(self.output.logits(n));
        }
    }

    /// What trained weights say of the tracks; nothing from untrained ones.
    pub fn estimates(&self) -> &[TrackEstimate] {
        &self.estimates
    }

    /// What is cached of a track; `None` without a cache.
    pub fn cached(&self, track: TrackId) -> Option<Cached> {
        let stream = self.streams.iter().find(|s| s.track == track && self.pool.holds(s.slot))?;
        Some(Cached { tokens: stream.tokens, bytes: self.pool.bytes_each() as u64 })
    }

    /// In words.
    pub fn info(&self) -> &HeadInfo {
        &self.info
    }

    /// The gallery of people who left.
    pub fn gallery(&self) -> &Gallery {
        &self.gallery
    }

    /// In numbers.
    pub fn stats(&self) -> HeadStats {
        let PoolStats { active_bytes, lost_bytes, spare_bytes, evicted, refused, .. } = self.pool.stats();
        HeadStats {
            active_bytes: active_bytes as u64,
            lost_bytes: lost_bytes as u64,
            spare_bytes: spare_bytes as u64,
            budget_bytes: self.pool.budget_bytes() as u64,
            evicted,
            refused,
            tokens: self.tokens,
            failed: self.failed,
            gallery: self.gallery.len() as u64,
        }
    }
}

/// Random weights of the default shape, marked untrained: what `aetherd head init --seed 0` writes.
fn untrained() -> Result<WeightBlob, HeadError> {
    let make = || WeightBlob::parse(&init(&InitSettings::default())?.to_bytes(WeightDtype::F32)?);
    make().map_err(|source| HeadError::Weights { path: "(embedded)".to_owned(), source })
}
