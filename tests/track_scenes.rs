//! Simulated scenes through decoder, signal and track stage: lifecycle, slots, counts. Figures are printed on stderr;
//! `cargo bench --bench track` has them over more seeds. Accuracy is asserted as far as it is sanity.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod track_support;

use aetherd::simulate::Scenario;
use aetherd::track::{LinkPlace, Settings, Tracker};
use track_support::{Outcome, Scene};

/// The scenes begin with somebody walking about; the people they are named after come now, seconds.
const BEGINS_S: f64 = 235.0;

fn check(name: &str, outcome: &Outcome) {
    let f = &outcome.figures;
    eprintln!(
        "{name} (simulated): MOTA {:.2?} IDF1 {:.2?} MOTP {:.2?} m, {} switches; \"at least\" true {} of {}, exact right {} of {}",
        f.mota,
        f.idf1,
        f.motp_m,
        f.switches,
        outcome.at_least_true,
        outcome.at_least,
        outcome.exact_right,
        outcome.exact
    );
    assert_eq!(outcome.exact, 0, "{name}: nothing is known exactly");
    assert_eq!(outcome.leaked, 0, "{name}: leaked slots");
    let mut ids: Vec<u64> = outcome.ended.iter().map(|e| e.track.0).collect();
    ids.sort_unstable();
    let all = ids.len();
    ids.dedup();
    assert_eq!(ids.len(), all, "{name}: a track ended twice");
    assert!(outcome.ended.iter().filter_map(|e| e.slot).all(|s| usize::from(s.0) < outcome.most_slots));
    assert!(outcome.counted > 0, "{name}: never a count");
}

#[test]
fn one_person_crossing() {
    let scene = Scene::new(Scenario::preset("crossing").unwrap(), 11);
    let outcome = scene.track(&Settings::default(), true, BEGINS_S);
    check("crossing", &outcome);
    assert!(outcome.figures.matches > 20, "never near the person: {:?}", outcome.figures);
    // 25 s of 50 with somebody there; 30 s after each visit "at least 1" is held and wrong.
    assert!(outcome.at_least_true * 10 >= outcome.at_least * 3, "{} of {}", outcome.at_least_true, outcome.at_least);
    // Who comes within `terminate_after_s` of somebody's leaving is taken for that person: place alone cannot tell.
    assert!((1..=6).contains(&outcome.ended.len()), "{:?}", outcome.ended);
}

#[test]
fn without_geometry_a_count_is_always_at_least() {
    let scene = Scene::new(Scenario::preset("crossing").unwrap(), 12);
    let outcome = scene.track(&Settings::default(), false, 0.0);
    check("crossing without geometry", &outcome);
    assert_eq!(outcome.exact, 0);
    assert_eq!(outcome.figures.outputs, 0, "no places without geometry");
    // One visit, one track; it times out, or is still there at the end.
    assert!((1..=4).contains(&outcome.ended.len()), "{:?}", outcome.ended);
}

#[test]
fn two_paths_and_a_return() {
    for (name, seed) in [("two", 13), ("return", 14)] {
        let scene = Scene::new(Scenario::preset(name).unwrap(), seed);
        let outcome = scene.track(&Settings::default(), true, BEGINS_S);
        check(name, &outcome);
        assert!(outcome.figures.matches > 20, "{name}: {:?}", outcome.figures);
    }
}

/// The hour with ten people; ten minutes of it unless `AETHERD_TEST_SOAK_SECONDS` says otherwise.
#[test]
fn ten_people_coming_and_going() {
    let seconds = std::env::var("AETHERD_TEST_SOAK_SECONDS").ok().map_or(600.0, |s| s.parse().unwrap());
    let scene = Scene::new(Scenario::preset("party").unwrap().shortened(seconds), 15);
    for geometry in [true, false] {
        let outcome = scene.track(&Settings::default(), geometry, 0.0);
        check(if geometry { "party" } else { "party without geometry" }, &outcome);
    }
}

#[test]
fn the_same_scene_gives_the_same_tracks_and_quiet_ticks_allocate_nothing() {
    let scene = Scene::new(Scenario::preset("crossing").unwrap().shortened(120.0), 16);
    let run = || {
        let mut tracker = Tracker::new(Settings::default(), 1);
        let (mut ended, mut said, mut counted, mut ticks) = (Vec::with_capacity(64), Vec::new(), 0, 0);
        for (i, tick) in scene.ticks.iter().enumerate() {
            let (tracks, ends, links) = (tracker.tracks().len(), ended.len(), tick.links.len());
            let mut place = |link: &_| -> LinkPlace { scene.place(link) };
            let allocations =
                allocation_counter::measure(|| tracker.step(tick.at, &tick.links, &mut place, &mut ended)).count_total;
            // A birth may allocate, tracks that compete for a detection may, and a changed set of links.
            let speaking = |i: usize| scene.ticks[i].links.iter().map(|l| l.change.is_some()).collect::<Vec<_>>();
            let steady = i > 100
                && speaking(i) == speaking(i - 1)
                && links == scene.ticks[i - 1].links.len()
                && tracks <= 1
                && tracker.tracks().len() == tracks
                && ended.len() == ends;
            if steady {
                counted += allocations;
                ticks += 1;
            }
            said.push(serde_json::to_string(tracker.tracks()).unwrap());
        }
        (said, counted, ticks)
    };
    let (said, allocations, ticks) = run();
    assert!(ticks > 100, "{ticks} steady ticks");
    assert_eq!(allocations, 0, "in {ticks} ticks");
    assert_eq!(said, run().0);
    assert!(said.iter().any(|s| s.contains("active")));
}
