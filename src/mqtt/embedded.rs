//! An MQTT broker inside the program, on loopback, for `aetherd demo` and for tests where no broker is installed.
//!
//! It is rumqttd with a configuration in code. It has no stop: it ends with the process. Messages are kept in memory
//! only, and nobody but this machine can reach it, so it asks for no password.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rumqttd::{Broker, Config, ConnectionSettings, RouterConfig, ServerSettings};

/// How long the broker may take to listen.
const START_LIMIT: Duration = Duration::from_secs(5);

/// Starts the broker on a loopback port (0: a free one) and returns where it listens, once it does.
///
/// # Errors
/// If the port is taken or no thread can be started.
pub fn start(port: u16) -> io::Result<SocketAddr> {
    // Taken and released again: the library cannot take a socket that is already open.
    let listen = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?.local_addr()?;
    let server = ServerSettings {
        name: "mqtt-broker".into(),
        listen,
        tls: None,
        next_connection_delay_ms: 1,
        connections: ConnectionSettings {
            connection_timeout_ms: 10_000,
            max_payload_size: 1 << 20,
            max_inflight_count: 200,
            auth: None,
            external_auth: None,
            dynamic_filters: true,
        },
    };
    let config = Config {
        id: 0,
        router: RouterConfig {
            max_connections: 100,
            max_outgoing_packet_count: 500,
            max_segment_size: 4 << 20,
            max_segment_count: 4,
            ..RouterConfig::default()
        },
        v4: Some(HashMap::from([("loopback".to_owned(), server)])),
        ..Config::default()
    };
    std::thread::Builder::new().name("mqtt-broker".into()).spawn(move || {
        if let Err(error) = Broker::new(config).start() {
            tracing::error!(%error, "embedded broker ended");
        }
    })?;
    let began = Instant::now();
    loop {
        match TcpStream::connect(listen) {
            Ok(_) => return Ok(listen),
            Err(e) if began.elapsed() > START_LIMIT => return Err(e),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}
