//! `aetherd run`: the service. Also the published replay, which is the service with a recording as its source.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::Common;
use super::replay::{Pacer, Speed};
use crate::config::{self, Loaded};
use crate::frame::recording::Reader;
use crate::frame::recording::Unit;
use crate::pipeline::{Daemon, Feed, Intake, Reload};

/// Arguments of `run`.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// Stop by itself after this long, for example 90s or 10m (for tests)
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    r#for: Option<Duration>,
}

/// Ten years: longer than anybody waits, and far from what a clock can hold.
const MAX_SECONDS: f64 = 315_360_000.0;

/// Parses `20s`, `5m`, `1h`, `250ms` or plain seconds.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        other => return Err(format!("expected ms, s, m or h as the unit, got `{other}`")),
    };
    match digits.parse::<f64>() {
        Ok(v) if (0.0..=MAX_SECONDS).contains(&(v * unit)) => Ok(Duration::from_secs_f64(v * unit)),
        Ok(v) if v > 0.0 => Err(format!("expected at most ten years, got `{text}`")),
        _ => Err(format!("expected a time such as 20s or 5m, got `{text}`")),
    }
}

/// Runs the command.
pub(super) fn run(common: &Common, args: &RunArgs) -> anyhow::Result<u8> {
    let loaded = common.load_and_log()?;
    say_hello(&loaded);
    let (path, flags) = (loaded.path.clone(), loaded.flags.clone());
    let common = common.clone();
    let read = move || {
        let mut loaded = config::load(path.as_deref(), std::env::vars(), &flags)?;
        // -v and -q hold for a reload too.
        loaded.settings.log = common.log_settings(&loaded.settings.log);
        Ok(loaded)
    };
    block_on(async move {
        let (wish, wishes) = mpsc::channel(1);
        let reload = Reload { read: Box::new(read), wishes };
        let daemon = Daemon::start(&loaded.settings, Feed::Live, Some(reload))?;
        wait_for_stop(args.r#for, Some(wish), || false).await?;
        daemon.stop(Duration::from_secs(2)).await;
        tracing::info!("stopped");
        Ok(0)
    })
}

/// Publishes recordings through the configured broker, one after the other, each with a fresh pipeline and marked as what
/// it is. It goes by an instance of its own (`…_replay`) and keeps nothing, so that a daemon that runs is not disturbed.
pub(super) fn replay_published(loaded: Loaded, readers: Vec<Reader>, speed: Speed) -> anyhow::Result<u8> {
    let mut settings = loaded.settings;
    settings.mqtt.instance = format!("{}_replay", settings.mqtt.instance_name());
    // Devices of a recording would stay in Home Assistant for good.
    settings.mqtt.discovery = false;
    settings.web.enabled = false;
    block_on(async move {
        for mut reader in readers {
            let folder = StateFolder::make()?;
            settings.state_dir = Some(folder.path().to_owned());
            let source = reader.provenance();
            reader.refuse_second_member();
            let feed = move |intake: &mut Intake, stop: &AtomicBool| {
                if let Err(error) = feed_recording(reader, speed, intake, stop) {
                    tracing::error!(%error, "the recording cannot be read further");
                }
            };
            let daemon = Daemon::start(&settings, Feed::Paced { source, feed: Box::new(feed) }, None)?;
            wait_for_stop(None, None, || daemon.fed()).await?;
            let interrupted = !daemon.fed();
            daemon.stop(Duration::from_secs(30)).await;
            if interrupted {
                break;
            }
        }
        Ok(0)
    })
}

/// A folder for the state of one run, removed at the end.
pub(super) struct StateFolder(PathBuf);

impl StateFolder {
    /// Makes a folder that nobody else has.
    pub(super) fn make() -> anyhow::Result<Self> {
        let base = std::env::temp_dir();
        for attempt in 0..100 {
            let path = base.join(format!("aetherd-{}-{attempt}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e).with_context(|| format!("cannot make {}", path.display())),
            }
        }
        anyhow::bail!("cannot make a folder in {}", base.display())
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for StateFolder {
    fn drop(&mut self) {
        // What cannot be removed is a few kilobytes in the folder for temporary files.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Feeds one recording, paced, until its end or until asked to stop.
pub(super) fn feed_recording(
    mut reader: Reader,
    speed: Speed,
    intake: &mut Intake,
    stop: &AtomicBool,
) -> Result<(), crate::frame::recording::RecordingError> {
    let mut pacer = Pacer::new(speed);
    while let Some(unit) = reader.next() {
        let unit = unit?;
        if !sleep_unless(pacer.wait(unit.at()), stop) {
            break;
        }
        if let Unit::Captured(captured, hint) = unit {
            intake.take(&captured, hint);
        }
    }
    Ok(())
}

/// Sleeps in small steps; false once `stop` is set.
pub(super) fn sleep_unless(mut time: Duration, stop: &AtomicBool) -> bool {
    const STEP: Duration = Duration::from_millis(100);
    while !stop.load(Ordering::Relaxed) {
        if time.is_zero() {
            return true;
        }
        let step = time.min(STEP);
        std::thread::sleep(step);
        time -= step;
    }
    false
}

/// Runs a future on a runtime of two workers: sources and MQTT are light, sensing has its own thread.
pub(super) fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(future)
}

/// Returns on SIGINT or SIGTERM, after `limit`, or once `done` says so. SIGHUP becomes a message on `wish`.
pub(super) async fn wait_for_stop(
    limit: Option<Duration>,
    wish: Option<mpsc::Sender<()>>,
    done: impl Fn() -> bool,
) -> anyhow::Result<()> {
    let catch = |kind: SignalKind| -> anyhow::Result<Signal> { signal(kind).context("cannot catch signals") };
    let mut interrupt = catch(SignalKind::interrupt())?;
    let mut terminate = catch(SignalKind::terminate())?;
    let mut hangup = catch(SignalKind::hangup())?;
    let end = tokio::time::Instant::now() + limit.unwrap_or(Duration::from_secs_f64(MAX_SECONDS));
    let mut look = tokio::time::interval(Duration::from_millis(50));
    loop {
        tokio::select! {
            _ = interrupt.recv() => return Ok(()),
            _ = terminate.recv() => return Ok(()),
            _ = hangup.recv() => {
                if let Some(wish) = &wish
                    && wish.try_send(()).is_err() {
                        tracing::debug!("a reload is already due");
                    }
            }
            () = tokio::time::sleep_until(end) => return Ok(()),
            _ = look.tick() => if done() { return Ok(()) },
        }
    }
}

fn say_hello(loaded: &Loaded) {
    let layers = if loaded.layers.is_empty() { "embedded defaults".to_owned() } else { loaded.layers.join(", ") };
    tracing::info!(version = env!("CARGO_PKG_VERSION"), configuration = layers, "aetherd starts");
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
}
