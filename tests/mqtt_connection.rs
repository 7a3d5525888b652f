//! What a subscriber sees of a connection: order, retain, repetition after a birth message, removal, commands, the end.
#![allow(clippy::unwrap_used)]

mod mqtt_support;

use std::time::Duration;

use aetherd::mqtt::{Settings, TrackView};
use aetherd::track::{Lifecycle, Placement};
use mqtt_support::{Broker, Daemon, LIMIT, Seen, Subscriber, any_broker, draft, eventually, settings, snapshot, zone};
use serde_json::{Value, json};

/// Four documents, the status, four topics per zone, two per node, health.
const RETAINED: usize = 4 + 1 + 2 * 4 + 2 + 1;

fn position(all: &[Seen], topic: &str) -> usize {
    all.iter().position(|s| s.topic == topic).unwrap_or_else(|| panic!("{topic} never seen"))
}

/// Positions of everything that belongs to one step.
fn span(all: &[Seen], belongs: impl Fn(&str) -> bool) -> (usize, usize) {
    let places: Vec<usize> = all.iter().enumerate().filter(|(_, s)| belongs(&s.topic)).map(|(i, _)| i).collect();
    (*places.first().expect("step seen"), *places.last().expect("step seen"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_connection_in_order() {
    let (port, _broker) = any_broker();
    let dir = tempfile::tempdir().unwrap();
    let subscriber = Subscriber::start(port, &["#"]).await;
    {
        // Waiting from before the start.
        let journal = aetherd::event::Journal::open(&dir.path().join("journal"), Default::default()).unwrap();
        journal.append(draft(0)).unwrap();
    }
    let daemon = Daemon::start(settings(port), dir.path());
    let id = daemon.append(1).await;
    subscriber.until("the second event", |all| all.iter().any(|s| s.payload.contains(&id))).await;
    let all = subscriber.all();

    assert_eq!(all[0], Seen { topic: "aetherd/t1/status".into(), payload: "online".into(), retain: false });
    let status = position(&all, "aetherd/t1/status");
    let discovery = span(&all, |t| t.starts_with("homeassistant/device/"));
    let availability = span(&all, |t| t.ends_with("/availability"));
    let states = span(&all, |t| t.ends_with("/state") || t.ends_with("/health") || t.ends_with("/hold"));
    let events = span(&all, |t| t.ends_with("/event"));
    assert!(status < discovery.0 && discovery.1 < availability.0, "{all:?}");
    assert!(availability.1 < states.0 && states.1 < events.0, "{all:?}");

    let documents = all.iter().filter(|s| s.topic.starts_with("homeassistant/")).count();
    assert_eq!(documents, 4, "hub, two zones, one node");
    let state: Value = serde_json::from_str(&subscriber.on("aetherd/t1/zone/bed/state")[0]).unwrap();
    assert_eq!(
        state,
        json!({"occupied": "ON", "motion": "OFF", "why": "motion", "people": 2, "people_at_least": true, "score": 0.5,
               "quality": 0.9, "since": "2026-11-30T22:00:00+02:00", "source": "simulated"})
    );
    let events: Vec<Value> =
        all.iter().filter(|s| s.topic.ends_with("/event")).map(|s| serde_json::from_str(&s.payload).unwrap()).collect();
    assert_eq!(events.len(), 2);
    assert_eq!((&events[0]["event_type"], &events[1]["event_type"]), (&json!("entered"), &json!("left")));
    assert!(events[0]["event_id"].as_str() < events[1]["event_id"].as_str());

    // What is retained, and what is not.
    let late = Subscriber::start(port, &["#"]).await;
    late.until_on("aetherd/t1/status", "online").await;
    late.until("retained states", |all| all.iter().filter(|s| s.retain).count() >= RETAINED).await;
    assert!(late.all().iter().all(|s| !s.topic.ends_with("/event")), "events are not retained");
    let status = daemon.handle.status();
    assert!(status.connected && status.fault.is_none() && status.last_ack.is_some());
    assert_eq!(status.connections_total, 1);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_announced_before_the_pipeline_speaks() {
    let (port, _broker) = any_broker();
    let dir = tempfile::tempdir().unwrap();
    let subscriber = Subscriber::start(port, &["#"]).await;
    let daemon = Daemon::with_snapshot(settings(port), dir.path(), aetherd::mqtt::Snapshot::default());
    subscriber.until_on("aetherd/t1/status", "online").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(subscriber.all().len(), 1, "{:?}", subscriber.all());
    daemon.snapshots.send_replace(snapshot().into());
    subscriber.until_on("aetherd/t1/zone/bed/availability", "online").await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn birth_message_repeats_everything_and_a_retained_one_does_not() {
    let (port, _broker) = any_broker();
    let dir = tempfile::tempdir().unwrap();
    let subscriber = Subscriber::start(port, &["aetherd/#", "homeassistant/#"]).await;
    subscriber.publish("homeassistant/status", "online", true);
    subscriber.until_on("homeassistant/status", "online").await;
    subscriber.clear();
    let daemon = Daemon::start(settings(port), dir.path());
    subscriber.until("health", |all| all.iter().any(|s| s.topic == "aetherd/t1/health")).await;
    // The broker sends what it retains right after the subscription, long before the states are acknowledged.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!daemon.handle.status().home_assistant_seen, "a retained birth message is of the past");
    let first = subscriber.all().len();
    subscriber.clear();
    subscriber.publish("homeassistant/status", "online", false);
    subscriber.until("everything again", |all| all.len() > first).await;
    let all = subscriber.all();
    assert_eq!(all.iter().filter(|s| s.topic.starts_with("homeassistant/device/")).count(), 4);
    let discovery = span(&all, |t| t.starts_with("homeassistant/device/"));
    let availability = span(&all, |t| t.ends_with("/availability"));
    assert!(discovery.1 < availability.0);
    assert!(daemon.handle.status().home_assistant_seen);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_zone_goes_in_order_and_a_renamed_one_stays() {
    let (port, _broker) = any_broker();
    let dir = tempfile::tempdir().unwrap();
    let subscriber = Subscriber::start(port, &["#"]).await;
    let daemon = Daemon::start(settings(port), dir.path());
    subscriber.until("health", |all| all.iter().any(|s| s.topic == "aetherd/t1/health")).await;
    subscriber.clear();

    daemon.change(|s| s.zones[0].name = "Master bedroom".into());
    let bed = "homeassistant/device/aetherd_t1_zone_bed/config";
    subscriber.until("the new name", |all| all.iter().any(|s| s.topic == bed)).await;
    let document: Value = serde_json::from_str(&subscriber.on(bed)[0]).unwrap();
    assert_eq!(document["device"]["name"], "Master bedroom presence");
    assert_eq!(document["device"]["identifiers"][0], "aetherd_t1_zone_bed");
    assert_eq!(subscriber.all().len(), 1, "only what changed");
    subscriber.clear();

    daemon.change(|s| s.zones.truncate(1));
    let hall = "homeassistant/device/aetherd_t1_zone_hall/config";
    subscriber.until_on("aetherd/t1/zone/hall/sensitivity", "").await;
    subscriber.until_on("aetherd/t1/zone/hall/state", "").await;
    let all = subscriber.all();
    assert_eq!(all[0], Seen { topic: hall.into(), payload: String::new(), retain: false });
    daemon.stop().await;

    // After a restart with a third zone instead of the first: the inventory knows what was there.
    let late = Subscriber::start(port, &["#"]).await;
    let mut other = snapshot();
    other.zones = vec![zone("attic", "Attic")];
    let daemon = Daemon::with_snapshot(settings(port), dir.path(), other);
    late.until_on(bed, "").await;
    late.until_on("aetherd/t1/zone/bed/state", "").await;
    late.until_on("aetherd/t1/zone/attic/availability", "online").await;
    let inventory = std::fs::read_to_string(dir.path().join("mqtt-inventory.json")).unwrap();
    assert!(inventory.contains("zone_attic") && !inventory.contains("zone_bed/config"));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entity_that_went_since_the_last_version_goes_in_two_steps() {
    let (port, _broker) = any_broker();
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(settings(port), dir.path());
    eventually("an inventory", || dir.path().join("mqtt-inventory.json").exists()).await;
    daemon.stop().await;
    // As an older version would have left it: with one more entity.
    let path = dir.path().join("mqtt-inventory.json");
    let mut inventory: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let topic = "homeassistant/device/aetherd_t1_zone_bed/config";
    inventory["devices"][topic]["payload"]["components"]["height"] =
        json!({"platform": "sensor", "unique_id": "x", "value_template": "{{ 1 }}"});
    std::fs::write(&path, inventory.to_string()).unwrap();

    let subscriber = Subscriber::start(port, &["homeassistant/device/#"]).await;
    subscriber.until("the retained document", |all| all.iter().any(|s| s.topic == topic)).await;
    subscriber.clear();
    let daemon = Daemon::start(settings(port), dir.path());
    subscriber.until("both steps", |all| all.iter().filter(|s| s.topic == topic).count() == 2).await;
    let steps: Vec<Value> = subscriber.on(topic).iter().map(|p| serde_json::from_str(p).unwrap()).collect();
    assert_eq!(steps[0]["components"]["height"], json!({"platform": "sensor"}));
    assert!(steps[0]["components"]["occupancy"]["unique_id"].is_string(), "the others stay whole");
    assert!(steps[1]["components"]["height"].is_null());
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn positions_are_published_where_asked_for_and_never_retained() {
    let (port, _broker) = any_broker();
    let dir = tempfile::tempdir().unwrap();
    let subscriber = Subscriber::start(port, &["#"]).await;
    let daemon = Daemon::start(Settings { publish_tracks: true, ..settings(port) }, dir.path());
    let topic = "aetherd/t1/tracks";
    subscriber.until("no tracks yet", |all| all.iter().any(|s| s.topic == topic)).await;
    let placement = Placement { position_m: [1.234, 2.0], velocity_m_s: [0.5, 0.0], sigma_m: 0.71 };
    let track = TrackView {
        id: 7,
        zone: "bed".into(),
        state: Lifecycle::Active,
        age_s: 3.0,
        unseen_s: 0.0,
        placement: Some(placement),
        tokens: 60,
        cache_bytes: 36_000,
    };
    let elsewhere = TrackView { id: 8, placement: None, ..track.clone() };
    daemon.change(move |s| s.tracks = vec![track.clone(), elsewhere.clone()]);
    subscriber.until("both", |all| all.iter().any(|s| s.topic == topic && s.payload.contains("\"id\":8"))).await;
    let body: Value = serde_json::from_str(subscriber.on(topic).last().unwrap()).unwrap();
    assert_eq!(body["tracks"][0]["position_m"], json!([1.23, 2.0]));
    assert_eq!((&body["tracks"][1]["position_m"], &body["source"]), (&Value::Null, &json!("simulated")));
    let late = Subscriber::start(port, &["#"]).await;
    late.until_on("aetherd/t1/status", "online").await;
    assert!(late.all().iter().all(|s| !(s.retain && s.topic == topic)));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_away_is_offline_and_stays_announced() {
    let (port, _broker) = any_broker();
    let dir = tempfile::tempdir().unwrap();
    let subscriber = Subscriber::start(port, &["#"]).await;
    let daemon = Daemon::start(settings(port), dir.path());
    subscriber.until_on("aetherd/t1/node/n1/availability", "online").await;
    daemon.change(|s| s.nodes.clear());
    subscriber.until_on("aetherd/t1/node/n1/availability", "offline").await;
    let document = "homeassistant/device/aetherd_t1_node_n1/config";
    assert!(subscriber.on(document).iter().all(|payload| !payload.is_empty()));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_are_carried_out_answered_refused_or_ignored() {
    let (port, _broker) = any_broker();
    let dir = tempfile::tempdir().unwrap();
    let subscriber = Subscriber::start(port, &["aetherd/#"]).await;
    // Left by somebody with the retain flag, from before the start.
    subscriber.publish("aetherd/t1/zone/bed/hold/set", "99", true);
    subscriber.until_on("aetherd/t1/zone/bed/hold/set", "99").await;
    let mut daemon = Daemon::start(settings(port), dir.path());
    eventually("the retained command is counted", || daemon.handle.status().commands_refused_total == 1).await;

    subscriber.publish("aetherd/t1/cmd/reload", r#"{"id":"7"}"#, false);
    let command = tokio::time::timeout(LIMIT, daemon.requests.recv()).await.unwrap().unwrap();
    assert_eq!(command.request, aetherd::event::Request::Reload, "not the retained one");
    command.answer.send(Ok(json!({"changed": 2}))).unwrap();
    let response = |subscriber: &Subscriber, name: &str| -> Value {
        serde_json::from_str(subscriber.on(&format!("aetherd/t1/response/{name}")).last().unwrap()).unwrap()
    };
    subscriber.until("the answer", |all| all.iter().any(|s| s.topic.ends_with("response/reload"))).await;
    assert_eq!(response(&subscriber, "reload"), json!({"id": "7", "ok": true, "data": {"changed": 2}, "error": null}));

    subscriber.publish("aetherd/t1/zone/bed/sensitivity/set", "2.5", false);
    let command = tokio::time::timeout(LIMIT, daemon.requests.recv()).await.unwrap().unwrap();
    assert_eq!(command.request, aetherd::event::Request::SetSensitivity { zone: "bed".into(), value: 2.5 });
    drop(command.answer);
    subscriber.until("a refusal", |all| all.iter().any(|s| s.topic.ends_with("response/set_sensitivity"))).await;
    assert_eq!(response(&subscriber, "set_sensitivity")["ok"], false);

    subscriber.publish("aetherd/t1/cmd/set_hold", r#"{"id":"8","args":{"zone":"attic","seconds":5}}"#, false);
    subscriber.until("a refusal", |all| all.iter().any(|s| s.topic.ends_with("response/set_hold"))).await;
    let answer = response(&subscriber, "set_hold");
    assert_eq!((&answer["id"], &answer["ok"]), (&json!("8"), &json!(false)));
    assert!(answer["error"].as_str().unwrap().contains("attic"));

    subscriber.publish("aetherd/t1/cmd/announce", "", false);
    subscriber.until("an answer", |all| all.iter().any(|s| s.topic.ends_with("response/announce"))).await;
    assert_eq!(response(&subscriber, "announce")["ok"], true);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_message_does_not_end_the_connection() {
    let (port, _broker) = any_broker();
    let dir = tempfile::tempdir().unwrap();
    let subscriber = Subscriber::start(port, &["aetherd/t1/response/#"]).await;
    let daemon = Daemon::start(settings(port), dir.path());
    // Accepted is not yet subscribed; acknowledged states come after the subscription.
    eventually("states", || daemon.handle.status().acknowledged_total > 10).await;
    subscriber.publish("aetherd/t1/cmd/reload", &"x".repeat(200 << 10), false);
    subscriber.until("a refusal", |all| all.iter().any(|s| s.payload.contains("16 KiB"))).await;
    assert_eq!(daemon.handle.status().connections_total, 1);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn states_are_throttled_by_kind_and_the_last_value_arrives() {
    let (port, _broker) = any_broker();
    let dir = tempfile::tempdir().unwrap();
    let subscriber = Subscriber::start(port, &["aetherd/#"]).await;
    let daemon = Daemon::start(aetherd::mqtt::Settings { score_interval_ms: 1_000, ..settings(port) }, dir.path());
    let topic = "aetherd/t1/zone/bed/state";
    subscriber.until("the first state", |all| all.iter().any(|s| s.topic == topic)).await;
    for i in 0..40 {
        daemon.change(|s| s.zones[0].state.score = Some(1.0 + i as f32));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    subscriber.until("the last score", |all| all.iter().any(|s| s.payload.contains("\"score\":40"))).await;
    // Forty changes in about 0.2 s; a slow machine may see a second interval begin.
    assert!(subscriber.on(topic).len() <= 5, "{:?}", subscriber.on(topic));
    // A binary change does not wait for the interval.
    daemon.change(|s| s.zones[0].state.moving = Some(true));
    subscriber.until("motion", |all| all.iter().any(|s| s.payload.contains("\"motion\":\"ON\""))).await;
    assert_eq!(subscriber.on("aetherd/t1/zone/hall/state").len(), 1, "the other zone did not change");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_stop_says_offline_itself_and_a_crash_leaves_it_to_the_will() {
    let Some(broker) = Broker::mosquitto("allow_anonymous true\nlog_type all") else { return };
    let dir = tempfile::tempdir().unwrap();
    let subscriber = Subscriber::start(broker.port, &["aetherd/#"]).await;
    let daemon = Daemon::start(settings(broker.port), dir.path());
    subscriber.until("health", |all| all.iter().any(|s| s.topic == "aetherd/t1/health")).await;
    daemon.stop().await;
    subscriber.until_on("aetherd/t1/status", "offline").await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(subscriber.on("aetherd/t1/status"), ["online", "offline"], "once, no will after it");
    assert!(broker.log().contains("Received DISCONNECT from aetherd_t1"), "{}", broker.log());

    // The process dies: its tasks end at once, the kernel closes the socket.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (port, path) = (broker.port, dir.path().to_path_buf());
    let daemon = runtime.spawn(async move { Daemon::start(settings(port), &path) }).await.unwrap();
    subscriber
        .until("online again", |all| {
            all.iter().filter(|s| s.payload == "online" && s.topic.ends_with("t1/status")).count() == 2
        })
        .await;
    runtime.shutdown_background();
    subscriber
        .until("the will", |all| {
            all.iter().filter(|s| s.payload == "offline" && s.topic.ends_with("t1/status")).count() == 2
        })
        .await;
    drop(daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn discovery_by_hand_is_published_and_cleared() {
    let (port, _broker) = any_broker();
    let dir = tempfile::tempdir().unwrap();
    let subscriber = Subscriber::start(port, &["#"]).await;
    let sent = aetherd::mqtt::publish_discovery(&settings(port), dir.path(), &snapshot()).await.unwrap();
    assert_eq!(sent, 4);
    subscriber.until("four documents", |all| all.len() == 4).await;
    subscriber.clear();
    let mut fewer = snapshot();
    fewer.zones.pop();
    // By the inventory, also what the configuration no longer has.
    aetherd::mqtt::clear_discovery(&settings(port), dir.path(), &fewer).await.unwrap();
    subscriber.until_on("aetherd/t1/health", "").await;
    subscriber.until_on("aetherd/t1/zone/hall/state", "").await;
    let all = subscriber.all();
    assert!(all.iter().all(|s| s.payload.is_empty()));
    assert_eq!(all.iter().filter(|s| s.topic.starts_with("homeassistant/device/")).count(), 4);
    assert!(all[..4].iter().all(|s| s.topic.starts_with("homeassistant/")), "discovery first: {all:?}");
    let late = Subscriber::start(port, &["homeassistant/#"]).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(late.all().is_empty(), "nothing is left: {:?}", late.all());
}

/// A task that waits for nothing may use no processor time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_is_idle() {
    fn ticks() -> u64 {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }
    let Some(broker) = Broker::mosquitto("allow_anonymous true") else { return };
    let dir = tempfile::tempdir().unwrap();
    for first in [snapshot(), aetherd::mqtt::Snapshot::default()] {
        let daemon = Daemon::with_snapshot(settings(broker.port), dir.path(), first);
        eventually("a connection", || daemon.handle.status().acknowledged_total > 0).await;
        // Beyond every delay of the settings.
        tokio::time::sleep(Duration::from_millis(800)).await;
        let before = daemon.handle.status().published_total;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert_eq!(daemon.handle.status().published_total, before);
        daemon.stop().await;
    }
    // Alone in its process (nextest) this is the task's own time; beside other tests it says nothing.
    if std::env::var_os("NEXTEST").is_some() {
        assert!(ticks() < 100, "{} ticks of 10 ms in 5 s", ticks());
    }
}
