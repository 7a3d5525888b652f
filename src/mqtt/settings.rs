//! Settings of the MQTT connection.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::topics::{TopicError, Topics};

/// Name of the systemd credential that may hold the password (`LoadCredential=mqtt_password:…`).
pub const PASSWORD_CREDENTIAL: &str = "mqtt_password";

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "(empty)" } else { "(hidden)" })
    }
}

/// Settings of the MQTT connection. Times carry their unit in the name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Publish at all.
    pub enabled: bool,
    /// Host name or address of the broker.
    pub host: String,
    /// Port of the broker; 1883 without TLS, 8883 with it, unless set.
    pub port: Option<u16>,
    /// User name; empty for none.
    pub user: String,
    /// Password. Prefer `password_file` or the systemd credential `mqtt_password`.
    #[serde(skip_serializing)]
    pub password: Secret,
    /// File that holds the password; a line feed at its end is ignored.
    pub password_file: Option<PathBuf>,
    /// Encrypt the connection and verify the broker's certificate.
    pub tls: bool,
    /// PEM file with the certificate authorities to trust; the system's if absent.
    pub ca_file: Option<PathBuf>,
    /// PEM file with our certificate chain, for brokers that ask for one.
    pub client_cert_file: Option<PathBuf>,
    /// PEM file with the key of `client_cert_file`.
    pub client_key_file: Option<PathBuf>,
    /// First level of every topic.
    pub base_topic: String,
    /// Second level of every topic, and part of the client id and of every unique id: never change it. The host name,
    /// made safe, if empty.
    pub instance: String,
    /// Announce devices to Home Assistant.
    pub discovery: bool,
    /// Home Assistant's discovery prefix, also the level above its birth message.
    pub discovery_prefix: String,
    /// Page of this daemon shown as a link in Home Assistant; none if empty.
    pub configuration_url: String,
    /// Keep-alive interval, seconds.
    pub keep_alive_s: u16,
    /// Largest packet accepted or sent, bytes.
    pub max_packet_bytes: usize,
    /// First pause before a new attempt, milliseconds. Doubled per attempt, with jitter.
    pub reconnect_min_ms: u64,
    /// Longest pause, milliseconds.
    pub reconnect_max_ms: u64,
    /// A connection that lasted this long, milliseconds, resets the pause.
    pub stable_ms: u64,
    /// Shortest pause after an error that waits for a person (password, certificate), milliseconds.
    pub config_retry_ms: u64,
    /// Time for resolving, connecting and the broker's greeting, milliseconds.
    pub connect_timeout_ms: u64,
    /// Without an acknowledgement for this long while messages are outstanding, the connection is built anew.
    pub ack_timeout_ms: u64,
    /// Random delay before everything is announced again after Home Assistant's birth message, at most, milliseconds.
    pub birth_delay_max_ms: u64,
    /// Pause between discovery and the repeated states after a birth message, milliseconds.
    pub birth_settle_ms: u64,
    /// Pause between the removal of an entity and the removal of its retained state, milliseconds.
    pub clear_delay_ms: u64,
    /// Shortest interval between states of a zone that differ in score or quality only, milliseconds.
    pub score_interval_ms: u64,
    /// Interval of diagnostics (node states, health), milliseconds.
    pub diagnostics_interval_ms: u64,
    /// Publish where people are on `<base>/<instance>/tracks`, once a second at most and not retained.
    pub publish_tracks: bool,
    /// A node that was not seen for this many days is removed from Home Assistant.
    pub forget_node_days: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enabled: true,
            host: "localhost".into(),
            port: None,
            user: String::new(),
            password: Secret::default(),
            password_file: None,
            tls: false,
            ca_file: None,
            client_cert_file: None,
            client_key_file: None,
            base_topic: "aetherd".into(),
            instance: String::new(),
            discovery: true,
            discovery_prefix: "homeassistant".into(),
            configuration_url: String::new(),
            keep_alive_s: 30,
            max_packet_bytes: 1 << 20,
            reconnect_min_ms: 1_000,
            reconnect_max_ms: 60_000,
            stable_ms: 30_000,
            config_retry_ms: 60_000,
            connect_timeout_ms: 15_000,
            ack_timeout_ms: 20_000,
            birth_delay_max_ms: 5_000,
            birth_settle_ms: 1_000,
            clear_delay_ms: 5_000,
            score_interval_ms: 10_000,
            diagnostics_interval_ms: 60_000,
            publish_tracks: false,
            forget_node_days: 7,
        }
    }
}

/// What is wrong with the settings.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A topic level that cannot be one.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// No broker.
    #[error("host is empty: name the broker, for example host = \"homeassistant.local\"")]
    NoHost,
    /// A certificate without a key, or the other way round.
    #[error("client_cert_file and client_key_file belong together: give both or neither")]
    HalfClientCertificate,
    /// TLS files without TLS.
    #[error("{0} is given but tls is off: set tls = true or remove {0}")]
    TlsOff(&'static str),
    /// A password without a user.
    #[error("a password is given without a user: set user")]
    PasswordWithoutUser,
    /// A number that makes no sense.
    #[error("{key} must be {expected}, got {got}")]
    OutOfRange {
        /// The key.
        key: &'static str,
        /// What is allowed.
        expected: &'static str,
        /// What came.
        got: u64,
    },
    /// The password file cannot be read.
    #[error("cannot read password_file {}: make it readable for the daemon's user", path.display())]
    PasswordFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

impl Settings {
    /// Checks what can be checked without a network or a file, and returns the topics.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn check(&self) -> Result<Topics, SettingsError> {
        if self.host.trim().is_empty() {
            return Err(SettingsError::NoHost);
        }
        if self.client_cert_file.is_some() != self.client_key_file.is_some() {
            return Err(SettingsError::HalfClientCertificate);
        }
        if !self.tls {
            for (key, file) in [("ca_file", &self.ca_file), ("client_cert_file", &self.client_cert_file)] {
                if file.is_some() {
                    return Err(SettingsError::TlsOff(key));
                }
            }
        }
        if self.user.is_empty() && (!self.password.0.is_empty() || self.password_file.is_some()) {
            return Err(SettingsError::PasswordWithoutUser);
        }
        let at_least = |key, got: u64, least: u64, expected| {
            if got < least { Err(SettingsError::OutOfRange { key, expected, got }) } else { Ok(()) }
        };
        at_least("max_packet_bytes", self.max_packet_bytes as u64, 16 << 10, "at least 16384")?;
        at_least("keep_alive_s", self.keep_alive_s.into(), 5, "at least 5")?;
        at_least("reconnect_min_ms", self.reconnect_min_ms, 10, "at least 10")?;
        at_least("reconnect_max_ms", self.reconnect_max_ms, self.reconnect_min_ms, "at least reconnect_min_ms")?;
        at_least("connect_timeout_ms", self.connect_timeout_ms, 100, "at least 100")?;
        at_least("ack_timeout_ms", self.ack_timeout_ms, 100, "at least 100")?;
        Ok(Topics::new(&self.base_topic, &self.instance_name(), &self.discovery_prefix)?)
    }

    /// The instance in force: the configured one, or the host name made safe.
    pub fn instance_name(&self) -> String {
        if !self.instance.is_empty() {
            return self.instance.clone();
        }
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let safe: String =
            host.trim().chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).take(48).collect();
        if safe.is_empty() { "default".into() } else { safe.to_ascii_lowercase() }
    }

    /// The port in force.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(if self.tls { 8883 } else { 1883 })
    }

    /// The password in force: the one given, else of the file, else of the systemd credential. Read anew for every
    /// connection, so that a corrected file is enough.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read_password(&self) -> Result<Option<String>, SettingsError> {
        if self.user.is_empty() {
            return Ok(None);
        }
        if !self.password.0.is_empty() {
            return Ok(Some(self.password.0.clone()));
        }
        let read = |path: &Path| {
            std::fs::read_to_string(path)
                .map(|text| text.trim_end_matches(['\r', '\n']).to_owned())
                .map_err(|source| SettingsError::PasswordFile { path: path.to_path_buf(), source })
        };
        if let Some(path) = &self.password_file {
            return read(path).map(Some);
        }
        let credential = std::env::var_os("CREDENTIALS_DIRECTORY").map(|dir| Path::new(&dir).join(PASSWORD_CREDENTIAL));
        match credential {
            Some(path) if path.exists() => read(&path).map(Some),
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn defaults_pass_and_contradictions_do_not() {
        assert!(Settings::default().check().is_ok());
        let with = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            settings.check()
        };
        assert!(matches!(with(|s| s.host = " ".into()), Err(SettingsError::NoHost)));
        assert!(matches!(with(|s| s.client_cert_file = Some("c".into())), Err(SettingsError::HalfClientCertificate)));
        assert!(matches!(with(|s| s.ca_file = Some("c".into())), Err(SettingsError::TlsOff("ca_file"))));
        assert!(matches!(with(|s| s.password = Secret("x".into())), Err(SettingsError::PasswordWithoutUser)));
        assert!(matches!(with(|s| s.base_topic = "homeassistant".into()), Err(SettingsError::Topic(_))));
        assert!(matches!(with(|s| s.reconnect_max_ms = 5), Err(SettingsError::OutOfRange { .. })));
    }

    #[test]
    fn a_password_is_neither_printed_nor_serialised() {
        let settings = Settings { user: "u".into(), password: Secret("hunter2".into()), ..Settings::default() };
        assert!(!format!("{settings:?}").contains("hunter2"));
        assert!(!serde_json::to_string(&settings).unwrap().contains("hunter2"));
        assert_eq!(settings.read_password().unwrap().as_deref(), Some("hunter2"));
    }

    #[test]
    fn a_password_file_loses_its_line_feed_and_a_missing_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pw");
        std::fs::write(&path, " secret \r\n").unwrap();
        let settings = Settings { user: "u".into(), password_file: Some(path), ..Settings::default() };
        assert_eq!(settings.read_password().unwrap().as_deref(), Some(" secret "));
        let missing = Settings { password_file: Some(dir.path().join("none")), ..settings };
        assert!(missing.read_password().unwrap_err().to_string().contains("none"));
    }

    #[test]
    fn unknown_keys_are_refused() {
        assert!(toml::from_str::<Settings>("hots = \"x\"").is_err());
        assert_eq!(toml::from_str::<Settings>("host = \"x\"\ntls = true").unwrap().port(), 8883);
    }
}
