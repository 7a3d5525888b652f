//! The log: native journald under systemd, text on a terminal, JSON on request.
//!
//! The journald layer maps INFO to notice and DEBUG to informational by default; here INFO is informational, as
//! `journalctl -p info` users expect, and our fields have no prefix but `AETHERD_`.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// journald when started by systemd, else text.
    #[default]
    Auto,
    /// One line of text per message on standard error.
    Text,
    /// One JSON object per message on standard error.
    Json,
    /// journald's native protocol.
    Journal,
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // the usual names
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    /// The name as a filter directive.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }

    /// This level raised (or lowered) by `steps` of `-v` (or `-q`).
    pub fn raised(self, steps: i8) -> Self {
        const ALL: [LogLevel; 5] = [LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug, LogLevel::Trace];
        ALL[(self as i8).saturating_add(steps).clamp(0, 4) as usize]
    }
}

/// Settings of the log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How much is logged; `AETHERD_LOG` (a filter such as `aetherd::mqtt=debug`) and `-v` win.
    pub level: LogLevel,
    /// How it is written.
    pub format: LogFormat,
}

static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

fn filter(level: LogLevel) -> EnvFilter {
    let own = std::env::var("AETHERD_LOG").ok().filter(|s| !s.is_empty());
    // Libraries speak up one level later than we do.
    let default = match level {
        // The embedded broker calls a client that leaves an error.
        LogLevel::Error => "error,rumqttd=off".to_owned(),
        LogLevel::Trace => "debug,aetherd=trace".to_owned(),
        l => format!("warn,rumqttd=off,aetherd={}", l.name()),
    };
    let text = own.unwrap_or(default);
    EnvFilter::try_new(&text).unwrap_or_else(|_| EnvFilter::new("warn,aetherd=info"))
}

/// Starts the log. The second call in one process changes the level only.
pub fn init(settings: &Settings) {
    if FILTER.get().is_some() {
        set_level(settings.level);
        return;
    }
    let (layer, handle) = reload::Layer::new(filter(settings.level));
    let under_systemd = std::env::var_os("JOURNAL_STREAM").is_some();
    let text = || {
        tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
            .with_target(false)
            .boxed()
    };
    let output = match settings.format {
        LogFormat::Json => tracing_subscriber::fmt::layer().json().with_writer(std::io::stderr).boxed(),
        LogFormat::Journal => journald().unwrap_or_else(|_| text()),
        LogFormat::Auto if under_systemd => journald().unwrap_or_else(|_| text()),
        LogFormat::Auto | LogFormat::Text => text(),
    };
    if tracing_subscriber::registry().with(layer).with(output).try_init().is_ok() {
        FILTER.get_or_init(|| handle);
    }
}

type Boxed<S> = Box<dyn Layer<S> + Send + Sync>;

fn journald<S>() -> std::io::Result<Boxed<S>>
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    use tracing_journald::{Priority, PriorityMappings};
    Ok(tracing_journald::layer()?
        .with_field_prefix(Some("AETHERD".to_owned()))
        .with_syslog_identifier("aetherd".to_owned())
        .with_priority_mappings(PriorityMappings {
            info: Priority::Informational,
            debug: Priority::Debug,
            ..PriorityMappings::new()
        })
        .boxed())
}

/// Changes the level while running.
pub fn set_level(level: LogLevel) {
    if let Some(handle) = FILTER.get() {
        // The only error is a dropped subscriber; then there is no log to change.
        drop(handle.reload(filter(level)));
    }
}
