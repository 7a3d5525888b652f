//! What the broker tests share: a broker of its own per test, a proxy that makes trouble, and a subscriber that knows
//! nothing of our code.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::print_stderr)]

use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use aetherd::event::{Cause, EventDraft, EventKind, Journal, JournalSettings, Why, ZoneState};
use aetherd::mqtt::{self, MqttHandle, NodeView, Settings, Snapshot, ZoneView};
use aetherd::track::PeopleCount;
use aetherd::types::{Provenance, SensingTime};
use rumqttc::mqttbytes::QoS;
use rumqttc::{AsyncClient, Event, MqttOptions, Packet, PublishOptions};
use tokio::sync::{mpsc, watch};

/// Generous: no test measures time, they only must not hang.
pub const LIMIT: Duration = Duration::from_secs(30);

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// `AETHERD_TEST_BROKER=embedded` behaves as if no mosquitto were installed.
fn find(program: &str) -> Option<PathBuf> {
    if std::env::var("AETHERD_TEST_BROKER").as_deref() == Ok("embedded") {
        return None;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    dirs.push("/usr/sbin".into());
    dirs.into_iter().map(|dir| dir.join(program)).find(|file| file.exists())
}

pub struct Broker {
    child: Option<Child>,
    pub dir: tempfile::TempDir,
    pub port: u16,
}

impl Broker {
    /// A mosquitto with these configuration lines besides its listener; `None` (and the test ends) where there is none.
    pub fn mosquitto(lines: &str) -> Option<Self> {
        if find("mosquitto").is_none() {
            assert!(
                std::env::var("AETHERD_REQUIRE_MOSQUITTO").as_deref() != Ok("1"),
                "mosquitto is required and not installed"
            );
            eprintln!(
                "skipped: this test restarts or configures the broker and needs mosquitto, which is not installed"
            );
            return None;
        }
        let mut broker = Self { child: None, dir: tempfile::tempdir().unwrap(), port: free_port() };
        broker.configure(lines);
        broker.start();
        Some(broker)
    }

    pub fn configure(&self, lines: &str) {
        let dir = self.dir.path().display();
        let user = if nix_is_root() { "user root\n" } else { "" };
        let text = format!("listener {} 127.0.0.1\n{user}{}\n", self.port, lines.replace("DIR", &dir.to_string()));
        std::fs::write(self.dir.path().join("mosquitto.conf"), text).unwrap();
    }

    pub fn start(&mut self) {
        assert!(self.child.is_none());
        let log = std::fs::File::options().create(true).append(true).open(self.dir.path().join("log")).unwrap();
        let child = Command::new(find("mosquitto").unwrap())
            .arg("-c")
            .arg(self.dir.path().join("mosquitto.conf"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.child = Some(child);
        let began = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(began.elapsed() < LIMIT, "mosquitto does not listen: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// A clean end, with which mosquitto saves what it keeps.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            Command::new("kill").arg(child.id().to_string()).status().unwrap();
            child.wait().unwrap();
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
    }
}

fn nix_is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|l| l.starts_with("Uid:") && l.split_whitespace().nth(2) == Some("0"))
}

/// A broker for tests that need no more than a broker: mosquitto, or the one inside the program. Returns its port and
/// what must live as long as the test.
pub fn any_broker() -> (u16, Option<Broker>) {
    if let Some(broker) = find("mosquitto").and_then(|_| Broker::mosquitto("allow_anonymous true")) {
        return (broker.port, Some(broker));
    }
    assert!(
        std::env::var("AETHERD_REQUIRE_MOSQUITTO").as_deref() != Ok("1"),
        "mosquitto is required and not installed"
    );
    #[cfg(feature = "embedded-broker")]
    {
        eprintln!("mosquitto is not installed: this test uses the embedded broker");
        (mqtt::embedded::start(0).unwrap().port(), None)
    }
    #[cfg(not(feature = "embedded-broker"))]
    panic!("no broker: install mosquitto or build with the feature embedded-broker");
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub topic: String,
    pub payload: String,
    pub retain: bool,
}

/// A subscriber on the bare client library. It reconnects and subscribes again by itself.
pub struct Subscriber {
    seen: Arc<Mutex<Vec<Seen>>>,
    subscribed: watch::Receiver<u64>,
    pub client: AsyncClient,
    task: tokio::task::JoinHandle<()>,
}

impl Subscriber {
    pub async fn start(port: u16, filters: &[&str]) -> Self {
        Self::with_options(MqttOptions::new(format!("test-{}", rand_name()), ("127.0.0.1", port)), filters).await
    }

    pub async fn with_options(mut options: MqttOptions, filters: &[&str]) -> Self {
        options.set_keep_alive(5);
        options.set_max_packet_size(1 << 20, 1 << 20);
        let (client, mut event_loop) = AsyncClient::builder(options).capacity(64).build();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (subscribed_tx, subscribed) = watch::channel(0);
        let filters: Vec<String> = filters.iter().map(|f| (*f).to_owned()).collect();
        let (sink, subscriber) = (seen.clone(), client.clone());
        let task = tokio::spawn(async move {
            let mut acknowledged = 0;
            loop {
                match event_loop.poll().await {
                    Ok(Event::Incoming(Packet::ConnAck(_))) => {
                        acknowledged = 0;
                        for filter in &filters {
                            subscriber.try_subscribe(filter.as_str(), QoS::AtLeastOnce).unwrap();
                        }
                    }
                    Ok(Event::Incoming(Packet::SubAck(_))) => {
                        acknowledged += 1;
                        if acknowledged == filters.len() {
                            subscribed_tx.send_modify(|n| *n += 1);
                        }
                    }
                    Ok(Event::Incoming(Packet::Publish(p))) => sink.lock().unwrap().push(Seen {
                        topic: String::from_utf8(p.topic.to_vec()).unwrap(),
                        payload: String::from_utf8(p.payload.to_vec()).unwrap(),
                        retain: p.retain,
                    }),
                    Ok(_) => {}
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        });
        let mut this = Self { seen, subscribed, client, task };
        this.subscribed_more_than(0).await;
        this
    }

    /// How often all filters were acknowledged: once per connection.
    pub fn subscriptions(&self) -> u64 {
        *self.subscribed.borrow()
    }

    pub async fn subscribed_more_than(&mut self, count: u64) {
        let wait = self.subscribed.wait_for(|n| *n > count);
        let _ = tokio::time::timeout(LIMIT, wait).await.expect("subscriber connects").unwrap();
    }

    pub fn all(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub fn clear(&self) {
        self.seen.lock().unwrap().clear();
    }

    pub fn on(&self, topic: &str) -> Vec<String> {
        self.seen.lock().unwrap().iter().filter(|s| s.topic == topic).map(|s| s.payload.clone()).collect()
    }

    pub async fn until(&self, what: &str, good: impl Fn(&[Seen]) -> bool) {
        let began = Instant::now();
        while !good(&self.seen.lock().unwrap()) {
            if began.elapsed() > LIMIT {
                let mut text = String::new();
                for seen in self.all() {
                    let _ = writeln!(text, "  {} {} {}", seen.retain, seen.topic, seen.payload);
                }
                panic!("never saw {what}; saw\n{text}");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub async fn until_on(&self, topic: &str, payload: &str) {
        let what = format!("{payload} on {topic}");
        self.until(&what, |all| all.iter().any(|s| s.topic == topic && s.payload == payload)).await;
    }

    pub fn publish(&self, topic: &str, payload: &str, retain: bool) {
        self.client.try_publish(topic, payload, PublishOptions::new(QoS::AtLeastOnce).retain(retain)).unwrap();
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub fn rand_name() -> String {
    format!("{:08x}", rand::random::<u32>())
}

pub async fn eventually(what: &str, mut good: impl FnMut() -> bool) {
    let began = Instant::now();
    while !good() {
        assert!(began.elapsed() < LIMIT, "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Settings with short times.
pub fn settings(port: u16) -> Settings {
    Settings {
        host: "127.0.0.1".into(),
        port: Some(port),
        instance: "t1".into(),
        reconnect_min_ms: 20,
        reconnect_max_ms: 100,
        config_retry_ms: 300,
        connect_timeout_ms: 3_000,
        ack_timeout_ms: 2_000,
        birth_delay_max_ms: 50,
        birth_settle_ms: 100,
        clear_delay_ms: 300,
        ..Settings::default()
    }
}

pub fn zone(id: &str, name: &str) -> ZoneView {
    ZoneView {
        name: name.into(),
        area: Some(name.into()),
        state: ZoneState {
            zone: id.into(),
            occupied: Some(true),
            moving: Some(false),
            why: Some(Why::Motion),
            people: Some(PeopleCount { people: 2, at_least: true }),
            score: Some(0.5),
            quality: 0.9,
            available: true,
            since: Some(SensingTime(1_700_000_000_000_000)),
            source: Provenance::Simulated,
        },
        since: Some("2026-11-30T22:00:00+02:00".into()),
        hold_s: 30.0,
        sensitivity: 1.0,
    }
}

pub fn node(id: &str) -> NodeView {
    NodeView {
        id: id.into(),
        name: id.into(),
        available: true,
        mac: Some("3c:71:bf:6d:2a:78".parse().unwrap()),
        chip: Some("ESP32-S3".into()),
        rate_hz: 99.96,
        loss: Some(0.01),
        rssi_dbm: Some(-51.0),
        noise_dbm: None,
        channel: Some(6),
        frames: 1000,
        rejects: vec![("bad_length".into(), 2)],
        last_seen: Some("2026-11-30T22:00:00+02:00".into()),
    }
}

pub fn snapshot() -> Snapshot {
    Snapshot {
        zones: vec![zone("bed", "Bedroom"), zone("hall", "Hall")],
        nodes: vec![node("n1")],
        version: "0.1.0".into(),
        started: "2026-11-30T21:00:00+02:00".into(),
        source: Provenance::Simulated,
        ..Snapshot::default()
    }
}

pub fn draft(n: u64) -> EventDraft {
    EventDraft {
        zone: if n.is_multiple_of(2) { "bed" } else { "hall" }.into(),
        kind: EventKind::ALL[(n % 4) as usize],
        time: SensingTime(1_700_000_000_000_000 + n as i64 * 250_000),
        at: "2026-11-30T22:00:00+02:00".into(),
        cause: Cause { why: "motion".into(), link: Some("n1".into()), score: Some(1.5) },
        source: Provenance::Simulated,
    }
}

/// The part of the daemon under test, with everything around it that it needs.
pub struct Daemon {
    pub snapshots: watch::Sender<Arc<Snapshot>>,
    pub journal: Arc<Journal>,
    pub requests: mpsc::Receiver<mqtt::Command>,
    pub shutdown: watch::Sender<bool>,
    pub handle: MqttHandle,
}

impl Daemon {
    pub fn start(settings: Settings, dir: &Path) -> Self {
        Self::with_snapshot(settings, dir, snapshot())
    }

    pub fn with_snapshot(settings: Settings, dir: &Path, first: Snapshot) -> Self {
        let (snapshots, snapshots_rx) = watch::channel(Arc::new(first));
        let small = JournalSettings { segment_bytes: 8 << 10, ..JournalSettings::default() };
        let journal = Arc::new(Journal::open(&dir.join("journal"), small).unwrap());
        let (requests_tx, requests) = mpsc::channel(16);
        let (shutdown, shutdown_rx) = watch::channel(false);
        let handle = mqtt::spawn(settings, snapshots_rx, journal.clone(), requests_tx, dir, shutdown_rx).unwrap();
        Self { snapshots, journal, requests, shutdown, handle }
    }

    pub fn change(&self, change: impl FnOnce(&mut Snapshot)) {
        self.snapshots.send_modify(|snapshot| change(Arc::make_mut(snapshot)));
    }

    pub async fn append(&self, n: u64) -> String {
        let journal = self.journal.clone();
        tokio::task::spawn_blocking(move || journal.append(draft(n)).unwrap().id).await.unwrap()
    }

    pub async fn stop(self) {
        self.shutdown.send_replace(true);
        tokio::time::timeout(LIMIT, self.handle.join()).await.expect("stops in time");
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Bytes go through.
    Pass,
    /// Bytes go through, a few at a time.
    Slow,
    /// Connections are cut, and new ones at once.
    Refuse,
    /// Connections stay open and nothing goes through.
    Stall,
}

/// A TCP proxy before the broker that makes trouble on demand.
pub struct Proxy {
    pub port: u16,
    mode: watch::Sender<Mode>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub async fn start(to: u16) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (mode, modes) = watch::channel(Mode::Pass);
        let task = tokio::spawn(async move {
            loop {
                let Ok((client, _)) = listener.accept().await else { continue };
                let modes = modes.clone();
                tokio::spawn(async move {
                    if *modes.borrow() == Mode::Refuse {
                        return;
                    }
                    let Ok(server) = tokio::net::TcpStream::connect(("127.0.0.1", to)).await else { return };
                    let ((cr, cw), (sr, sw)) = (client.into_split(), server.into_split());
                    tokio::select! {
                        () = copy(cr, sw, modes.clone()) => {}
                        () = copy(sr, cw, modes.clone()) => {}
                    }
                });
            }
        });
        Self { port, mode, task }
    }

    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn copy(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut modes: watch::Receiver<Mode>,
) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut buffer = vec![0; 4096];
    loop {
        let mode = *modes.borrow_and_update();
        match mode {
            Mode::Refuse => return,
            Mode::Stall => {
                if modes.changed().await.is_err() {
                    return;
                }
                continue;
            }
            Mode::Slow => tokio::time::sleep(Duration::from_millis(5)).await,
            Mode::Pass => {}
        }
        let size = if mode == Mode::Slow { 256 } else { buffer.len() };
        tokio::select! {
            n = from.read(&mut buffer[..size]) => match n {
                Ok(n) if n > 0 => if to.write_all(&buffer[..n]).await.is_err() { return },
                _ => return,
            },
            changed = modes.changed() => if changed.is_err() { return },
        }
    }
}
