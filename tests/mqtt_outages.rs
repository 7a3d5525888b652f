//! Events across random outages of the broker and deaths of the daemon: each arrives, in order, none is invented.
//!
//! `AETHERD_SOAK_EVENTS`, `AETHERD_SOAK_OUTAGES`, `AETHERD_SOAK_DEATHS` and `AETHERD_SOAK_SEED` scale it; the figure of
//! the project is 1000, 20 and 5.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod mqtt_support;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mqtt_support::{Broker, Daemon, Mode, Proxy, Seen, Subscriber, eventually, settings};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rumqttc::MqttOptions;
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::time::sleep;

/// Keeps sessions over a restart, and holds back nothing that it has acknowledged, so that a loss can only be ours.
const BROKER: &str = "allow_anonymous true\npersistence true\npersistence_location DIR/\nautosave_interval 1\nmax_inflight_messages 0\nmax_queued_messages 0";

fn from_env(key: &str, default: u64) -> u64 {
    std::env::var(key).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn ids_as_received(all: &[Seen]) -> Vec<String> {
    all.iter()
        .filter(|s| s.topic.ends_with("/event"))
        .map(|s| serde_json::from_str::<Value>(&s.payload).unwrap()["event_id"].as_str().unwrap().to_owned())
        .collect()
}

fn without_repetition(ids: &[String]) -> Vec<String> {
    let mut known = HashSet::new();
    ids.iter().filter(|id| known.insert(id.as_str())).cloned().collect()
}

/// The daemon in a runtime of its own, so that it can die as a process does: no task runs on, nothing is saved.
struct Life {
    runtime: Runtime,
    daemon: Daemon,
}

impl Life {
    async fn begin(port: u16, dir: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let dir: PathBuf = dir.to_path_buf();
        let quick = aetherd::mqtt::Settings { ack_timeout_ms: 500, connect_timeout_ms: 500, ..settings(port) };
        let daemon = runtime.spawn(async move { Daemon::start(quick, &dir) }).await.unwrap();
        Self { runtime, daemon }
    }

    async fn die(self) {
        // Without this, dropping the journal would save the cursor.
        std::mem::forget(self.daemon.journal.clone());
        self.runtime.shutdown_background();
        // A write that was under way may still end, as it may in a process that is killed.
        sleep(Duration::from_millis(100)).await;
    }
}

async fn outage(kind: u32, rng: &mut ChaCha8Rng, broker: &mut Broker, proxy: &Proxy, subscriber: &mut Subscriber) {
    let length = Duration::from_millis(rng.random_range(50..700));
    sleep(Duration::from_millis(rng.random_range(0..30))).await;
    match kind {
        0 => {
            proxy.set(Mode::Refuse);
            sleep(length).await;
        }
        1 => {
            proxy.set(Mode::Stall);
            sleep(length + Duration::from_millis(400)).await;
        }
        2 => {
            // The broker ends in order and remembers its sessions.
            let connections = subscriber.subscriptions();
            broker.stop();
            sleep(length).await;
            broker.start();
            subscriber.subscribed_more_than(connections).await;
        }
        _ => {
            // The broker is killed and has forgotten what it did not save: the subscriber must be back before us.
            // What it has acknowledged to us and not yet brought to the subscriber dies with it, which no publisher can
            // mend (seen in its log: PUBLISH sent on, PUBACK to us, killed before the subscriber had read it). So we
            // are cut off a moment earlier, with messages of ours unacknowledged.
            let connections = subscriber.subscriptions();
            proxy.set(Mode::Refuse);
            sleep(Duration::from_millis(100)).await;
            broker.kill();
            sleep(length).await;
            broker.start();
            subscriber.subscribed_more_than(connections).await;
        }
    }
    proxy.set(Mode::Pass);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_across_outages() {
    let Some(mut broker) = Broker::mosquitto(BROKER) else { return };
    let events = from_env("AETHERD_SOAK_EVENTS", 100);
    let outages = from_env("AETHERD_SOAK_OUTAGES", 4);
    let deaths = from_env("AETHERD_SOAK_DEATHS", 1);
    let mut rng = ChaCha8Rng::seed_from_u64(from_env("AETHERD_SOAK_SEED", 1));
    let dir = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(broker.port).await;
    let mut options = MqttOptions::new("lasting", ("127.0.0.1", broker.port));
    options.set_clean_session(false);
    let mut subscriber = Subscriber::with_options(options, &["aetherd/t1/zone/+/event"]).await;

    let mut life = Life::begin(proxy.port, dir.path()).await;
    let mut appended = Vec::new();
    // Kind of each outage and the number of events up to its end.
    let mut during: Vec<(u32, usize)> = Vec::new();
    let rounds = outages + deaths;
    let mut kinds = [0u32; 5];
    for round in 0..rounds {
        let count = events * (round + 1) / rounds - events * round / rounds;
        // Every kind comes up, deaths spread over the run.
        let dies = deaths > 0 && (round + 1) * deaths / rounds > round * deaths / rounds;
        let kind = rng.random_range(0..4);
        let mut pauses = ChaCha8Rng::seed_from_u64(rng.random());
        let append = async {
            for n in 0..count {
                appended.push(life.daemon.append(round * 1000 + n).await);
                life.daemon.change(|s| s.zones[0].hold_s = (round * 1000 + n) as f32);
                sleep(Duration::from_millis(pauses.random_range(0..25))).await;
            }
        };
        if dies {
            kinds[4] += 1;
            append.await;
            life.die().await;
            life = Life::begin(proxy.port, dir.path()).await;
        } else {
            kinds[kind as usize] += 1;
            tokio::join!(append, outage(kind, &mut rng, &mut broker, &proxy, &mut subscriber));
            during.push((kind, appended.len()));
        }
    }
    life.daemon.change(|s| s.zones[0].hold_s = 123.0);
    assert_eq!(appended.len() as u64, events);
    eventually("all are acknowledged", || life.daemon.journal.waiting() == 0).await;
    let status = life.daemon.handle.status();
    let last = appended.last().unwrap().clone();
    subscriber.until("the last event", |all| ids_as_received(all).contains(&last)).await;
    let received = ids_as_received(&subscriber.all());
    let unique = without_repetition(&received);
    eprintln!(
        "{events} events; outages: {} refused, {} stalled, {} broker restarted, {} broker killed; {} daemon deaths; \
         received {} messages, {} ids; last life had {} connections",
        kinds[0],
        kinds[1],
        kinds[2],
        kinds[3],
        kinds[4],
        received.len(),
        unique.len(),
        status.connections_total
    );
    let missing: Vec<&String> = appended.iter().filter(|id| !unique.contains(id)).collect();
    assert!(missing.is_empty(), "missing: {missing:?}; outages (kind, events so far): {during:?}");
    assert_eq!(unique, appended, "each once, in order, none invented");

    // And the state is the last one.
    let late = Subscriber::start(broker.port, &["aetherd/t1/#"]).await;
    late.until_on("aetherd/t1/zone/bed/hold", "123").await;
    late.until_on("aetherd/t1/status", "online").await;
    assert!(late.all().iter().all(|s| !s.topic.ends_with("/event")));
    life.die().await;
}
