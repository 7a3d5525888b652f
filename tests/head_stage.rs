//! Simulated people through the whole pipeline, head included: caches come, rest and go with their tracks, and none leaks.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use aetherd::event::ZoneSettings;
use aetherd::frame::{Decoder, DecoderSettings, Item, LineHint};
use aetherd::head::{HeadStage, Settings};
use aetherd::pipeline::{Directory, NodeSettings, Sensing, Setup, TransmitterSettings};
use aetherd::simulate::{Scenario, Simulator};
use aetherd::track::Lifecycle;
use aetherd::types::{MacAddr, Provenance};

/// What a run showed.
#[derive(Debug, Default)]
struct Run {
    ticks: u64,
    /// Ticks with a track, and the most tracks and caches at once.
    followed: u64,
    most_tracks: usize,
    most_caches: usize,
    tokens: u64,
    evicted: u64,
    refused: u64,
    most_bytes: u64,
    /// Tracks, and bytes of active and lost ones, at the end.
    left: usize,
    left_bytes: u64,
    spare_bytes: u64,
    embeddings: usize,
}

/// Runs a scenario of one room with text boards, everything placed, through decoder and all stages.
fn run(scenario: Scenario, head: &Settings) -> Run {
    let floor = |p: [f64; 3]| [p[0], p[1]];
    let ports: Vec<String> = (0..scenario.nodes.len()).map(|i| format!("board{i}")).collect();
    let nodes: Vec<NodeSettings> = scenario
        .nodes
        .iter()
        .zip(&ports)
        .map(|(n, port)| NodeSettings {
            name: port.clone(),
            port: Some(port.clone()),
            position_m: Some(floor(n.position_m)),
            ..NodeSettings::default()
        })
        .collect();
    let room = &scenario.rooms[0];
    let mut senders: Vec<TransmitterSettings> = room
        .transmitters
        .iter()
        .map(|t| TransmitterSettings { mac: Some(t.mac), position_m: floor(t.position_m) })
        .collect();
    let access_point = Some(MacAddr([0x1a, 0, 0, 0, 0, 0]));
    senders.push(TransmitterSettings { mac: access_point, position_m: floor(room.access_point_m) });
    let zones = vec![ZoneSettings { name: "Room".to_owned(), ..ZoneSettings::default() }];
    let directory = Directory::new(&nodes, &zones, ports).with_transmitters(&senders);
    let head = HeadStage::load(head).unwrap().unwrap();
    let mut sensing = Sensing::new(Setup::of_zones(zones, directory, Provenance::Simulated)).with_head(head);

    let mut simulator = Simulator::new(scenario, 5).unwrap();
    let mut decoder = Decoder::new(DecoderSettings::default());
    let mut run = Run::default();
    while let Some(captured) = simulator.next() {
        decoder.captured(&captured, LineHint::Auto, &mut |_, item| {
            let Item::Frame(frame) = item else { return };
            sensing.frame(frame, &mut |tick| {
                let (tracks, head) = (tick.tracker.tracks(), tick.head.unwrap());
                let stats = head.stats();
                let caches = tracks.iter().filter(|t| head.cached(t.id).is_some()).count();
                let bytes = stats.active_bytes + stats.lost_bytes + stats.spare_bytes;
                assert!(bytes <= stats.budget_bytes, "{stats:?}");
                // Bytes in use are those of tracks that live: nothing is held for anybody else.
                let each = tracks.iter().find_map(|t| head.cached(t.id)).map_or(0, |c| c.bytes);
                assert_eq!(stats.active_bytes + stats.lost_bytes, caches as u64 * each);
                let slots: Vec<_> = tracks.iter().filter_map(|t| t.slot).collect();
                assert_eq!(tick.tracker.stats().slots_in_use, slots.len(), "no slot leaks");
                assert!(slots.iter().all(|s| slots.iter().filter(|o| *o == s).count() == 1), "{slots:?}");
                assert!(tracks.iter().all(|t| t.lifecycle != Lifecycle::Tentative || t.slot.is_none()));
                run.ticks += 1;
                run.followed += u64::from(!tracks.is_empty());
                run.most_tracks = run.most_tracks.max(tracks.len());
                run.most_caches = run.most_caches.max(caches);
                run.most_bytes = run.most_bytes.max(bytes);
                (run.tokens, run.evicted, run.refused) = (stats.tokens, stats.evicted, stats.refused);
                (run.left, run.left_bytes) = (tracks.len(), stats.active_bytes + stats.lost_bytes);
                (run.spare_bytes, run.embeddings) = (stats.spare_bytes, head.estimates().len() + head.gallery().len());
                assert_eq!(stats.failed, 0);
            });
        });
    }
    run
}

#[test]
fn people_come_and_go_and_no_cache_leaks() {
    let seconds = std::env::var("AETHERD_TEST_SOAK_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(420.0);
    let scenario = Scenario::preset("party").unwrap();
    // Everybody is away in the last minute, so that every track has ended by then.
    let mut scenario = scenario.shortened(seconds);
    let end = scenario.duration_s - 60.0;
    for person in &mut scenario.people {
        person.plan.retain(|phase| phase.from_s < end);
        person.plan.iter_mut().for_each(|phase| phase.to_s = phase.to_s.min(end));
    }
    let run = run(scenario, &Settings::default());
    eprintln!("{run:?}");
    assert!(run.followed > run.ticks / 10 && run.most_caches >= 1 && run.tokens > 500);
    assert_eq!((run.left, run.left_bytes), (0, 0), "everybody has left");
    assert!(run.spare_bytes > 0, "and the memory waits for the next one");
    assert_eq!((run.evicted, run.refused), (0, 0), "the budget is ample");
    assert_eq!(run.embeddings, 0, "untrained weights recognise nobody");
}

#[test]
fn a_budget_for_one_cache_is_kept() {
    // One track's caches take some 37 kB: 0.04 MiB is room for one.
    let settings = Settings { cache_budget_mib: 0.04, ..Settings::default() };
    let run = run(Scenario::preset("party").unwrap().shortened(300.0), &settings);
    eprintln!("{run:?}");
    assert!(run.most_bytes <= (0.04 * 1_048_576.0) as u64 && run.most_caches == 1);
    assert!(run.tokens > 100);
}
