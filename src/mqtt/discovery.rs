//! Home Assistant's discovery by device: one retained document per hub, zone and node.
//!
//! *In*: a [`Snapshot`] (names, areas, ids; no state). *Out*: [`Announcement`]s, the same for the same names. Facts
//! that shaped them, observed on Home Assistant 2026.2 and 2026.11: `default_entity_id` with its domain is honoured by
//! both and `object_id` by neither without a warning, so only the first is sent; one component without `platform` or
//! `unique_id` drops the whole device; availability with several topics needs the mode `all`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::topics::Topics;
use super::{NodeView, Snapshot, ZoneView};
use crate::event::{EventKind, HOLD_RANGE_S, SENSITIVITY_RANGE};

/// What a device stands for; decides when it may be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// The daemon.
    Hub,
    /// A zone: exists as long as it is configured.
    Zone,
    /// A board: may be away for a while.
    Node,
}

/// One discovery document.
#[derive(Debug, Clone, PartialEq)]
pub struct Announcement {
    /// What the device is.
    pub kind: DeviceKind,
    /// Where the document is published, retained.
    pub topic: String,
    /// The document.
    pub payload: Value,
    /// The device's retained state topics, to be emptied after the device is gone.
    pub state_topics: Vec<String>,
}

/// The documents of everything in the snapshot: hub first, as the others refer to it.
pub fn documents(topics: &Topics, snapshot: &Snapshot, configuration_url: &str) -> Vec<Announcement> {
    let mut all = vec![hub(topics, snapshot, configuration_url)];
    all.extend(snapshot.zones.iter().map(|zone| self::zone(topics, snapshot, zone)));
    all.extend(snapshot.nodes.iter().map(|node| self::node(topics, snapshot, node)));
    all
}

/// The components of one device, with what they have in common.
struct Components {
    map: Map<String, Value>,
    unique_prefix: String,
    entity_prefix: String,
}

impl Components {
    fn new(unique_prefix: String, entity_prefix: &str) -> Self {
        // Entity ids allow lower case, digits and underscores only.
        let entity_prefix = entity_prefix.to_ascii_lowercase().replace('-', "_");
        Self { map: Map::new(), unique_prefix, entity_prefix }
    }

    fn add(&mut self, key: &str, platform: &str, options: Value) {
        let mut component = Map::new();
        component.insert("platform".into(), json!(platform));
        component.insert("unique_id".into(), json!(format!("{}_{key}", self.unique_prefix)));
        component.insert("default_entity_id".into(), json!(format!("{platform}.{}_{key}", self.entity_prefix)));
        if let Value::Object(options) = options {
            component.extend(options);
        }
        self.map.insert(key.into(), Value::Object(component));
    }
}

fn origin(snapshot: &Snapshot) -> Value {
    json!({"name": "aetherd", "sw_version": snapshot.version})
}

fn available_with(topics: &[String]) -> Value {
    topics.iter().map(|topic| json!({ "topic": topic })).collect()
}

fn hub(topics: &Topics, snapshot: &Snapshot, configuration_url: &str) -> Announcement {
    let id = topics.hub_id();
    let available = available_with(&[topics.status()]);
    let mut components = Components::new(id.clone(), &id);
    // No availability: "not connected" is its state, not its absence.
    components.add(
        "connectivity",
        "binary_sensor",
        json!({"device_class": "connectivity", "entity_category": "diagnostic", "state_topic": topics.status(),
               "payload_on": "online", "payload_off": "offline"}),
    );
    components.add(
        "version",
        "sensor",
        json!({"name": "Version", "entity_category": "diagnostic", "icon": "mdi:tag",
               "value_template": "{{ value_json.version }}",
               "availability": available, "availability_mode": "all"}),
    );
    components.add(
        "problem",
        "binary_sensor",
        json!({"device_class": "problem", "entity_category": "diagnostic",
               "value_template": "{{ 'ON' if value_json.faults else 'OFF' }}",
               "json_attributes_topic": topics.health(),
               "json_attributes_template": "{{ {'faults': value_json.faults} | tojson }}",
               "availability": available, "availability_mode": "all"}),
    );
    components.add(
        "reload",
        "button",
        json!({"name": "Reload configuration", "entity_category": "config", "icon": "mdi:reload",
               "command_topic": topics.command("reload"), "payload_press": "{\"id\":\"home_assistant\"}",
               "availability": available, "availability_mode": "all"}),
    );
    let mut device = json!({"identifiers": [id], "name": format!("aetherd {}", topics.instance()),
                            "manufacturer": "aetherd", "model": "WiFi sensing hub", "sw_version": snapshot.version});
    if !configuration_url.is_empty() {
        device["configuration_url"] = json!(configuration_url);
    }
    Announcement {
        kind: DeviceKind::Hub,
        topic: topics.discovery(&id),
        payload: json!({"device": device, "origin": origin(snapshot), "state_topic": topics.health(), "qos": 1,
                        "components": components.map}),
        // The status stays: it is the will of the connection that is still open.
        state_topics: vec![topics.health()],
    }
}

fn zone(topics: &Topics, snapshot: &Snapshot, zone: &ZoneView) -> Announcement {
    let id = zone.state.zone.as_str();
    let device_id = format!("{}_zone_{id}", topics.hub_id());
    let mut components = Components::new(format!("{}_{id}", topics.hub_id()), id);
    components.add(
        "occupancy",
        "binary_sensor",
        json!({"name": null, "device_class": "occupancy", "value_template": "{{ value_json.occupied }}"}),
    );
    components.add(
        "motion",
        "binary_sensor",
        json!({"device_class": "motion", "value_template": "{{ value_json.motion }}"}),
    );
    // The name says what the number is: two people near each other look like one.
    components.add(
        "people",
        "sensor",
        json!({"name": "People at least", "state_class": "measurement", "icon": "mdi:account-multiple", "suggested_display_precision": 0,
               "value_template": "{{ value_json.people }}",
               "json_attributes_topic": topics.zone_state(id),
               "json_attributes_template": "{{ {'at_least': value_json.people_at_least} | tojson }}"}),
    );
    components.add(
        "events",
        "event",
        json!({"name": "Events", "icon": "mdi:motion-sensor", "state_topic": topics.zone_event(id),
               "event_types": EventKind::ALL.map(EventKind::name)}),
    );
    components.add(
        "hold",
        "number",
        json!({"name": "Hold time", "entity_category": "config", "device_class": "duration",
               "unit_of_measurement": "s", "min": HOLD_RANGE_S.0, "max": HOLD_RANGE_S.1, "step": 1, "mode": "box",
               "state_topic": topics.zone_setting(id, "hold"),
               "command_topic": topics.zone_setting_set(id, "hold")}),
    );
    components.add(
        "sensitivity",
        "number",
        json!({"name": "Sensitivity", "entity_category": "config", "icon": "mdi:tune",
               "min": SENSITIVITY_RANGE.0, "max": SENSITIVITY_RANGE.1, "step": 0.05, "mode": "slider",
               "state_topic": topics.zone_setting(id, "sensitivity"),
               "command_topic": topics.zone_setting_set(id, "sensitivity")}),
    );
    for (key, name, icon) in [("score", "Motion score", "mdi:waveform"), ("quality", "Signal quality", "mdi:signal")] {
        components.add(
            key,
            "sensor",
            json!({"name": name, "entity_category": "diagnostic", "state_class": "measurement", "icon": icon,
                   "enabled_by_default": false, "suggested_display_precision": 2,
                   "value_template": format!("{{{{ value_json.{key} }}}}")}),
        );
    }
    let mut device = json!({"identifiers": [device_id], "name": format!("{} presence", zone.name),
                            "manufacturer": "aetherd", "model": "WiFi sensing zone",
                            "sw_version": snapshot.version, "via_device": topics.hub_id()});
    if let Some(area) = &zone.area {
        device["suggested_area"] = json!(area);
    }
    Announcement {
        kind: DeviceKind::Zone,
        topic: topics.discovery(&device_id),
        payload: json!({"device": device, "origin": origin(snapshot),
                        "availability": available_with(&[topics.status(), topics.zone_availability(id)]),
                        "availability_mode": "all", "state_topic": topics.zone_state(id), "qos": 1,
                        "components": components.map}),
        state_topics: vec![
            topics.zone_availability(id),
            topics.zone_state(id),
            topics.zone_setting(id, "hold"),
            topics.zone_setting(id, "sensitivity"),
        ],
    }
}

fn node(topics: &Topics, snapshot: &Snapshot, node: &NodeView) -> Announcement {
    let id = node.id.as_str();
    let device_id = format!("{}_node_{id}", topics.hub_id());
    let mut components = Components::new(device_id.clone(), &format!("{}_node", node.id));
    components.add(
        "connectivity",
        "binary_sensor",
        json!({"device_class": "connectivity", "entity_category": "diagnostic",
               "state_topic": topics.node_availability(id), "payload_on": "online", "payload_off": "offline",
               "availability": available_with(&[topics.status()]), "availability_mode": "all"}),
    );
    components.add(
        "rate",
        "sensor",
        json!({"name": "Frame rate", "entity_category": "diagnostic", "device_class": "frequency",
               "unit_of_measurement": "Hz", "state_class": "measurement", "suggested_display_precision": 0,
               "value_template": "{{ value_json.rate_hz }}"}),
    );
    for (key, name) in [("rssi", "Signal strength"), ("noise", "Noise floor")] {
        components.add(
            key,
            "sensor",
            json!({"name": name, "entity_category": "diagnostic", "device_class": "signal_strength",
                   "unit_of_measurement": "dBm", "state_class": "measurement", "enabled_by_default": false,
                   "value_template": format!("{{{{ value_json.{key}_dbm }}}}")}),
        );
    }
    components.add(
        "loss",
        "sensor",
        json!({"name": "Frame loss", "entity_category": "diagnostic", "unit_of_measurement": "%",
               "state_class": "measurement", "icon": "mdi:percent", "enabled_by_default": false,
               "value_template":
                   "{{ (value_json.loss * 100) | round(1) if value_json.loss is not none else none }}"}),
    );
    components.add(
        "channel",
        "sensor",
        json!({"name": "Channel", "entity_category": "diagnostic", "icon": "mdi:wifi", "enabled_by_default": false,
               "value_template": "{{ value_json.channel }}"}),
    );
    components.add(
        "rejected",
        "sensor",
        json!({"name": "Rejected input", "entity_category": "diagnostic", "state_class": "total_increasing",
               "icon": "mdi:close-circle-outline", "enabled_by_default": false,
               "value_template": "{{ value_json.rejected }}"}),
    );
    components.add(
        "last_seen",
        "sensor",
        json!({"name": "Last frame", "entity_category": "diagnostic", "device_class": "timestamp",
               "enabled_by_default": false, "value_template": "{{ value_json.last_seen }}"}),
    );
    let model = match &node.chip {
        Some(chip) => format!("WiFi sensing node ({chip})"),
        None => "WiFi sensing node".to_owned(),
    };
    let mut device = json!({"identifiers": [device_id], "name": node.name, "manufacturer": "aetherd", "model": model,
                            "via_device": topics.hub_id()});
    if let Some(mac) = node.mac {
        device["connections"] = json!([["mac", mac.to_string()]]);
    }
    Announcement {
        kind: DeviceKind::Node,
        topic: topics.discovery(&device_id),
        payload: json!({"device": device, "origin": origin(snapshot),
                        "availability": available_with(&[topics.status(), topics.node_availability(id)]),
                        "availability_mode": "all", "state_topic": topics.node_state(id), "qos": 1,
                        "components": components.map}),
        state_topics: vec![topics.node_availability(id), topics.node_state(id)],
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::HashSet;

    use super::*;
    use crate::event::ZoneState;

    fn snapshot() -> Snapshot {
        let zone = |id: &str| ZoneView {
            name: "Zone".into(),
            area: None,
            state: ZoneState::unknown(id.into(), crate::types::Provenance::Sensed),
            since: None,
            hold_s: 30.0,
            sensitivity: 1.0,
        };
        let node = NodeView {
            id: "udp-192-168-1-50-3".into(),
            name: "Node".into(),
            available: true,
            mac: None,
            chip: None,
            rate_hz: 0.0,
            loss: None,
            rssi_dbm: None,
            noise_dbm: None,
            channel: None,
            frames: 0,
            rejects: Vec::new(),
            last_seen: None,
        };
        Snapshot { zones: vec![zone("bed"), zone("Bed-2")], nodes: vec![node], ..Snapshot::default() }
    }

    /// What Home Assistant drops a whole device for, and what collides.
    #[test]
    fn every_component_has_what_home_assistant_asks_for() {
        let topics = Topics::new("aetherd", "pi-1", "homeassistant").unwrap();
        let mut unique = HashSet::new();
        let mut entities = HashSet::new();
        for device in documents(&topics, &snapshot(), "http://pi:8080") {
            let object_id = device.topic.split('/').nth(2).unwrap();
            assert!(object_id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'), "{object_id}");
            assert!(device.payload["origin"]["name"].is_string());
            assert!(device.payload["device"]["identifiers"][0].is_string());
            for (key, component) in device.payload["components"].as_object().unwrap() {
                let platform = component["platform"].as_str().unwrap();
                let id = component["unique_id"].as_str().unwrap();
                assert!(unique.insert(id.to_owned()), "{id} twice");
                let entity = component["default_entity_id"].as_str().unwrap();
                assert!(entities.insert(entity.to_owned()), "{entity} twice");
                let name = entity.strip_prefix(platform).and_then(|e| e.strip_prefix('.')).unwrap();
                assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{name}");
                let named = component.get("name").is_some() || component.get("device_class").is_some();
                assert!(named && component.get("object_id").is_none(), "{key}");
                let available = component.get("availability").or(device.payload.get("availability"));
                assert!(available.is_some() || entity.ends_with("pi_1_connectivity"), "{entity}");
            }
        }
    }
}
