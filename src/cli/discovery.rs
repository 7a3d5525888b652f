//! `aetherd discovery`: what Home Assistant is told about us.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};

use super::Common;
use super::output::{Lines, complain};
use super::run::block_on;
use crate::config::Settings;
use crate::event::ZoneState;
use crate::mqtt::{self, NodeView, Snapshot, ZoneView};
use crate::pipeline::NodeSettings;
use crate::types::Provenance;

/// Arguments of `discovery`.
#[derive(Debug, Args)]
pub(super) struct DiscoveryArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Clone, Copy, Subcommand)]
enum What {
    /// Print the messages, one per topic, without sending anything
    Print,
    /// Send them now (a running daemon does this by itself)
    Publish,
    /// Remove everything that was announced, so that Home Assistant forgets our devices
    Clear,
}

/// Runs the command.
pub(super) fn run(common: &Common, args: &DiscoveryArgs) -> anyhow::Result<u8> {
    let settings = common.load_and_log()?.settings;
    let snapshot = configured(&settings);
    match args.what {
        What::Print => {
            let topics = settings.mqtt.check()?;
            let documents: BTreeMap<String, serde_json::Value> =
                mqtt::discovery::documents(&topics, &snapshot, &settings.mqtt.configuration_url)
                    .into_iter()
                    .map(|a| (a.topic, a.payload))
                    .collect();
            let mut out = Lines::stdout();
            out.text(&serde_json::to_string_pretty(&documents)?)?;
            out.flush()?;
        }
        What::Publish => {
            let n = block_on(async {
                Ok(mqtt::publish_discovery(&settings.mqtt, &settings.state_dir(), &snapshot).await?)
            })?;
            complain(&format!("{n} messages sent"));
        }
        What::Clear => {
            let n =
                block_on(async { Ok(mqtt::clear_discovery(&settings.mqtt, &settings.state_dir(), &snapshot).await?) })?;
            complain(&format!("{n} messages sent; stop the daemon first if its entities come back"));
        }
    }
    Ok(0)
}

/// Everything that the configuration names, with nothing known about it.
fn configured(settings: &Settings) -> Snapshot {
    let zone = |z: &crate::event::ZoneSettings| ZoneView {
        name: z.name.clone(),
        area: z.area.clone(),
        state: ZoneState::unknown(z.effective_id(), Provenance::Sensed),
        since: None,
        hold_s: z.hold_s.unwrap_or(settings.occupancy.hold_s),
        sensitivity: z.sensitivity.unwrap_or(1.0),
    };
    let node = |n: &NodeSettings| NodeView {
        id: n.effective_id(),
        name: n.name.clone(),
        available: false,
        mac: n.mac,
        chip: None,
        rate_hz: 0.0,
        loss: None,
        rssi_dbm: None,
        noise_dbm: None,
        channel: None,
        frames: 0,
        rejects: Vec::new(),
        last_seen: None,
    };
    Snapshot {
        zones: settings.zones().iter().map(zone).collect(),
        nodes: settings.node.iter().map(node).collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Snapshot::default()
    }
}
