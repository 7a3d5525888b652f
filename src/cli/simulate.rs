//! `aetherd simulate`: frames of a simulated room, by UDP or into a recording, with what is true beside them.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::Args;
use serde::Serialize;

use super::Common;
use super::output::{Lines, complain};
use super::replay::{Pacer, Speed, parse_speed};
use super::run::parse_duration;
use crate::frame::recording::{RecordingMeta, Writer};
use crate::frame::{LineHint, Payload};
use crate::simulate::{PRESETS, Scenario, Simulator, TruthSpan};
use crate::types::{Provenance, SensingTime};

/// Arguments of `simulate`.
#[derive(Debug, Args)]
#[command(
    after_help = "Everything that comes out is simulated by a small physical model, and a recording of it says so."
)]
pub(super) struct SimulateArgs {
    /// Scenario by name (empty, walk, breathe, visit, house), or a TOML file with one
    #[arg(value_name = "SCENARIO", default_value = "visit")]
    scenario: String,
    /// Write a recording instead of sending
    #[arg(long, value_name = "OUT.pcapng", conflicts_with = "udp")]
    out: Option<PathBuf>,
    /// Send the datagrams of the simulated boards to this address, as boards do
    #[arg(long, value_name = "ADDRESS:PORT")]
    udp: Option<String>,
    /// Seed; the same scenario and seed give the same bytes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How much of it; a scenario is repeated or cut to this
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    r#for: Option<Duration>,
    /// How fast datagrams are sent: 1 = real time
    #[arg(long, value_name = "SPEED", default_value = "1", value_parser = parse_speed)]
    speed: Speed,
    /// Write what is true when, as JSON lines on standard output
    #[arg(long)]
    truth: bool,
    /// Write over an existing file
    #[arg(long)]
    force: bool,
}

#[derive(Serialize)]
struct TruthLine<'a> {
    kind: &'static str,
    source: Provenance,
    #[serde(flatten)]
    span: &'a TruthSpan,
}

/// A scenario by name or from a file.
pub(super) fn scenario(name: &str) -> anyhow::Result<Scenario> {
    if PRESETS.contains(&name) {
        return Ok(Scenario::preset(name)?);
    }
    let text = std::fs::read_to_string(name).with_context(|| {
        format!("`{name}` is neither a scenario ({}) nor a file that can be read", PRESETS.join(", "))
    })?;
    let scenario: Scenario = toml::from_str(&text).with_context(|| format!("{name} is not a scenario"))?;
    scenario.check()?;
    Ok(scenario)
}

/// Runs the command.
pub(super) fn run(common: &Common, args: &SimulateArgs) -> anyhow::Result<u8> {
    common.log_only();
    let mut scenario = scenario(&args.scenario)?;
    let limit = args.r#for.map(|d| d.as_secs_f64());
    scenario.repeat |= limit.is_some_and(|l| l > scenario.duration_s);
    let mut simulator = Simulator::new(scenario, args.seed)?;
    if args.truth {
        let mut out = Lines::stdout();
        for span in &truth(&simulator, limit) {
            out.json(&TruthLine { kind: "truth", source: Provenance::Simulated, span })?;
        }
        out.flush()?;
    }
    match (&args.out, &args.udp) {
        (Some(path), _) => write_recording(args, path, limit, &mut simulator),
        (None, Some(target)) => send(args, target, limit, simulator),
        (None, None) if args.truth => Ok(0),
        (None, None) => anyhow::bail!("nothing to do: give --out FILE.pcapng, --udp ADDRESS:PORT or --truth"),
    }
}

/// What is true over the whole time asked for: a repeated scenario unrolled, cut at the limit.
fn truth(simulator: &Simulator, limit: Option<f64>) -> Vec<TruthSpan> {
    let round = simulator.scenario().duration_s;
    let end = limit.unwrap_or(round);
    let mut spans = Vec::new();
    for n in 0..(end / round).ceil() as u32 {
        let start = f64::from(n) * round;
        for span in simulator.truth() {
            let (from_s, to_s) = (span.from_s + start, (span.to_s + start).min(end));
            if from_s < to_s {
                spans.push(TruthSpan { from_s, to_s, ..span });
            }
        }
    }
    spans
}

fn write_recording(
    args: &SimulateArgs,
    path: &Path,
    limit: Option<f64>,
    simulator: &mut Simulator,
) -> anyhow::Result<u8> {
    if path.exists() && !args.force {
        anyhow::bail!("{} exists; give --force to write over it", path.display());
    }
    let mut meta = RecordingMeta::new(Provenance::Simulated);
    meta.label = Some(format!("simulated: {} with seed {}", simulator.scenario().name, args.seed));
    let mut writer = Writer::create(path, meta)?;
    let start = simulator.start();
    while let Some(captured) = simulator.next() {
        if limit.is_some_and(|l| captured.at.secs_since(start) >= l) {
            break;
        }
        writer.write(&captured, LineHint::Auto)?;
    }
    let written = writer.finish()?;
    complain(&format!(
        "{}: simulated, {} datagrams, {} lines, {} bytes",
        path.display(),
        written.datagrams,
        written.lines,
        written.bytes
    ));
    Ok(0)
}

/// Sends datagrams as boards would. Boards with another format than datagrams cannot be sent this way and are counted.
fn send(args: &SimulateArgs, target: &str, limit: Option<f64>, simulator: Simulator) -> anyhow::Result<u8> {
    let socket = UdpSocket::bind("0.0.0.0:0").context("cannot open a socket")?;
    socket.connect(target).with_context(|| format!("cannot send to {target}"))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as i64;
    let mut simulator = simulator.starting_at(SensingTime(now));
    let start = simulator.start();
    let mut pacer = Pacer::new(args.speed);
    let (mut sent, mut lines, mut failed) = (0u64, 0u64, 0u64);
    while let Some(captured) = simulator.next() {
        if limit.is_some_and(|l| captured.at.secs_since(start) >= l) {
            break;
        }
        std::thread::sleep(pacer.wait(captured.at));
        match captured.payload {
            Payload::Datagram(bytes) => match socket.send(bytes) {
                Ok(_) => sent += 1,
                // Nobody listens yet (ICMP refused) or the buffer is full: boards lose packets in the same way.
                Err(_) => failed += 1,
            },
            Payload::Line(_) => lines += 1,
        }
    }
    complain(&format!("{sent} simulated datagrams sent to {target}, {failed} not; {lines} serial lines left out"));
    Ok(0)
}
