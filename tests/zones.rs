//! Occupied and moving over time: hold, dwell, unknown, availability, and what the events tell.

#![allow(clippy::unwrap_used)]

use aetherd::event::{Draft, EventKind, Settings, Why, ZoneSettings, Zones};
use aetherd::frame::{Layout, LinkKey};
use aetherd::signal::{LinkFeatures, NoVerdict, Verdict};
use aetherd::types::{NodeKey, Provenance, SensingTime};

const NODE: NodeKey = NodeKey::Serial { port: 0 };
const OTHER: NodeKey = NodeKey::Serial { port: 1 };

struct Scene {
    zones: Zones,
    now: SensingTime,
    events: Vec<Draft>,
}

impl Scene {
    fn new() -> Self {
        let zone = |name: &str, hold_s| ZoneSettings { name: name.into(), hold_s, ..ZoneSettings::default() };
        let mut zones = Zones::new(
            Settings::default(),
            &[zone("Living room", None), zone("Hall", Some(5.0))],
            Provenance::Recorded,
        );
        zones.assign(NODE, 0);
        zones.assign(OTHER, 1);
        Self { zones, now: SensingTime(1_700_000_000_000_000), events: Vec::new() }
    }

    /// Runs `seconds` in ticks of 250 ms, with one link of `node` saying `verdict` (and heard, unless silent).
    fn run(&mut self, node: NodeKey, seconds: f64, verdict: Verdict) {
        for _ in 0..(seconds * 4.0) as usize {
            self.now = self.now.plus_micros(250_000);
            if verdict != Verdict::None(NoVerdict::Silent) {
                self.zones.heard(node, self.now);
            }
            let score = match verdict {
                Verdict::Moving => Some(3.0),
                Verdict::Still => Some(0.2),
                Verdict::None(_) => None,
            };
            let link = LinkKey { node, transmitter: None, layout: Layout::default() };
            let features = [LinkFeatures {
                link,
                at: self.now,
                verdict,
                score,
                rate_hz: 50.0,
                coverage: 1.0,
                rssi_dbm: None,
                change: None,
                quiet: None,
            }];
            self.zones.step(self.now, &features, &|_| None, &mut self.events);
        }
    }

    fn occupied(&self, zone: usize) -> (Option<bool>, Option<Why>) {
        let state = self.zones.states().nth(zone).unwrap();
        (state.occupied, state.why)
    }

    fn told(&mut self) -> Vec<EventKind> {
        std::mem::take(&mut self.events).into_iter().map(|e| e.kind).collect()
    }
}

#[test]
fn unknown_until_a_verdict_and_never_empty_for_want_of_one() {
    let mut s = Scene::new();
    s.run(NODE, 5.0, Verdict::None(NoVerdict::WarmingUp));
    assert_eq!(s.occupied(0), (None, None));
    assert!(s.zones.states().next().unwrap().available, "heard, though without a verdict");
    s.run(NODE, 1.0, Verdict::Still);
    assert_eq!(s.occupied(0), (Some(false), None));
    assert_eq!(s.occupied(1), (None, None), "the other zone has a board of its own");
    s.run(NODE, 1.0, Verdict::None(NoVerdict::RateTooLow));
    assert_eq!(s.occupied(0), (None, None));
    assert!(s.told().is_empty());
}

#[test]
fn a_short_visit_is_held_for_the_hold_time_only() {
    let mut s = Scene::new();
    s.run(NODE, 1.0, Verdict::Still);
    s.run(NODE, 2.0, Verdict::Moving);
    assert_eq!(s.occupied(0), (Some(true), Some(Why::Motion)));
    s.run(NODE, 29.0, Verdict::Still);
    assert_eq!(s.occupied(0), (Some(true), Some(Why::Motion)));
    s.run(NODE, 2.0, Verdict::Still);
    assert_eq!(s.occupied(0), (Some(false), None));
    assert_eq!(s.told(), [EventKind::Entered, EventKind::Still, EventKind::Left]);
}

#[test]
fn a_long_visit_dwells_and_says_so() {
    let mut s = Scene::new();
    s.run(NODE, 20.0, Verdict::Moving);
    s.run(NODE, 40.0, Verdict::Still);
    assert_eq!(s.occupied(0), (Some(true), Some(Why::Dwell)));
    s.run(NODE, 1.0, Verdict::Moving);
    assert_eq!(s.occupied(0), (Some(true), Some(Why::Motion)));
    s.run(NODE, 89.0, Verdict::Still);
    assert_eq!(s.occupied(0), (Some(true), Some(Why::Dwell)));
    s.run(NODE, 2.0, Verdict::Still);
    assert_eq!(s.occupied(0), (Some(false), None));
    let told = s.told();
    assert_eq!(
        told,
        [EventKind::Entered, EventKind::Still, EventKind::StartedMoving, EventKind::Still, EventKind::Left]
    );
}

#[test]
fn an_outage_makes_the_zone_unavailable_not_empty_and_the_departure_is_told_later() {
    let mut s = Scene::new();
    s.run(NODE, 2.0, Verdict::Moving);
    s.run(NODE, 61.0, Verdict::None(NoVerdict::Silent));
    let state = s.zones.states().next().unwrap().clone();
    assert_eq!((state.available, state.occupied, state.moving), (false, None, None));
    assert_eq!(s.told(), [EventKind::Entered]);
    s.run(NODE, 40.0, Verdict::Still);
    assert_eq!(s.occupied(0), (Some(false), None));
    assert_eq!(s.told(), [EventKind::Left]);
}

#[test]
fn flicker_of_motion_makes_no_flood_of_events() {
    let mut s = Scene::new();
    for _ in 0..60 {
        s.run(NODE, 1.0, Verdict::Moving);
        s.run(NODE, 3.0, Verdict::Still);
    }
    assert_eq!(s.told(), [EventKind::Entered], "pauses shorter than still_after_s are one movement");
}

#[test]
fn zones_have_their_own_hold_and_keep_state_over_a_reconfiguration() {
    let mut s = Scene::new();
    s.run(OTHER, 2.0, Verdict::Moving);
    assert_eq!(s.occupied(1).0, Some(true));
    let since = s.zones.states().nth(1).unwrap().since;
    let renamed =
        ZoneSettings { name: "Corridor".into(), id: Some("hall".into()), hold_s: Some(60.0), ..Default::default() };
    s.zones.reconfigure(Settings::default(), &[renamed], Provenance::Recorded);
    s.zones.assign(OTHER, 0);
    s.run(OTHER, 20.0, Verdict::Still);
    assert_eq!(s.occupied(0), (Some(true), Some(Why::Motion)), "5 s of hold became 60 s");
    assert_eq!(s.zones.states().next().unwrap().since, since);
    assert!(s.zones.set_hold("hall", 1e9) && !s.zones.set_hold("attic", 5.0));
    assert_eq!(s.zones.tuning(0).unwrap().0, 3600.0, "clamped");
}

#[test]
fn every_event_names_its_cause() {
    let mut s = Scene::new();
    s.run(NODE, 2.0, Verdict::Moving);
    let cause = &s.events[0].cause;
    assert_eq!((cause.why.as_str(), cause.link.as_deref(), cause.score), ("motion", Some("serial0"), Some(3.0)));
    assert_eq!(s.events[0].source, Provenance::Recorded);
}
