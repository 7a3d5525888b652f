//! Tracking of simulated scenes, and what the track stage costs. The scenes come from the simulator: the figures say how
//! the method does in a model of rooms, not in yours.
//!
//! `cargo bench --bench track`; `AETHERD_BENCH_SEEDS=21,22` and `AETHERD_BENCH_PARTY_SECONDS=600` shorten it.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

#[path = "../tests/track_support/mod.rs"]
mod track_support;

use aetherd::simulate::Scenario;
use aetherd::track::Settings;
use track_support::{Outcome, Scene};

fn main() {
    let seeds = std::env::var("AETHERD_BENCH_SEEDS").unwrap_or_else(|_| "21,22,23,24,25".to_owned());
    let seeds: Vec<u64> = seeds.split(',').map(|s| s.trim().parse().unwrap()).collect();
    let party_s: f64 = std::env::var("AETHERD_BENCH_PARTY_SECONDS").map_or(3600.0, |s| s.parse().unwrap());
    println!("simulated scenes, default settings, seeds {seeds:?} (party: the first, {party_s} s); matches within 1 m");
    println!(
        "{:10} {:>6} {:>6} {:>6} {:>6} {:>7} {:>6} {:>7} {:>14} {:>14} {:>7} {:>8}",
        "scene",
        "ticks",
        "MOTA",
        "IDF1",
        "MOTP m",
        "misses",
        "false",
        "switch",
        "at-least true",
        "exact right",
        "leaked",
        "us/tick"
    );
    for (name, from_s) in [("crossing", 235.0), ("two", 235.0), ("return", 235.0), ("party", 0.0)] {
        let seeds = if name == "party" { &seeds[..1] } else { &seeds[..] };
        let scenes: Vec<Scene> = seeds
            .iter()
            .map(|seed| {
                let scenario = Scenario::preset(name).unwrap();
                Scene::new(if name == "party" { scenario.shortened(party_s) } else { scenario }, *seed)
            })
            .collect();
        for geometry in [true, false] {
            let outcomes: Vec<Outcome> =
                scenes.iter().map(|s| s.track(&Settings::default(), geometry, from_s)).collect();
            row(name, geometry, &outcomes);
        }
    }
}

/// Pooled over seeds.
fn row(name: &str, geometry: bool, outcomes: &[Outcome]) {
    let sum = |f: &dyn Fn(&Outcome) -> usize| outcomes.iter().map(f).sum::<usize>();
    let mean = |f: &dyn Fn(&Outcome) -> Option<f64>| {
        let all: Vec<f64> = outcomes.iter().filter_map(f).collect();
        if all.is_empty() { f64::NAN } else { all.iter().sum::<f64>() / all.len() as f64 }
    };
    let share = |part: usize, whole: usize| {
        if whole == 0 { "-".to_owned() } else { format!("{:.2} of {whole}", part as f64 / whole as f64) }
    };
    let truths = sum(&|o| o.figures.truths).max(1) as f64;
    let errors = sum(&|o| o.figures.misses + o.figures.false_positives + o.figures.switches) as f64;
    let places = |text: String| if geometry { text } else { "-".to_owned() };
    let leaked = sum(&|o| o.leaked);
    assert_eq!(leaked, 0, "{name}: leaked slots");
    println!(
        "{:10} {:>6} {:>6} {:>6} {:>6} {:>7} {:>6} {:>7} {:>14} {:>14} {:>7} {:>8.1}{}",
        name,
        sum(&|o| o.figures.ticks),
        places(format!("{:.2}", 1.0 - errors / truths)),
        places(format!("{:.2}", mean(&|o| o.figures.idf1))),
        places(format!("{:.2}", mean(&|o| o.figures.motp_m))),
        places(format!("{:.2}", sum(&|o| o.figures.misses) as f64 / truths)),
        places(format!("{:.2}", sum(&|o| o.figures.false_positives) as f64 / truths)),
        places(sum(&|o| o.figures.switches).to_string()),
        share(sum(&|o| o.at_least_true), sum(&|o| o.at_least)),
        share(sum(&|o| o.exact_right), sum(&|o| o.exact)),
        leaked,
        mean(&|o| Some(o.per_tick_us)),
        if geometry { "" } else { "   without geometry" }
    );
}
