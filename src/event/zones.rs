//! Occupied and moving, per zone.
//!
//! *In*: the link features of one tick, which boards were heard, and how many people the tracks of a zone are. *Out*: zone states and drafts of events. *State*:
//! per zone the last motion, the motion of the present visit, and what was said last. All times are sensing times;
//! a jump of the wall clock changes nothing here.
//!
//! Rules, in this order:
//! 1. A zone with no board heard for `unavailable_after_s` is unavailable; its occupancy is neither cleared nor kept
//!    as a claim: it is unknown until a link has a verdict again.
//! 2. `moving` is true while any link of the zone says so, unknown while none has a verdict.
//! 3. Motion makes the zone occupied. It stays so for `hold_s` after the last motion ("motion"), and after a visit with
//!    at least `dwell_min_motion_s` of motion for `dwell_s` more ("dwell").
//! 4. It becomes empty only while a link says "still". Where no link has a verdict when the time is up, the zone is
//!    unknown, not empty.

use crate::event::{Cause, Draft, EventKind, Settings, Why, ZoneSettings, ZoneState};
use crate::signal::{LinkFeatures, TICK_MICROS, Verdict};
use crate::track::PeopleCount;
use crate::types::{NodeKey, Provenance, SensingTime};

/// Seconds between ticks, for counting how long motion lasted.
const TICK_S: f32 = TICK_MICROS as f32 / 1e6;

/// Allowed hold time, seconds.
pub const HOLD_RANGE_S: (f32, f32) = (1.0, 3600.0);
/// Allowed sensitivity, a factor on the score.
pub const SENSITIVITY_RANGE: (f32, f32) = (0.25, 4.0);

struct Zone {
    state: ZoneState,
    hold_s: f32,
    dwell_s: f32,
    sensitivity: f32,
    last_motion: Option<SensingTime>,
    last_heard: Option<SensingTime>,
    visit_motion_s: f32,
    /// What the events have told so far; differs from `state.occupied` while that is unknown.
    told_occupied: bool,
    told_moving: bool,
}

/// The event stage: all zones.
pub struct Zones {
    settings: Settings,
    zones: Vec<Zone>,
    members: Vec<(NodeKey, usize)>,
}

impl Zones {
    /// One state per configured zone, everything unknown.
    pub fn new(settings: Settings, zones: &[ZoneSettings], source: Provenance) -> Self {
        let zones = zones.iter().map(|z| Zone::new(&settings, z, source)).collect();
        Self { settings, zones, members: Vec::new() }
    }

    /// Takes changed settings over. Zones that stay (same id) keep their state.
    pub fn reconfigure(&mut self, settings: Settings, zones: &[ZoneSettings], source: Provenance) {
        let mut old = std::mem::take(&mut self.zones);
        self.members.clear();
        self.zones = zones
            .iter()
            .map(|z| {
                let mut fresh = Zone::new(&settings, z, source);
                if let Some(i) = old.iter().position(|o| o.state.zone == fresh.state.zone) {
                    let kept = old.swap_remove(i);
                    fresh =
                        Zone { hold_s: fresh.hold_s, dwell_s: fresh.dwell_s, sensitivity: fresh.sensitivity, ..kept };
                }
                fresh
            })
            .collect();
        self.settings = settings;
    }

    /// Says that `node` watches the zone with index `zone`. Saying it twice changes nothing.
    pub fn assign(&mut self, node: NodeKey, zone: usize) {
        if zone < self.zones.len() && !self.members.contains(&(node, zone)) {
            self.members.push((node, zone));
        }
    }

    /// Forgets which zones any node watches.
    pub fn unassign_all(&mut self) {
        self.members.clear();
    }

    /// Forgets which zones `node` watches.
    pub fn unassign(&mut self, node: NodeKey) {
        self.members.retain(|(n, _)| *n != node);
    }

    /// A frame of `node` arrived.
    pub fn heard(&mut self, node: NodeKey, at: SensingTime) {
        for &(n, zone) in &self.members {
            if n == node {
                let z = &mut self.zones[zone];
                z.last_heard = Some(z.last_heard.map_or(at, |t| t.max(at)));
            }
        }
    }

    /// Takes up where the events of an earlier run ended: subscribers hold that `zone` is occupied, and maybe moving.
    pub fn resume(&mut self, zone: &str, occupied: bool, moving: bool) {
        self.with_zone(zone, |z| (z.told_occupied, z.told_moving) = (occupied, occupied && moving));
    }

    /// Present states, in the order of the configuration.
    pub fn states(&self) -> impl ExactSizeIterator<Item = &ZoneState> {
        self.zones.iter().map(|z| &z.state)
    }

    /// Hold time and sensitivity in force for the zone with index `zone`.
    pub fn tuning(&self, zone: usize) -> Option<(f32, f32)> {
        self.zones.get(zone).map(|z| (z.hold_s, z.sensitivity))
    }

    /// Changes the hold time of a zone, clamped to [`HOLD_RANGE_S`]. False if there is no such zone.
    pub fn set_hold(&mut self, zone: &str, seconds: f32) -> bool {
        self.with_zone(zone, |z| z.hold_s = seconds.clamp(HOLD_RANGE_S.0, HOLD_RANGE_S.1))
    }

    /// Changes the sensitivity of a zone, clamped to [`SENSITIVITY_RANGE`]. False if there is no such zone.
    pub fn set_sensitivity(&mut self, zone: &str, factor: f32) -> bool {
        self.with_zone(zone, |z| z.sensitivity = factor.clamp(SENSITIVITY_RANGE.0, SENSITIVITY_RANGE.1))
    }

    fn with_zone(&mut self, id: &str, change: impl FnOnce(&mut Zone)) -> bool {
        self.zones.iter_mut().find(|z| z.state.zone == id).map(change).is_some()
    }

    /// One tick; `tracked` counts the people of a zone (by its index) that are followed. Drafts of events are appended to
    /// `events`; returns whether any state changed.
    pub fn step(
        &mut self,
        now: SensingTime,
        links: &[LinkFeatures],
        tracked: &dyn Fn(usize) -> Option<PeopleCount>,
        events: &mut Vec<Draft>,
    ) -> bool {
        let mut changed = false;
        for (index, zone) in self.zones.iter_mut().enumerate() {
            let members = &self.members;
            let mine = links.iter().filter(|l| members.contains(&(l.link.node, index)));
            changed |= zone.step(&self.settings, now, mine, tracked(index), events);
        }
        changed
    }
}

/// What the links of one zone say together at one tick.
#[derive(Default)]
struct Fused<'a> {
    strongest: Option<(&'a LinkFeatures, f32)>,
    moving: bool,
    verdicts: usize,
    links: usize,
    coverage: f32,
}

impl<'a> Fused<'a> {
    fn of(links: impl Iterator<Item = &'a LinkFeatures>) -> Self {
        let mut fused = Self::default();
        for link in links {
            fused.links += 1;
            if let Some(score) = link.score {
                fused.verdicts += 1;
                fused.coverage += link.coverage;
                fused.moving |= link.verdict == Verdict::Moving;
                if fused.strongest.is_none_or(|(_, s)| score > s) {
                    fused.strongest = Some((link, score));
                }
            }
        }
        fused
    }

    fn quality(&self) -> f32 {
        if self.links == 0 { 0.0 } else { self.coverage / self.links as f32 }
    }
}

impl Zone {
    fn new(settings: &Settings, zone: &ZoneSettings, source: Provenance) -> Self {
        Self {
            state: ZoneState::unknown(zone.effective_id(), source),
            hold_s: zone.hold_s.unwrap_or(settings.hold_s),
            dwell_s: zone.dwell_s.unwrap_or(settings.dwell_s),
            sensitivity: zone.sensitivity.unwrap_or(1.0),
            last_motion: None,
            last_heard: None,
            visit_motion_s: 0.0,
            told_occupied: false,
            told_moving: false,
        }
    }

    fn step<'a>(
        &mut self,
        settings: &Settings,
        now: SensingTime,
        links: impl Iterator<Item = &'a LinkFeatures>,
        tracked: Option<PeopleCount>,
        events: &mut Vec<Draft>,
    ) -> bool {
        let fused = Fused::of(links);
        let people = self.state.people;
        let (occupied, moving) = (self.state.occupied, self.state.moving);
        let (why, available) = (self.state.why, self.state.available);

        self.state.available =
            self.last_heard.is_some_and(|t| now.secs_since(t) < f64::from(settings.unavailable_after_s));
        self.state.score = fused.strongest.map(|(_, s)| s);
        self.state.quality = fused.quality();
        self.state.moving = (fused.verdicts > 0).then_some(fused.moving);
        if fused.moving {
            self.last_motion = Some(now);
            self.visit_motion_s += TICK_S;
        }
        self.decide_occupancy(settings, now, &fused);
        self.state.people = self.state.occupied.map(|occupied| people_in(occupied, tracked));
        self.tell(settings, now, &fused, events);

        if self.state.occupied != occupied {
            self.state.since = self.state.occupied.map(|_| now);
        }
        self.state.occupied != occupied
            || self.state.moving != moving
            || self.state.why != why
            || self.state.people != people
            || self.state.available != available
    }

    fn decide_occupancy(&mut self, settings: &Settings, now: SensingTime, fused: &Fused<'_>) {
        let since_motion = self.last_motion.map(|t| now.secs_since(t) as f32);
        let dwell_s = if self.visit_motion_s >= settings.dwell_min_motion_s { self.dwell_s } else { 0.0 };
        (self.state.occupied, self.state.why) = match since_motion {
            _ if !self.state.available => (None, None),
            Some(s) if s < self.hold_s => (Some(true), Some(Why::Motion)),
            Some(s) if s < self.hold_s + dwell_s => (Some(true), Some(Why::Dwell)),
            _ if fused.verdicts > 0 => (Some(false), None),
            _ => (None, None),
        };
        if self.state.occupied != Some(true) {
            self.visit_motion_s = 0.0;
        }
    }

    fn tell(&mut self, settings: &Settings, now: SensingTime, fused: &Fused<'_>, events: &mut Vec<Draft>) {
        let mut say = |kind, cause| {
            events.push(Draft { zone: self.state.zone.clone(), kind, at: now, cause, source: self.state.source });
        };
        let motion = || Cause {
            why: "motion".to_owned(),
            link: fused.strongest.map(|(l, _)| link_name(l)),
            score: fused.strongest.map(|(_, s)| s),
        };
        let quiet = |why: &str| Cause { why: why.to_owned(), link: None, score: fused.strongest.map(|(_, s)| s) };
        match self.state.occupied {
            Some(true) if !self.told_occupied => {
                say(EventKind::Entered, motion());
                (self.told_occupied, self.told_moving) = (true, true);
            }
            Some(false) if self.told_occupied => {
                say(EventKind::Left, quiet("hold_expired"));
                (self.told_occupied, self.told_moving) = (false, false);
            }
            Some(true) if fused.moving && !self.told_moving => {
                say(EventKind::StartedMoving, motion());
                self.told_moving = true;
            }
            Some(true) if self.told_moving && fused.verdicts > 0 => {
                let quiet_s = self.last_motion.map_or(0.0, |t| now.secs_since(t) as f32);
                if quiet_s >= settings.still_after_s {
                    say(EventKind::Still, quiet("no_motion"));
                    self.told_moving = false;
                }
            }
            _ => {}
        }
    }
}

/// Occupancy knows of people that are not followed (who stands still leaves no track), so it sets the least. A zone that
/// counts as empty holds "at least 0" unless its links would have seen anybody who moves.
fn people_in(occupied: bool, tracked: Option<PeopleCount>) -> PeopleCount {
    match tracked {
        _ if !occupied => PeopleCount { people: 0, at_least: tracked.is_none_or(|c| c.at_least) },
        Some(count) if count.people > 0 => count,
        _ => PeopleCount { people: 1, at_least: true },
    }
}

fn link_name(link: &LinkFeatures) -> String {
    match link.link.transmitter {
        Some(mac) => format!("{}<-{mac}", link.link.node),
        None => link.link.node.to_string(),
    }
}
