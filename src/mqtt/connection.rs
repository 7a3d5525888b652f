//! Keeps a connection: attempts, pauses, and what is told about them.
//!
//! *State* that outlives a connection: the throttle with the latest states, the announced inventory, the pauses.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::backoff::Backoff;
use super::client::{Client, Failure, FailureKind};
use super::commands::Command;
use super::inventory::Inventory;
use super::session::{End, Session, stopped};
use super::settings::{Settings, SettingsError};
use super::snapshot::Snapshot;
use super::status::{MqttStatus, SharedStatus};
use super::throttle::Throttle;
use super::topics::Topics;
use crate::event::Journal;

/// So many accepted connections in a row that the broker closed soon again point to a second client with our id.
const KICKS: u32 = 3;

/// What [`MqttHandle`] may ask of the task.
#[derive(Debug)]
pub(super) enum Control {
    Announce,
}

/// What outlives a connection.
pub(super) struct Worker {
    pub(super) settings: Settings,
    pub(super) topics: Topics,
    pub(super) snapshots: watch::Receiver<Arc<Snapshot>>,
    pub(super) journal: Arc<Journal>,
    pub(super) requests: mpsc::Sender<Command>,
    pub(super) control: mpsc::Receiver<Control>,
    pub(super) shutdown: watch::Receiver<bool>,
    pub(super) status: SharedStatus,
    pub(super) inventory: Inventory,
    pub(super) throttle: Throttle,
    pub(super) epoch: Instant,
    pub(super) rng: ChaCha8Rng,
    backoff: Backoff,
    short_connections: u32,
    ticked: Instant,
}

/// The running MQTT task. Dropping the handle stops it, cleanly.
#[derive(Debug)]
pub struct MqttHandle {
    status: SharedStatus,
    control: mpsc::Sender<Control>,
    task: JoinHandle<()>,
}

impl MqttHandle {
    /// Condition and counts.
    pub fn status(&self) -> MqttStatus {
        self.status.get()
    }

    /// A function that reads the status, for those who do not hold the handle.
    pub fn status_reader(&self) -> impl Fn() -> MqttStatus + Send + Sync + Clone + 'static {
        let status = self.status.clone();
        move || status.get()
    }

    /// Announces everything again, as after Home Assistant's birth message.
    pub fn announce(&self) {
        // A full queue holds the same wish already.
        let _ = self.control.try_send(Control::Announce);
    }

    /// Waits for the end of the task, which comes after the shutdown signal: `offline` is published then, or the
    /// broker sends the will.
    pub async fn join(self) {
        let Self { task, control, .. } = self;
        let _ = task.await;
        drop(control);
    }
}

/// Starts the task that keeps the connection and publishes. Call it within a tokio runtime.
///
/// Nothing is announced before `snapshots` holds a value with a non-empty `version`. `requests` receives what users ask
/// for; each [`Command`] should be answered. The task ends when `shutdown` holds true or its sender is gone.
///
/// # Errors
/// If the settings contradict themselves.
pub fn spawn(
    settings: Settings,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    journal: Arc<Journal>,
    requests: mpsc::Sender<Command>,
    state_dir: &Path,
    shutdown: watch::Receiver<bool>,
) -> Result<MqttHandle, SettingsError> {
    let topics = settings.check()?;
    let status = SharedStatus::default();
    let (control_tx, control) = mpsc::channel(1);
    let now = Instant::now();
    let backoff = Backoff::new(
        Duration::from_millis(settings.reconnect_min_ms),
        Duration::from_millis(settings.reconnect_max_ms),
    );
    let worker = Worker {
        inventory: Inventory::open(state_dir),
        settings,
        topics,
        snapshots,
        journal,
        requests,
        control,
        shutdown,
        status: status.clone(),
        throttle: Throttle::default(),
        epoch: now,
        // Jitter only: it must differ between machines, and no result depends on it.
        rng: ChaCha8Rng::from_os_rng(),
        backoff,
        short_connections: 0,
        ticked: now,
    };
    let task = tokio::spawn(worker.run());
    Ok(MqttHandle { status, control: control_tx, task })
}

impl Worker {
    async fn run(mut self) {
        let client_id = self.topics.client_id();
        let status_topic = self.topics.status();
        let mut failing_with: Option<String> = None;
        loop {
            let attempt = Client::connect(&self.settings, &client_id, Some((&status_topic, "offline")));
            let mut shutdown = self.shutdown.clone();
            let attempt = tokio::select! {
                attempt = attempt => attempt,
                () = stopped(&mut shutdown) => break,
            };
            let failure = match attempt {
                Ok(client) => {
                    self.on_accepted(failing_with.take().is_some());
                    let began = Instant::now();
                    match Session::new(&mut self, client).run().await {
                        End::Stopped => break,
                        End::Failed(failure) => {
                            self.on_lost(&failure, began.elapsed(), &client_id);
                            failure
                        }
                    }
                }
                Err(failure) => {
                    self.on_refused(&failure);
                    failure
                }
            };
            // The same complaint once, not once per attempt.
            if failing_with.as_deref() != Some(failure.text.as_str()) {
                tracing::warn!(error = %failure, "no connection to the broker");
                failing_with = Some(failure.text.clone());
            }
            let mut pause = self.backoff.pause(&mut self.rng);
            if failure.is_configuration() {
                pause = pause.max(Duration::from_millis(self.settings.config_retry_ms));
            }
            if !self.wait(pause).await {
                break;
            }
        }
        self.status.update(|s| s.connected = false);
        let journal = self.journal.clone();
        let _ = tokio::task::spawn_blocking(move || journal.sync()).await;
    }

    /// Waits for the next attempt. False if the daemon stops.
    async fn wait(&mut self, pause: Duration) -> bool {
        let mut shutdown = self.shutdown.clone();
        let pause = sleep(pause);
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = &mut pause => return true,
                () = stopped(&mut shutdown) => return false,
                control = self.control.recv() => match control {
                    // Every connection announces everything anyway.
                    Some(Control::Announce) => {}
                    None => return false,
                },
            }
        }
    }

    fn on_accepted(&mut self, was_failing: bool) {
        let connections = {
            let kicked = self.short_connections >= KICKS;
            let mut total = 0;
            self.status.update(|s| {
                s.connected = true;
                s.connections_total += 1;
                if !kicked {
                    s.fault = None;
                }
                total = s.connections_total;
            });
            total
        };
        let (host, port) = (self.settings.host.as_str(), self.settings.port());
        // At the level of the loss, so that a log that shows one shows the other.
        if was_failing {
            tracing::warn!(host, port, connections, "connection to the broker restored");
        } else {
            tracing::info!(host, port, "connected to the broker");
        }
    }

    fn on_lost(&mut self, failure: &Failure, lasted: Duration, client_id: &str) {
        let short = lasted < Duration::from_millis(self.settings.stable_ms);
        if short && failure.kind == FailureKind::Closed {
            self.short_connections += 1;
        } else {
            self.short_connections = 0;
        }
        let kicked = self.short_connections >= KICKS;
        self.status.update(|s| {
            s.connected = false;
            s.last_error = Some(failure.text.clone());
            if failure.is_configuration() {
                s.fault = Some(failure.text.clone());
            } else if kicked {
                s.fault = Some(format!(
                    "The broker accepts the connection and closes it again, {} times in a row: most likely another \
                     client uses the client id {client_id}. Give each daemon an instance name of its own.",
                    self.short_connections
                ));
            }
        });
    }

    fn on_refused(&mut self, failure: &Failure) {
        self.status.update(|s| {
            s.last_error = Some(failure.text.clone());
            s.fault = failure.is_configuration().then(|| failure.text.clone());
        });
    }

    /// The present connection has lasted: what was wrong before is over.
    pub(super) fn lasting(&mut self) {
        self.backoff.reset();
        if self.short_connections > 0 {
            self.short_connections = 0;
            self.status.update(|s| s.fault = None);
        }
    }

    pub(super) fn save_inventory(&self) {
        // A few kilobytes, rarely: not worth a thread.
        if let Err(error) = self.inventory.save() {
            tracing::warn!(%error, "announced inventory cannot be saved, removed devices may stay in home assistant");
        }
    }

    /// Lets the journal save its cursor, off this task, since it waits for the disk.
    pub(super) fn journal_tick(&mut self) {
        if self.ticked.elapsed() >= Duration::from_secs(1) && self.journal.cursor_moved() {
            self.ticked = Instant::now();
            let journal = self.journal.clone();
            drop(tokio::task::spawn_blocking(move || journal.tick()));
        }
    }
}
