//! Every topic name, in one place.

/// Longest safe name.
const MAX_NAME: usize = 64;

/// Why a topic level is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopicError {
    /// A name with characters that are not safe everywhere.
    #[error("{what} must be 1 to 64 characters from a-z A-Z 0-9 _ -, got `{got}`")]
    Unsafe {
        /// Which name.
        what: &'static str,
        /// What came.
        got: String,
    },
    /// A base or prefix that is no topic.
    #[error("{what} must be one or more topic levels from a-z A-Z 0-9 _ - joined by /, without + or #, got `{got}`")]
    Levels {
        /// Which name.
        what: &'static str,
        /// What came.
        got: String,
    },
    /// Our topics would lie among Home Assistant's.
    #[error("base_topic and discovery_prefix are both `{0}`: our topics need a tree of their own, for example aetherd")]
    Same(String),
}

/// True for `[a-zA-Z0-9_-]{1,64}`: what Home Assistant accepts in a discovery topic.
pub fn is_safe_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// A command that arrived, by its topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming<'a> {
    /// Home Assistant's birth or will.
    HomeAssistant,
    /// `cmd/<name>`.
    Command(&'a str),
    /// `zone/<zone>/<setting>/set`.
    ZoneSetting {
        /// Zone id.
        zone: &'a str,
        /// Name of the setting.
        setting: &'a str,
    },
    /// Nothing we subscribed to.
    Unknown,
}

/// The topics of one instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topics {
    root: String,
    instance: String,
    prefix: String,
}

impl Topics {
    /// Checks the three names.
    ///
    /// # Errors
    /// If a name is not safe, or base and discovery prefix are the same.
    pub fn new(base: &str, instance: &str, discovery_prefix: &str) -> Result<Self, TopicError> {
        for (what, name) in [("base_topic", base), ("discovery_prefix", discovery_prefix)] {
            if !name.split('/').all(is_safe_name) {
                return Err(TopicError::Levels { what, got: name.to_owned() });
            }
        }
        if base == discovery_prefix {
            return Err(TopicError::Same(base.to_owned()));
        }
        if !is_safe_name(instance) {
            return Err(TopicError::Unsafe { what: "instance", got: instance.to_owned() });
        }
        Ok(Self {
            root: format!("{base}/{instance}"),
            instance: instance.to_owned(),
            prefix: discovery_prefix.to_owned(),
        })
    }

    /// `<base>/<instance>`.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// The instance name.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Fixed client id of this instance.
    pub fn client_id(&self) -> String {
        format!("aetherd_{}", self.instance)
    }

    /// Identifier of the hub device; every other identifier and unique id begins with it.
    pub fn hub_id(&self) -> String {
        format!("aetherd_{}", self.instance)
    }

    /// `online`/`offline` of the daemon.
    pub fn status(&self) -> String {
        format!("{}/status", self.root)
    }

    /// Health of the daemon.
    pub fn health(&self) -> String {
        format!("{}/health", self.root)
    }

    /// Positions of the people that are followed; not retained, off by default.
    pub fn tracks(&self) -> String {
        format!("{}/tracks", self.root)
    }

    /// `online`/`offline` of a zone.
    pub fn zone_availability(&self, zone: &str) -> String {
        format!("{}/zone/{zone}/availability", self.root)
    }

    /// State of a zone.
    pub fn zone_state(&self, zone: &str) -> String {
        format!("{}/zone/{zone}/state", self.root)
    }

    /// Events of a zone.
    pub fn zone_event(&self, zone: &str) -> String {
        format!("{}/zone/{zone}/event", self.root)
    }

    /// A setting of a zone, as it is.
    pub fn zone_setting(&self, zone: &str, setting: &str) -> String {
        format!("{}/zone/{zone}/{setting}", self.root)
    }

    /// A setting of a zone, to be changed.
    pub fn zone_setting_set(&self, zone: &str, setting: &str) -> String {
        format!("{}/zone/{zone}/{setting}/set", self.root)
    }

    /// `online`/`offline` of a node.
    pub fn node_availability(&self, node: &str) -> String {
        format!("{}/node/{node}/availability", self.root)
    }

    /// State of a node.
    pub fn node_state(&self, node: &str) -> String {
        format!("{}/node/{node}/state", self.root)
    }

    /// A command.
    pub fn command(&self, name: &str) -> String {
        format!("{}/cmd/{name}", self.root)
    }

    /// The answer to a command.
    pub fn response(&self, name: &str) -> String {
        format!("{}/response/{name}", self.root)
    }

    /// Discovery of a device.
    pub fn discovery(&self, object_id: &str) -> String {
        format!("{}/device/{object_id}/config", self.prefix)
    }

    /// Home Assistant's birth and will.
    pub fn home_assistant_status(&self) -> String {
        format!("{}/status", self.prefix)
    }

    /// What to subscribe to.
    pub fn subscriptions(&self, home_assistant: bool) -> Vec<String> {
        let mut filters = vec![format!("{}/cmd/+", self.root), format!("{}/zone/+/+/set", self.root)];
        if home_assistant {
            filters.push(self.home_assistant_status());
        }
        filters
    }

    /// Which of the subscriptions a message belongs to.
    pub fn classify<'a>(&self, topic: &'a str) -> Incoming<'a> {
        if topic.strip_prefix(self.prefix.as_str()) == Some("/status") {
            return Incoming::HomeAssistant;
        }
        let Some(rest) = topic.strip_prefix(self.root.as_str()).and_then(|t| t.strip_prefix('/')) else {
            return Incoming::Unknown;
        };
        let levels: Vec<&str> = rest.split('/').collect();
        match levels[..] {
            ["cmd", name] if is_safe_name(name) => Incoming::Command(name),
            ["zone", zone, setting, "set"] if is_safe_name(zone) && is_safe_name(setting) => {
                Incoming::ZoneSetting { zone, setting }
            }
            _ => Incoming::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn wildcards_empty_levels_and_equal_trees_are_refused() {
        for base in ["", "a/", "/a", "a//b", "a+", "#", "a/+/b", "ä", "a b"] {
            assert!(Topics::new(base, "i", "homeassistant").is_err(), "{base}");
        }
        for instance in ["", "a/b", "+", "a b", &"x".repeat(65)] {
            assert!(Topics::new("aetherd", instance, "homeassistant").is_err(), "{instance}");
        }
        assert!(matches!(Topics::new("ha", "i", "ha"), Err(TopicError::Same(_))));
        assert!(Topics::new("home/aetherd", "pi-4_b", "homeassistant").is_ok());
    }

    #[test]
    fn incoming_topics_are_told_apart() {
        let t = Topics::new("aetherd", "a1", "homeassistant").unwrap();
        assert_eq!(t.classify("homeassistant/status"), Incoming::HomeAssistant);
        assert_eq!(t.classify("aetherd/a1/cmd/reload"), Incoming::Command("reload"));
        let setting = Incoming::ZoneSetting { zone: "bed", setting: "hold" };
        assert_eq!(t.classify("aetherd/a1/zone/bed/hold/set"), setting);
        for other in ["aetherd/a1x/cmd/reload", "aetherd/a1/cmd/a/b", "aetherd/a1/zone/bed/state", "homeassistant/x"] {
            assert_eq!(t.classify(other), Incoming::Unknown, "{other}");
        }
    }
}
