//! The running daemon: sources, sensing thread, journal, MQTT and HTTP, wired together and stopped in order.
//!
//! Stopping goes with the stream: sources first, then the queue is closed and the sensing thread drains it, then the
//! journal thread writes what is left, then MQTT publishes `offline` and disconnects.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc as std_mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::config::Settings;
use crate::event::{
    DraftSender, Event, EventDraft, EventKind, Journal, JournalError, JournalSettings, spawn_journal_thread,
};
use crate::frame::{FrameStats, SensingClock, udp};
use crate::head::HeadStage;
use crate::mqtt::{self, MqttHandle, Snapshot};
use crate::pipeline::control::{Control, Reload};
use crate::pipeline::intake::Intake;
use crate::pipeline::nodes::Directory;
use crate::pipeline::queue::FrameQueue;
use crate::pipeline::sensing::{Sensing, Setup};
use crate::pipeline::snapshot::Composer;
use crate::pipeline::sources;
use crate::pipeline::thread::{self, TimeBase, Wiring};
use crate::pipeline::tuning::Tuning;
use crate::pipeline::view::Board;
use crate::pipeline::wall::rfc3339;
use crate::telemetry::Heartbeat;
use crate::types::Provenance;
use crate::web;

/// Frames that may wait for the sensing thread: five seconds of four boards at 100 frames/s.
const FRAME_QUEUE: usize = 2048;
/// Events of an earlier run that are looked at, to know what subscribers hold of each zone.
const RESUME_EVENTS: usize = 512;
/// Events that may wait for the disk.
const EVENT_QUEUE: usize = 4096;

/// The daemon cannot start.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// A socket cannot be opened.
    #[error(transparent)]
    Udp(#[from] udp::UdpError),
    /// The journal cannot be opened.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Another daemon uses the state directory.
    #[error(
        "another aetherd runs with the state directory {path}; stop it, or give this one its own `state_dir` and `mqtt.instance`"
    )]
    Running {
        /// The directory.
        path: PathBuf,
    },
    /// MQTT settings contradict themselves.
    #[error("mqtt: {0}")]
    Mqtt(#[from] mqtt::SettingsError),
    /// The state directory cannot be made.
    #[error(
        "cannot use the state directory {path}: {source}; set `state_dir` to a folder that this user can write, or run as a service"
    )]
    StateDir {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// No thread can be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

/// A feed that is not live: called on a thread of its own, gets the intake and a flag that asks it to stop.
pub type PacedFeed = Box<dyn FnOnce(&mut Intake, &AtomicBool) + Send>;

/// Where the frames come from.
pub enum Feed {
    /// The configured sockets and ports.
    Live,
    /// A recording or the simulator.
    Paced {
        /// Which of the two, as shown with every state.
        source: Provenance,
        /// What feeds.
        feed: PacedFeed,
    },
}

/// A running daemon.
pub struct Daemon {
    /// Held while the daemon lives.
    _lock: File,
    journal: Arc<Journal>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    stop: watch::Sender<bool>,
    stop_feed: Arc<AtomicBool>,
    fed: Option<JoinHandle<()>>,
    queue: Arc<FrameQueue>,
    sensing: JoinHandle<()>,
    journal_thread: JoinHandle<()>,
    drafts: DraftSender,
    tasks: JoinSet<()>,
    source_tasks: JoinSet<()>,
    mqtt: Option<MqttHandle>,
}

/// Events journalled since start, by kind.
#[derive(Debug, Default)]
pub(super) struct EventCounts([AtomicU64; EventKind::ALL.len()]);

impl EventCounts {
    fn count(&self, kind: EventKind) {
        if let Some(i) = EventKind::ALL.iter().position(|k| *k == kind) {
            self.0[i].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn rows(&self) -> Vec<(String, u64)> {
        EventKind::ALL.iter().zip(&self.0).map(|(k, n)| (k.name().to_owned(), n.load(Ordering::Relaxed))).collect()
    }
}

impl Daemon {
    /// Starts everything. Call it within a tokio runtime. `reload` reads the configuration again.
    ///
    /// # Errors
    /// If a socket, the state directory or a thread cannot be had. A broker that is away is no error.
    pub fn start(settings: &Settings, feed: Feed, reload: Option<Reload>) -> Result<Self, DaemonError> {
        let state_dir = settings.state_dir();
        std::fs::create_dir_all(&state_dir)
            .map_err(|source| DaemonError::StateDir { path: state_dir.clone(), source })?;
        let lock = lock(&state_dir)?;
        let clock = SensingClock::start();
        let started = Instant::now();
        let (source, time, live) = match &feed {
            Feed::Live => (Provenance::Sensed, TimeBase::Clock(clock.clone()), true),
            Feed::Paced { source, .. } => (*source, TimeBase::Frames, false),
        };
        let tuning = Tuning::load(&state_dir);
        let zones = tuning.apply(&settings.zones());
        let directory =
            Directory::new(&settings.node, &zones, settings.serial_ports()).with_transmitters(&settings.transmitter);
        let queue = Arc::new(FrameQueue::new(FRAME_QUEUE));
        let stats = Arc::new(Mutex::new(FrameStats::new(settings.frames.decoder.max_nodes)));
        let board = Arc::new(Board::default());
        let heartbeat = Heartbeat::default();
        let lag = Arc::new(AtomicI64::new(0));

        let journal = Arc::new(Journal::open(&state_dir.join("journal"), JournalSettings::default())?);
        let counts = Arc::new(EventCounts::default());
        let (counted, written, publishes) = (counts.clone(), journal.clone(), settings.mqtt.enabled);
        let on_stored = move |event: &Event| {
            counted.count(event.kind);
            if !publishes {
                // Nobody will ask for it: the journal is a history, kept within its size.
                written.mark_delivered(*written.subscribe().borrow());
            }
        };
        let (drafts, journal_thread) =
            spawn_journal_thread(journal.clone(), EVENT_QUEUE, on_stored).map_err(DaemonError::Thread)?;
        let lost_events = Arc::new(AtomicU64::new(0));

        // Whoever cannot have the sockets must not disturb the broker either.
        let mut source_tasks = JoinSet::new();
        let stop_feed = Arc::new(AtomicBool::new(false));
        let intake = || Intake::new(settings.frames.decoder.clone(), stats.clone(), queue.clone(), !live);
        let (feed, sockets) = match feed {
            Feed::Live => (None, sources::spawn_live(&settings.frames, &clock, &intake, &mut source_tasks)?),
            Feed::Paced { feed, .. } => (Some(feed), Vec::new()),
        };

        let (to_sensing, control) = std_mpsc::channel();
        let mut sensing = Sensing::new(Setup::new(settings, zones.clone(), directory.clone(), source));
        let (head_info, head_fault) = match HeadStage::load(&settings.head) {
            Ok(Some(head)) => {
                let info = head.info().clone();
                tracing::info!(kernel = info.kernel, weights = info.weights, cache = info.policy, "temporal head");
                sensing = sensing.with_head(head);
                (Some(info), None)
            }
            Ok(None) => (None, None),
            Err(error) => {
                tracing::error!(%error, "no temporal head; people are counted without it");
                (None, Some(format!("no temporal head, people are counted without it: {error}")))
            }
        };
        let before: Vec<Event> = journal.last(RESUME_EVENTS).into_iter().map(|r| r.event).collect();
        sensing.resume(&before);
        let wiring = Wiring {
            queue: queue.clone(),
            control,
            board: board.clone(),
            heartbeat: heartbeat.clone(),
            lag_micros: lag.clone(),
            time,
        };
        let events = event_sink(drafts.clone(), live.then(|| clock.clone()), lost_events.clone());
        let sensing = thread::spawn(sensing, wiring, events).map_err(DaemonError::Thread)?;

        let (stop, stopped) = watch::channel(false);
        let (snapshot_tx, snapshots) = watch::channel(Arc::new(Snapshot::default()));
        let (requests, commands) = mpsc::channel(32);
        let mqtt = if settings.mqtt.enabled {
            let handle = mqtt::spawn(
                settings.mqtt.clone(),
                snapshots.clone(),
                journal.clone(),
                requests,
                &state_dir,
                stopped.clone(),
            )?;
            Some(handle)
        } else {
            None
        };

        let mut tasks = JoinSet::new();
        let fed = match feed {
            Some(feed) => Some(spawn_feed(feed, intake(), stop_feed.clone())?),
            None => None,
        };

        let now = rfc3339(clock.now(), clock.wall_offset_micros());
        let mut composer = Composer::new(stats, board.clone(), queue.clone(), directory, zones, source, now);
        composer.sockets = sockets;
        composer.head = head_info;
        let mqtt_status = mqtt.as_ref().map(|m| m.status_reader());
        if settings.web.enabled {
            let reader = mqtt_status.clone();
            let broker = reader.clone();
            let queue = queue.clone();
            let shared = web::Shared {
                snapshots: snapshots.clone(),
                heartbeat: heartbeat.clone(),
                broker_ready: Arc::new(move || broker.as_ref().is_none_or(|r| r().connected)),
                counters: Arc::new(move || {
                    let status = reader.as_ref().map(|r| r()).unwrap_or_default();
                    web::Counters {
                        mqtt_connected: status.connected,
                        mqtt_connections: status.connections_total,
                        mqtt_published: status.published_total,
                        events: counts.rows(),
                        queues: vec![("frames".to_owned(), queue.depth() as u64)],
                        sensing_lag_s: lag.load(Ordering::Relaxed) as f64 / 1e6,
                    }
                }),
            };
            tasks.spawn(serve_web(settings.web.clone(), shared, stopped.clone()));
        }
        let control = Control {
            composer,
            tuning,
            to_sensing,
            commands,
            snapshots: snapshot_tx,
            journal: journal.clone(),
            heartbeat,
            clock: live.then_some(clock),
            wall_offset: 0,
            started,
            board,
            mqtt_status: mqtt_status.map(|r| Box::new(r) as Box<dyn Fn() -> mqtt::MqttStatus + Send + Sync>),
            reload,
            running: settings.clone(),
            lost_events,
            head_fault,
            reload_fault: None,
            stopped,
        };
        tasks.spawn(control.run());
        Ok(Self {
            _lock: lock,
            journal,
            snapshots,
            stop,
            stop_feed,
            fed,
            queue,
            sensing,
            journal_thread,
            drafts,
            tasks,
            source_tasks,
            mqtt,
        })
    }

    /// State, as published.
    pub fn snapshots(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshots.clone()
    }

    /// Condition of the MQTT connection; `None` where it is switched off.
    pub fn mqtt_status(&self) -> Option<mqtt::MqttStatus> {
        self.mqtt.as_ref().map(MqttHandle::status)
    }

    /// True once a feed that is not live has come to its end.
    pub fn fed(&self) -> bool {
        self.fed.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Stops in order, so that nothing that was sensed is lost. Events that wait get `patience` to reach the broker;
    /// what does not reach it waits in the journal for the next start.
    pub async fn stop(mut self, patience: Duration) {
        self.source_tasks.shutdown().await;
        self.stop_feed.store(true, Ordering::Relaxed);
        if let Some(fed) = self.fed.take() {
            join("feed", fed).await;
        }
        self.queue.close();
        join("sensing", self.sensing).await;
        drop(self.drafts);
        join("journal", self.journal_thread).await;
        let end = Instant::now() + patience;
        while self.mqtt.is_some() && self.journal.waiting() > 0 && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // The last states get a moment too, before the broker is told that we go.
        tokio::time::sleep(Duration::from_millis(50)).await;
        self.stop.send_replace(true);
        if let Some(mqtt) = self.mqtt.take() {
            mqtt.join().await;
        }
        let ended =
            tokio::time::timeout(Duration::from_secs(2), async { while self.tasks.join_next().await.is_some() {} });
        if ended.await.is_err() {
            self.tasks.shutdown().await;
        }
    }
}

/// Two daemons on one journal would write into each other's lines, and on one client id kick each other out.
fn lock(state_dir: &Path) -> Result<File, DaemonError> {
    let fail = |source| DaemonError::StateDir { path: state_dir.to_owned(), source };
    let file = File::options().create(true).truncate(false).write(true).open(state_dir.join("lock")).map_err(fail)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(DaemonError::Running { path: state_dir.to_owned() }),
        Err(TryLockError::Error(source)) => Err(fail(source)),
    }
}

async fn join(name: &'static str, thread: JoinHandle<()>) {
    let ended = tokio::task::spawn_blocking(move || thread.join()).await;
    if !matches!(ended, Ok(Ok(()))) {
        tracing::error!(thread = name, "a thread ended by a panic");
    }
}

fn spawn_feed(feed: PacedFeed, mut intake: Intake, stop: Arc<AtomicBool>) -> Result<JoinHandle<()>, DaemonError> {
    std::thread::Builder::new()
        .name("feed".to_owned())
        .spawn(move || feed(&mut intake, &stop))
        .map_err(DaemonError::Thread)
}

/// Turns drafts into journal entries with wall-clock times.
fn event_sink(
    drafts: DraftSender,
    clock: Option<SensingClock>,
    lost: Arc<AtomicU64>,
) -> impl FnMut(&[crate::event::Draft]) + Send {
    move |events| {
        let offset = clock.as_ref().map_or(0, SensingClock::wall_offset_micros);
        for draft in events {
            let sent = drafts.send(EventDraft {
                zone: draft.zone.clone(),
                kind: draft.kind,
                time: draft.at,
                at: rfc3339(draft.at, offset),
                cause: draft.cause.clone(),
                source: draft.source,
            });
            if !sent {
                lost.fetch_add(1, Ordering::Relaxed);
                tracing::error!(
                    zone = draft.zone,
                    kind = draft.kind.name(),
                    "the journal is too far behind, an event was lost"
                );
            }
        }
    }
}

async fn serve_web(settings: web::Settings, shared: web::Shared, mut stopped: watch::Receiver<bool>) {
    let stop = async move {
        // An error means that the daemon is gone, which is a stop too.
        drop(stopped.wait_for(|s| *s).await);
    };
    if let Err(error) = web::serve(settings, shared, stop).await {
        tracing::warn!(%error, "no HTTP server; sensing and MQTT go on without it");
    }
}
