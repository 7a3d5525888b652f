//! What we have announced, on disk, so that what no longer exists can be removed, also after a restart.
//!
//! Home Assistant removes an entity only if it first sees it reduced to its `platform` and then absent; a device by an
//! empty document; and a retained state topic may be emptied only after the discovery is gone, else the log fills with
//! errors (all observed). The inventory knows the last acknowledged documents and the state topics still to be emptied.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::discovery::{Announcement, DeviceKind};
use crate::event::write_atomically;

/// File name under the state directory.
const FILE: &str = "mqtt-inventory.json";
/// Form of the file.
const VERSION: u32 = 1;

/// One announced device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Entry {
    kind: DeviceKind,
    payload: Value,
    state_topics: Vec<String>,
    /// Unix time in seconds since when the snapshot lacks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    missing_since_s: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Content {
    version: u32,
    /// By discovery topic.
    devices: BTreeMap<String, Entry>,
    /// Retained state topics whose device is gone.
    to_clear: BTreeSet<String>,
}

/// A retained message to send; an empty payload removes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveryMessage {
    /// Where.
    pub topic: String,
    /// JSON text, or nothing.
    pub payload: String,
}

/// What to send, in order, and what the inventory will be once all of it is acknowledged.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Retained messages in their order.
    pub messages: Vec<DiscoveryMessage>,
    /// Availability topics of absent nodes that are kept: they are offline.
    pub absent: Vec<String>,
    after: Content,
}

impl Plan {
    /// Whether committing it changes nothing.
    pub fn is_unchanged(&self, inventory: &Inventory) -> bool {
        self.after == inventory.content
    }
}

/// The announced inventory.
#[derive(Debug)]
pub struct Inventory {
    path: PathBuf,
    content: Content,
}

impl Inventory {
    /// Reads the inventory of the state directory. A missing one is empty; a damaged one too, and is set aside with the
    /// extension `bad` and a log line: what it held can then be removed only by hand.
    pub fn open(state_dir: &Path) -> Self {
        let path = state_dir.join(FILE);
        let empty = Content { version: VERSION, devices: BTreeMap::new(), to_clear: BTreeSet::new() };
        let content = match std::fs::read_to_string(&path) {
            Err(_) => empty,
            Ok(text) => match serde_json::from_str::<Content>(&text) {
                Ok(content) if content.version == VERSION => content,
                _ => {
                    let aside = path.with_extension("bad");
                    let moved = std::fs::rename(&path, &aside).is_ok();
                    tracing::warn!(file = %aside.display(), moved, "discovery inventory is damaged, set aside");
                    empty
                }
            },
        };
        Self { path, content }
    }

    /// What must be sent so that exactly `wanted` is announced.
    ///
    /// With `everything`, unchanged documents are sent too. A node that is missing from `wanted` is removed only after
    /// `forget_node_s` seconds, counted from the first plan that lacks it; `now_s` is Unix time.
    pub fn plan(&self, wanted: &[Announcement], everything: bool, now_s: u64, forget_node_s: u64) -> Plan {
        let mut messages = Vec::new();
        let mut absent = Vec::new();
        let mut after = Content { version: VERSION, devices: BTreeMap::new(), to_clear: self.content.to_clear.clone() };
        for (topic, entry) in &self.content.devices {
            if wanted.iter().any(|w| w.topic == *topic) {
                continue;
            }
            let since = entry.missing_since_s.unwrap_or(now_s).min(now_s);
            if entry.kind == DeviceKind::Node && !wanted.is_empty() && now_s - since < forget_node_s {
                let kept = Entry { missing_since_s: Some(since), ..entry.clone() };
                if everything {
                    messages.push(message(topic, &kept.payload));
                }
                absent.extend(kept.state_topics.iter().filter(|t| t.ends_with("/availability")).cloned());
                after.devices.insert(topic.clone(), kept);
            } else {
                messages.push(DiscoveryMessage { topic: topic.clone(), payload: String::new() });
                after.to_clear.extend(entry.state_topics.iter().cloned());
            }
        }
        for device in wanted {
            let old = self.content.devices.get(&device.topic);
            if let Some(reduced) = old.and_then(|old| reduced(&old.payload, &device.payload)) {
                messages.push(message(&device.topic, &reduced));
                messages.push(message(&device.topic, &device.payload));
            } else if everything || old.is_none_or(|old| old.payload != device.payload) {
                messages.push(message(&device.topic, &device.payload));
            }
            if let Some(old) = old {
                after.to_clear.extend(old.state_topics.iter().cloned());
            }
            after.devices.insert(
                device.topic.clone(),
                Entry {
                    kind: device.kind,
                    payload: device.payload.clone(),
                    state_topics: device.state_topics.clone(),
                    missing_since_s: None,
                },
            );
        }
        for entry in after.devices.values() {
            for topic in &entry.state_topics {
                after.to_clear.remove(topic);
            }
        }
        Plan { messages, absent, after }
    }

    /// The plan was acknowledged.
    pub fn commit(&mut self, plan: Plan) {
        self.content = plan.after;
    }

    /// State topics whose device is gone and that still hold a retained message.
    pub fn to_clear(&self) -> Vec<String> {
        self.content.to_clear.iter().cloned().collect()
    }

    /// The topic was emptied.
    pub fn cleared(&mut self, topic: &str) {
        self.content.to_clear.remove(topic);
    }

    /// Discovery topics of everything announced.
    pub fn announced(&self) -> impl Iterator<Item = &str> {
        self.content.devices.keys().map(String::as_str)
    }

    /// Writes the inventory: temporary name, sync, rename.
    ///
    /// # Errors
    /// The system's.
    pub fn save(&self) -> io::Result<()> {
        let text = serde_json::to_string_pretty(&self.content).map_err(io::Error::other)?;
        write_atomically(&self.path, text.as_bytes())
    }
}

fn message(topic: &str, payload: &Value) -> DiscoveryMessage {
    DiscoveryMessage { topic: topic.to_owned(), payload: payload.to_string() }
}

/// The new document with every component that is gone, or has changed its platform, reduced to its old platform; `None`
/// if there is none.
fn reduced(old: &Value, new: &Value) -> Option<Value> {
    let mut step = new.clone();
    let mut any = false;
    for (key, component) in old["components"].as_object()? {
        if new["components"][key]["platform"] != component["platform"] {
            step["components"][key] = json!({ "platform": component["platform"] });
            any = true;
        }
    }
    any.then_some(step)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn device(kind: DeviceKind, name: &str, components: &[(&str, &str)]) -> Announcement {
        let map: serde_json::Map<String, Value> =
            components.iter().map(|(k, p)| ((*k).to_owned(), json!({"platform": p, "unique_id": k}))).collect();
        Announcement {
            kind,
            topic: format!("ha/device/{name}/config"),
            payload: json!({"device": {"name": name}, "components": map}),
            state_topics: vec![format!("a/{name}/availability"), format!("a/{name}/state")],
        }
    }

    fn committed(dir: &Path, wanted: &[Announcement]) -> Inventory {
        let mut inventory = Inventory::open(dir);
        let plan = inventory.plan(wanted, true, 0, 100);
        inventory.commit(plan);
        inventory.save().unwrap();
        Inventory::open(dir)
    }

    #[test]
    fn an_entity_goes_in_two_steps() {
        let dir = tempfile::tempdir().unwrap();
        let before = [device(DeviceKind::Zone, "bed", &[("a", "sensor"), ("b", "event"), ("c", "sensor")])];
        let inventory = committed(dir.path(), &before);
        let now = [device(DeviceKind::Zone, "bed", &[("a", "sensor"), ("c", "number")])];
        let plan = inventory.plan(&now, false, 0, 100);
        let sent: Vec<Value> = plan.messages.iter().map(|m| serde_json::from_str(&m.payload).unwrap()).collect();
        assert_eq!(sent.len(), 2);
        assert_eq!(sent[0]["components"]["b"], json!({"platform": "event"}));
        assert_eq!(sent[0]["components"]["c"], json!({"platform": "sensor"}));
        assert_eq!(sent[0]["components"]["a"], json!({"platform": "sensor", "unique_id": "a"}));
        assert_eq!(sent[1], now[0].payload);
        assert!(plan.after.to_clear.is_empty());
    }

    #[test]
    fn nothing_is_sent_where_nothing_differs_unless_asked() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = [device(DeviceKind::Hub, "hub", &[("a", "sensor")])];
        let inventory = committed(dir.path(), &wanted);
        let plan = inventory.plan(&wanted, false, 5, 100);
        assert!(plan.messages.is_empty() && plan.is_unchanged(&inventory));
        assert_eq!(inventory.plan(&wanted, true, 5, 100).messages.len(), 1);
    }

    #[test]
    fn a_zone_goes_at_once_a_node_after_its_time_and_their_topics_are_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let hub = device(DeviceKind::Hub, "hub", &[("a", "sensor")]);
        let all = [hub.clone(), device(DeviceKind::Zone, "bed", &[]), device(DeviceKind::Node, "n1", &[])];
        let mut inventory = committed(dir.path(), &all);
        let plan = inventory.plan(std::slice::from_ref(&hub), false, 1000, 100);
        assert_eq!(plan.messages, [DiscoveryMessage { topic: "ha/device/bed/config".into(), payload: String::new() }]);
        assert_eq!(plan.absent, ["a/n1/availability"]);
        inventory.commit(plan);
        inventory.save().unwrap();
        let mut inventory = Inventory::open(dir.path());
        assert_eq!(inventory.to_clear(), ["a/bed/availability", "a/bed/state"]);
        inventory.cleared("a/bed/state");
        assert!(inventory.plan(std::slice::from_ref(&hub), false, 1099, 100).messages.is_empty());
        let plan = inventory.plan(std::slice::from_ref(&hub), false, 1100, 100);
        assert_eq!(plan.messages[0].topic, "ha/device/n1/config");
        // A zone that comes back is not emptied behind its back.
        let back = inventory.plan(&all, false, 1000, 100);
        assert!(back.after.to_clear.is_empty());
    }

    #[test]
    fn a_damaged_file_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), "{\"version\":").unwrap();
        let inventory = Inventory::open(dir.path());
        assert_eq!(inventory.announced().count(), 0);
        assert!(dir.path().join("mqtt-inventory.bad").exists());
    }
}
