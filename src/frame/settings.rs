//! Settings of the live sources.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::DecoderSettings;

/// Where frames come from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Boards that send datagrams.
    pub udp: UdpSettings,
    /// Boards on serial ports, one entry each.
    pub serial: Vec<SerialSettings>,
    /// Limits of decoding.
    pub decoder: DecoderSettings,
}

/// Reception of datagrams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UdpSettings {
    /// Addresses to listen on; none switches reception off. RuView boards send to port 5005, ESPectre's to 5001.
    pub listen: Vec<SocketAddr>,
    /// Addresses that may send; empty means everybody. Packets of others are counted and dropped.
    pub allow: Vec<IpAddr>,
    /// Receive buffer asked of the kernel, in bytes; the kernel may grant less (`net.core.rmem_max`).
    pub receive_buffer_bytes: usize,
}

impl Default for UdpSettings {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([0, 0, 0, 0], 5005))],
            allow: Vec::new(),
            receive_buffer_bytes: 4 * 1024 * 1024,
        }
    }
}

/// One serial port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SerialSettings {
    /// Device name. A name under `/dev/serial/by-id/` stays the same after unplugging; `/dev/ttyUSB0` may not.
    pub port: PathBuf,
    /// Bits per second; ignored by boards with native USB.
    #[serde(default = "default_baud")]
    pub baud: u32,
    /// The port is opened anew when nothing has come for so many seconds; 0 never does that.
    #[serde(default = "default_idle_reopen_secs")]
    pub idle_reopen_secs: u32,
}

impl SerialSettings {
    /// The defaults for a port.
    pub fn new(port: impl Into<PathBuf>) -> Self {
        Self { port: port.into(), baud: default_baud(), idle_reopen_secs: default_idle_reopen_secs() }
    }
}

fn default_baud() -> u32 {
    921_600
}

fn default_idle_reopen_secs() -> u32 {
    30
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_may_name_little_and_nothing_unknown() {
        let text = r#"
            [udp]
            listen = ["0.0.0.0:5005", "[::]:5001"]
            allow = ["192.168.1.20"]
            [[serial]]
            port = "/dev/serial/by-id/usb-a"
            [[serial]]
            port = "/dev/ttyACM0"
            baud = 115200
        "#;
        let settings: Settings = toml::from_str(text).unwrap();
        assert_eq!(settings.udp.listen.len(), 2);
        assert_eq!((settings.serial[0].baud, settings.serial[1].baud), (921_600, 115_200));
        assert_eq!(toml::from_str::<Settings>("").unwrap(), Settings::default());
        assert!(toml::from_str::<Settings>("[udp]\nport = 1").unwrap_err().to_string().contains("port"));
        let again: Settings = toml::from_str(&toml::to_string(&settings).unwrap()).unwrap();
        assert_eq!(again, settings);
    }
}
