//! The sensing stages in a row: frames -> signal -> track -> head -> event. Pure: no clock, no I/O; time comes from the frames.
//!
//! Live, in a replay and in an evaluation this same struct is used, so a recording at full speed gives what it gave
//! in real time.

use crate::config::Settings;
use crate::event::{self, Draft, Event, EventKind, ZoneSettings, Zones};
use crate::frame::{CsiFrame, LinkKey};
use crate::head::HeadStage;
use crate::pipeline::nodes::Directory;
use crate::pipeline::view::Shown;
use crate::signal::{self, FUSED_MICROS, LinkChange, LinkFeatures, Signal, TICK_MICROS};
use crate::track::{self, Lifecycle, LinkPlace, TrackEnded, Tracker};
use crate::types::{NodeKey, Provenance, SensingTime};

/// A silence longer than this in the frames' own time is a new beginning, not a row of silent ticks.
const MAX_SILENCE_MICROS: i64 = 3_600_000_000;

/// What the sensing stages are set up with: plain data.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Motion detection.
    pub signal: signal::Settings,
    /// Tracks.
    pub track: track::Settings,
    /// Hold and dwell.
    pub occupancy: event::Settings,
    /// Zones in force.
    pub zones: Vec<ZoneSettings>,
    /// Names, zones and places of boards.
    pub directory: Directory,
    /// Where the frames come from.
    pub source: Provenance,
}

impl Setup {
    /// As configured; `zones` are those in force, with what was changed from outside.
    pub fn new(settings: &Settings, zones: Vec<ZoneSettings>, directory: Directory, source: Provenance) -> Self {
        Self {
            signal: settings.signal.clone(),
            track: settings.track.clone(),
            occupancy: settings.occupancy.clone(),
            zones,
            directory,
            source,
        }
    }

    /// Default settings for these zones.
    pub fn of_zones(zones: Vec<ZoneSettings>, directory: Directory, source: Provenance) -> Self {
        Self {
            signal: signal::Settings::default(),
            track: track::Settings::default(),
            occupancy: event::Settings::default(),
            zones,
            directory,
            source,
        }
    }
}

/// What the sensing stages say at a tick.
pub struct TickView<'a> {
    /// The tick.
    pub at: SensingTime,
    /// Every link that lives.
    pub links: &'a [LinkFeatures],
    /// People that are followed.
    pub tracker: &'a Tracker,
    /// The temporal head, where there is one.
    pub head: Option<&'a HeadStage>,
    /// Events of this tick.
    pub events: &'a [Draft],
    /// All zones.
    pub zones: &'a Zones,
    /// Some zone's state changed.
    pub changed: bool,
}

impl TickView<'_> {
    /// The state to show.
    pub(super) fn shown(&self) -> Shown<'_> {
        Shown { zones: self.zones, tracker: self.tracker, head: self.head }
    }
}

/// Signal, track, head and event stage.
pub struct Sensing {
    signal: Signal,
    tracker: Tracker,
    head: Option<HeadStage>,
    zones: Zones,
    directory: Directory,
    known: Vec<NodeKey>,
    /// The next fused frame, and how many come before the next tick.
    next: Option<(SensingTime, i64)>,
    links: Vec<LinkFeatures>,
    changes: Vec<Option<LinkChange>>,
    ended: Vec<TrackEnded>,
    events: Vec<Draft>,
}

/// Fused frames from tick to tick.
const FUSED_PER_TICK: i64 = TICK_MICROS / FUSED_MICROS;
const _: () = assert!(FUSED_PER_TICK * FUSED_MICROS == TICK_MICROS, "every tick is a fused frame");

/// Nodes that are remembered with their zones.
const MAX_NODES: usize = 256;

impl Sensing {
    /// Everything unknown, no frame seen, no temporal head.
    pub fn new(setup: Setup) -> Self {
        let Setup { signal, track, occupancy, zones, directory, source } = setup;
        Self {
            signal: Signal::new(signal),
            tracker: Tracker::new(track, zones.len()),
            head: None,
            zones: Zones::new(occupancy, &zones, source),
            directory,
            known: Vec::with_capacity(MAX_NODES),
            next: None,
            links: Vec::with_capacity(64),
            changes: Vec::with_capacity(64),
            ended: Vec::with_capacity(16),
            events: Vec::with_capacity(16),
        }
    }

    /// With the temporal head: active tracks stream their tokens through it.
    #[must_use]
    pub fn with_head(mut self, head: HeadStage) -> Self {
        self.head = Some(head);
        self
    }

    /// Takes changed zones, names, tracking and occupancy settings over; the signal stage keeps its windows. Tracks end
    /// where the settings of tracking or the number of zones change; places are asked for anew.
    pub fn reconfigure(&mut self, setup: Setup) {
        let Setup { signal: _, track, occupancy, zones, directory, source } = setup;
        self.tracker.reconfigure(track, zones.len(), &mut self.ended);
        self.zones.reconfigure(occupancy, &zones, source);
        self.directory = directory;
        self.assign_known();
    }

    /// Takes up where the journal's last events ended, so that nobody enters twice or never leaves.
    pub fn resume(&mut self, last_events: &[Event]) {
        for event in last_events {
            let (occupied, moving) = match event.kind {
                EventKind::Entered | EventKind::StartedMoving => (true, true),
                EventKind::Still => (true, false),
                EventKind::Left => (false, false),
            };
            self.zones.resume(&event.zone, occupied, moving);
        }
    }

    /// The state to show.
    pub(super) fn shown(&self) -> Shown<'_> {
        Shown { zones: &self.zones, tracker: &self.tracker, head: self.head.as_ref() }
    }

    /// Zones and their states.
    pub fn zones(&self) -> &Zones {
        &self.zones
    }

    /// Changes a zone's hold time. False if there is no such zone.
    pub fn set_hold(&mut self, zone: &str, seconds: f32) -> bool {
        self.zones.set_hold(zone, seconds)
    }

    /// Changes a zone's sensitivity. False if there is no such zone.
    pub fn set_sensitivity(&mut self, zone: &str, factor: f32) -> bool {
        let found = self.zones.set_sensitivity(zone, factor);
        // So that the factor reaches the links.
        self.assign_known();
        found
    }

    /// One frame. Ticks that are due before it come first.
    pub fn frame(&mut self, frame: &CsiFrame, on_tick: &mut dyn FnMut(&TickView<'_>)) {
        self.advance(frame.host_time, on_tick);
        if !self.known.contains(&frame.node) {
            self.meet(frame.node);
        }
        self.zones.heard(frame.node, frame.host_time);
        self.signal.push(frame);
    }

    /// Time has come to `now`: runs the fused frames and ticks that are due.
    pub fn advance(&mut self, now: SensingTime, on_tick: &mut dyn FnMut(&TickView<'_>)) {
        let (mut next, mut before_tick) = match self.next {
            Some((next, before)) if (now.0 - next.0).abs() <= MAX_SILENCE_MICROS => (next, before),
            // The grid begins with the first frame, so that a recording gives the same whatever its epoch.
            _ => (now.plus_micros(FUSED_MICROS), FUSED_PER_TICK - 1),
        };
        while next <= now {
            if before_tick == 0 {
                self.tick(next, on_tick);
                before_tick = FUSED_PER_TICK;
            } else {
                self.fuse(next);
            }
            before_tick -= 1;
            next = next.plus_micros(FUSED_MICROS);
        }
        self.next = Some((next, before_tick));
    }

    /// A fused frame: one token for every track that has a cache.
    fn fuse(&mut self, at: SensingTime) {
        let Some(head) = &mut self.head else { return };
        if !self.tracker.tracks().iter().any(|t| t.lifecycle == Lifecycle::Active) {
            return;
        }
        self.signal.changes(at, &self.links, &mut self.changes);
        head.fused(at, self.tracker.tracks(), &self.changes);
        for estimate in head.estimates() {
            self.tracker.set_embedding(estimate.track, &estimate.embedding);
        }
    }

    fn tick(&mut self, at: SensingTime, on_tick: &mut dyn FnMut(&TickView<'_>)) {
        self.links.clear();
        self.events.clear();
        self.signal.tick(at, &mut self.links);
        let directory = &self.directory;
        let mut place_of = |link: &LinkKey| LinkPlace {
            zones: directory.identify(link.node).zones,
            ends_m: directory.ends(link).map(|(sender, board)| [sender, board]),
        };
        self.tracker.step(at, &self.links, &mut place_of, &mut self.ended);
        if let Some(head) = &mut self.head {
            head.tick(at, self.tracker.tracks(), &self.ended);
        }
        self.ended.clear();
        let tracker = &self.tracker;
        let changed = self.zones.step(at, &self.links, &|zone| tracker.count(zone), &mut self.events);
        on_tick(&TickView {
            at,
            links: &self.links,
            tracker,
            head: self.head.as_ref(),
            events: &self.events,
            zones: &self.zones,
            changed,
        });
        self.fuse(at);
    }

    fn meet(&mut self, node: NodeKey) {
        if self.known.len() == MAX_NODES {
            // Boards come and go with their addresses; those that still send are met again at their next frame.
            self.known.clear();
            self.zones.unassign_all();
        }
        self.known.push(node);
        self.assign(node);
    }

    /// Zones and sensitivity anew for every known board, at once: a tick without them would take the zones for
    /// forsaken.
    fn assign_known(&mut self) {
        for i in 0..self.known.len() {
            self.assign(self.known[i]);
        }
    }

    fn assign(&mut self, node: NodeKey) {
        self.zones.unassign(node);
        let mut sensitivity: f32 = 0.0;
        for zone in self.directory.identify(node).zones {
            self.zones.assign(node, zone);
            sensitivity = sensitivity.max(self.zones.tuning(zone).map_or(1.0, |(_, s)| s));
        }
        self.signal.set_sensitivity(node, if sensitivity > 0.0 { sensitivity } else { 1.0 });
    }
}
