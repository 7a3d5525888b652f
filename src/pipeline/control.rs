//! The task that steers: composes snapshots, answers requests, reloads the configuration, feeds the watchdog.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc as std_mpsc};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};

use crate::config::{Findings, Loaded, Settings};
use crate::event::{Journal, Request};
use crate::frame::SensingClock;
use crate::mqtt::{self, Snapshot};
use crate::pipeline::nodes::Directory;
use crate::pipeline::sensing::Setup;
use crate::pipeline::snapshot::{Composer, Moment};
use crate::pipeline::thread;
use crate::pipeline::tuning::{Tuning, ZoneTuning};
use crate::pipeline::view::Board;
use crate::telemetry::{self, Heartbeat, ServiceManager};

/// Reads the configuration again, and the channel on which a signal asks for it.
pub struct Reload {
    /// Reads and checks.
    pub read: Box<dyn Fn() -> Result<Loaded, Findings> + Send>,
    /// A message per wish (SIGHUP).
    pub wishes: mpsc::Receiver<()>,
}

/// State of the steering task.
pub(super) struct Control {
    pub(super) composer: Composer,
    pub(super) tuning: Tuning,
    pub(super) to_sensing: std_mpsc::Sender<thread::Control>,
    pub(super) commands: mpsc::Receiver<mqtt::Command>,
    pub(super) snapshots: watch::Sender<Arc<Snapshot>>,
    pub(super) journal: Arc<Journal>,
    pub(super) heartbeat: Heartbeat,
    /// `None` in a replay.
    pub(super) clock: Option<SensingClock>,
    /// Wall clock minus sensing clock as shown, microseconds.
    pub(super) wall_offset: i64,
    pub(super) started: Instant,
    pub(super) board: Arc<Board>,
    pub(super) mqtt_status: Option<Box<dyn Fn() -> mqtt::MqttStatus + Send + Sync>>,
    pub(super) reload: Option<Reload>,
    /// What the sources, MQTT and HTTP were started with.
    pub(super) running: Settings,
    /// Events that found the journal's queue full.
    pub(super) lost_events: Arc<AtomicU64>,
    /// Why there is no temporal head, though one is configured.
    pub(super) head_fault: Option<String>,
    pub(super) reload_fault: Option<String>,
    pub(super) stopped: watch::Receiver<bool>,
}

/// A change of the wall clock that is more than the two clocks' trembling and drift, microseconds.
const STEP_MICROS: i64 = 100_000;

/// Nothing heard for this long since the start is something to tell.
const NOTHING_HEARD: Duration = Duration::from_secs(60);

impl Control {
    pub(super) async fn run(mut self) {
        let mut service = ServiceManager::default();
        let mut every = tokio::time::interval(Duration::from_secs(1));
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let period =
            service.watchdog_period().map_or(Duration::from_secs(1), |p| (p / 3).max(Duration::from_millis(100)));
        let mut watchdog = tokio::time::interval(period);
        let board = self.board.clone();
        let mut wishes = self.reload.as_mut().map(|r| std::mem::replace(&mut r.wishes, mpsc::channel(1).1));
        let mut stopped = self.stopped.clone();
        service.ready();
        loop {
            tokio::select! {
                // The last change of a stopping daemon is still shown.
                biased;
                () = board.changed() => self.publish(&mut service),
                _ = stopped.wait_for(|s| *s) => break,
                _ = watchdog.tick() => {
                    if !service.feed(&self.heartbeat) {
                        tracing::error!("the sensing thread does not turn, the watchdog is not fed");
                    }
                }
                _ = every.tick() => self.publish(&mut service),
                Some(command) = self.commands.recv() => self.answer(command),
                Some(()) = next_wish(&mut wishes) => {
                    service.reloading();
                    // The outcome is in the log and among the faults.
                    drop(self.reload());
                    service.ready();
                    self.publish(&mut service);
                }
            }
        }
        service.stopping();
    }

    fn publish(&mut self, service: &mut ServiceManager) {
        if let Some(clock) = &self.clock {
            // Two clocks are never read at one instant: only a step counts, else the times shown would tremble.
            let offset = clock.wall_offset_micros();
            if (offset - self.wall_offset).abs() > STEP_MICROS {
                tracing::warn!(
                    seconds = offset as f64 / 1e6,
                    "the wall clock was set; times shown follow, sensing goes on"
                );
                self.wall_offset = offset;
            }
        }
        let snapshot = self.composer.compose(self.moment());
        service.status(&status_line(&snapshot));
        self.snapshots.send_replace(Arc::new(snapshot));
    }

    fn moment(&self) -> Moment {
        let mut faults: Vec<String> = Vec::new();
        faults.extend(self.mqtt_status.as_ref().and_then(|read| read().fault));
        faults.extend(self.journal.status().fault);
        faults.extend(self.head_fault.clone());
        faults.extend(self.reload_fault.clone());
        let lost = self.lost_events.load(Ordering::Relaxed);
        if lost > 0 {
            faults.push(format!(
                "{lost} events were lost because the disk was too slow: check the card or disk of state_dir"
            ));
        }
        if self.clock.is_some() && self.started.elapsed() > NOTHING_HEARD && self.composer.nothing_heard() {
            let mut strangers = self.composer.strangers();
            strangers.extend(self.composer.others());
            let seen = strangers.iter().map(|(what, n)| format!("{what} {n}")).collect::<Vec<_>>().join(", ");
            faults.push(if seen.is_empty() {
                "no frame has arrived since the start: check that the boards send to this machine (address and port), or the serial port"
                    .to_owned()
            } else {
                format!("input arrives, but no frame that can be used ({seen}): check the boards' firmware and settings")
            });
        }
        Moment {
            now: self.clock.as_ref().map_or_else(|| self.board.read().at, SensingClock::now),
            wall_offset: self.wall_offset,
            uptime_s: self.started.elapsed().as_secs(),
            events_waiting: self.journal.waiting(),
            faults,
        }
    }

    fn answer(&mut self, command: mqtt::Command) {
        let done = serde_json::json!({});
        let answer = match command.request {
            Request::Reload => self.reload().map(|restart| serde_json::json!({ "restart_needed_for": restart })),
            Request::SetHold { zone, seconds } => self
                .tell(thread::Control::SetHold(zone.clone(), seconds))
                .and_then(|()| self.keep(&zone, |t| t.hold_s = Some(seconds)))
                .map(|()| done),
            Request::SetSensitivity { zone, value } => self
                .tell(thread::Control::SetSensitivity(zone.clone(), value))
                .and_then(|()| self.keep(&zone, |t| t.sensitivity = Some(value)))
                .map(|()| done),
            // The MQTT task answers this one itself.
            Request::Announce => Ok(done),
        };
        // The asker may be gone; then nobody waits for the answer.
        drop(command.answer.send(answer));
    }

    fn keep(&mut self, zone: &str, change: impl FnOnce(&mut ZoneTuning)) -> Result<(), String> {
        self.tuning
            .change(zone, change)
            .map_err(|e| format!("set until the next start only, the state directory cannot be written: {e}"))
    }

    fn tell(&self, change: thread::Control) -> Result<(), String> {
        self.to_sensing.send(change).map_err(|_| "the daemon is stopping".to_owned())
    }

    /// Reads the configuration again and applies what can be applied. Returns what needs a restart.
    fn reload(&mut self) -> Result<Vec<&'static str>, String> {
        let Some(reload) = &self.reload else {
            return Err("there is no configuration file to read again".to_owned());
        };
        let loaded = match (reload.read)() {
            Ok(loaded) => loaded,
            Err(findings) => {
                let first = findings.0.first().map(ToString::to_string).unwrap_or_default();
                tracing::error!(error = %findings, "the new configuration is wrong, the old settings stay in force");
                let fault = format!("the configuration was not reloaded, the old settings are in force: {first}");
                self.reload_fault = Some(fault.clone());
                return Err(fault);
            }
        };
        self.reload_fault = None;
        let (old, new) = (&self.running, loaded.settings);
        let restart: Vec<&'static str> = [
            ("frames", old.frames != new.frames),
            ("signal", old.signal != new.signal),
            ("head", old.head != new.head),
            ("mqtt", old.mqtt != new.mqtt),
            ("web", old.web != new.web),
            ("state_dir", old.state_dir != new.state_dir),
            ("log.format", old.log.format != new.log.format),
        ]
        .into_iter()
        .filter_map(|(name, changed)| changed.then_some(name))
        .collect();
        telemetry::set_level(new.log.level);
        let zones = self.tuning.apply(&new.zones());
        let directory = Directory::new(&new.node, &zones, old.serial_ports()).with_transmitters(&new.transmitter);
        self.composer.rename(directory.clone(), zones.clone());
        let source = self.composer.source;
        self.tell(thread::Control::Reconfigure(Box::new(Setup::new(&new, zones, directory, source))))?;
        if restart.is_empty() {
            tracing::info!("configuration reloaded");
        } else {
            tracing::warn!(restart_needed_for = ?restart, "configuration reloaded; some sections need a restart");
        }
        Ok(restart)
    }
}

async fn next_wish(wishes: &mut Option<mpsc::Receiver<()>>) -> Option<()> {
    match wishes {
        Some(wishes) => wishes.recv().await,
        None => std::future::pending().await,
    }
}

fn status_line(snapshot: &Snapshot) -> String {
    let heard = snapshot.nodes.iter().filter(|n| n.available).count();
    let rate: f32 = snapshot.nodes.iter().map(|n| n.rate_hz).sum();
    let occupied: Vec<&str> =
        snapshot.zones.iter().filter(|z| z.state.occupied == Some(true)).map(|z| z.name.as_str()).collect();
    let zones =
        if occupied.is_empty() { "nobody sensed".to_owned() } else { format!("occupied: {}", occupied.join(", ")) };
    let faults = if snapshot.faults.is_empty() { String::new() } else { format!("; {} faults", snapshot.faults.len()) };
    format!("{heard} of {} boards, {:.0} frames/s; {zones}{faults}", snapshot.nodes.len(), rate)
}
