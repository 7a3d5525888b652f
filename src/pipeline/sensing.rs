//! The sensing stages in a row: frames -> signal -> event. Pure: no clock, no I/O; time comes from the frames.
//!
//! Live, in a replay and in an evaluation this same struct is used, so a recording at full speed gives what it gave
//! in real time.

use crate::event::{self, Draft, Event, EventKind, ZoneSettings, Zones};
use crate::frame::CsiFrame;
use crate::pipeline::nodes::Directory;
use crate::signal::{self, LinkFeatures, Signal, TICK_MICROS};
use crate::types::{NodeKey, Provenance, SensingTime};

/// A silence longer than this in the frames' own time is a new beginning, not a row of silent ticks.
const MAX_SILENCE_MICROS: i64 = 3_600_000_000;

/// What the sensing stages say at a tick.
pub struct TickView<'a> {
    /// The tick.
    pub at: SensingTime,
    /// Every link that lives.
    pub links: &'a [LinkFeatures],
    /// Events of this tick.
    pub events: &'a [Draft],
    /// All zones.
    pub zones: &'a Zones,
    /// Some zone's state changed.
    pub changed: bool,
}

/// Signal and event stage with what lies between them.
pub struct Sensing {
    signal: Signal,
    zones: Zones,
    directory: Directory,
    known: Vec<NodeKey>,
    next_tick: Option<SensingTime>,
    links: Vec<LinkFeatures>,
    events: Vec<Draft>,
}

/// Nodes that are remembered with their zones.
const MAX_NODES: usize = 256;

impl Sensing {
    /// Everything unknown, no frame seen.
    pub fn new(
        signal: signal::Settings,
        occupancy: event::Settings,
        zones: &[ZoneSettings],
        directory: Directory,
        source: Provenance,
    ) -> Self {
        Self {
            signal: Signal::new(signal),
            zones: Zones::new(occupancy, zones, source),
            directory,
            known: Vec::with_capacity(MAX_NODES),
            next_tick: None,
            links: Vec::with_capacity(64),
            events: Vec::with_capacity(16),
        }
    }

    /// Takes changed zones, names and occupancy settings over; the signal stage keeps its windows.
    pub fn reconfigure(
        &mut self,
        occupancy: event::Settings,
        zones: &[ZoneSettings],
        directory: Directory,
        source: Provenance,
    ) {
        self.zones.reconfigure(occupancy, zones, source);
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

    /// Time has come to `now`: runs the ticks that are due.
    pub fn advance(&mut self, now: SensingTime, on_tick: &mut dyn FnMut(&TickView<'_>)) {
        let mut next = match self.next_tick {
            Some(next) if (now.0 - next.0).abs() <= MAX_SILENCE_MICROS => next,
            // The grid of ticks begins with the first frame, so that a recording gives the same whatever its epoch.
            _ => now.plus_micros(TICK_MICROS),
        };
        while next <= now {
            self.tick(next, on_tick);
            next = next.plus_micros(TICK_MICROS);
        }
        self.next_tick = Some(next);
    }

    fn tick(&mut self, at: SensingTime, on_tick: &mut dyn FnMut(&TickView<'_>)) {
        self.links.clear();
        self.events.clear();
        self.signal.tick(at, &mut self.links);
        let changed = self.zones.step(at, &self.links, &|_| None, &mut self.events);
        on_tick(&TickView { at, links: &self.links, events: &self.events, zones: &self.zones, changed });
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
