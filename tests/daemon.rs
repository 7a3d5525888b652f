//! The daemon as a process: boards (simulated) send datagrams, a real broker and an independent client see the rest.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod mqtt_support;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use mqtt_support::{Subscriber, any_broker, free_port};
use serde_json::Value;

struct Rig {
    dir: tempfile::TempDir,
    udp: u16,
    web: u16,
    broker: u16,
}

impl Rig {
    fn new(broker: u16) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (udp, web) = (free_port(), free_port());
        let rig = Self { dir, udp, web, broker };
        rig.configure("hold_s = 2.0\ndwell_s = 0.0");
        rig
    }

    fn config(&self) -> PathBuf {
        self.dir.path().join("aetherd.toml")
    }

    fn configure(&self, occupancy: &str) {
        let (udp, web, broker) = (self.udp, self.web, self.broker);
        let state = self.dir.path().join("state");
        let text = format!(
            "state_dir = {state:?}\n[frames.udp]\nlisten = [\"127.0.0.1:{udp}\"]\n[mqtt]\nhost = \"127.0.0.1\"\nport = {broker}\n\
             instance = \"rig\"\nreconnect_min_ms = 100\nreconnect_max_ms = 500\nbirth_delay_max_ms = 0\n\
             [web]\nlisten = \"127.0.0.1:{web}\"\n[occupancy]\n{occupancy}\n[[zone]]\nname = \"Lab\"\n"
        );
        std::fs::write(self.config(), text).unwrap();
    }

    fn start(&self) -> Process {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.dir.path().join("log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_aetherd"))
            .args(["run", "--log-format", "json", "--config", self.config().to_str().unwrap()])
            .stderr(log)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Process(child)
    }

    /// Boards that send a scenario once, in the background.
    fn boards(&self, scenario: &str, speed: &str, time: &str) -> Process {
        let target = format!("127.0.0.1:{}", self.udp);
        let child = Command::new(env!("CARGO_BIN_EXE_aetherd"))
            .args(["simulate", scenario, "--udp", &target, "--speed", speed, "--for", time])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Process(child)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

struct Process(Child);

impl Process {
    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.0.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    async fn wait(&mut self) -> i32 {
        for _ in 0..200 {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the process does not end");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn get(port: u16, path: &str) -> String {
    use std::io::{Read, Write};
    // "online" is said over MQTT, which starts beside HTTP: its port may come a moment later.
    let connect = || std::net::TcpStream::connect(("127.0.0.1", port));
    let mut tries = (0..100).map(|_| connect().inspect_err(|_| std::thread::sleep(Duration::from_millis(50))));
    let mut stream = tries.find_map(Result::ok).expect("the HTTP port opens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_datagrams_to_an_occupied_zone_and_a_clean_goodbye() {
    let (port, _broker) = any_broker();
    let rig = Rig::new(port);
    let seen = Subscriber::start(port, &["aetherd/#", "homeassistant/#"]).await;
    let mut daemon = rig.start();
    seen.until_on("aetherd/rig/status", "online").await;
    let _boards = rig.boards("demo", "1", "60s");
    seen.until("a quiet zone", |all| {
        all.iter().any(|s| s.topic.ends_with("lab/state") && s.payload.contains("\"occupied\":\"OFF\""))
    })
    .await;
    seen.until("an entry", |all| all.iter().any(|s| s.topic.ends_with("lab/event") && s.payload.contains("entered")))
        .await;
    let state = seen.on("aetherd/rig/zone/lab/state").pop().unwrap();
    let state: Value = serde_json::from_str(&state).unwrap();
    assert_eq!((&state["occupied"], &state["source"]), (&Value::from("ON"), &Value::from("sensed")));
    assert!(seen.on("homeassistant/device/aetherd_rig_zone_lab/config").len() == 1);
    assert_eq!((&state["people"], &state["people_at_least"]), (&Value::from(1), &Value::from(true)));
    let cached = || get(rig.web, "/metrics").contains("aetherd_tracks{status=\"active\"} 1");
    mqtt_support::eventually("the walker is followed", cached).await;

    assert!(get(rig.web, "/healthz").starts_with("HTTP/1.1 200"));
    assert!(get(rig.web, "/readyz").starts_with("HTTP/1.1 200"));
    let metrics = get(rig.web, "/metrics");
    for name in [
        "aetherd_frames_received_total{node=",
        "aetherd_zone_occupied{zone=\"lab\"} 1",
        "aetherd_mqtt_connected 1",
        "aetherd_events_total{kind=\"entered\"} 1",
        "aetherd_build_info{version=",
        "aetherd_queue_depth{queue=\"frames\"}",
        "aetherd_kv_cache_bytes{kind=\"active\"}",
        "aetherd_tokens_total",
    ] {
        assert!(metrics.contains(name), "{name} in\n{metrics}");
    }
    let shown = get(rig.web, "/api/state");
    assert!(shown.contains("\"zones\"") && shown.contains("untrained"), "{shown}");
    assert!(seen.on("aetherd/rig/tracks").is_empty(), "positions are published only where that is asked for");

    daemon.signal("TERM");
    assert_eq!(daemon.wait().await, 0);
    seen.until_on("aetherd/rig/status", "offline").await;
    assert!(!rig.log().contains("panicked"), "{}", rig.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_reload_keeps_the_old_settings_and_says_so_a_good_one_heals() {
    let (port, _broker) = any_broker();
    let rig = Rig::new(port);
    let seen = Subscriber::start(port, &["aetherd/#"]).await;
    let daemon = rig.start();
    seen.until_on("aetherd/rig/zone/lab/hold", "2").await;
    rig.configure("hold_s = 0.0");
    daemon.signal("HUP");
    seen.until("the fault", |all| {
        all.iter().any(|s| s.topic.ends_with("health") && s.payload.contains("hold_s: expected 1 to 3600"))
    })
    .await;
    assert_eq!(seen.on("aetherd/rig/zone/lab/hold"), ["2"], "the old value stays");
    rig.configure("hold_s = 7.0");
    daemon.signal("HUP");
    seen.until_on("aetherd/rig/zone/lab/hold", "7").await;
    seen.until("no fault", |all| {
        all.iter().rfind(|s| s.topic.ends_with("health")).is_some_and(|s| s.payload.contains("\"faults\":[]"))
    })
    .await;
    // What is set from outside wins over the file, is confirmed, and survives.
    seen.publish("aetherd/rig/zone/lab/hold/set", "12", false);
    seen.until_on("aetherd/rig/zone/lab/hold", "12").await;
    drop(daemon);
    seen.clear();
    let _daemon = rig.start();
    seen.until_on("aetherd/rig/zone/lab/hold", "12").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_instant_no_event_is_lost_or_invented() {
    let (port, _broker) = any_broker();
    let rig = Rig::new(port);
    let seen = Subscriber::start(port, &["aetherd/#"]).await;
    for round in 0..3 {
        let mut daemon = rig.start();
        let _boards = rig.boards("demo", "1", "20s");
        // An event may come again after a restart: only its id tells whether it is new.
        seen.until("an event of this life", |all| event_ids(all).len() > round).await;
        daemon.signal("KILL");
        daemon.wait().await;
    }
    let mut daemon = rig.start();
    seen.until_on("aetherd/rig/status", "online").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    daemon.signal("TERM");
    daemon.wait().await;
    let published = event_ids(&seen.all());
    let journalled = journal_ids(&rig.dir.path().join("state/journal"));
    assert!(journalled.len() >= 3, "{journalled:?}");
    assert_eq!(published, journalled, "what is in the journal is what was published");
}

fn event_ids(all: &[mqtt_support::Seen]) -> std::collections::BTreeSet<String> {
    all.iter()
        .filter(|s| s.topic.ends_with("/event"))
        .map(|s| serde_json::from_str::<Value>(&s.payload).unwrap()["event_id"].as_str().unwrap().to_owned())
        .collect()
}

/// Ids in the journal's segments, read without our code: a line is a checksum and a JSON object.
fn journal_ids(dir: &Path) -> std::collections::BTreeSet<String> {
    let mut ids = std::collections::BTreeSet::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
        for line in text.lines() {
            let Some(start) = line.find('{') else { continue };
            let Ok(value) = serde_json::from_str::<Value>(&line[start..]) else { continue };
            if let Some(id) = value["event"]["id"].as_str().or(value["id"].as_str()) {
                ids.insert(id.to_owned());
            }
        }
    }
    ids
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_daemon_is_refused_and_disturbs_nothing() {
    let (port, _broker) = any_broker();
    let rig = Rig::new(port);
    let seen = Subscriber::start(port, &["aetherd/rig/status"]).await;
    let _daemon = rig.start();
    seen.until_on("aetherd/rig/status", "online").await;
    let mut second = rig.start();
    assert_eq!(second.wait().await, 1);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(seen.on("aetherd/rig/status"), ["online"], "neither kicked out nor announced twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn senders_that_are_not_allowed_are_counted_where_users_look() {
    let (port, _broker) = any_broker();
    let rig = Rig::new(port);
    let text = std::fs::read_to_string(rig.config()).unwrap();
    std::fs::write(rig.config(), text.replace("[frames.udp]\n", "[frames.udp]\nallow = [\"192.0.2.1\"]\n")).unwrap();
    let seen = Subscriber::start(port, &["aetherd/rig/status"]).await;
    let _daemon = rig.start();
    seen.until_on("aetherd/rig/status", "online").await;
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..3 {
        socket.send_to(b"anything", ("127.0.0.1", rig.udp)).unwrap();
    }
    let counted = "aetherd_frames_dropped_total{node=\"unknown\",reason=\"not_allowed\"} 3";
    mqtt_support::eventually("the refusals are counted", || get(rig.web, "/metrics").contains(counted)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_published_replay_sends_every_event_and_says_what_it_is() {
    let (port, _broker) = any_broker();
    let rig = Rig::new(port);
    let file = rig.dir.path().join("demo.pcapng");
    let run = |args: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_aetherd")).args(args).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    run(&["simulate", "visit", "--out", file.to_str().unwrap()]);
    let config = rig.config();
    let config = config.to_str().unwrap();
    let lines = run(&["replay", "--json", "--config", config, file.to_str().unwrap()]);
    let expected: Vec<String> = lines
        .lines()
        .map(|l| serde_json::from_str::<Value>(l).unwrap())
        .filter(|l| l["kind"] == "event")
        .map(|l| l["id"].as_str().unwrap().to_owned())
        .collect();
    assert!(expected.len() >= 2, "{expected:?}");
    let seen = Subscriber::start(port, &["aetherd/#", "homeassistant/#"]).await;
    run(&["replay", "--publish", "--config", config, file.to_str().unwrap()]);
    seen.until_on("aetherd/rig_replay/status", "offline").await;
    // Full speed drops nothing: the same events as without a broker.
    assert_eq!(event_ids(&seen.all()).into_iter().collect::<Vec<_>>(), expected);
    let all = seen.all();
    assert!(all.iter().filter(|s| s.payload.starts_with('{')).all(|s| s.payload.contains("\"source\":\"simulated\"")));
    assert!(all.iter().all(|s| !s.topic.starts_with("homeassistant/")), "no device stays behind");
}
