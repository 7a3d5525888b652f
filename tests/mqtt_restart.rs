//! The broker goes away and comes back, in every way we could think of: nothing is lost, the order holds.
#![allow(clippy::unwrap_used)]

mod mqtt_support;

use std::collections::HashSet;

use mqtt_support::{Broker, Daemon, Mode, Proxy, Seen, Subscriber, eventually, settings};
use rumqttc::MqttOptions;
use serde_json::Value;

const PERSISTENT: &str = "allow_anonymous true\npersistence true\npersistence_location DIR/\nautosave_interval 1\nautosave_on_changes false\nmax_queued_messages 0";
const FORGETFUL: &str = "allow_anonymous true\npersistence false";

fn event_ids(all: &[Seen]) -> Vec<String> {
    let mut known = HashSet::new();
    all.iter()
        .filter(|s| s.topic.ends_with("/event"))
        .map(|s| serde_json::from_str::<Value>(&s.payload).unwrap()["event_id"].as_str().unwrap().to_owned())
        .filter(|id| known.insert(id.clone()))
        .collect()
}

fn first(all: &[Seen], belongs: impl Fn(&Seen) -> bool) -> usize {
    all.iter().position(belongs).expect("seen")
}

fn last(all: &[Seen], belongs: impl Fn(&Seen) -> bool) -> usize {
    all.iter().rposition(belongs).expect("seen")
}

/// After the broker is back: status, discovery, availability, states, events.
fn assert_announced_in_order(all: &[Seen]) {
    let status = first(all, |s| s.topic == "aetherd/t1/status" && s.payload == "online");
    let discovery = |s: &Seen| s.topic.starts_with("homeassistant/device/");
    let availability = |s: &Seen| s.topic.ends_with("/availability");
    let state = |s: &Seen| s.topic.ends_with("/state");
    let event = |s: &Seen| s.topic.ends_with("/event");
    assert!(status < first(all, discovery), "{all:?}");
    assert!(last(all, discovery) < first(all, availability), "{all:?}");
    assert!(last(all, availability) < first(all, state), "{all:?}");
    assert!(last(all, state) < first(all, event), "{all:?}");
    assert_eq!(all.iter().filter(|s| discovery(s)).count(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_without_memory_is_told_everything_again() {
    let Some(mut broker) = Broker::mosquitto(FORGETFUL) else { return };
    let dir = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(broker.port).await;
    let mut subscriber = Subscriber::start(broker.port, &["#"]).await;
    let daemon = Daemon::start(settings(proxy.port), dir.path());
    let mut ids = vec![daemon.append(0).await];
    subscriber.until("the first event", |all| event_ids(all) == ids).await;
    eventually("the event is acknowledged", || daemon.journal.waiting() == 0).await;

    let connections = subscriber.subscriptions();
    proxy.set(Mode::Refuse);
    broker.kill();
    eventually("the loss is noticed", || !daemon.handle.status().connected).await;
    subscriber.clear();
    for n in 1..20 {
        ids.push(daemon.append(n).await);
    }
    daemon.change(|s| s.zones[0].state.moving = Some(true));
    broker.start();
    // The subscriber first: the events are not retained.
    subscriber.subscribed_more_than(connections).await;
    proxy.set(Mode::Pass);
    subscriber.until("all events", |all| event_ids(all) == ids[1..]).await;
    let all = subscriber.all();
    assert_announced_in_order(&all);
    assert!(all.iter().any(|s| s.topic.ends_with("bed/state") && s.payload.contains("\"motion\":\"ON\"")));
    assert_eq!(daemon.handle.status().connections_total, 2);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_with_memory_gives_each_event_to_a_lasting_session() {
    let Some(mut broker) = Broker::mosquitto(PERSISTENT) else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut options = MqttOptions::new("lasting", ("127.0.0.1", broker.port));
    options.set_clean_session(false);
    let mut subscriber = Subscriber::with_options(options, &["#"]).await;
    let daemon = Daemon::start(settings(broker.port), dir.path());
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(daemon.append(n).await);
    }
    subscriber.until("the first events", |all| event_ids(all) == ids).await;
    let connections = subscriber.subscriptions();
    broker.stop();
    for n in 5..10 {
        ids.push(daemon.append(n).await);
    }
    broker.start();
    subscriber.subscribed_more_than(connections).await;
    subscriber.until("all events", |all| event_ids(all) == ids).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_away_at_the_start_is_waited_for() {
    let Some(mut broker) = Broker::mosquitto(FORGETFUL) else { return };
    broker.kill();
    let dir = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(broker.port).await;
    proxy.set(Mode::Refuse);
    let daemon = Daemon::start(settings(proxy.port), dir.path());
    let mut ids = Vec::new();
    for n in 0..100 {
        ids.push(daemon.append(n).await);
    }
    eventually("attempts fail", || daemon.handle.status().last_error.is_some()).await;
    let status = daemon.handle.status();
    assert!(!status.connected && status.connections_total == 0 && status.fault.is_none(), "{status:?}");
    assert_eq!(daemon.journal.waiting(), 100);
    broker.start();
    let subscriber = Subscriber::start(broker.port, &["#"]).await;
    proxy.set(Mode::Pass);
    subscriber.until("all events", |all| event_ids(all) == ids).await;
    assert_announced_in_order(&subscriber.all());
    eventually("all are acknowledged", || daemon.journal.waiting() == 0).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_falls_silent_is_left_and_found_again() {
    let Some(broker) = Broker::mosquitto(FORGETFUL) else { return };
    let dir = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(broker.port).await;
    let subscriber = Subscriber::start(broker.port, &["#"]).await;
    let daemon = Daemon::start(
        aetherd::mqtt::Settings { ack_timeout_ms: 500, connect_timeout_ms: 500, ..settings(proxy.port) },
        dir.path(),
    );
    let mut ids = vec![daemon.append(0).await];
    subscriber.until("the first event", |all| event_ids(all) == ids).await;
    proxy.set(Mode::Stall);
    for n in 1..50 {
        ids.push(daemon.append(n).await);
    }
    eventually("the silence is noticed", || {
        daemon.handle.status().last_error.is_some_and(|e| e.contains("acknowledged none"))
    })
    .await;
    proxy.set(Mode::Pass);
    subscriber.until("all events", |all| event_ids(all) == ids).await;
    eventually("all are acknowledged", || daemon.journal.waiting() == 0).await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_broker_is_not_taken_for_a_silent_one() {
    let Some(broker) = Broker::mosquitto(FORGETFUL) else { return };
    let dir = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(broker.port).await;
    proxy.set(Mode::Slow);
    let subscriber = Subscriber::start(broker.port, &["#"]).await;
    let daemon = Daemon::start(
        aetherd::mqtt::Settings { ack_timeout_ms: 10_000, connect_timeout_ms: 10_000, ..settings(proxy.port) },
        dir.path(),
    );
    let mut ids = Vec::new();
    for n in 0..60 {
        ids.push(daemon.append(n).await);
    }
    subscriber.until("all events", |all| event_ids(all) == ids).await;
    assert_eq!(daemon.handle.status().connections_total, 1);
    daemon.stop().await;
}
