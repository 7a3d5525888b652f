//! Which board is which: from what frames carry (address and id, or serial port) to names, ids and zones.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::event::{ZoneSettings, slug};
use crate::frame::LinkKey;
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
    /// Where it stands, metres in a plan of your own (x, y). With the places of transmitters and three or more crossing
    /// links in a zone, people are placed and counted.
    pub position_m: Option<[f64; 2]>,
}

/// A station whose packets the boards measure: the access point, or a board that only sends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransmitterSettings {
    /// Its MAC address as the frames carry it; absent for the one sender of formats that carry none.
    pub mac: Option<MacAddr>,
    /// Where it stands, metres in the same plan as the boards.
    pub position_m: [f64; 2],
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
    /// Where it stands, where configured.
    pub position_m: Option<[f64; 2]>,
    /// Indices of the zones it watches.
    pub zones: Vec<usize>,
}

/// The table of names.
#[derive(Debug, Clone, Default)]
pub struct Directory {
    nodes: Vec<NodeSettings>,
    zones: Vec<ZoneSettings>,
    serial_ports: Vec<String>,
    transmitters: Vec<TransmitterSettings>,
}

impl Directory {
    /// From the settings; `serial_ports` in the order of their indices.
    pub fn new(nodes: &[NodeSettings], zones: &[ZoneSettings], serial_ports: Vec<String>) -> Self {
        Self { nodes: nodes.to_vec(), zones: zones.to_vec(), serial_ports, transmitters: Vec::new() }
    }

    /// With the places of transmitters.
    #[must_use]
    pub fn with_transmitters(mut self, transmitters: &[TransmitterSettings]) -> Self {
        self.transmitters = transmitters.to_vec();
        self
    }

    /// Where a link begins (its transmitter) and ends (its board), where both are known.
    pub fn ends(&self, link: &LinkKey) -> Option<([f64; 2], [f64; 2])> {
        let board = self.configured(link.node)?.position_m?;
        let sender = self.transmitters.iter().find(|t| t.mac == link.transmitter).map(|t| t.position_m);
        // Boards that measure each other are transmitters too.
        let sending_board = || {
            let mac = link.transmitter?;
            self.nodes.iter().find(|n| n.mac == Some(mac))?.position_m
        };
        Some((sender.or_else(sending_board)?, board))
    }

    /// Who `key` is. The most exact entry wins: address and id before address alone.
    pub fn identify(&self, key: NodeKey) -> NodeIdentity {
        let (id, name, mac, position_m) = match self.configured(key) {
            Some(n) => (n.effective_id(), n.name.clone(), n.mac, n.position_m),
            None => {
                let name = self.default_name(key);
                (slug(&name), name, None, None)
            }
        };
        let zones = self.zones_of(&id, &name);
        NodeIdentity { id, name, mac, position_m, zones }
    }

    fn configured(&self, key: NodeKey) -> Option<&NodeSettings> {
        match key {
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
        }
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

    #[test]
    fn a_link_has_ends_where_both_are_placed() {
        let mac = |last| Some(MacAddr([2, 0, 0, 0, 0, last]));
        let node = |name: &str, last: u8, position_m| NodeSettings {
            name: name.to_owned(),
            address: Some(IpAddr::from([192, 168, 1, last])),
            mac: mac(last),
            position_m,
            ..NodeSettings::default()
        };
        let nodes = [node("A", 1, Some([0.0, 0.0])), node("B", 2, Some([4.0, 0.0])), node("C", 3, None)];
        let access_point = TransmitterSettings { mac: mac(9), position_m: [2.0, 3.0] };
        let unnamed = TransmitterSettings { mac: None, position_m: [1.0, 1.0] };
        let directory = Directory::new(&nodes, &[], Vec::new()).with_transmitters(&[access_point, unnamed]);
        let link = |from: Option<MacAddr>, to: u8| LinkKey {
            node: udp(to, 0),
            transmitter: from,
            layout: crate::frame::Layout::Natural64,
        };
        assert_eq!(directory.ends(&link(mac(9), 1)), Some(([2.0, 3.0], [0.0, 0.0])));
        assert_eq!(directory.ends(&link(mac(2), 1)), Some(([4.0, 0.0], [0.0, 0.0])), "board to board");
        assert_eq!(directory.ends(&link(None, 2)), Some(([1.0, 1.0], [4.0, 0.0])), "a format without senders");
        assert_eq!(directory.ends(&link(mac(9), 3)), None, "a board without a place");
        assert_eq!(directory.ends(&link(mac(3), 1)), None, "a sender without a place");
        assert_eq!(directory.ends(&link(mac(9), 7)), None, "a stranger");
    }
}
