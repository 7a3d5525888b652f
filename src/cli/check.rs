//! `aetherd check`: is the configuration right; with `--online`, can what it names be had.

use std::path::Path;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::output::Lines;
use super::run::block_on;
use super::{Common, exit};
use crate::config::{Finding, Loaded, Settings, Severity};
use crate::frame::{serial, udp::UdpSource};
use crate::mqtt;

/// Output of `check`.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Also open sockets and ports and connect to the broker (stop the service first, or its ports are taken)
    #[arg(long)]
    online: bool,
    /// Form of the findings
    #[arg(long, value_enum, default_value = "text")]
    format: Output,
    /// Treat warnings as errors
    #[arg(long)]
    deny_warnings: bool,
}

#[derive(Serialize)]
struct Outcome<'a> {
    ok: bool,
    layers: &'a [String],
    findings: &'a [Finding],
}

/// Runs the command.
pub(super) fn run(common: &Common, args: &CheckArgs) -> anyhow::Result<u8> {
    let (layers, mut findings, settings) = match common.load() {
        Ok(Loaded { settings, warnings, layers, .. }) => (layers, warnings, Some(settings)),
        Err(wrong) => (Vec::new(), wrong.0, None),
    };
    let mut code = if settings.is_none() { exit::CONFIG } else { 0 };
    if args.deny_warnings && !findings.is_empty() {
        code = exit::CONFIG;
    }
    if let Some(settings) = settings.filter(|_| args.online && code == 0) {
        let online = block_on(async move { Ok(online(&settings).await) })?;
        if online.iter().any(|f| f.severity == Severity::Error) {
            code = exit::UNAVAILABLE;
        }
        findings.extend(online);
    }
    let mut out = Lines::stdout();
    match args.format {
        Output::Json => out.json(&Outcome { ok: code == 0, layers: &layers, findings: &findings })?,
        Output::Text => {
            for finding in &findings {
                out.text(&finding.to_string())?;
            }
            if code == 0 {
                let what = if layers.is_empty() { "embedded defaults".to_owned() } else { layers.join(", ") };
                out.text(&format!("ok: {what}"))?;
            }
        }
    }
    out.flush()?;
    Ok(code)
}

async fn online(settings: &Settings) -> Vec<Finding> {
    let mut findings = Vec::new();
    for &addr in &settings.frames.udp.listen {
        if let Err(error) = UdpSource::bind(addr, &settings.frames.udp) {
            let cure = "stop the other program, or choose another address in frames.udp.listen";
            findings.push(Finding::error("frames.udp.listen", None, error.to_string(), cure));
        }
    }
    for port in &settings.frames.serial {
        if let Err(error) = serial::open(port) {
            let cure = "`aetherd ports` lists what is there and who may open it";
            findings.push(Finding::error("frames.serial", None, error.to_string(), cure));
        }
    }
    if settings.mqtt.enabled {
        let answer = tokio::time::timeout(Duration::from_secs(20), mqtt::probe(&settings.mqtt)).await;
        let wrong = match answer {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("the broker did not answer within 20 s".to_owned()),
        };
        if let Some(what) = wrong {
            let cure = "check mqtt.host, mqtt.port, user and password, and that the broker runs";
            findings.push(Finding::error("mqtt", None, what, cure));
        }
    }
    let dir = settings.state_dir();
    if let Err(error) = writable(&dir) {
        let cure = "make it writable for this user, or set state_dir";
        findings.push(Finding::error("state_dir", None, format!("{}: {error}", dir.display()), cure));
    }
    findings
}

fn writable(dir: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    let probe = dir.join(".aetherd-check");
    std::fs::write(&probe, b"x")?;
    std::fs::remove_file(probe)
}
