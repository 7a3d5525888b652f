//! In steady state neither decoding nor sensing allocates.

#![allow(clippy::unwrap_used)]

use aetherd::event::ZoneSettings;
use aetherd::frame::{Captured, Decoder, DecoderSettings, FrameStats, Item, LineHint, Origin, Payload};
use aetherd::head::{self, HeadStage};
use aetherd::pipeline::{Directory, FrameQueue, Popped, Sensing, Setup};
use aetherd::simulate::{Scenario, Simulator};
use aetherd::types::{NodeKey, Provenance, SensingTime};

/// Input as the simulator gives it, owned, so that the simulator's own work is not counted.
struct Input {
    at: SensingTime,
    origin: Origin,
    bytes: Vec<u8>,
    line: bool,
}

fn inputs(scenario: &str) -> Vec<Input> {
    let mut simulator = Simulator::new(Scenario::preset(scenario).unwrap(), 3).unwrap();
    let mut all = Vec::new();
    while let Some(c) = simulator.next() {
        let (bytes, line) = match c.payload {
            Payload::Datagram(b) => (b.to_vec(), false),
            Payload::Line(b) => (b.to_vec(), true),
        };
        all.push(Input { at: c.at, origin: c.origin, bytes, line });
    }
    all
}

#[test]
fn a_frame_costs_no_allocation_after_the_first_seconds() {
    // Three boards of three wire formats, two rooms, people coming and going.
    let inputs = inputs("house");
    let zones = [ZoneSettings { name: "Home".into(), ..ZoneSettings::default() }];
    let directory = Directory::new(&[], &zones, Vec::new());
    let head = HeadStage::load(&head::Settings::default()).unwrap().unwrap();
    let setup = Setup::of_zones(zones.to_vec(), directory, Provenance::Simulated);
    let mut sensing = Sensing::new(setup).with_head(head);
    let mut decoder = Decoder::new(DecoderSettings::default());
    let mut stats = FrameStats::new(256);
    let queue = FrameQueue::new(64);
    let mut slot = aetherd::frame::CsiFrame::empty(NodeKey::Serial { port: 0 });
    let (mut frames, mut ticks, mut events, mut lives, mut tokens) = (0u64, 0u64, 0u64, 0u64, 0u64);
    let mut step = |input: &Input| {
        let payload = if input.line { Payload::Line(&input.bytes) } else { Payload::Datagram(&input.bytes) };
        let captured = Captured { at: input.at, origin: input.origin, payload };
        decoder.captured(&captured, LineHint::Auto, &mut |node, item| {
            stats.observe(node, captured.at, &item);
            if let Item::Frame(frame) = item {
                queue.push(frame);
            }
        });
        while queue.pop(&mut slot, std::time::Duration::ZERO) == Popped::Frame {
            frames += 1;
            sensing.frame(&slot, &mut |tick| {
                ticks += 1;
                tokens = tick.head.map_or(0, |h| h.stats().tokens);
                events += tick.events.len() as u64;
                // A life that begins, turns or ends: a cache is taken, scratch memory grows to one more person.
                let now =
                    tick.tracker.tracks().iter().fold(0, |sum: u64, t| sum * 31 + t.id.0 * 4 + t.lifecycle as u64);
                events += u64::from(now != lives);
                lives = now;
            });
        }
        (frames, ticks, events, tokens)
    };
    // The first ten seconds make rings, tables and names.
    let warm = inputs.iter().position(|i| i.at.secs_since(inputs[0].at) > 10.0).unwrap();
    inputs[..warm].iter().for_each(|i| {
        step(i);
    });
    let (mut with_events, mut without) = (0u64, 0u64);
    let mut before = (0, 0, 0, 0);
    for input in &inputs[warm..] {
        let mut after = before;
        let counted = allocation_counter::measure(|| after = step(input)).count_total;
        // An event carries names, a new track takes a cache: they may allocate; a frame, a token, a tick and a changed
        // state may not.
        if after.2 > before.2 {
            with_events += counted
        } else {
            without += counted
        }
        before = after;
    }
    let (frames, ticks, events, tokens) = before;
    let all = format!("{frames} frames, {ticks} ticks, {events} events, {tokens} tokens");
    assert!(frames > 10_000 && ticks > 400 && (2..60).contains(&events) && tokens > 500, "{all}");
    assert_eq!(without, 0, "allocations in {frames} frames; {with_events} more where events were made");
}
