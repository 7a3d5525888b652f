//! The MQTT client library, and nothing else: no type of it appears outside this file, so that it can be swapped.
//!
//! One [`Client`] is one connection. There is no session to resume (clean session, everything is announced again), so
//! a lost connection is never revived inside the library: that avoids its queue of pending messages, its packet-id
//! collisions and its undelayed reconnect. A task of its own owns the event loop and only polls.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use rumqttc::mqttbytes::QoS;
use rumqttc::{
    AsyncClient, ConnectReturnCode, ConnectionError, Event, EventLoop, LastWill, MqttOptions, Packet, PublishNotice,
    PublishOptions, TlsConfiguration, Transport,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::settings::Settings;
use super::tls;

/// Messages that may wait inside the library. Larger than the window of unacknowledged messages, so never full.
const REQUEST_CAPACITY: usize = 256;
/// Unacknowledged messages the library allows; larger than our own window, so that no packet id is ever reused early.
const LIBRARY_WINDOW: u16 = 200;
/// Incoming messages that may wait for us; more are dropped by the polling task, which never waits.
const INCOMING_CAPACITY: usize = 64;

/// A message to publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) topic: String,
    pub(super) payload: String,
    /// At least once instead of at most once.
    pub(super) acknowledged: bool,
    pub(super) retain: bool,
}

/// A message from the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) topic: String,
    pub(super) payload: Vec<u8>,
    pub(super) retain: bool,
}

/// Why there is no connection (any more).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// User or password refused.
    Credentials,
    /// The certificate of one side is refused by the other, or a certificate file cannot be used.
    Certificate,
    /// Another mistake in the configuration.
    Configuration,
    /// The host name has no address.
    Host,
    /// The network or the broker, before the connection was accepted.
    Unreachable,
    /// The broker or the network closed an accepted connection.
    Closed,
    /// The broker stopped answering.
    Silent,
}

/// A failure with a sentence that says the cure where there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) kind: FailureKind,
    pub(super) text: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Failure {
    fn new(kind: FailureKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// Waits for a person, not for the network.
    pub(super) fn is_configuration(&self) -> bool {
        use FailureKind::{Certificate, Configuration, Credentials, Host};
        matches!(self.kind, Credentials | Certificate | Configuration | Host)
    }
}

/// Resolves when the broker has acknowledged (or, without acknowledgement, when the message was written).
#[derive(Debug)]
pub(super) struct Receipt(PublishNotice);

impl Receipt {
    /// True if acknowledged, false if the connection was lost before.
    pub(super) async fn acknowledged(self) -> bool {
        self.0.wait_async().await.is_ok()
    }
}

/// One connection that the broker has accepted.
pub(super) struct Client {
    client: AsyncClient,
    poll: JoinHandle<()>,
    received: mpsc::Receiver<Received>,
    closed: oneshot::Receiver<Failure>,
}

/// What the connection has to say.
#[derive(Debug)]
pub(super) enum ClientEvent {
    Received(Received),
    Closed(Failure),
}

impl Client {
    /// Resolves, connects, and waits for the broker's acceptance. `will` is (topic, payload), retained.
    pub(super) async fn connect(
        settings: &Settings,
        client_id: &str,
        will: Option<(&str, &str)>,
    ) -> Result<Self, Failure> {
        let limit = Duration::from_millis(settings.connect_timeout_ms);
        match timeout(limit, Self::connect_unlimited(settings, client_id, will)).await {
            Ok(result) => result,
            Err(_) => {
                let text = format!(
                    "{}:{} did not answer within {limit:?}: check host and port, and that the broker runs",
                    settings.host,
                    settings.port()
                );
                Err(Failure::new(FailureKind::Unreachable, text))
            }
        }
    }

    async fn connect_unlimited(
        settings: &Settings,
        client_id: &str,
        will: Option<(&str, &str)>,
    ) -> Result<Self, Failure> {
        let options = options(settings, client_id, will)?;
        let (host, port) = (settings.host.as_str(), settings.port());
        // Resolved here only to tell a wrong name from a broker that is down.
        match tokio::net::lookup_host((host, port)).await.map(|mut addresses| addresses.next()) {
            Ok(Some(_)) => {}
            Ok(None) => return Err(Failure::new(FailureKind::Host, format!("host `{host}` has no address"))),
            Err(e) => {
                let text =
                    format!("host `{host}` cannot be resolved ({e}): check the name and the DNS of this machine");
                return Err(Failure::new(FailureKind::Host, text));
            }
        }
        let (client, mut event_loop) = AsyncClient::builder(options).capacity(REQUEST_CAPACITY).build();
        let mut network = event_loop.network_options.clone();
        network.set_tcp_nodelay(true);
        network.set_connection_timeout(settings.connect_timeout_ms.div_ceil(1000).max(1));
        event_loop.network_options = network;
        loop {
            match event_loop.poll().await {
                Ok(Event::Incoming(Packet::ConnAck(_))) => break,
                Ok(_) => {}
                Err(e) => return Err(classify(&e, settings, client_id, false)),
            }
        }
        let (received_tx, received) = mpsc::channel(INCOMING_CAPACITY);
        let (closed_tx, closed) = oneshot::channel();
        let for_text = (settings.clone(), client_id.to_owned());
        let poll = tokio::spawn(async move {
            let error = poll_only(event_loop, received_tx).await;
            // Nobody listens after a clean stop.
            let _ = closed_tx.send(classify(&error, &for_text.0, &for_text.1, true));
        });
        Ok(Self { client, poll, received, closed })
    }

    /// Hands a message to the library without waiting.
    pub(super) fn publish(&self, message: &Message) -> Result<Receipt, Failure> {
        let qos = if message.acknowledged { QoS::AtLeastOnce } else { QoS::AtMostOnce };
        let options = PublishOptions::new(qos).retain(message.retain);
        self.client
            .try_publish_tracked(message.topic.as_str(), message.payload.as_str(), options)
            .map(Receipt)
            .map_err(|e| Failure::new(FailureKind::Closed, format!("cannot publish on `{}`: {e}", message.topic)))
    }

    /// Subscribes at most once: a command that the broker would redeliver for ever is a trap.
    pub(super) fn subscribe(&self, filters: &[String]) -> Result<(), Failure> {
        for filter in filters {
            self.client
                .try_subscribe(filter.as_str(), QoS::AtMostOnce)
                .map_err(|e| Failure::new(FailureKind::Closed, format!("cannot subscribe to `{filter}`: {e}")))?;
        }
        Ok(())
    }

    /// The next message, or the end. Cancel safe.
    pub(super) async fn next(&mut self) -> ClientEvent {
        tokio::select! {
            biased;
            Some(message) = self.received.recv() => ClientEvent::Received(message),
            end = &mut self.closed => ClientEvent::Closed(
                end.unwrap_or_else(|_| Failure::new(FailureKind::Closed, "the polling task ended")),
            ),
        }
    }

    /// Takes leave of the broker, so that it does not send the will.
    pub(super) async fn disconnect(mut self, limit: Duration) {
        if self.client.try_disconnect_with_timeout(limit).is_ok() {
            let _ = timeout(limit, &mut self.poll).await;
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Closes the socket. Without a disconnect before, the broker sends the will.
        self.poll.abort();
    }
}

async fn poll_only(mut event_loop: EventLoop, received: mpsc::Sender<Received>) -> ConnectionError {
    let mut dropped = 0u64;
    loop {
        match event_loop.poll().await {
            Ok(Event::Incoming(Packet::Publish(publish))) => {
                let Ok(topic) = String::from_utf8(publish.topic.to_vec()) else { continue };
                let message = Received { topic, payload: publish.payload.to_vec(), retain: publish.retain };
                if received.try_send(message).is_err() {
                    dropped += 1;
                    if dropped.is_power_of_two() {
                        tracing::warn!(dropped, "commands arrive faster than they can be handled");
                    }
                }
            }
            Ok(_) => {}
            Err(error) => return error,
        }
    }
}

fn options(settings: &Settings, client_id: &str, will: Option<(&str, &str)>) -> Result<MqttOptions, Failure> {
    let configuration = |e: &dyn Error| Failure::new(FailureKind::Configuration, with_sources(e));
    let mut options = MqttOptions::new(client_id, (settings.host.clone(), settings.port()));
    options.set_keep_alive(settings.keep_alive_s);
    options.set_clean_session(true);
    options.set_inflight(LIBRARY_WINDOW);
    options.set_max_packet_size(settings.max_packet_bytes, settings.max_packet_bytes);
    if let Some((topic, payload)) = will {
        options.set_last_will(LastWill::new(topic, payload, QoS::AtLeastOnce, true));
    }
    if !settings.user.is_empty() {
        match settings.read_password().map_err(|e| configuration(&e))? {
            Some(password) => options.set_credentials(settings.user.clone(), password),
            None => options.set_username(settings.user.clone()),
        };
    }
    if settings.tls {
        let certificate = |text: String| Failure::new(FailureKind::Certificate, text);
        let client = settings.client_cert_file.as_deref().zip(settings.client_key_file.as_deref());
        let transport = match &settings.ca_file {
            Some(ca) => {
                let config = tls::client_config(ca, client).map_err(|e| certificate(with_sources(&e)))?;
                Transport::tls_with_config(TlsConfiguration::Rustls(config))
            }
            None if client.is_some() => {
                return Err(certificate("a client certificate needs ca_file: name the authority of the broker".into()));
            }
            None => Transport::try_tls_with_default_config().map_err(|e| certificate(with_sources(&e)))?,
        };
        options.set_transport(transport);
    }
    Ok(options)
}

/// Says what a library error means to the person who has to act on it.
fn classify(error: &ConnectionError, settings: &Settings, client_id: &str, accepted: bool) -> Failure {
    let broker = format!("{}:{}", settings.host, settings.port());
    if let ConnectionError::ConnectionRefused(code) = error {
        let (kind, text) = match code {
            ConnectReturnCode::BadUserNamePassword | ConnectReturnCode::NotAuthorized => (
                FailureKind::Credentials,
                format!("{broker} refuses user `{}` ({code:?}): check user and password_file", settings.user),
            ),
            ConnectReturnCode::BadClientId => (
                FailureKind::Configuration,
                format!("{broker} refuses client id `{client_id}`: choose another instance"),
            ),
            ConnectReturnCode::RefusedProtocolVersion => {
                (FailureKind::Configuration, format!("{broker} does not speak MQTT 3.1.1"))
            }
            _ => (FailureKind::Unreachable, format!("{broker} refuses the connection ({code:?})")),
        };
        return Failure::new(kind, text);
    }
    if let Some(tls) = find_tls_error(error) {
        let text = match tls {
            rustls::Error::InvalidCertificate(reason) => {
                format!(
                    "the certificate of {broker} is not trusted ({reason}): check ca_file and that host is a name in it"
                )
            }
            rustls::Error::AlertReceived(alert) => {
                format!("{broker} ends TLS with {alert:?}: check client_cert_file and client_key_file")
            }
            rustls::Error::InvalidMessage(_) => {
                format!("{broker} does not speak TLS: check the port (often 8883), or set tls = false")
            }
            other => format!("TLS with {broker} fails: {other}"),
        };
        return Failure::new(FailureKind::Certificate, text);
    }
    if accepted {
        Failure::new(FailureKind::Closed, format!("connection to {broker} lost: {error}"))
    } else {
        Failure::new(FailureKind::Unreachable, format!("cannot connect to {broker}: {error}"))
    }
}

/// The TLS library's error somewhere below `error`, if that is the cause.
fn find_tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(found) = error.downcast_ref::<rustls::Error>() {
        return Some(found);
    }
    let below = match error.downcast_ref::<io::Error>() {
        Some(io) => io.get_ref().map(|inner| inner as &(dyn Error + 'static)),
        None => error.source(),
    };
    find_tls_error(below?)
}

/// The message with those of its sources.
fn with_sources(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(below) = source {
        text.push_str(": ");
        text.push_str(&below.to_string());
        source = below.source();
    }
    text
}
