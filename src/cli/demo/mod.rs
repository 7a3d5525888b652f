//! `aetherd demo`: the whole pipeline on embedded defaults, with nothing set up.
//!
//! An MQTT broker on loopback inside this process, frames of a recording or of the simulator (labelled as such), and a
//! live view of what the daemon shows and of what an independent client sees on the broker.

mod screen;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;

use self::screen::{Feedback, Message, Screen, View};
use super::Common;
use super::input::InputArgs;
use super::output::complain;
use super::replay::{Pacer, Speed, parse_speed};
use super::run::{StateFolder, block_on, feed_recording, parse_duration, sleep_unless, wait_for_stop};
use super::simulate::scenario;
use crate::config::Settings;
use crate::frame::LineHint;
use crate::mqtt;
use crate::pipeline::{Daemon, Feed, Intake, PacedFeed};
use crate::simulate::Simulator;
use crate::telemetry::{self, LogLevel};
use crate::types::{Provenance, SensingTime};

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    /// Recording to use; without one a simulated visit, labelled as simulated
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    input: InputArgs,
    /// Stop by itself after this long, for example 20s; else with q or Ctrl-C
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    r#for: Option<Duration>,
    /// How fast: 1 = real time
    #[arg(long, value_name = "SPEED", default_value = "1", value_parser = parse_speed)]
    speed: Speed,
    /// Simulated scenario instead of the short visit (see `aetherd simulate --help`)
    #[arg(long, value_name = "SCENARIO", default_value = "demo", conflicts_with = "file")]
    scenario: String,
    /// Lines of text instead of the live view, also on a terminal
    #[arg(long)]
    plain: bool,
}

/// Runs the command.
pub(super) fn run(common: &Common, args: &DemoArgs) -> anyhow::Result<u8> {
    // The view is the log; only what is wrong is written beside it.
    telemetry::init(&common.log_settings(&telemetry::Settings { level: LogLevel::Error, ..Default::default() }));
    let folder = StateFolder::make()?;
    let mut settings = Settings { state_dir: Some(folder.path().to_owned()), ..Settings::default() };
    settings.mqtt.instance = "demo".to_owned();
    settings.web.enabled = false;
    if let Some(kernel) = &common.kernel {
        settings.head.kernel.clone_from(kernel);
    }
    let broker = start_broker(&mut settings)?;
    let (source, feed) = feed(args)?;
    let what = match &args.file {
        Some(file) => format!("recording {}", file.display()),
        None => format!("SIMULATED frames (scenario \"{}\"), nothing here is sensed", args.scenario),
    };
    let plain = args.plain || !std::io::IsTerminal::is_terminal(&std::io::stdout());
    block_on(show(settings, source, feed, args.r#for, Screen::new(plain, what, broker)?))
}

#[cfg(feature = "embedded-broker")]
fn start_broker(settings: &mut Settings) -> anyhow::Result<String> {
    use anyhow::Context;

    let address = mqtt::embedded::start(0).context("cannot start the embedded broker")?;
    settings.mqtt.host = address.ip().to_string();
    settings.mqtt.port = Some(address.port());
    Ok(format!("embedded broker on {address} (mosquitto_sub -h {} -p {} -v -t '#')", address.ip(), address.port()))
}

#[cfg(not(feature = "embedded-broker"))]
fn start_broker(settings: &mut Settings) -> anyhow::Result<String> {
    settings.mqtt.enabled = false;
    Ok("no broker: this build has no embedded one (feature embedded-broker)".to_owned())
}

fn feed(args: &DemoArgs) -> anyhow::Result<(Provenance, PacedFeed)> {
    let speed = args.speed;
    if let Some(file) = &args.file {
        let reader = args.input.open(file)?;
        let source = reader.provenance();
        let feed = move |intake: &mut Intake, stop: &AtomicBool| {
            if let Err(error) = feed_recording(reader, speed, intake, stop) {
                tracing::error!(%error, "the recording cannot be read further");
            }
        };
        return Ok((source, Box::new(feed)));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as i64;
    let mut scenario = scenario(&args.scenario)?;
    scenario.repeat = true;
    let mut simulator = Simulator::new(scenario, 1)?.starting_at(SensingTime(now));
    let feed = move |intake: &mut Intake, stop: &AtomicBool| {
        let mut pacer = Pacer::new(speed);
        while let Some(captured) = simulator.next() {
            if !sleep_unless(pacer.wait(captured.at), stop) {
                break;
            }
            intake.take(&captured, LineHint::Auto);
        }
    };
    Ok((Provenance::Simulated, Box::new(feed)))
}

async fn show(
    settings: Settings,
    source: Provenance,
    feed: PacedFeed,
    limit: Option<Duration>,
    mut screen: Screen,
) -> anyhow::Result<u8> {
    let messages: Arc<Mutex<Vec<Message>>> = Arc::default();
    let started = Instant::now();
    let watching = settings.mqtt.enabled.then(|| tokio::spawn(watch(settings.mqtt.clone(), messages.clone(), started)));
    let daemon = Daemon::start(&settings, Feed::Paced { source, feed }, None)?;
    watch_until_end(&daemon, limit, &mut screen, &messages, started).await?;
    let last = daemon.snapshots().borrow().clone();
    let published = daemon.mqtt_status();
    daemon.stop(Duration::from_secs(1)).await;
    if let Some(watching) = watching {
        watching.abort();
    }
    drop(screen);
    let zones: Vec<String> = last
        .zones
        .iter()
        .map(|z| {
            let word = match z.state.occupied {
                Some(true) => "occupied",
                Some(false) => "empty",
                None => "unknown",
            };
            format!("{} {word}", z.name)
        })
        .collect();
    complain(&format!(
        "demo ended after {:.1} s ({source}): {} frames of {} boards; {}; {} MQTT messages published, {} events acknowledged",
        started.elapsed().as_secs_f64(),
        last.nodes.iter().map(|n| n.frames).sum::<u64>(),
        last.nodes.len(),
        zones.join(", "),
        published.as_ref().map_or(0, |s| s.published_total),
        published.as_ref().map_or(0, |s| s.events_total),
    ));
    Ok(0)
}

async fn watch_until_end(
    daemon: &Daemon,
    limit: Option<Duration>,
    screen: &mut Screen,
    messages: &Mutex<Vec<Message>>,
    started: Instant,
) -> anyhow::Result<()> {
    let end = wait_for_stop(limit, None, || false);
    tokio::pin!(end);
    let mut frame = tokio::time::interval(Duration::from_millis(100));
    let snapshots = daemon.snapshots();
    loop {
        tokio::select! {
            done = &mut end => return done,
            _ = frame.tick() => {
                let snapshot = snapshots.borrow().clone();
                let view = View {
                    snapshot: &snapshot,
                    messages: &std::mem::take(&mut *messages.lock().expect("no holder panics")),
                    connected: daemon.mqtt_status().is_some_and(|s| s.connected),
                    elapsed: started.elapsed(),
                };
                if screen.draw(&view)? == Feedback::Quit {
                    return Ok(());
                }
            }
        }
    }
}

/// An independent client on the broker.
async fn watch(settings: mqtt::Settings, messages: Arc<Mutex<Vec<Message>>>, started: Instant) {
    let filters = [format!("{}/#", settings.base_topic), format!("{}/#", settings.discovery_prefix)];
    let seen = mqtt::observe(&settings, &filters, |topic, payload, retained| {
        let payload = String::from_utf8_lossy(payload).into_owned();
        let at = started.elapsed();
        messages.lock().expect("no holder panics").push(Message { at, topic: topic.to_owned(), payload, retained });
    });
    if let Err(error) = seen.await {
        tracing::error!(%error, "the view of the broker ended");
    }
}
