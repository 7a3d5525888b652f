//! Which tracks are one person: those that keep beside each other, and those of one embedding.

use super::{State, Tracker};
use crate::track::area::one_person;
use crate::track::assign::{Weights, cosine_distance};
use crate::track::types::{EndReason, Lifecycle, PoseTrack, TrackEnded};
use crate::types::SensingTime;

/// How fast a lost person may have walked on average to where a young track is, m/s: the edge of the gate of place.
const WALK_M_S: f64 = 1.5;

impl Tracker {
    /// Younger tracks that keep beside an older one are it; so is one whose embedding is that of a lost track. Nothing
    /// is merged, and no clock runs, in an area of which nothing is known at this tick.
    pub(super) fn merge(&mut self, at: SensingTime, dt_s: f64, ended: &mut Vec<TrackEnded>) {
        for young in (0..self.tracks.len()).rev() {
            if self.states[young].area.is_none_or(|a| !self.areas[a].known) {
                continue;
            }
            let older = (0..young)
                .find(|old| one_person(&self.states[*old], &self.states[young], &self.settings))
                .map(|old| self.tracks[old].id);
            let state = &mut self.states[young];
            state.beside = match (older, state.beside) {
                (Some(id), Some((before, for_s))) if id == before => Some((id, for_s + dt_s)),
                (Some(id), _) => Some((id, dt_s)),
                (None, _) => None,
            };
            let beside = state.beside.filter(|(_, for_s)| *for_s >= self.settings.merge_after_s).map(|(id, _)| id);
            let beside = beside.and_then(|id| self.tracks.iter().position(|t| t.id == id));
            let beside = beside.filter(|old| may_merge(&self.tracks[*old], &self.tracks[young]));
            if let Some(old) = beside.or_else(|| self.found_again(young)) {
                let into = self.tracks[old].id;
                self.take_over(old, young);
                self.end(young, at, EndReason::MergedInto(into), ended);
            }
        }
    }

    /// The lost track of the same area that the embedding of an active one is of, if any: that of the lowest cost among
    /// those within the embedding distance. The cost of place is 1 where it takes a walk at [`WALK_M_S`] since the lost one
    /// was seen, that of the embedding 1 at the embedding distance; they are weighted as the settings say.
    fn found_again(&self, young: usize) -> Option<usize> {
        let (track, state) = (&self.tracks[young], &self.states[young]);
        if track.lifecycle != Lifecycle::Active {
            return None;
        }
        let settings = &self.settings;
        let weights = Weights { position: settings.position_weight, embedding: settings.embedding_weight, gate: 1.0 };
        let cost = |old: usize| {
            let (lost, before) = (&self.tracks[old], &self.states[old]);
            if lost.lifecycle != Lifecycle::Lost || lost.seen > track.born || before.area != state.area {
                return None;
            }
            let cosine = cosine_distance(lost.embedding.as_deref(), track.embedding.as_deref())?;
            if cosine > settings.embedding_distance {
                return None;
            }
            let way_m =
                crate::track::plan::distance(before.filter.as_ref()?.position(), state.filter.as_ref()?.position());
            let reach_m = settings.detection_sigma_m + WALK_M_S * track.seen.secs_since(lost.seen).max(0.0);
            weights.cost((way_m / reach_m).powi(2), 1.0, Some(cosine / settings.embedding_distance.max(1e-6)))
        };
        let costs = (0..young).filter_map(|old| Some((old, cost(old)?)));
        costs.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(old, _)| old)
    }

    /// The older track goes on where the younger one is, if that was seen later, and is as far in its life as the further
    /// of the two. The older one's cache survives; where it has none, it takes the younger one's.
    fn take_over(&mut self, old: usize, young: usize) {
        let (before, after) = self.tracks.split_at_mut(young);
        let (older, younger) = (&mut before[old], &mut after[0]);
        if younger.seen > older.seen {
            older.seen = younger.seen;
            (older.placement, older.zone) = (younger.placement, younger.zone);
            std::mem::swap(&mut older.links, &mut younger.links);
            let State { filter, life, .. } = &self.states[young];
            let (filter, life) = (filter.clone(), *life);
            (self.states[old].filter, self.states[old].life) = (filter, life);
        }
        if younger.lifecycle == Lifecycle::Active {
            older.lifecycle = Lifecycle::Active;
        }
        if older.slot.is_none() {
            older.slot = younger.slot.take();
        }
        if older.embedding.is_none() {
            older.embedding = younger.embedding.take();
        }
    }
}

/// A tentative younger track is not believed yet, so it is merged into nothing; a lost one is not merged into one that
/// is not believed.
fn may_merge(older: &PoseTrack, younger: &PoseTrack) -> bool {
    match younger.lifecycle {
        Lifecycle::Tentative => false,
        Lifecycle::Active => true,
        Lifecycle::Lost => older.lifecycle != Lifecycle::Tentative,
    }
}
