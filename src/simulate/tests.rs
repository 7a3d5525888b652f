//! What the simulator emits is what the decoders read, and behaves like a radio in a room.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::frame::recording::{Format, Options, RecordingMeta, Writer, open};
use crate::frame::{Chip, CsiFrame, Decoder, DecoderSettings, Item, Layout, LineHint, Payload, WireFormat};
use crate::types::{MacAddr, NodeKey, Provenance, SensingTime};

/// Frames of a scenario, by node.
fn frames(scenario: Scenario, seed: u64) -> HashMap<NodeKey, Vec<CsiFrame>> {
    let mut simulator = Simulator::new(scenario, seed).unwrap();
    let mut decoder = Decoder::new(DecoderSettings::default());
    let mut out: HashMap<NodeKey, Vec<CsiFrame>> = HashMap::new();
    let mut last = SensingTime(i64::MIN);
    while let Some(captured) = simulator.next() {
        assert!(captured.at >= last, "arrivals in order");
        last = captured.at;
        decoder.captured(&captured, LineHint::Auto, &mut |node, item| match item {
            Item::Frame(frame) => out.entry(node).or_default().push(frame.clone()),
            other => panic!("{other:?}"),
        });
    }
    out
}

fn one_node(name: &str, rate_hz: f64) -> Scenario {
    let mut scenario = Scenario::preset(name).unwrap();
    scenario.nodes.truncate(1);
    scenario.nodes[0].rate_hz = rate_hz;
    scenario.radio = RadioSetup { loss: 0.0, loss_bursts_per_min: 0.0, stalls_per_min: 0.0, ..scenario.radio };
    scenario
}

/// Normalised amplitudes of the usable bins, a row a frame.
fn amplitudes(frames: &[CsiFrame]) -> Vec<Vec<f64>> {
    frames
        .iter()
        .map(|f| {
            let a: Vec<f64> = (1..=26)
                .chain(38..=63)
                .map(|i| f64::from(f.values[2 * i]).hypot(f64::from(f.values[2 * i + 1])))
                .collect();
            let mean = a.iter().sum::<f64>() / a.len() as f64;
            a.iter().map(|x| x / mean).collect()
        })
        .collect()
}

/// Autocorrelation at a lag of `lag` rows, mean over the bins.
fn autocorrelation(rows: &[Vec<f64>], lag: usize) -> f64 {
    let bins = rows[0].len();
    let mut sum = 0.0;
    for b in 0..bins {
        let mean = rows.iter().map(|r| r[b]).sum::<f64>() / rows.len() as f64;
        let product = |l: usize| rows.iter().zip(&rows[l..]).map(|(x, y)| (x[b] - mean) * (y[b] - mean)).sum::<f64>();
        sum += product(lag) / product(0);
    }
    sum / bins as f64
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_one_does_not() {
    let run = |seed| {
        let mut simulator = Simulator::new(Scenario::preset("house").unwrap(), seed).unwrap();
        let mut out = Vec::new();
        while let Some(c) = simulator.next() {
            let (Payload::Datagram(bytes) | Payload::Line(bytes)) = c.payload;
            out.push((c.at, bytes.to_vec()));
            if out.len() == 2000 {
                break;
            }
        }
        out
    };
    assert!(run(3) == run(3));
    assert!(run(3) != run(4));
}

#[test]
fn every_preset_decodes_without_a_reject() {
    for name in PRESETS {
        // Of the hour of the party three minutes are enough here.
        let scenario = Scenario::preset(name).unwrap().shortened(180.0);
        let links = |n: &NodeSetup| scenario.rooms.iter().find(|r| r.zone == n.zone).unwrap().transmitters.len() + 1;
        let expected: f64 = scenario.nodes.iter().map(|n| n.rate_hz * links(n) as f64 * scenario.duration_s).sum();
        let nodes = scenario.nodes.len();
        let found = frames(scenario, 11);
        assert_eq!(found.len(), nodes, "{name}");
        let total: usize = found.values().map(Vec::len).sum();
        // 1 % single losses, and bursts.
        assert!((0.95 * expected..expected).contains(&(total as f64)), "{name}: {total} of {expected}");
    }
}

#[test]
fn each_format_has_its_chip_and_layout() {
    let expected = [
        (NodeFormat::Adr018, Layout::Natural64, None, false),
        (NodeFormat::EspectreV2, Layout::HtLtf64, Some(Chip::Esp32C3), false),
        (NodeFormat::EspCsi25, Layout::Lltf64, None, true),
        (NodeFormat::EspCsi15, Layout::Centred64, None, false),
        (NodeFormat::CsiTool, Layout::Lltf64, None, true),
    ];
    for (format, layout, chip, first_word) in expected {
        let mut scenario = one_node("empty", 100.0);
        scenario.duration_s = 2.0;
        scenario.nodes[0].format = format;
        let found = frames(scenario, 5);
        let frame = found.values().next().unwrap().last().unwrap().clone();
        assert_eq!(frame.format, format.wire());
        assert_eq!((frame.layout, frame.chip, frame.first_word_invalid), (layout, chip, first_word), "{format:?}");
        for (i, pair) in frame.values.chunks(2).enumerate() {
            let junk = first_word && i < 2;
            assert!(junk || layout.usable(i) || pair == [0, 0], "{format:?}: bin {i} is a guard bin");
        }
        assert!(frame.values.iter().any(|v| v.abs() > 10));
    }
}

#[test]
fn an_empty_room_is_white_and_a_walker_is_not() {
    for seed in [1, 2, 3] {
        let empty = frames(one_node("empty", 100.0), seed).into_values().next().unwrap();
        let walk = frames(one_node("walk", 100.0), seed).into_values().next().unwrap();
        let (quiet, moving) = (autocorrelation(&amplitudes(&empty), 1), autocorrelation(&amplitudes(&walk), 1));
        assert!(quiet.abs() < 0.03, "seed {seed}: empty {quiet}");
        assert!(moving > 0.6, "seed {seed}: walking {moving}");
    }
}

#[test]
fn breathing_shows_at_its_rate() {
    let mut scenario = one_node("breathe", 50.0);
    scenario.people[0].breaths_per_min = 18.0;
    let rows = amplitudes(&frames(scenario, 4).into_values().next().unwrap());
    // Power of each bin at a frequency, summed over bins: no bin is chosen with the answer in mind.
    let power = |hz: f64| -> f64 {
        (0..rows[0].len())
            .map(|b| {
                let mean = rows.iter().map(|r| r[b]).sum::<f64>() / rows.len() as f64;
                let (mut re, mut im) = (0.0, 0.0);
                for (i, row) in rows.iter().enumerate() {
                    let angle = std::f64::consts::TAU * hz * i as f64 / 50.0;
                    re += (row[b] - mean) * angle.cos();
                    im += (row[b] - mean) * angle.sin();
                }
                re * re + im * im
            })
            .sum()
    };
    let candidates: Vec<f64> = (0..=41).map(|i| 0.1 + f64::from(i) / 100.0).collect();
    let best = candidates.iter().copied().max_by(|a, b| power(*a).total_cmp(&power(*b))).unwrap();
    assert!((best - 0.3).abs() < 0.015, "found {best} Hz, breathed at 0.3 Hz");
}

#[test]
fn the_walk_of_a_visit_shows_where_the_truth_says() {
    let scenario = one_node("visit", 100.0);
    let truth = scenario.truth();
    let start = SensingTime(scenario.start_unix_s * 1_000_000);
    let found = frames(scenario, 8).into_values().next().unwrap();
    let rows = amplitudes(&found);
    for span in truth {
        let inside: Vec<Vec<f64>> = found
            .iter()
            .zip(&rows)
            .filter(|(f, _)| (span.from_s + 1.0..span.to_s - 1.0).contains(&f.host_time.secs_since(start)))
            .map(|(_, r)| r.clone())
            .collect();
        let r = autocorrelation(&inside, 1);
        match span.label {
            Label::Motion => assert!(r > 0.5, "{span:?}: {r}"),
            Label::Empty => assert!(r < 0.1, "{span:?}: {r}"),
            // Breathing and sway: more than nothing, less than a walk.
            Label::Still => assert!(r < 0.9, "{span:?}: {r}"),
        }
    }
}

#[test]
fn loss_shows_in_the_sequence_and_stalls_in_the_arrivals() {
    let mut scenario = one_node("empty", 100.0);
    scenario.radio.loss = 0.3;
    scenario.radio.stalls_per_min = 60.0;
    let found = frames(scenario, 6).into_values().next().unwrap();
    let span = found.last().unwrap().seq.unwrap().wrapping_sub(found[0].seq.unwrap()) + 1;
    let lost = 1.0 - found.len() as f64 / f64::from(span);
    assert!((0.27..0.33).contains(&lost), "{lost}");
    let back_to_back = found.windows(2).filter(|w| w[1].host_time.secs_since(w[0].host_time) < 0.000_1).count();
    assert!(back_to_back > 50, "{back_to_back}");
}

#[test]
fn a_repeating_scenario_goes_on() {
    let mut scenario = one_node("visit", 10.0);
    scenario.duration_s = 90.0;
    scenario.repeat = true;
    let mut simulator = Simulator::new(scenario, 1).unwrap().starting_at(SensingTime(0));
    let last = (0..3000).map(|_| simulator.next().unwrap().at).last().unwrap();
    assert!((299.0..301.0).contains(&last.secs_since(SensingTime(0))));
}

#[test]
fn a_recording_of_it_says_simulated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcapng.zst");
    let mut simulator = Simulator::new(one_node("empty", 20.0), 1).unwrap();
    let mut writer = Writer::create(&path, RecordingMeta::new(simulator.provenance())).unwrap();
    let mut count = 0;
    while let Some(captured) = simulator.next() {
        writer.write(&captured, LineHint::Auto).unwrap();
        count += 1;
    }
    writer.finish().unwrap();
    let mut reader = open(&path, Format::Auto, &Options::default()).unwrap();
    assert_eq!(reader.provenance(), Provenance::Simulated);
    let mut simulator = Simulator::new(one_node("empty", 20.0), 1).unwrap();
    while let Some(unit) = reader.next() {
        let crate::frame::recording::Unit::Captured(captured, _) = unit.unwrap() else { panic!() };
        assert_eq!(Some(captured), simulator.next());
        count -= 1;
    }
    assert_eq!(count, 0);
}

/// Pairs at the places where the layout has a measurement, zero elsewhere.
fn buffer(layout: Layout, mut values: Vec<i8>) -> Vec<i16> {
    // Never zero, so that the order of the buffer can be told from its zeros.
    values.iter_mut().for_each(|v| *v = if *v == 0 { 1 } else { *v });
    (0..64)
        .flat_map(|i| {
            let pair = [i16::from(values[2 * i]), i16::from(values[2 * i + 1])];
            if layout.usable(i) { pair } else { [0, 0] }
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// What is encoded is decoded to the same frame, for each format.
    #[test]
    fn encoder_and_decoder_agree(
        which in 0usize..5,
        values in proptest::collection::vec(any::<i8>(), 128),
        id in any::<u8>(),
        seq in any::<u32>(),
        rssi in -127i8..=-3,
        noise in -127i8..=-20,
        channel in 1u8..=13,
        stamp in any::<u32>(),
        mac in any::<[u8; 6]>(),
        gains in (-100i16..100, -100i16..100),
        at in any::<i32>(),
    ) {
        let at = SensingTime(i64::from(at));
        let addr = [192, 0, 2, 5].into();
        let serial = NodeKey::Serial { port: 2 };
        let (node, format, layout) = [
            (NodeKey::Udp { addr, id }, WireFormat::Adr018, Layout::Natural64),
            (NodeKey::Udp { addr, id: 0 }, WireFormat::EspectreV2, Layout::HtLtf64),
            (serial, WireFormat::EspCsi25, Layout::Lltf64),
            (serial, WireFormat::EspCsi15, Layout::Centred64),
            (serial, WireFormat::CsiTool, Layout::Lltf64),
        ][which];
        let text = which >= 2;
        let mut frame = CsiFrame::empty(node);
        frame.reset(node, format, at);
        frame.layout = layout;
        frame.values = buffer(if which == 0 { Layout::Lltf64 } else { layout }, values);
        if format == WireFormat::EspectreV2 {
            frame.chip = Some(Chip::Esp32C3);
            (frame.seq, frame.seq_bits) = (Some(seq & 0xff), 8);
        } else if format != WireFormat::CsiTool {
            (frame.seq, frame.seq_bits) = (Some(seq), 32);
        }
        if format == WireFormat::Adr018 {
            frame.freq_mhz = Some(2407 + 5 * u16::from(channel));
        }
        if format != WireFormat::EspectreV2 {
            (frame.rssi_dbm, frame.noise_dbm) = (Some(rssi), Some(noise));
        }
        if text {
            frame.transmitter = Some(MacAddr(mac));
            frame.channel = Some(channel);
            (frame.device_us, frame.device_us_bits) = (Some(u64::from(stamp)), 32);
            frame.bandwidth_mhz = (format != WireFormat::EspCsi15).then_some(20);
            frame.first_word_invalid = format == WireFormat::CsiTool;
        }
        if format == WireFormat::EspCsi15 {
            (frame.agc_gain, frame.fft_gain) = (Some(gains.0), Some(gains.1));
        }
        let mut bytes = Vec::new();
        encode(&frame, &mut bytes).unwrap();
        let mut decoded = Vec::new();
        let mut sink = |_: NodeKey, item: Item<'_>| match item {
            Item::Frame(f) => decoded.push(Ok(f.clone())),
            other => decoded.push(Err(format!("{other:?}"))),
        };
        let mut decoder = Decoder::new(DecoderSettings::default());
        if text {
            decoder.line(&bytes, 2, at, LineHint::Auto, &mut sink);
        } else {
            decoder.datagram(&bytes, addr, at, &mut sink);
        }
        prop_assert_eq!(decoded, vec![Ok(frame)]);
    }
}
