//! Embeddings of people who left, kept for a while.
//!
//! *In*: the embedding of every track that ends, if it had one (trained weights only). *Out*: who of them is nearest to
//! an embedding. *State*: at most 64 embeddings, each with its time to live; the oldest gives way. Nothing is
//! written to disk.

use crate::track::{EMBEDDING, TrackId};
use crate::types::SensingTime;

/// Most embeddings kept.
const MOST: usize = 64;

/// One who left.
#[derive(Debug, Clone, PartialEq)]
struct Entry {
    track: TrackId,
    left: SensingTime,
    embedding: [f32; EMBEDDING],
}

/// The gallery.
#[derive(Debug)]
pub struct Gallery {
    keep_s: f64,
    entries: Vec<Entry>,
}

impl Gallery {
    /// Empty; entries live `keep_s` seconds.
    pub fn new(keep_s: f64) -> Self {
        Self { keep_s, entries: Vec::with_capacity(MOST) }
    }

    /// Takes the embedding of a track that ended. Anything but [`EMBEDDING`] finite numbers is left out.
    pub fn insert(&mut self, track: TrackId, left: SensingTime, embedding: &[f32]) {
        let Ok(embedding) = <[f32; EMBEDDING]>::try_from(embedding) else { return };
        if embedding.iter().any(|x| !x.is_finite()) {
            return;
        }
        if self.entries.len() == MOST {
            self.entries.remove(0);
        }
        self.entries.push(Entry { track, left, embedding });
    }

    /// Gives up what is too old.
    pub fn expire(&mut self, now: SensingTime) {
        let keep_s = self.keep_s;
        self.entries.retain(|e| now.secs_since(e.left) <= keep_s);
    }

    /// Who is nearest to `embedding` (of unit length), and the cosine similarity, -1 to 1.
    pub fn nearest(&self, embedding: &[f32]) -> Option<(TrackId, f32)> {
        let cosine = |e: &Entry| e.embedding.iter().zip(embedding).map(|(a, b)| a * b).sum::<f32>();
        self.entries.iter().map(|e| (e.track, cosine(e))).max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// How many are kept.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nobody is.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn unit(axis: usize) -> [f32; EMBEDDING] {
        std::array::from_fn(|i| if i == axis { 1.0 } else { 0.0 })
    }

    #[test]
    fn the_nearest_is_found_and_time_and_room_run_out() {
        let mut gallery = Gallery::new(60.0);
        assert_eq!(gallery.nearest(&unit(0)), None);
        for i in 0..MOST as u64 + 3 {
            gallery.insert(TrackId(i), SensingTime(i as i64 * 1_000_000), &unit(i as usize % EMBEDDING));
        }
        assert_eq!(gallery.len(), MOST, "the oldest gave way");
        assert_eq!(gallery.nearest(&unit(10)).unwrap(), (TrackId(10), 1.0));
        gallery.expire(SensingTime(100_000_000));
        assert_eq!(gallery.len(), 27, "those of seconds 40 to 66");
        gallery.insert(TrackId(99), SensingTime(0), &[1.0]);
        gallery.insert(TrackId(99), SensingTime(0), &[f32::NAN; EMBEDDING]);
        assert_eq!(gallery.len(), 27);
    }
}
