//! Cost of the signal stage and of the whole pipeline, on simulated boards at 100 frames a second.

#![allow(clippy::unwrap_used, missing_docs)]

use std::hint::black_box;
use std::time::Duration;

use aetherd::event::ZoneSettings;
use aetherd::frame::{CsiFrame, Decoder, DecoderSettings, Item, Origin, Payload};
use aetherd::head::{self, HeadStage};
use aetherd::pipeline::{Directory, Sensing, Setup};
use aetherd::signal::{Settings, Signal, TICK_MICROS};
use aetherd::simulate::{Scenario, Simulator};
use aetherd::types::{Provenance, SensingTime};
use criterion::{Criterion, criterion_group, criterion_main};

/// Datagrams of one board for 60 s at 100 frames a second (ADR-018, 64 bins), somebody walking.
fn datagrams() -> Vec<(std::net::IpAddr, SensingTime, Vec<u8>)> {
    let mut scenario = Scenario::preset("walk").unwrap();
    scenario.nodes.truncate(1);
    scenario.nodes[0].rate_hz = 100.0;
    let mut simulator = Simulator::new(scenario, 1).unwrap();
    let mut out = Vec::new();
    while let Some(captured) = simulator.next() {
        if let (Origin::Udp { addr, .. }, Payload::Datagram(bytes)) = (captured.origin, captured.payload) {
            out.push((addr, captured.at, bytes.to_vec()));
        }
    }
    out
}

fn frames() -> Vec<CsiFrame> {
    let mut decoder = Decoder::new(DecoderSettings::default());
    let mut out: Vec<CsiFrame> = Vec::new();
    for (addr, at, bytes) in datagrams() {
        decoder.datagram(&bytes, addr, at, &mut |_, item| {
            if let Item::Frame(frame) = item {
                out.push(frame.clone());
            }
        });
    }
    out
}

fn signal(c: &mut Criterion) {
    let frames = frames();
    assert!(frames.len() > 5000);
    let mut group = c.benchmark_group("signal");
    group.sample_size(20).measurement_time(Duration::from_secs(5));
    group.bench_function("60 s at 100/s, frames and ticks", |b| {
        let mut out = Vec::with_capacity(64);
        b.iter(|| {
            let mut signal = Signal::new(Settings::default());
            let mut next = frames[0].host_time.plus_micros(TICK_MICROS);
            for frame in &frames {
                while next <= frame.host_time {
                    out.clear();
                    signal.tick(next, &mut out);
                    black_box(&out);
                    next = next.plus_micros(TICK_MICROS);
                }
                signal.push(frame);
            }
        });
    });
    let mut warm = Signal::new(Settings::default());
    frames.iter().for_each(|frame| warm.push(frame));
    let now = frames.last().unwrap().host_time;
    group.bench_function("one tick, window of 1 s", |b| {
        let mut out = Vec::with_capacity(64);
        b.iter(|| {
            out.clear();
            warm.tick(now, &mut out);
            black_box(&out);
        });
    });
    group.finish();
}

fn pipeline(c: &mut Criterion) {
    let datagrams = datagrams();
    let zones = [ZoneSettings { name: "room".to_owned(), ..ZoneSettings::default() }];
    let mut group = c.benchmark_group("pipeline");
    group.sample_size(20).measurement_time(Duration::from_secs(5));
    group.bench_function("replay of 60 s at 100/s, datagrams to events", |b| {
        b.iter(|| {
            let directory = Directory::new(&[], &zones, Vec::new());
            let head = HeadStage::load(&head::Settings::default()).unwrap().unwrap();
            let setup = Setup::of_zones(zones.to_vec(), directory, Provenance::Simulated);
            let mut sensing = Sensing::new(setup).with_head(head);
            let mut decoder = Decoder::new(DecoderSettings::default());
            let mut ticks = 0u32;
            for (addr, at, bytes) in &datagrams {
                decoder.datagram(bytes, *addr, *at, &mut |_, item| {
                    if let Item::Frame(frame) = item {
                        sensing.frame(frame, &mut |_| ticks += 1);
                    }
                });
            }
            assert!(ticks > 200);
        });
    });
    group.finish();
}

criterion_group!(benches, signal, pipeline);
criterion_main!(benches);
