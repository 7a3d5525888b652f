//! Scenes of the simulator through decoder, signal and track stage, with what is true beside it.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use aetherd::evaluate::{TrackingFigures, TrackingScore};
use aetherd::frame::{Decoder, DecoderSettings, Item, LineHint, LinkKey};
use aetherd::signal::{self, LinkFeatures, Signal, TICK_MICROS};
use aetherd::simulate::{Scenario, Simulator};
use aetherd::track::{Lifecycle, LinkPlace, Settings, TrackEnded, Tracker};
use aetherd::types::{MacAddr, NodeKey, SensingTime};

/// One tick of a scene.
pub struct Tick {
    pub at: SensingTime,
    pub links: Vec<LinkFeatures>,
    /// People in the room.
    pub people: Vec<(u64, [f64; 2])>,
}

/// A scene as the signal stage sees it.
pub struct Scene {
    pub scenario: Scenario,
    pub ticks: Vec<Tick>,
}

impl Scene {
    /// Simulates `scenario` and runs decoder and signal stage over it.
    pub fn new(scenario: Scenario, seed: u64) -> Self {
        let mut simulator = Simulator::new(scenario.clone(), seed).unwrap();
        // The simulator is drawn on while frames are pulled; people's ways are the same in a second one.
        let truth = Simulator::new(scenario.clone(), seed).unwrap();
        let start = simulator.start();
        let mut decoder = Decoder::new(DecoderSettings::default());
        let mut signal = Signal::new(signal::Settings::default());
        let mut next = start.plus_micros(TICK_MICROS);
        let mut ticks = Vec::new();
        while let Some(captured) = simulator.next() {
            while next <= captured.at {
                let mut links = Vec::with_capacity(16);
                signal.tick(next, &mut links);
                let people = truth.truth_positions(next.secs_since(start));
                let people = people.into_iter().map(|(i, at)| (i as u64, at)).collect();
                ticks.push(Tick { at: next, links, people });
                next = next.plus_micros(TICK_MICROS);
            }
            decoder.captured(&captured, LineHint::Auto, &mut |_, item| {
                if let Item::Frame(frame) = item {
                    signal.push(frame);
                }
            });
        }
        Self { scenario, ticks }
    }

    /// Zone 0 for every link, with the ends that the scenario gives it.
    pub fn place(&self, link: &LinkKey) -> LinkPlace {
        let room = &self.scenario.rooms[0];
        let floor = |p: [f64; 3]| [p[0], p[1]];
        let NodeKey::Serial { port } = link.node else { return LinkPlace { zones: vec![0], ends_m: None } };
        let board = self.scenario.nodes[usize::from(port)].position_m;
        let sender = match link.transmitter {
            Some(MacAddr([0x1a, 0, 0, 0, 0, 0])) => Some(room.access_point_m),
            mac => room.transmitters.iter().find(|t| Some(t.mac) == mac).map(|t| t.position_m),
        };
        LinkPlace { zones: vec![0], ends_m: sender.map(|s| [floor(board), floor(s)]) }
    }

    /// Runs the tracker over the scene; judged is what comes after `from_s` seconds.
    pub fn track(&self, settings: &Settings, geometry: bool, from_s: f64) -> Outcome {
        let mut tracker = Tracker::new(settings.clone(), 1);
        let mut score = TrackingScore::new(1.0);
        let mut outcome = Outcome::default();
        let mut ended = Vec::new();
        let begun = std::time::Instant::now();
        let mut spent = std::time::Duration::ZERO;
        for tick in &self.ticks {
            let mut place = |link: &LinkKey| {
                let place = self.place(link);
                if geometry { place } else { LinkPlace { ends_m: None, ..place } }
            };
            let before = begun.elapsed();
            tracker.step(tick.at, &tick.links, &mut place, &mut ended);
            spent += begun.elapsed() - before;
            outcome.ended.append(&mut ended);
            let active = tracker.tracks().iter().filter(|t| t.lifecycle == Lifecycle::Active);
            let places: Vec<_> = active.filter_map(|t| Some((t.id.0, t.placement?.position_m))).collect();
            let count = tracker.count(0);
            if tick.at.secs_since(self.ticks[0].at) < from_s {
                continue;
            }
            score.tick(&tick.people, &places, count.map(|c| usize::from(c.people)));
            if let Some(count) = count {
                let people = tick.people.len() as u16;
                outcome.counted += 1;
                if count.at_least {
                    outcome.at_least += 1;
                    outcome.at_least_true += usize::from(count.people <= people);
                } else {
                    outcome.exact += 1;
                    outcome.exact_right += usize::from(count.people == people);
                }
            }
        }
        outcome.most_slots = usize::from(settings.max_tracks);
        outcome.per_tick_us = spent.as_secs_f64() * 1e6 / self.ticks.len().max(1) as f64;
        outcome.figures = score.figures();
        tracker.reset(&mut ended);
        outcome.ended.append(&mut ended);
        outcome.leaked = tracker.stats().slots_in_use;
        outcome
    }
}

/// What came of a scene.
#[derive(Default)]
pub struct Outcome {
    pub figures: TrackingFigures,
    pub ended: Vec<TrackEnded>,
    /// Ticks with a count; of them said to be exact, and right in that; "at least", and true.
    pub counted: usize,
    pub exact: usize,
    pub exact_right: usize,
    pub at_least: usize,
    pub at_least_true: usize,
    /// Slots in use after everything has ended.
    pub leaked: usize,
    pub most_slots: usize,
    /// Time of the tracker alone.
    pub per_tick_us: f64,
}
