//! A snapshot as the latest value of every state topic, each with the rule by which it is sent.

use serde_json::Value;

use super::payload;
use super::settings::Settings;
use super::snapshot::Snapshot;
use super::throttle::{Offer, Rule, Throttle};
use super::topics::Topics;

/// Change of a motion score or a quality that is worth a message.
const SCORE_DEAD_BAND: f64 = 0.1;
/// A smaller change is sent after this many minimum intervals.
const SCORE_DELAY_FACTOR: u64 = 6;
/// Positions are sent this often at most, milliseconds.
const TRACKS_INTERVAL_MS: u64 = 1_000;

/// Makes the throttle hold exactly the topics of the snapshot. `absent` are availability topics of devices that the
/// snapshot lacks and that are still announced: they are offline.
pub(super) fn offer_all(
    throttle: &mut Throttle,
    topics: &Topics,
    settings: &Settings,
    snapshot: &Snapshot,
    absent: &[String],
) {
    let scores = Rule {
        min_interval_ms: settings.score_interval_ms,
        dead_band: SCORE_DEAD_BAND,
        max_delay_ms: settings.score_interval_ms * SCORE_DELAY_FACTOR,
    };
    let diagnostics = Rule {
        min_interval_ms: settings.diagnostics_interval_ms,
        dead_band: 0.0,
        max_delay_ms: settings.diagnostics_interval_ms,
    };
    let mut held: Vec<String> = Vec::new();
    let mut offer = |topic: String, offer: Offer| {
        throttle.offer(&topic, offer);
        held.push(topic);
    };
    for zone in &snapshot.zones {
        let id = zone.state.zone.as_str();
        offer(topics.zone_availability(id), Offer::on_change(payload::availability(zone.state.available)));
        offer(topics.zone_setting(id, "hold"), Offer::on_change(zone.hold_s.to_string()));
        offer(topics.zone_setting(id, "sensitivity"), Offer::on_change(zone.sensitivity.to_string()));
        offer(topics.zone_state(id), split(&payload::zone_state(zone), &["score", "quality"], scores));
    }
    for node in &snapshot.nodes {
        offer(topics.node_availability(&node.id), Offer::on_change(payload::availability(node.available)));
        let state = payload::node_state(node, snapshot);
        let slow = ["rate_hz", "loss", "rssi_dbm", "noise_dbm", "frames", "rejected", "rejects", "last_seen"];
        offer(topics.node_state(&node.id), split(&state, &slow, diagnostics));
    }
    let slow = ["uptime_s", "memory_bytes", "frames_dropped", "events_waiting", "cache_bytes", "tokens"];
    offer(topics.health(), split(&payload::health(snapshot), &slow, diagnostics));
    if settings.publish_tracks {
        let rule = Rule { min_interval_ms: TRACKS_INTERVAL_MS, dead_band: 0.0, max_delay_ms: TRACKS_INTERVAL_MS };
        let body = payload::tracks(snapshot).to_string();
        offer(topics.tracks(), Offer { body, urgent: String::new(), slow: Vec::new(), rule });
    }
    for topic in absent {
        offer(topic.clone(), Offer::on_change(payload::availability(false)));
    }
    let gone: Vec<String> = throttle.topics().filter(|t| !held.iter().any(|h| h == t)).map(str::to_owned).collect();
    for topic in gone {
        throttle.remove(&topic);
    }
}

/// Separates the keys that may wait from those that may not.
fn split(body: &Value, slow: &[&str], rule: Rule) -> Offer {
    let urgent = body.as_object().map(|map| map.iter().filter(|(key, _)| !slow.contains(&key.as_str())).collect());
    let urgent: Vec<(&String, &Value)> = urgent.unwrap_or_default();
    Offer {
        urgent: format!("{urgent:?}"),
        slow: slow.iter().map(|key| body[key].as_f64()).collect(),
        body: body.to_string(),
        rule,
    }
}

/// What discovery depends on: documents are made anew only if this changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape {
    version: String,
    zones: Vec<(String, String, Option<String>)>,
    nodes: Vec<(String, String, Option<crate::types::MacAddr>, Option<String>)>,
}

impl Shape {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let zone = |z: &super::ZoneView| (z.state.zone.clone(), z.name.clone(), z.area.clone());
        let zones = snapshot.zones.iter().map(zone).collect();
        let nodes = snapshot.nodes.iter().map(|n| (n.id.clone(), n.name.clone(), n.mac, n.chip.clone())).collect();
        Self { version: snapshot.version.clone(), zones, nodes }
    }
}
