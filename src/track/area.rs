//! An area with geometry: its image, and which detection goes to which track.

use nalgebra::Matrix2;

use super::assign::{Assignment, Weights};
use super::image::{Detection, Image};
use super::kalman::Measured;
use super::plan::{AreaPlan, LinkPlace, distance};
use super::settings::Settings;
use super::tracker::{KnownLink, State};
use super::types::PoseTrack;
use crate::frame::LinkKey;
use crate::signal::{LinkFeatures, Verdict};

/// Quiet level of a link that has not learned its own: white noise.
const QUIET: f64 = 2.0;
/// An image needs this part of the area's links.
const LEAST_PART: f64 = 0.5;

/// Zones that share links, with their image.
#[derive(Debug)]
pub(super) struct Area {
    pub(super) plan: AreaPlan,
    /// Its links and where they run.
    pub(super) keys: Vec<(LinkKey, LinkPlace)>,
    pub(super) image: Image,
    /// Zone of each cell.
    zone_of: Vec<usize>,
    /// Per link its change at this tick.
    changes: Vec<Option<f64>>,
    /// Whether anything is known at this tick.
    pub(super) known: bool,
    /// Seconds since there was an image.
    blind_s: f64,
    /// How old, on average, is what the links say, seconds.
    age_s: f64,
    assignment: Assignment,
    /// Per track index its detection.
    given: Vec<Option<usize>>,
    /// Track indices of the rows.
    rows: Vec<usize>,
}

impl Area {
    pub(super) fn new(plan: AreaPlan, known: &[KnownLink], settings: &Settings) -> Self {
        let ends: Vec<[[f64; 2]; 2]> = plan.links.iter().filter_map(|l| known[*l].place.ends()).collect();
        let mut image = Image::new(&ends, settings);
        image.remember(plan.links.iter().map(|l| known[*l].usual));
        // The zone whose links look at a cell most closely.
        let of_cell = |cell: usize| {
            let look = |zone: &usize| {
                let mine = plan.links.iter().enumerate().filter(|(_, k)| known[**k].place.zones.contains(zone));
                let (mut sum, mut n) = (0.0, 0.0);
                for (l, _) in mine {
                    sum += image.weight(l, cell);
                    n += 1.0;
                }
                sum / f64::max(n, 1.0)
            };
            // Of equals the first.
            plan.zones.iter().copied().rev().max_by(|a, b| look(a).total_cmp(&look(b))).unwrap_or(0)
        };
        Self {
            zone_of: (0..image.grid.cells.len()).map(of_cell).collect(),
            keys: plan.links.iter().map(|l| (known[*l].key, known[*l].place.clone())).collect(),
            changes: vec![None; plan.links.len()],
            plan,
            image,
            known: false,
            blind_s: 0.0,
            age_s: 0.0,
            assignment: Assignment::with_room(
                2 * usize::from(settings.max_tracks),
                usize::from(settings.max_detections),
            ),
            given: Vec::with_capacity(2 * usize::from(settings.max_tracks)),
            rows: Vec::with_capacity(2 * usize::from(settings.max_tracks)),
        }
    }

    /// Looks at a tick. True where something is known: enough links speak. Detections only while one of them moves.
    pub(super) fn look(&mut self, links: &[LinkFeatures], known: &[KnownLink], dt_s: f64, settings: &Settings) -> bool {
        let (mut speak, mut moving, mut age_s) = (0, false, 0.0);
        for (change, index) in self.changes.iter_mut().zip(&self.plan.links) {
            let link = &known[*index];
            let features = link.now.and_then(|i| links.get(i));
            *change = features.and_then(|f| {
                moving |= f.verdict == Verdict::Moving;
                let hz = f64::from(f.rate_hz).max(1.0);
                let above = f64::from(f.change?).exp() - link.quiet.unwrap_or(QUIET);
                age_s += settings.age_factor * (0.6 + 40.0 / hz).clamp(1.0, 2.0);
                above.is_finite().then_some(above.max(0.0))
            });
            speak += usize::from(change.is_some());
        }
        self.age_s = age_s / f64::max(speak as f64, 1.0);
        self.image.detections.clear();
        let enough = speak >= 3 && speak as f64 >= LEAST_PART * self.plan.links.len() as f64;
        let looked = enough && (!moving || self.image.look(&self.changes, settings));
        self.blind_s = if looked { 0.0 } else { self.blind_s + dt_s };
        self.known = looked;
        looked
    }

    /// True where there has been no image for so long that the zones are better off without.
    pub(super) fn blind(&self, settings: &Settings) -> bool {
        self.blind_s > settings.outage_freeze_s
    }

    /// A detection for the filter.
    pub(super) fn measured(&self, detection: &Detection, settings: &Settings) -> Measured {
        Measured {
            position_m: detection.position_m,
            covariance: Matrix2::identity() * settings.detection_sigma_m.powi(2),
            age_s: self.age_s,
        }
    }

    /// Gives the detections of this tick to the tracks of the area, which is number `me`.
    pub(super) fn assign(&mut self, me: usize, tracks: &[PoseTrack], states: &[State], settings: &Settings) {
        self.given.clear();
        self.given.resize(tracks.len(), None);
        self.rows.clear();
        self.rows.extend((0..tracks.len()).filter(|i| states[*i].area == Some(me)));
        let detections = &self.image.detections;
        if detections.is_empty() || self.rows.is_empty() {
            return;
        }
        let weights =
            Weights { position: settings.position_weight, embedding: settings.embedding_weight, gate: settings.gate() };
        self.assignment.begin(self.rows.len(), detections.len());
        for (row, index) in self.rows.iter().enumerate() {
            let Some(filter) = &states[*index].filter else { continue };
            for (column, detection) in detections.iter().enumerate() {
                // A detection has no embedding: that is made of a track's tokens, after this.
                let measured = self.measured(detection, settings);
                let cost = filter
                    .distance(&measured)
                    .and_then(|(d2, volume)| weights.cost(d2, volume / measured.covariance.determinant(), None));
                self.assignment.set(row, column, cost);
            }
        }
        for (row, detection) in self.assignment.solve().iter().enumerate() {
            self.given[self.rows[row]] = *detection;
        }
    }

    /// The detection that went to the track with index `track`.
    pub(super) fn detection_of(&self, track: usize) -> Option<Detection> {
        self.given.get(track).copied().flatten().map(|d| self.image.detections[d])
    }

    /// Detection `i`, if it went to nobody.
    pub(super) fn newcomer(&self, i: usize) -> Option<Detection> {
        (!self.given.contains(&Some(i))).then(|| self.image.detections[i])
    }

    /// Zone of a place.
    pub(super) fn zone_at(&self, at: [f64; 2]) -> usize {
        self.zone_of[self.image.cell_at(at)]
    }
}

/// Are two tracks, for now, where one person could be? Within the merging distance, and within each other's gate.
pub(super) fn one_person(a: &State, b: &State, settings: &Settings) -> bool {
    let (Some(first), Some(second)) = (&a.filter, &b.filter) else { return false };
    let there = Measured { position_m: second.position(), covariance: second.position_covariance(), age_s: 0.0 };
    a.area == b.area
        && distance(first.position(), second.position()) <= settings.merge_distance_m
        && first.distance(&there).is_some_and(|(d2, _)| d2 <= settings.gate())
}
