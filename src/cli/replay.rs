//! `aetherd replay`: recordings through the pipeline.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use super::Common;
use super::input::InputArgs;
use super::output::Lines;
use crate::config::Settings;
use crate::event::{Draft, Event, EventDraft, Why, event_id};
use crate::frame::recording::Reader;
use crate::frame::{Decoder, Item};
use crate::pipeline::{Directory, Sensing, TickView, rfc3339};
use crate::signal::{NoVerdict, Verdict};
use crate::types::{Provenance, SensingTime};

/// Arguments of `replay`.
#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// Recordings, one after the other, each with a fresh pipeline
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    input: InputArgs,
    /// How fast: max, 1 = as it was recorded, 8 = eight times that
    #[arg(long, value_name = "SPEED", default_value = "max", value_parser = parse_speed)]
    speed: Speed,
    /// Publish to the configured broker too, marked as recorded, under `<instance>_replay` and without discovery
    #[arg(long)]
    publish: bool,
    /// JSON lines instead of text
    #[arg(long)]
    json: bool,
}

/// Speed of a replay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Speed {
    /// As fast as it goes.
    Max,
    /// A multiple of real time.
    Times(f64),
}

/// Parses `max` or a positive number.
pub(super) fn parse_speed(text: &str) -> Result<Speed, String> {
    if text == "max" {
        return Ok(Speed::Max);
    }
    match text.parse::<f64>() {
        Ok(v) if (0.001..=1e6).contains(&v) => Ok(Speed::Times(v)),
        _ => Err(format!("expected `max` or a number from 0.001 to 1000000, got `{text}`")),
    }
}

/// Keeps recorded time and real time together.
pub(super) struct Pacer {
    speed: Speed,
    start: Option<(Instant, SensingTime)>,
}

impl Pacer {
    /// A pacer that starts with the first time it sees.
    pub(super) const fn new(speed: Speed) -> Self {
        Self { speed, start: None }
    }

    /// How long to wait until `at` is due.
    pub(super) fn wait(&mut self, at: SensingTime) -> Duration {
        let Speed::Times(times) = self.speed else { return Duration::ZERO };
        let (started, first) = *self.start.get_or_insert_with(|| (Instant::now(), at));
        let due = Duration::from_secs_f64((at.secs_since(first) / times).max(0.0));
        due.saturating_sub(started.elapsed())
    }
}

/// Runs the command.
pub(super) fn run(common: &Common, args: &ReplayArgs) -> anyhow::Result<u8> {
    let loaded = common.load_and_log()?;
    if args.publish {
        let mut readers = Vec::new();
        for file in &args.files {
            readers.push(args.input.open(file)?);
        }
        return super::run::replay_published(loaded, readers, args.speed);
    }
    let mut out = Printer { out: Lines::stdout(), json: args.json, events: 0 };
    for file in &args.files {
        replay_one(&loaded.settings, args.input.open(file)?, args.speed, &mut out)?;
    }
    out.out.flush()?;
    Ok(0)
}

fn fresh(settings: &Settings, provenance: Provenance) -> Sensing {
    let zones = settings.zones();
    let directory =
        Directory::new(&settings.node, &zones, settings.serial_ports()).with_transmitters(&settings.transmitter);
    Sensing::new(settings.signal.clone(), settings.occupancy.clone(), &zones, directory, provenance)
}

fn replay_one(settings: &Settings, mut reader: Reader, speed: Speed, out: &mut Printer) -> anyhow::Result<()> {
    let provenance = reader.provenance();
    let mut sensing = fresh(settings, provenance);
    let mut decoder = Decoder::new(settings.frames.decoder.clone());
    let mut pacer = Pacer::new(speed);
    let mut start = None;
    let mut failure = None;
    let mut segment = reader.segment();
    while let Some(next) = reader.next_in_segment() {
        let (of, unit) = next?;
        if of != segment {
            segment = of;
            sensing = fresh(settings, provenance);
            decoder = Decoder::new(settings.frames.decoder.clone());
            (pacer, start) = (Pacer::new(speed), None);
        }
        let wait = pacer.wait(unit.at());
        if !wait.is_zero() {
            out.out.flush()?;
            std::thread::sleep(wait);
        }
        unit.decode(&mut decoder, &mut |_, item| {
            if let Item::Frame(frame) = item {
                let start = *start.get_or_insert(frame.host_time);
                sensing.frame(frame, &mut |tick| {
                    if let Err(error) = out.tick(tick, start) {
                        failure.get_or_insert(error);
                    }
                });
            }
        });
        if let Some(error) = failure.take() {
            return Err(error.into());
        }
    }
    Ok(())
}

struct Printer {
    out: Lines,
    json: bool,
    events: u64,
}

#[derive(Serialize)]
struct Line<T: Serialize> {
    t: String,
    t_s: f64,
    kind: &'static str,
    #[serde(flatten)]
    body: T,
}

#[derive(Serialize)]
struct ZoneLine<'a> {
    zone: &'a str,
    occupied: Option<bool>,
    moving: Option<bool>,
    why: Option<Why>,
    score: Option<f32>,
    quality: f32,
    source: Provenance,
}

#[derive(Serialize)]
struct LinkLine {
    node: String,
    transmitter: Option<crate::types::MacAddr>,
    layout: &'static str,
    moving: Option<bool>,
    no_verdict: Option<NoVerdict>,
    score: Option<f32>,
    rate_hz: f32,
    coverage: f32,
    rssi_dbm: Option<f32>,
}

impl Printer {
    fn tick(&mut self, tick: &TickView<'_>, start: SensingTime) -> std::io::Result<()> {
        let t_s = tick.at.secs_since(start);
        for draft in tick.events {
            self.events += 1;
            let event = event_of(draft, self.events);
            self.event(&event, t_s)?;
        }
        if self.json {
            self.zones_and_links(tick, t_s)
        } else if tick.changed {
            self.changes(tick, t_s)
        } else {
            Ok(())
        }
    }

    fn event(&mut self, event: &Event, t_s: f64) -> std::io::Result<()> {
        if self.json {
            // Its `kind` says that this is an event; what happened is in `event`.
            let mut body = serde_json::to_value(event).map_err(std::io::Error::from)?;
            if let Some(map) = body.as_object_mut() {
                let what = map.remove("kind").unwrap_or_default();
                map.insert("event".to_owned(), what);
            }
            return self.out.json(&Line { t: event.at.clone(), t_s, kind: "event", body });
        }
        let score = event.cause.score.map_or(String::new(), |s| format!(", score {s:.2}"));
        self.out.text(&format!(
            "{t_s:9.2} s  {:<16} {:<14} ({}{score})",
            event.zone,
            event.kind.name(),
            event.cause.why
        ))
    }

    fn changes(&mut self, tick: &TickView<'_>, t_s: f64) -> std::io::Result<()> {
        for z in tick.zones.states() {
            let word = |b: Option<bool>, yes: &'static str, no: &'static str| match b {
                Some(true) => yes,
                Some(false) => no,
                None => "unknown",
            };
            self.out.text(&format!(
                "{t_s:9.2} s  {:<16} {:<9} {:<8} score {}",
                z.zone,
                word(z.occupied, "occupied", "empty"),
                word(z.moving, "moving", "quiet"),
                z.score.map_or("-".to_owned(), |s| format!("{s:.2}"))
            ))?;
        }
        Ok(())
    }

    fn zones_and_links(&mut self, tick: &TickView<'_>, t_s: f64) -> std::io::Result<()> {
        let t = rfc3339(tick.at, 0);
        for z in tick.zones.states() {
            let body = ZoneLine {
                zone: &z.zone,
                occupied: z.occupied,
                moving: z.moving,
                why: z.why,
                score: z.score,
                quality: z.quality,
                source: z.source,
            };
            self.out.json(&Line { t: t.clone(), t_s, kind: "zone", body })?;
        }
        if (t_s / SECOND).fract() * SECOND < crate::signal::TICK_MICROS as f64 / 1e6 {
            for l in tick.links {
                let (moving, no_verdict) = match l.verdict {
                    Verdict::Moving => (Some(true), None),
                    Verdict::Still => (Some(false), None),
                    Verdict::None(why) => (None, Some(why)),
                };
                let body = LinkLine {
                    node: l.link.node.to_string(),
                    transmitter: l.link.transmitter,
                    layout: l.link.layout.name(),
                    moving,
                    no_verdict,
                    score: l.score,
                    rate_hz: l.rate_hz,
                    coverage: l.coverage,
                    rssi_dbm: l.rssi_dbm,
                };
                self.out.json(&Line { t: t.clone(), t_s, kind: "link", body })?;
            }
        }
        Ok(())
    }
}

/// Links are written once in this many seconds, zones at every tick.
const SECOND: f64 = 1.0;

/// The event that the journal would make of a draft, with a sequence number of this replay.
fn event_of(draft: &Draft, seq: u64) -> Event {
    let draft = EventDraft {
        zone: draft.zone.clone(),
        kind: draft.kind,
        time: draft.at,
        at: rfc3339(draft.at, 0),
        cause: draft.cause.clone(),
        source: draft.source,
    };
    Event {
        id: event_id(seq, draft.time),
        zone: draft.zone,
        kind: draft.kind,
        at: draft.at,
        cause: draft.cause,
        source: draft.source,
    }
}
