//! Lifecycle, slots, merging and counts of whole trackers on scripts.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::frame::Layout;
use crate::signal::NoVerdict;
use crate::track::CacheSlot;
use crate::types::{MacAddr, NodeKey};

/// Ends of five links that cross in a room of 4 by 4 m.
const ENDS: [[[f64; 2]; 2]; 5] = [
    [[0.0, 0.0], [4.0, 4.0]],
    [[0.0, 4.0], [4.0, 0.0]],
    [[2.0, 0.0], [2.0, 4.0]],
    [[0.0, 2.0], [4.0, 2.0]],
    [[0.0, 1.0], [4.0, 3.0]],
];

fn key(i: usize) -> LinkKey {
    let transmitter = Some(MacAddr([2, 0, 0, 0, 0, i as u8]));
    LinkKey { node: NodeKey::Serial { port: 0 }, transmitter, layout: Layout::Lltf64 }
}

/// A link that moves with this change, is still (0), or has no verdict (`None`).
fn features(i: usize, at: SensingTime, change: Option<f32>) -> LinkFeatures {
    let verdict = match change {
        None => Verdict::None(NoVerdict::Gaps),
        Some(c) if c > 0.0 => Verdict::Moving,
        Some(_) => Verdict::Still,
    };
    LinkFeatures {
        link: key(i),
        at,
        verdict,
        score: change.map(|c| 1.0 + c),
        change: change.map(|c| 0.5 + c),
        quiet: Some(0.5),
        rate_hz: 100.0,
        coverage: 1.0,
        rssi_dbm: None,
    }
}

/// A tracker with a clock.
struct Bed {
    tracker: Tracker,
    geometry: bool,
    ticks: i64,
    ended: Vec<TrackEnded>,
}

impl Bed {
    fn new(settings: Settings, geometry: bool) -> Self {
        Self { tracker: Tracker::new(settings, 1), geometry, ticks: 0, ended: Vec::new() }
    }

    fn at(&self) -> SensingTime {
        SensingTime(self.ticks * 250_000)
    }

    fn step(&mut self, changes: &[Option<f32>]) {
        self.ticks += 1;
        let at = self.at();
        let links: Vec<_> = changes.iter().enumerate().map(|(i, c)| features(i, at, *c)).collect();
        let geometry = self.geometry;
        let mut place = |link: &LinkKey| {
            let i = usize::from(link.transmitter.unwrap().0[5]);
            LinkPlace { zones: vec![0], ends_m: geometry.then_some(ENDS[i]) }
        };
        self.tracker.step(at, &links, &mut place, &mut self.ended);
    }

    fn run(&mut self, ticks: usize, change: Option<f32>) {
        for _ in 0..ticks {
            self.step(&[change; 5]);
        }
    }

    fn count(&self) -> Option<(u16, bool)> {
        self.tracker.count(0).map(|c| (c.people, c.at_least))
    }
}

#[test]
fn a_zone_without_geometry_has_one_track_and_at_least_one_person() {
    let mut bed = Bed::new(Settings::default(), false);
    assert_eq!(bed.count(), None, "nothing is known yet");
    bed.run(4, Some(0.0));
    assert_eq!(bed.count(), Some((0, true)));
    bed.run(3, Some(1.0));
    assert_eq!(bed.tracker.tracks()[0].lifecycle, Lifecycle::Tentative);
    assert_eq!(bed.count(), Some((0, true)), "a doubtful track is nobody");
    bed.run(1, Some(1.0));
    let track = &bed.tracker.tracks()[0];
    assert_eq!((track.lifecycle, track.slot, track.placement), (Lifecycle::Active, Some(CacheSlot(0)), None));
    assert_eq!(bed.count(), Some((1, true)));
    let shares: f32 = track.links.iter().map(|l| l.share).sum();
    assert!(track.links.len() == 5 && (shares - 1.0).abs() < 1e-5, "{:?}", track.links);
    // Still: lost after 2 s, and ended after 30 s.
    bed.run(8, Some(0.0));
    assert_eq!(bed.tracker.tracks()[0].lifecycle, Lifecycle::Lost);
    assert!(bed.tracker.tracks()[0].links.is_empty(), "no link speaks of who is not seen");
    assert_eq!(bed.count(), Some((1, true)));
    bed.run(112, Some(0.0));
    assert_eq!(bed.count(), Some((0, true)));
    let end = &bed.ended[0];
    assert_eq!((end.reason, end.slot), (EndReason::TimedOut, Some(CacheSlot(0))));
    assert_eq!(bed.tracker.stats().slots_in_use, 0);
}

#[test]
fn shares_follow_the_scores_of_the_links_that_move() {
    let mut bed = Bed::new(Settings::default(), false);
    bed.step(&[Some(2.0), Some(0.0), Some(0.5), None, Some(0.0)]);
    let links = bed.tracker.tracks()[0].links.clone();
    assert_eq!(links.iter().map(|l| l.link).collect::<Vec<_>>(), [0, 2]);
    assert!((links[0].share / links[1].share - 2.0).abs() < 1e-5, "scores 3 and 1.5");
}

#[test]
fn an_outage_neither_ends_a_track_at_once_nor_keeps_it() {
    let mut bed = Bed::new(Settings::default(), false);
    bed.run(8, Some(1.0));
    bed.run(240, None);
    assert_eq!(bed.tracker.tracks()[0].lifecycle, Lifecycle::Active, "60 s of nothing");
    assert_eq!(bed.count(), Some((1, true)));
    bed.run(1, None);
    assert_eq!(bed.count(), None, "no longer known");
    bed.run(8, None);
    assert_eq!(bed.tracker.tracks()[0].lifecycle, Lifecycle::Lost);
    bed.run(120, None);
    assert!(bed.tracker.tracks().is_empty());
    // The features of silent links vanish altogether: the same.
    let mut bed = Bed::new(Settings::default(), false);
    bed.run(8, Some(1.0));
    for _ in 0..240 {
        bed.step(&[]);
    }
    assert_eq!(bed.tracker.tracks()[0].lifecycle, Lifecycle::Active);
}

#[test]
fn with_geometry_tracks_have_places_and_counts_are_at_least() {
    let mut bed = Bed::new(Settings::default(), true);
    bed.run(4, Some(0.0));
    assert!(bed.tracker.tells_people_apart(0));
    assert_eq!(bed.count(), Some((0, true)));
    bed.run(1, Some(1.0));
    assert_eq!(bed.count(), Some((0, true)), "somebody moves that is no track yet");
    bed.run(7, Some(1.0));
    let track = &bed.tracker.tracks()[0];
    let place = track.placement.unwrap();
    assert!(place.position_m.iter().all(|v| (0.0..=4.0).contains(v)) && place.sigma_m > 0.0);
    assert_eq!((track.lifecycle, bed.count()), (Lifecycle::Active, Some((1, true))));
    let shares: f32 = track.links.iter().map(|l| l.share).sum();
    assert!((shares - 1.0).abs() < 1e-5);
    bed.run(120, Some(0.0));
    assert_eq!(bed.count(), Some((0, true)));
    // Two links are no image: a track of the zone after the freeze.
    for _ in 0..260 {
        bed.step(&[Some(1.0), Some(1.0)]);
    }
    assert!(!bed.tracker.tells_people_apart(0));
    assert_eq!(bed.tracker.tracks().len(), 1);
    assert_eq!((bed.tracker.tracks()[0].placement, bed.count()), (None, Some((1, true))));
}

/// Puts an active track at a place.
fn put(bed: &mut Bed, at: [f64; 2]) -> TrackId {
    let now = bed.at();
    let i = bed.tracker.begin(0, Some(0), Some(Kalman::new(at, 0.3)), now).unwrap();
    for _ in 0..8 {
        bed.tracker.live(i, Some(true), 0.25, now, &mut bed.ended);
    }
    bed.tracker.tracks[i].id
}

#[test]
fn two_tracks_of_one_person_become_the_older_one() {
    let mut bed = Bed::new(Settings::default(), true);
    bed.run(1, Some(0.0));
    let (old, far, young) = (put(&mut bed, [1.0, 1.0]), put(&mut bed, [3.0, 3.0]), put(&mut bed, [1.2, 1.0]));
    let now = bed.at();
    for _ in 0..11 {
        bed.tracker.merge(now, 0.25, &mut bed.ended);
    }
    assert_eq!(bed.tracker.tracks().len(), 3, "not before merge_after_s");
    bed.tracker.merge(now, 0.25, &mut bed.ended);
    assert_eq!(bed.tracker.tracks().iter().map(|t| t.id).collect::<Vec<_>>(), [old, far]);
    let end = &bed.ended[0];
    assert_eq!((end.track, end.reason, end.slot), (young, EndReason::MergedInto(old), Some(CacheSlot(2))));
    assert_eq!(bed.tracker.tracks()[0].slot, Some(CacheSlot(0)), "the older cache survives");
    assert_eq!(put(&mut bed, [2.0, 0.5]), TrackId(4));
    assert_eq!(bed.tracker.tracks()[2].slot, Some(CacheSlot(2)), "the lowest free slot");
}

#[test]
fn a_lost_track_is_taken_up_by_its_embedding_and_by_no_other() {
    for (same, tracks) in [(true, 1), (false, 2)] {
        let mut bed = Bed::new(Settings::default(), true);
        bed.run(1, Some(0.0));
        let old = put(&mut bed, [0.5, 0.5]);
        bed.tracker.tracks[0].lifecycle = Lifecycle::Lost;
        bed.ticks += 16;
        let young = put(&mut bed, [3.5, 3.5]);
        let mut embedding = vec![0.0f32; EMBEDDING];
        embedding[0] = 1.0;
        bed.tracker.set_embedding(old, &embedding);
        bed.tracker.set_embedding(old, &[1.0; 3]);
        let now = bed.at();
        bed.tracker.merge(now, 0.25, &mut bed.ended);
        assert_eq!(bed.tracker.tracks().len(), 2, "one embedding says nothing");
        if !same {
            embedding.rotate_right(1);
        }
        bed.tracker.set_embedding(young, &embedding);
        bed.tracker.merge(now, 0.25, &mut bed.ended);
        assert_eq!(bed.tracker.tracks().len(), tracks);
        if same {
            let track = &bed.tracker.tracks()[0];
            assert_eq!((track.id, track.lifecycle, track.slot), (old, Lifecycle::Active, Some(CacheSlot(0))));
            assert_eq!(bed.tracker.states[0].filter.as_ref().unwrap().position(), [3.5, 3.5]);
        }
    }
}

#[test]
fn a_tentative_young_track_does_not_undo_the_life_of_a_lost_one() {
    let mut bed = Bed::new(Settings::default(), true);
    bed.run(1, Some(0.0));
    let old = put(&mut bed, [1.0, 1.0]);
    bed.tracker.tracks[0].lifecycle = Lifecycle::Lost;
    bed.ticks += 4;
    let now = bed.at();
    let young = bed.tracker.begin(0, Some(0), Some(Kalman::new([1.1, 1.0], 0.3)), now).unwrap();
    for _ in 0..40 {
        bed.tracker.merge(now, 0.25, &mut bed.ended);
    }
    assert_eq!(bed.tracker.tracks().len(), 2, "not while it is tentative");
    assert_eq!(bed.tracker.tracks()[0].lifecycle, Lifecycle::Lost);
    for _ in 0..4 {
        bed.tracker.live(young, Some(true), 0.25, now, &mut bed.ended);
    }
    bed.tracker.merge(now, 0.25, &mut bed.ended);
    let track = &bed.tracker.tracks()[0];
    assert_eq!((track.id, track.lifecycle, track.slot), (old, Lifecycle::Active, Some(CacheSlot(0))));
    assert_eq!((bed.tracker.tracks().len(), bed.tracker.stats().slots_in_use), (1, 1), "no slot leaks");
    // An older track that is not believed beside a younger one that is: life and slot go over.
    let mut bed = Bed::new(Settings::default(), true);
    bed.run(1, Some(0.0));
    let now = bed.at();
    bed.tracker.begin(0, Some(0), Some(Kalman::new([1.1, 1.0], 0.3)), now).unwrap();
    put(&mut bed, [1.0, 1.0]);
    for _ in 0..12 {
        bed.tracker.merge(now, 0.25, &mut bed.ended);
    }
    let track = &bed.tracker.tracks()[0];
    assert_eq!((track.id, track.lifecycle, track.slot), (TrackId(1), Lifecycle::Active, Some(CacheSlot(0))));
    assert_eq!((bed.ended.len(), bed.ended[0].slot, bed.tracker.stats().slots_in_use), (1, None, 1));
    bed.tracker.live(0, Some(true), 0.25, now, &mut bed.ended);
    assert_eq!(bed.tracker.stats().slots_in_use, 1);
}

#[test]
fn who_walked_when_an_outage_began_waits_in_place() {
    let mut bed = Bed::new(Settings::default(), true);
    bed.run(1, Some(0.0));
    for (start, pace) in [(1.0, 0.1), (3.0, -0.1)] {
        put(&mut bed, [start, 2.0]);
        let index = bed.tracker.states.len() - 1;
        let filter = bed.tracker.states[index].filter.as_mut().unwrap();
        for i in 1..=4 {
            filter.predict(0.25, 1.5);
            let covariance = nalgebra::Matrix2::identity() * 0.04;
            let position_m = [start + pace * f64::from(i), 2.0];
            filter.update(&crate::track::kalman::Measured { position_m, covariance, age_s: 0.0 });
        }
        assert!(filter.velocity()[0].abs() > 0.1, "they walk towards each other");
    }
    let places = |bed: &Bed| {
        let states = bed.tracker.states.iter();
        states.map(|s| s.filter.as_ref().unwrap().position()).collect::<Vec<_>>()
    };
    let before = places(&bed);
    bed.run(240, None);
    assert_eq!(places(&bed), before);
    assert!(bed.ended.is_empty());
    for track in bed.tracker.tracks() {
        assert!(track.links.is_empty(), "no link speaks of them");
        assert!(track.placement.unwrap().sigma_m <= 2.0 + 1e-9, "{:?}", track.placement);
    }
}

#[test]
fn of_two_lost_tracks_the_cheaper_one_is_taken_up() {
    // Of one embedding, so place decides; and by weight of the embedding alone, the one that is more alike.
    for (position_weight, wins) in [(1.0, 1), (0.0, 0)] {
        let settings = Settings { position_weight, embedding_weight: 1.0 - position_weight, ..Settings::default() };
        let mut bed = Bed::new(settings, true);
        bed.run(1, Some(0.0));
        let lost = [put(&mut bed, [0.5, 0.5]), put(&mut bed, [3.0, 3.0])];
        bed.tracker.tracks.iter_mut().for_each(|t| t.lifecycle = Lifecycle::Lost);
        bed.ticks += 16;
        let young = put(&mut bed, [3.5, 3.5]);
        let mut embedding = vec![0.0f32; EMBEDDING];
        embedding[0] = 1.0;
        bed.tracker.set_embedding(lost[0], &embedding);
        bed.tracker.set_embedding(young, &embedding);
        embedding[1] = 0.5;
        bed.tracker.set_embedding(lost[1], &embedding);
        let now = bed.at();
        bed.tracker.merge(now, 0.25, &mut bed.ended);
        assert_eq!(bed.ended[0].reason, EndReason::MergedInto(lost[wins]), "weight of place {position_weight}");
    }
}

#[test]
fn without_free_slots_tracks_live_without_and_are_counted() {
    let mut bed = Bed::new(Settings { max_tracks: 1, ..Settings::default() }, true);
    bed.run(1, Some(0.0));
    put(&mut bed, [0.5, 0.5]);
    put(&mut bed, [3.5, 3.5]);
    assert_eq!(bed.tracker.tracks()[1].slot, None);
    assert_eq!(bed.tracker.stats(), TrackerStats { slots_in_use: 1, without_slot: 1, not_begun: 0 });
    assert!(bed.tracker.begin(0, Some(0), None, SensingTime(0)).is_none(), "twice max_tracks live");
    assert_eq!(bed.tracker.stats().not_begun, 1);
    let mut ended = Vec::new();
    bed.tracker.reconfigure(Settings::default(), 1, &mut ended);
    assert_eq!(ended.iter().filter(|e| e.reason == EndReason::Reset).count(), 2);
    assert_eq!((bed.tracker.tracks().len(), bed.tracker.stats().slots_in_use), (0, 0));
}

#[test]
fn links_that_are_not_heard_leave_the_plan_and_what_is_learned_stays() {
    for (absent, ticks) in [(true, 2401), (false, 14401)] {
        let mut bed = Bed::new(Settings::default(), true);
        bed.run(400, Some(1.0));
        let learned = bed.tracker.areas[0].image.usual()[0];
        assert!(learned.1 >= 400.0);
        let all = [Some(0.0), Some(0.0), Some(0.0), None, None];
        for _ in 0..ticks {
            bed.step(if absent { &all[..3] } else { &all });
        }
        assert_eq!(bed.tracker.areas[0].plan.links, [0, 1, 2], "absent {absent}");
        assert_eq!(bed.tracker.links.len(), if absent { 3 } else { 5 });
        assert_eq!(bed.tracker.areas[0].image.usual()[0], learned);
        bed.run(1, Some(0.0));
        assert_eq!(bed.tracker.areas[0].plan.links.len(), 5, "heard again");
    }
    // An outage of all forgets nobody.
    let mut bed = Bed::new(Settings::default(), true);
    bed.run(4, Some(0.0));
    for _ in 0..4000 {
        bed.step(&[]);
    }
    assert_eq!(bed.tracker.areas[0].plan.links.len(), 5);
}

#[test]
fn the_track_of_an_area_that_becomes_blind_becomes_that_of_the_zone() {
    let mut bed = Bed::new(Settings::default(), true);
    bed.run(1, Some(0.0));
    let old = put(&mut bed, [1.0, 1.0]);
    put(&mut bed, [3.0, 3.0]);
    for _ in 0..250 {
        bed.step(&[Some(1.0), Some(1.0), None, None, None]);
    }
    let tracks = bed.tracker.tracks();
    assert_eq!((tracks.len(), tracks[0].id, tracks[0].placement), (1, old, None));
    assert_eq!((tracks[0].slot, bed.tracker.stats().slots_in_use), (Some(CacheSlot(0)), 1));
    assert_eq!((bed.ended.len(), bed.ended[0].reason), (1, EndReason::Reset));
    assert_eq!(bed.count(), Some((1, true)));
}

#[test]
fn a_reload_that_changes_nothing_keeps_everything_and_moved_boards_are_laid_out_anew() {
    let mut bed = Bed::new(Settings::default(), true);
    bed.run(40, Some(1.0));
    let (before, usual) = (bed.tracker.tracks()[0].id, bed.tracker.areas[0].image.usual()[0].1);
    bed.tracker.reconfigure(Settings::default(), 1, &mut bed.ended);
    bed.run(1, Some(1.0));
    assert!(bed.ended.is_empty() && bed.tracker.tracks()[0].id == before);
    assert_eq!(bed.tracker.areas[0].image.usual()[0].1, usual + 1.0);
    // The places of the boards are no longer known.
    bed.geometry = false;
    bed.run(1, Some(1.0));
    assert!(bed.tracker.tells_people_apart(0), "places are asked for at a reload");
    bed.tracker.reconfigure(Settings::default(), 1, &mut bed.ended);
    bed.run(1, Some(1.0));
    assert!(!bed.tracker.tells_people_apart(0));
    assert_eq!((bed.ended[0].track, bed.ended[0].reason), (before, EndReason::Reset));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the links say: no slot is held twice or lost, identities only rise, shares are shares, ends are told once.
    #[test]
    fn no_script_leaks_a_slot(
        geometry in any::<bool>(),
        max_tracks in 1u16..4,
        script in proptest::collection::vec(
            (1usize..30, proptest::collection::vec(proptest::option::weighted(0.9, prop_oneof![Just(0.0f32), 0.0f32..4.0, Just(f32::NAN)]), 5)),
            1..60,
        ),
        reset_at in 0usize..60,
    ) {
        let mut bed = Bed::new(Settings { max_tracks, terminate_after_s: 5.0, merge_after_s: 1.0, outage_freeze_s: 3.0, ..Settings::default() }, geometry);
        let mut held: std::collections::BTreeMap<TrackId, CacheSlot> = Default::default();
        let mut newest = 0;
        let mut over: std::collections::BTreeSet<TrackId> = Default::default();
        for (n, (ticks, changes)) in script.iter().enumerate() {
            for _ in 0..*ticks {
                bed.step(changes);
                if n == reset_at {
                    bed.tracker.reset(&mut bed.ended);
                }
                for end in bed.ended.drain(..) {
                    prop_assert!(over.insert(end.track), "ended twice");
                    if let Some(slot) = held.remove(&end.track) {
                        match (end.slot, end.reason) {
                            // The older track had none and took it over.
                            (None, EndReason::MergedInto(older)) => prop_assert!(held.insert(older, slot).is_none()),
                            (given, _) => prop_assert_eq!(given, Some(slot)),
                        }
                    }
                    newest = newest.max(end.track.0);
                }
                let mut slots = Vec::new();
                for track in bed.tracker.tracks() {
                    prop_assert!(!over.contains(&track.id));
                    newest = newest.max(track.id.0);
                    if let Some(slot) = track.slot {
                        prop_assert!(slot.0 < max_tracks);
                        slots.push(slot.0);
                        prop_assert_eq!(*held.entry(track.id).or_insert(slot), slot, "a slot for life");
                    }
                    let sum: f32 = track.links.iter().map(|l| l.share).sum();
                    prop_assert!(track.links.is_empty() || (sum - 1.0).abs() < 1e-4);
                    if let Some(p) = track.placement {
                        prop_assert!(p.position_m.iter().chain(&p.velocity_m_s).all(|v| v.is_finite()) && p.sigma_m.is_finite());
                    }
                }
                slots.sort_unstable();
                let all = slots.len();
                slots.dedup();
                prop_assert_eq!(slots.len(), all, "one slot, two tracks");
                prop_assert_eq!(bed.tracker.stats().slots_in_use, all);
            }
        }
        bed.tracker.reset(&mut bed.ended);
        prop_assert_eq!(bed.tracker.stats().slots_in_use, 0);
    }
}
