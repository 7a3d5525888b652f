//! Condition of the connection, for health, metrics and the watchdog.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Condition and counts of the MQTT connection.
#[derive(Debug, Clone, Default)]
pub struct MqttStatus {
    /// The broker has accepted the present connection.
    pub connected: bool,
    /// Connections accepted since start.
    pub connections_total: u64,
    /// Messages handed to the network.
    pub published_total: u64,
    /// Messages acknowledged by the broker.
    pub acknowledged_total: u64,
    /// Events acknowledged by the broker.
    pub events_total: u64,
    /// Commands that were understood.
    pub commands_total: u64,
    /// Commands that were malformed, retained, or too many.
    pub commands_refused_total: u64,
    /// Home Assistant's birth message was seen.
    pub home_assistant_seen: bool,
    /// Why the last connection ended or could not be made; kept after recovery.
    pub last_error: Option<String>,
    /// One sentence with the cure, while something waits for a person: wrong password, wrong certificate, unknown host,
    /// a second client with our id.
    pub fault: Option<String>,
    /// When the broker acknowledged a message last.
    pub last_ack: Option<Instant>,
}

impl MqttStatus {
    /// Time since the last acknowledgement.
    pub fn since_ack(&self) -> Option<Duration> {
        self.last_ack.map(|at| at.elapsed())
    }
}

/// The status as shared between the connection and those who read it.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedStatus(Arc<Mutex<MqttStatus>>);

impl SharedStatus {
    pub(super) fn get(&self) -> MqttStatus {
        self.0.lock().expect("nothing panics while it holds the status").clone()
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut MqttStatus)) {
        change(&mut self.0.lock().expect("nothing panics while it holds the status"));
    }
}
