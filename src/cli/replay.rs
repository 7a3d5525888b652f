//! `aetherd replay`: recordings through the pipeline.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

use super::Common;
use super::input::InputArgs;
use super::printer::Printer;
use crate::config::Settings;
use crate::frame::recording::Reader;
use crate::frame::{Decoder, Item};
use crate::head::HeadStage;
use crate::pipeline::{Directory, Sensing, Setup};
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
    let mut out = Printer::new(args.json);
    for file in &args.files {
        replay_one(&loaded.settings, args.input.open(file)?, args.speed, &mut out)?;
    }
    out.flush()?;
    Ok(0)
}

fn fresh(settings: &Settings, provenance: Provenance) -> anyhow::Result<Sensing> {
    let zones = settings.zones();
    let directory =
        Directory::new(&settings.node, &zones, settings.serial_ports()).with_transmitters(&settings.transmitter);
    let sensing = Sensing::new(Setup::new(settings, zones, directory, provenance));
    Ok(match HeadStage::load(&settings.head)? {
        Some(head) => sensing.with_head(head),
        None => sensing,
    })
}

fn replay_one(settings: &Settings, mut reader: Reader, speed: Speed, out: &mut Printer) -> anyhow::Result<()> {
    let provenance = reader.provenance();
    let mut sensing = fresh(settings, provenance)?;
    let mut decoder = Decoder::new(settings.frames.decoder.clone());
    let mut pacer = Pacer::new(speed);
    let mut start = None;
    let mut failure = None;
    let mut segment = reader.segment();
    while let Some(next) = reader.next_in_segment() {
        let (of, unit) = next?;
        if of != segment {
            segment = of;
            sensing = fresh(settings, provenance)?;
            decoder = Decoder::new(settings.frames.decoder.clone());
            (pacer, start) = (Pacer::new(speed), None);
        }
        let wait = pacer.wait(unit.at());
        if !wait.is_zero() {
            out.flush()?;
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
