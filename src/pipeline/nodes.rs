//! Which board is which: from what frames carry (address and id, or serial port) to names, ids and zones.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::event::{ZoneSettings, slug};
use crate::types::{MacAddr, NodeKey};

/// A board as configured. Boards need not be configured: unknown ones work under a name made of their address.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeSettings {
    /// Display name, for example "Kitchen shelf".
    pub name: String,
    /// Topic-safe id; made from the name where it is not given. Keep it when you rename a board.
    pub id: Option<String>,
    /// Source address of its datagrams.
    pub address: Option<IpAddr>,
    /// The id it gives itself in its datagrams; without it every id from `address` is this board.
    pub node_id: Option<u8>,
    /// Serial port it hangs on, exactly as in `frames.serial`.
    pub port: Option<String>,
    /// Its MAC address, so that Home Assistant knows it as the same device as other integrations do.
    pub mac: Option<MacAddr>,
}

impl NodeSettings {
    /// The id in force.
    pub fn effective_id(&self) -> String {
        self.id.clone().unwrap_or_else(|| slug(&self.name))
    }
}

/// What is known of one board.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeIdentity {
    /// Topic-safe id.
    pub id: String,
    /// Display name.
    pub name: String,
    /// MAC address, where configured.
    pub mac: Option<MacAddr>,
    /// Indices of the zones it watches.
    pub zones: Vec<usize>,
}

/// The table of names.
#[derive(Debug, Clone, Default)]
pub struct Directory {
    nodes: Vec<NodeSettings>,
    zones: Vec<ZoneSettings>,
    serial_ports: Vec<String>,
}

impl Directory {
    /// From the settings; `serial_ports` in the order of their indices.
    pub fn new(nodes: &[NodeSettings], zones: &[ZoneSettings], serial_ports: Vec<String>) -> Self {
        Self { nodes: nodes.to_vec(), zones: zones.to_vec(), serial_ports }
    }

    /// Who `key` is. The most exact entry wins: address and id before address alone.
    pub fn identify(&self, key: NodeKey) -> NodeIdentity {
        let configured = match key {
            NodeKey::Udp { addr, id } => {
                let of_address = || self.nodes.iter().filter(|n| n.address == Some(addr));
                of_address()
                    .find(|n| n.node_id == Some(id))
                    .or_else(|| of_address().find(|n| n.node_id.is_none()))
                    .or_else(|| self.nodes.iter().find(|n| n.address.is_none() && n.node_id == Some(id)))
            }
            NodeKey::Serial { port } => {
                let name = self.serial_ports.get(usize::from(port));
                self.nodes.iter().find(|n| n.port.is_some() && n.port.as_ref() == name)
            }
        };
        let (id, name, mac) = match configured {
            Some(n) => (n.effective_id(), n.name.clone(), n.mac),
            None => {
                let name = self.default_name(key);
                (slug(&name), name, None)
            }
        };
        let zones = self.zones_of(&id, &name);
        NodeIdentity { id, name, mac, zones }
    }

    fn default_name(&self, key: NodeKey) -> String {
        match key {
            NodeKey::Udp { addr, id } => format!("{addr} node {id}"),
            NodeKey::Serial { port } => {
                let path = self.serial_ports.get(usize::from(port)).map_or("", |p| p.as_str());
                match path.rsplit('/').next().filter(|p| !p.is_empty()) {
                    Some(last) => last.to_owned(),
                    None => format!("serial {port}"),
                }
            }
        }
    }

    fn zones_of(&self, id: &str, name: &str) -> Vec<usize> {
        let named = |z: &ZoneSettings| z.nodes.is_empty() || z.nodes.iter().any(|n| n == id || n == name);
        self.zones.iter().enumerate().filter(|(_, z)| named(z)).map(|(i, _)| i).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn udp(last: u8, id: u8) -> NodeKey {
        NodeKey::Udp { addr: IpAddr::from([192, 168, 1, last]), id }
    }

    #[test]
    fn the_most_exact_entry_wins_and_strangers_get_stable_names() {
        let node = |name: &str, last: Option<u8>, node_id| NodeSettings {
            name: name.to_owned(),
            address: last.map(|l| IpAddr::from([192, 168, 1, l])),
            node_id,
            ..NodeSettings::default()
        };
        let nodes =
            [node("Any of 5", Some(5), None), node("Five three", Some(5), Some(3)), node("Seven", None, Some(7))];
        let zone = |name: &str, nodes: &[&str]| ZoneSettings {
            name: name.to_owned(),
            nodes: nodes.iter().map(|s| (*s).to_owned()).collect(),
            ..ZoneSettings::default()
        };
        let zones = [zone("All", &[]), zone("Some", &["five_three", "Seven"])];
        let directory = Directory::new(&nodes, &zones, vec!["/dev/serial/by-id/usb-x".to_owned()]);
        assert_eq!(directory.identify(udp(5, 3)).name, "Five three");
        assert_eq!(directory.identify(udp(5, 3)).zones, [0, 1]);
        assert_eq!(directory.identify(udp(5, 4)).name, "Any of 5");
        assert_eq!(directory.identify(udp(9, 7)).id, "seven");
        let stranger = directory.identify(udp(9, 1));
        assert_eq!((stranger.id.as_str(), stranger.zones.as_slice()), ("192_168_1_9_node_1", &[0usize][..]));
        assert_eq!(directory.identify(NodeKey::Serial { port: 0 }).name, "usb-x");
        assert_eq!(directory.identify(NodeKey::Serial { port: 4 }).id, "serial_4");
    }
}
