//! The daemon as a process, killed with `kill -9` while its broker comes and goes: a subscriber has each journalled event,
//! in order, none invented. The events are those of simulated boards; many zones watch one room, so that there are many.
//!
//! `SOAK_EVENTS`, `SOAK_OUTAGES` and `SOAK_DEATHS` scale it; the figure of the project is 1000, 20 and 5.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod mqtt_support;

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use aetherd::simulate::{Doing, Phase, Scenario};
use mqtt_support::{Broker, Mode, Proxy, Seen, Subscriber, free_port};
use rumqttc::MqttOptions;
use serde_json::Value;
use tokio::time::sleep;

/// Keeps sessions over a restart, and holds back nothing that it has acknowledged, so that a loss can only be ours.
const BROKER: &str = "allow_anonymous true\npersistence true\npersistence_location DIR/\nautosave_interval 1\nmax_inflight_messages 0\nmax_queued_messages 0";

fn from_env(key: &str, default: usize) -> usize {
    std::env::var(key).ok().and_then(|t| t.parse().ok()).unwrap_or(default)
}

/// A child that dies with the test.
struct Process(Child);

impl Process {
    fn start(args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_aetherd"));
        Self(command.args(args).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Child::kill is SIGKILL.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Ids in the journal in order, read without our code: each line is a checksum and a JSON object.
fn journalled(dir: &Path) -> Vec<String> {
    let mut ids = BTreeSet::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
        for line in text.lines() {
            let value = line.find('{').and_then(|at| serde_json::from_str::<Value>(&line[at..]).ok());
            let id = value.and_then(|v| v["event"]["id"].as_str().or(v["id"].as_str()).map(str::to_owned));
            ids.extend(id);
        }
    }
    ids.into_iter().collect()
}

fn received(all: &[Seen]) -> Vec<String> {
    let mut known = HashSet::new();
    all.iter()
        .filter(|s| s.topic.ends_with("/event"))
        .map(|s| serde_json::from_str::<Value>(&s.payload).unwrap()["event_id"].as_str().unwrap().to_owned())
        .filter(|id| known.insert(id.clone()))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_journalled_event_arrives_whatever_dies() {
    let Some(mut broker) = Broker::mosquitto(BROKER) else { return };
    let (wanted, outages, deaths) =
        (from_env("SOAK_EVENTS", 120), from_env("SOAK_OUTAGES", 3), from_env("SOAK_DEATHS", 2));
    let dir = tempfile::tempdir().unwrap();
    let udp = free_port();

    // Somebody comes and goes every ten seconds.
    let mut scenario = Scenario::preset("demo").unwrap();
    scenario.duration_s = 10.0;
    scenario.repeat = true;
    scenario.nodes.truncate(1);
    scenario.people[0].plan = vec![Phase { from_s: 0.5, to_s: 4.5, doing: Doing::Walk }];
    let scenario_file = dir.path().join("scenario.toml");
    std::fs::write(&scenario_file, toml::to_string(&scenario).unwrap()).unwrap();

    let proxy = Proxy::start(broker.port).await;
    let zones: String = (0..40).map(|n| format!("[[zone]]\nname = \"Zone {n}\"\n")).collect();
    let state = dir.path().join("state");
    let config = dir.path().join("aetherd.toml");
    let port = proxy.port;
    let text = format!(
        "state_dir = {state:?}\n[frames.udp]\nlisten = [\"127.0.0.1:{udp}\"]\n[mqtt]\nhost = \"127.0.0.1\"\nport = {port}\ninstance = \"soak\"\n\
         reconnect_min_ms = 100\nreconnect_max_ms = 500\nack_timeout_ms = 1000\nconnect_timeout_ms = 1000\n[web]\nenabled = false\n\
         [occupancy]\nhold_s = 1.0\ndwell_s = 0.0\nstill_after_s = 1.0\n{zones}"
    );
    std::fs::write(&config, text).unwrap();
    let mut options = MqttOptions::new("lasting", ("127.0.0.1", broker.port));
    options.set_clean_session(false);
    let mut subscriber = Subscriber::with_options(options, &["aetherd/soak/zone/+/event"]).await;

    let target = format!("127.0.0.1:{udp}");
    let _boards = Process::start(&["simulate", scenario_file.to_str().unwrap(), "--udp", &target, "--for", "1h"]);
    let run = ["run", "--config", config.to_str().unwrap()];
    let mut daemon = Process::start(&run);
    let journal = state.join("journal");
    let (mut cut, mut died) = (0, 0);
    let mut rounds = 0u64;
    while journalled(&journal).len() < wanted || cut < outages || died < deaths {
        rounds += 1;
        assert!(rounds < 40 * wanted as u64, "no more events come");
        sleep(Duration::from_millis(300 + 170 * (rounds % 7))).await;
        if cut < outages && rounds.is_multiple_of(3) {
            cut += 1;
            // Cut off first: what a broker has acknowledged and not passed on when it is killed, nobody can give back.
            proxy.set(Mode::Refuse);
            sleep(Duration::from_millis(200)).await;
            let before = subscriber.subscriptions();
            broker.kill();
            sleep(Duration::from_millis(300)).await;
            broker.start();
            subscriber.subscribed_more_than(before).await;
            proxy.set(if rounds.is_multiple_of(2) { Mode::Slow } else { Mode::Pass });
        }
        if died < deaths && rounds.is_multiple_of(5) {
            died += 1;
            drop(daemon);
            daemon = Process::start(&run);
        }
    }
    proxy.set(Mode::Pass);
    drop(daemon);
    // A last life without boards delivers what waits.
    drop(_boards);
    let _daemon = Process::start(&run);
    let written = journalled(&journal);
    subscriber.until("the last event", |all| received(all).contains(written.last().unwrap())).await;
    sleep(Duration::from_secs(1)).await;
    let (written, seen) = (journalled(&journal), received(&subscriber.all()));
    eprintln!(
        "{} events, {cut} broker outages, {} kill -9 of the daemon; the subscriber has {}",
        written.len(),
        died + 1,
        seen.len()
    );
    let missing: Vec<_> = written.iter().filter(|id| !seen.contains(id)).collect();
    assert!(missing.is_empty(), "missing: {missing:?}");
    assert_eq!(seen, written, "each once, in order, none invented");
}
