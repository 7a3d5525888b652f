//! [`Tracker`]: all tracks, tick by tick.
//!
//! *In*: the link features of a tick. *Out*: tracks, ends of tracks, counts. *State*: what is known of each link, the
//! areas, the tracks with their filters and clocks, the free list of cache slots. Pure: no clock and no I/O. A tick
//! allocates only where a track is born, a link is met, the set of speaking links changes, or tracks compete for
//! detections.

use super::area::Area;
use super::kalman::Kalman;
use super::life::{Fate, Life};
use super::plan::{LinkPlace, areas};
use super::settings::Settings;
use super::slots::Slots;
use super::types::{
    EMBEDDING, EndReason, Lifecycle, LinkShare, PeopleCount, Placement, PoseTrack, TrackEnded, TrackId,
};
use crate::frame::LinkKey;
use crate::signal::{LinkFeatures, Verdict};
use crate::types::SensingTime;

/// Longest step that is taken for one; a longer silence counts as this long, seconds.
const LONGEST_STEP_S: f64 = 100_000.0;
/// A longer step is no walk: where somebody went in it is not known, seconds.
const LONGEST_WALK_S: f64 = 2.0;
/// Links that are remembered; beyond them those that are not there are forgotten.
const MOST_LINKS: usize = 128;
/// A link that is not in the features for so long is forgotten, seconds.
const ABSENT_S: f64 = 600.0;
/// A link that says nothing for so long is no part of the plan until it speaks, seconds.
const UNHEARD_S: f64 = 3600.0;
/// Most links of a track.
const MOST_SHARES: usize = 64;

/// What is known of a link.
#[derive(Debug, Clone)]
pub(super) struct KnownLink {
    pub(super) key: LinkKey,
    pub(super) place: LinkPlace,
    /// Last learned quiet level, in linear units.
    pub(super) quiet: Option<f64>,
    /// Sum of changes and number of ticks with motion, kept when the plan is laid out anew.
    pub(super) usual: (f64, f64),
    /// Seconds that it was not in the features, and that it did not say anything, while others did.
    absent_s: f64,
    unheard_s: f64,
    /// Index into the features of this tick.
    pub(super) now: Option<usize>,
}

impl KnownLink {
    /// Is it silent for so long that no image should wait for it?
    fn out_of_plan(&self) -> bool {
        self.unheard_s > UNHEARD_S
    }
}

/// What a track has beside what is shown of it.
#[derive(Debug, Clone)]
pub(super) struct State {
    /// Index of its area; `None` for the track of a zone.
    pub(super) area: Option<usize>,
    pub(super) filter: Option<Kalman>,
    pub(super) life: Life,
    /// Older track next to it, and for how long.
    pub(super) beside: Option<(TrackId, f64)>,
}

/// Figures of the tracker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrackerStats {
    /// Cache slots that tracks hold.
    pub slots_in_use: usize,
    /// Tracks that became active and found no slot free.
    pub without_slot: u64,
    /// Tracks that were not begun because too many live.
    pub not_begun: u64,
}

/// The track stage.
#[derive(Debug)]
pub struct Tracker {
    settings: Settings,
    zones: usize,
    links: Vec<KnownLink>,
    /// Per link of the tick its index among the known ones.
    of_tick: Vec<usize>,
    areas: Vec<Area>,
    /// Per zone its area, if it has geometry.
    area_of: Vec<Option<usize>>,
    /// Per zone whether any link moves; `None` while none has a verdict.
    moving: Vec<Option<bool>>,
    /// Per zone the seconds since a link had a verdict.
    silent_s: Vec<f64>,
    tracks: Vec<PoseTrack>,
    states: Vec<State>,
    slots: Slots,
    next_id: u64,
    not_begun: u64,
    last: Option<SensingTime>,
    /// Whether the places of all links are asked for at the next tick.
    ask_again: bool,
}

impl Tracker {
    /// Nobody there, no link known; `zones` zones.
    pub fn new(settings: Settings, zones: usize) -> Self {
        let settings = settings.within_range();
        Self {
            slots: Slots::new(settings.max_tracks),
            settings,
            zones,
            links: Vec::with_capacity(MOST_SHARES),
            of_tick: Vec::with_capacity(MOST_SHARES),
            areas: Vec::new(),
            area_of: vec![None; zones],
            moving: vec![None; zones],
            silent_s: vec![f64::INFINITY; zones],
            tracks: Vec::with_capacity(64),
            states: Vec::with_capacity(64),
            next_id: 1,
            not_begun: 0,
            last: None,
            ask_again: false,
        }
    }

    /// Takes changed settings and zones over. Where settings or the number of zones have changed, all tracks end
    /// ([`EndReason::Reset`], appended to `ended`) and everything is learned anew. Otherwise tracks, links and what is
    /// learned stay. Either way the places of all links are asked for anew at the next tick, and only what they change
    /// is laid out anew.
    pub fn reconfigure(&mut self, settings: Settings, zones: usize, ended: &mut Vec<TrackEnded>) {
        if self.settings == settings.within_range() && self.zones == zones {
            self.ask_again = true;
            return;
        }
        self.reset(ended);
        let (next_id, last, not_begun) = (self.next_id, self.last, self.not_begun);
        *self = Self { next_id, last, not_begun, ..Self::new(settings, zones) };
    }

    /// Ends all tracks ([`EndReason::Reset`], appended to `ended`); what is known of the links stays.
    pub fn reset(&mut self, ended: &mut Vec<TrackEnded>) {
        let at = self.last.unwrap_or_default();
        while !self.tracks.is_empty() {
            self.end(self.tracks.len() - 1, at, EndReason::Reset, ended);
        }
    }

    /// One tick. `links` are the features of all links at `at`; `place_of` is asked once for each link that is met (and
    /// again after [`reconfigure`](Self::reconfigure), and where it was forgotten). Ends of tracks are appended to `ended`.
    pub fn step(
        &mut self,
        at: SensingTime,
        links: &[LinkFeatures],
        place_of: &mut dyn FnMut(&LinkKey) -> LinkPlace,
        ended: &mut Vec<TrackEnded>,
    ) {
        let dt_s = self.last.map_or(0.25, |last| at.secs_since(last)).clamp(0.0, LONGEST_STEP_S);
        self.last = Some(at);
        let changed = self.ask_for_places(at, place_of, ended);
        if self.meet(links, dt_s, place_of) | changed {
            self.lay_out(at, ended);
        }
        self.look_at_zones(links, dt_s);
        for area in 0..self.areas.len() {
            self.step_area(area, at, links, dt_s, ended);
            if self.areas[area].blind(&self.settings) {
                self.hand_over(area, at, ended);
            }
        }
        for zone in 0..self.zones {
            self.step_zone(zone, at, links, dt_s, ended);
        }
        self.merge(at, dt_s, ended);
    }

    /// All living tracks, in the order of their birth.
    pub fn tracks(&self) -> &[PoseTrack] {
        &self.tracks
    }

    /// How many people are in the zone with index `zone`; `None` while nothing is known of it.
    ///
    /// The active tracks, and 1 while no track of the zone is active and one is lost: that person is gone, or there and
    /// still. Always "at least": two people near each other look like one, and who has not moved for
    /// `terminate_after_s`, or never, is not seen (see `docs/tracking.md`).
    pub fn count(&self, zone: usize) -> Option<PeopleCount> {
        if self.silent_s.get(zone).is_none_or(|s| *s > self.settings.outage_freeze_s) {
            return None;
        }
        let here = |lifecycle| {
            self.tracks.iter().filter(|t| usize::from(t.zone) == zone && t.lifecycle == lifecycle).count() as u16
        };
        let (active, lost) = (here(Lifecycle::Active), here(Lifecycle::Lost));
        let people = if lost > 0 { active.max(1) } else { active };
        Some(PeopleCount { people, at_least: true })
    }

    /// Whether the links of a zone cross so that people far enough apart can be told from each other, and enough of them
    /// speak.
    pub fn tells_people_apart(&self, zone: usize) -> bool {
        self.area_of.get(zone).copied().flatten().is_some_and(|a| !self.areas[a].blind(&self.settings))
    }

    /// Keeps the embedding of a track; ignored where the track has ended or the length is not [`EMBEDDING`].
    pub fn set_embedding(&mut self, track: TrackId, embedding: &[f32]) {
        if embedding.len() != EMBEDDING {
            return;
        }
        if let Some(track) = self.tracks.iter_mut().find(|t| t.id == track) {
            let kept = track.embedding.get_or_insert_with(|| Vec::with_capacity(EMBEDDING));
            kept.clear();
            kept.extend_from_slice(embedding);
        }
    }

    /// Figures.
    pub fn stats(&self) -> TrackerStats {
        TrackerStats {
            slots_in_use: self.slots.in_use(),
            without_slot: self.slots.refused(),
            not_begun: self.not_begun,
        }
    }

    /// Asks for the places of all known links, if that is due. True where one has changed; the tracks of zones that such a
    /// link watches or watched end (those of areas: see `lay_out`).
    fn ask_for_places(
        &mut self,
        at: SensingTime,
        place_of: &mut dyn FnMut(&LinkKey) -> LinkPlace,
        ended: &mut Vec<TrackEnded>,
    ) -> bool {
        if !std::mem::take(&mut self.ask_again) {
            return false;
        }
        let mut touched = Vec::new();
        let mut changed = false;
        for link in &mut self.links {
            let place = place_of(&link.key);
            if place != link.place {
                changed = true;
                touched.extend(link.place.zones.iter().chain(&place.zones).copied());
                link.place = place;
            }
        }
        for i in (0..self.tracks.len()).rev() {
            if self.states[i].area.is_none() && touched.contains(&usize::from(self.tracks[i].zone)) {
                self.end(i, at, EndReason::Reset, ended);
            }
        }
        changed
    }

    /// Finds the links of the tick among the known ones. True where the plan has to be laid out anew: a link is new, or
    /// one has not been heard for so long that it leaves the plan, or is heard again. Time without hearing counts only
    /// while another link is heard: an outage of all says nothing about one.
    fn meet(&mut self, links: &[LinkFeatures], dt_s: f64, place_of: &mut dyn FnMut(&LinkKey) -> LinkPlace) -> bool {
        self.of_tick.clear();
        self.links.iter_mut().for_each(|l| l.now = None);
        let mut changed = false;
        for (i, features) in links.iter().enumerate() {
            // Mostly the order is that of the tick before.
            let same = self.links.get(i).is_some_and(|l| l.key == features.link);
            let found = if same { Some(i) } else { self.links.iter().position(|l| l.key == features.link) };
            let index = found.unwrap_or_else(|| {
                changed = true;
                let place = place_of(&features.link);
                self.links.push(KnownLink {
                    key: features.link,
                    place,
                    quiet: None,
                    usual: (0.0, 0.0),
                    absent_s: 0.0,
                    unheard_s: 0.0,
                    now: None,
                });
                self.links.len() - 1
            });
            let link = &mut self.links[index];
            link.now = Some(i);
            link.quiet = features.quiet.map(|q| f64::from(q).exp()).filter(|q| q.is_finite()).or(link.quiet);
            self.of_tick.push(index);
        }
        if links.iter().any(|l| l.change.is_some()) {
            for link in &mut self.links {
                let was_out = link.out_of_plan();
                let features = link.now.and_then(|i| links.get(i));
                link.absent_s = if features.is_some() { 0.0 } else { link.absent_s + dt_s };
                let heard = features.is_some_and(|f| f.change.is_some());
                link.unheard_s = if heard { 0.0 } else { link.unheard_s + dt_s };
                changed |= link.out_of_plan() != was_out;
            }
        }
        let most = self.links.len() > MOST_LINKS;
        if most || self.links.iter().any(|l| l.absent_s > ABSENT_S) {
            self.links.retain(|l| if most { l.now.is_some() } else { l.absent_s <= ABSENT_S });
            let links = &self.links;
            self.of_tick.clear();
            self.of_tick
                .extend(links.iter().enumerate().filter_map(|(i, l)| l.now.map(|now| (now, i))).map(|(_, i)| i));
            self.of_tick.sort_by_key(|i| links[*i].now);
            changed = true;
        }
        changed
    }

    /// Areas anew. Tracks of areas that stay as they are live on; the others end, and so does the track of a zone that has got
    /// geometry.
    fn lay_out(&mut self, at: SensingTime, ended: &mut Vec<TrackEnded>) {
        let nowhere = LinkPlace::default();
        let places: Vec<&LinkPlace> =
            self.links.iter().map(|l| if l.out_of_plan() { &nowhere } else { &l.place }).collect();
        let plans = areas(self.zones, &places, self.settings.grid_step_m, self.settings.ellipse_excess_m);
        let mut old = std::mem::take(&mut self.areas);
        let mut becomes: Vec<Option<usize>> = vec![None; old.len()];
        let names: Vec<Vec<(LinkKey, LinkPlace)>> = old.iter().map(|a| a.keys.clone()).collect();
        for area in &old {
            for ((key, _), usual) in area.keys.iter().zip(area.image.usual()) {
                if let Some(link) = self.links.iter_mut().find(|l| l.key == *key) {
                    link.usual = *usual;
                }
            }
        }
        for plan in plans {
            let keys: Vec<_> = plan.links.iter().map(|l| (self.links[*l].key, self.links[*l].place.clone())).collect();
            let same = old.iter().position(|a| a.keys == keys && a.plan.zones == plan.zones);
            let area = match same {
                Some(i) => {
                    let mut kept = old.remove(i);
                    kept.plan = plan;
                    kept
                }
                None => Area::new(plan, &self.links, &self.settings),
            };
            // Links more or fewer in the same plane: the tracks stay where they are.
            let within = |a: &[(LinkKey, LinkPlace)], b: &[(LinkKey, LinkPlace)]| a.iter().all(|k| b.contains(k));
            for (n, becomes) in names.iter().zip(&mut becomes) {
                if becomes.is_none() && (within(n, &area.keys) || within(&area.keys, n)) {
                    *becomes = Some(self.areas.len());
                }
            }
            self.areas.push(area);
        }
        self.area_of.fill(None);
        for (i, area) in self.areas.iter().enumerate() {
            for zone in &area.plan.zones {
                self.area_of[*zone] = Some(i);
            }
        }
        for i in (0..self.tracks.len()).rev() {
            let stays = match self.states[i].area {
                Some(area) => {
                    self.states[i].area = becomes[area];
                    becomes[area].is_some()
                }
                None => self.area_of[usize::from(self.tracks[i].zone)].is_none(),
            };
            if !stays {
                self.end(i, at, EndReason::Reset, ended);
            }
        }
    }

    fn look_at_zones(&mut self, links: &[LinkFeatures], dt_s: f64) {
        self.moving.fill(None);
        for (features, index) in links.iter().zip(&self.of_tick) {
            let said = match features.verdict {
                Verdict::Moving => true,
                Verdict::Still => false,
                Verdict::None(_) => continue,
            };
            for zone in &self.links[*index].place.zones {
                if let Some(moving) = self.moving.get_mut(*zone) {
                    *moving = Some(moving.unwrap_or(false) | said);
                }
            }
        }
        for (silent_s, moving) in self.silent_s.iter_mut().zip(&self.moving) {
            *silent_s = if moving.is_some() { 0.0 } else { *silent_s + dt_s };
        }
    }

    /// The one track of a zone without geometry, or whose links do not suffice for an image any more.
    fn step_zone(
        &mut self,
        zone: usize,
        at: SensingTime,
        links: &[LinkFeatures],
        dt_s: f64,
        ended: &mut Vec<TrackEnded>,
    ) {
        let index =
            self.tracks.iter().zip(&self.states).position(|(t, s)| s.area.is_none() && usize::from(t.zone) == zone);
        if self.tells_people_apart(zone) {
            if let Some(index) = index {
                self.end(index, at, EndReason::Reset, ended);
            }
            return;
        }
        let seen = self.moving[zone];
        let index = match (index, seen) {
            (Some(index), _) => Some(index),
            (None, Some(true)) => self.begin(zone, None, None, at),
            (None, _) => None,
        };
        let Some(index) = index else { return };
        if !self.live(index, seen, dt_s, at, ended) {
            return;
        }
        let (of_tick, known) = (&self.of_tick, &self.links);
        let track = &mut self.tracks[index];
        track.links.clear();
        if seen == Some(true) {
            let scores = links.iter().zip(of_tick).enumerate().filter_map(|(i, (features, k))| {
                let mine = known[*k].place.zones.contains(&zone) && features.verdict == Verdict::Moving;
                mine.then(|| (i, f64::from(features.score.unwrap_or(0.0))))
            });
            share(scores, &mut track.links);
        }
    }

    /// All tracks of an area.
    fn step_area(
        &mut self,
        area: usize,
        at: SensingTime,
        links: &[LinkFeatures],
        dt_s: f64,
        ended: &mut Vec<TrackEnded>,
    ) {
        let settings = &self.settings;
        let known = self.areas[area].look(links, &self.links, dt_s, settings);
        for (track, state) in self.tracks.iter().zip(&mut self.states) {
            if let (Some(filter), true) = (&mut state.filter, state.area == Some(area)) {
                // Who is not seen for long is not taken for walking on through the walls, and of whom nothing is known
                // for walking at all.
                if !known
                    || dt_s > LONGEST_WALK_S
                    || track.lifecycle == Lifecycle::Lost
                    || state.life.missed_s() > settings.lost_after_s / 2.0
                {
                    filter.wait(dt_s, settings.acceleration);
                } else {
                    filter.predict(dt_s, settings.acceleration);
                }
                let grid = &self.areas[area].image.grid;
                filter.keep_within(grid.low_m, grid.high_m);
            }
        }
        self.areas[area].assign(area, &self.tracks, &self.states, settings);
        for index in (0..self.tracks.len()).rev() {
            if self.states[index].area != Some(area) {
                continue;
            }
            let detection = self.areas[area].detection_of(index);
            if let (Some(detection), Some(filter)) = (detection, &mut self.states[index].filter) {
                filter.update(&self.areas[area].measured(&detection, &self.settings));
            }
            let seen = known.then_some(detection.is_some());
            if self.live(index, seen, dt_s, at, ended) {
                self.describe(index, area);
            }
        }
        for i in 0..self.areas[area].image.detections.len() {
            if let Some(detection) = self.areas[area].newcomer(i) {
                let filter = Kalman::new(detection.position_m, self.settings.detection_sigma_m);
                let zone = self.areas[area].zone_at(detection.position_m);
                if let Some(index) = self.begin(zone, Some(area), Some(filter), at) {
                    // Its first sight is this tick.
                    self.live(index, Some(true), dt_s, at, ended);
                    self.describe(index, area);
                }
            }
        }
    }

    /// The tracks of an area without image: in each zone the oldest that is believed becomes the zone's, without a place;
    /// the others end, since the zone cannot tell them apart.
    fn hand_over(&mut self, area: usize, at: SensingTime, ended: &mut Vec<TrackEnded>) {
        for i in (0..self.tracks.len()).rev() {
            if self.states[i].area != Some(area) {
                continue;
            }
            let zone = self.tracks[i].zone;
            let believed = |k: usize| self.tracks[k].zone == zone && self.tracks[k].lifecycle != Lifecycle::Tentative;
            let first = !(0..i).any(|k| believed(k) && self.states[k].area == Some(area));
            let free = !(0..self.tracks.len()).any(|k| self.tracks[k].zone == zone && self.states[k].area.is_none());
            if believed(i) && first && free {
                let state = &mut self.states[i];
                (state.area, state.filter, state.beside) = (None, None, None);
                self.tracks[i].placement = None;
            } else {
                self.end(i, at, EndReason::Reset, ended);
            }
        }
    }

    /// Place, zone and links of a track in the plane.
    fn describe(&mut self, index: usize, area: usize) {
        let (track, state, area) = (&mut self.tracks[index], &self.states[index], &self.areas[area]);
        let Some(filter) = &state.filter else { return };
        let position_m = filter.position();
        track.placement = Some(Placement { position_m, velocity_m_s: filter.velocity(), sigma_m: filter.sigma() });
        track.zone = area.zone_at(position_m) as u16;
        track.links.clear();
        if area.known && state.life.missed_s() == 0.0 {
            let cell = area.image.cell_at(position_m);
            let said = area
                .plan
                .links
                .iter()
                .enumerate()
                .filter_map(|(l, known)| Some((self.links[*known].now?, area.image.evidence(l, cell))));
            share(said, &mut track.links);
        }
    }

    /// A new track; `None`, counted, where too many live.
    fn begin(&mut self, zone: usize, area: Option<usize>, filter: Option<Kalman>, at: SensingTime) -> Option<usize> {
        if self.tracks.len() >= 2 * usize::from(self.settings.max_tracks) {
            self.not_begun += 1;
            return None;
        }
        self.tracks.push(PoseTrack {
            id: TrackId(self.next_id),
            lifecycle: Lifecycle::Tentative,
            zone: zone as u16,
            placement: None,
            born: at,
            seen: at,
            slot: None,
            links: Vec::with_capacity(MOST_SHARES),
            embedding: None,
            keypoints: None,
        });
        self.next_id += 1;
        self.states.push(State { area, filter, life: Life::default(), beside: None });
        Some(self.tracks.len() - 1)
    }

    /// Lets a tick pass for a track. False where it has ended.
    fn live(
        &mut self,
        index: usize,
        seen: Option<bool>,
        dt_s: f64,
        at: SensingTime,
        ended: &mut Vec<TrackEnded>,
    ) -> bool {
        let track = &mut self.tracks[index];
        if seen == Some(true) {
            track.seen = at;
        }
        match self.states[index].life.tick(track.lifecycle, seen, dt_s, &self.settings) {
            Fate::Ends(reason) => {
                self.end(index, at, reason, ended);
                false
            }
            Fate::Goes(to) => {
                if to == Lifecycle::Active && track.lifecycle == Lifecycle::Tentative && track.slot.is_none() {
                    track.slot = self.slots.take();
                }
                track.lifecycle = to;
                true
            }
        }
    }

    fn end(&mut self, index: usize, at: SensingTime, reason: EndReason, ended: &mut Vec<TrackEnded>) {
        let track = self.tracks.remove(index);
        self.states.remove(index);
        if let Some(slot) = track.slot {
            self.slots.give_back(slot);
        }
        ended.push(TrackEnded { track: track.id, at, reason, slot: track.slot });
    }
}

/// Shares of 1 in proportion to what each link says, equal ones where nothing says anything.
fn share(said: impl Iterator<Item = (usize, f64)>, out: &mut Vec<LinkShare>) {
    out.clear();
    let mut sum = 0.0;
    for (link, value) in said.take(MOST_SHARES) {
        let value = if value.is_finite() { value.max(0.0) } else { 0.0 };
        sum += value;
        out.push(LinkShare { link: link as u16, share: value as f32 });
    }
    let equal = 1.0 / out.len().max(1) as f64;
    for s in out {
        s.share = if sum > 0.0 { (f64::from(s.share) / sum) as f32 } else { equal as f32 };
    }
}

mod merge;
#[cfg(test)]
mod tests;
