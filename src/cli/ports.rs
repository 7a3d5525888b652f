//! `aetherd ports`: serial ports by their stable names, and the lines to paste.

use std::path::Path;

use clap::Args;

use super::Common;
use super::output::Lines;
use crate::frame::ports::{PortInfo, list};

/// Arguments of `ports`.
#[derive(Debug, Args)]
pub(super) struct PortsArgs {
    /// JSON lines instead of text
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(common: &Common, args: &PortsArgs) -> anyhow::Result<u8> {
    common.log_only();
    let ports = list(Path::new("/"));
    let mut out = Lines::stdout();
    if args.json {
        for port in &ports {
            out.json(port)?;
        }
    } else if ports.is_empty() {
        out.text("no serial port found; plug the board in with a cable that carries data (many only charge)")?;
        out.text(
            "boards that send over Wi-Fi need no port: they are heard on UDP, see frames.udp in the configuration",
        )?;
    } else {
        describe(&ports, &mut out)?;
    }
    out.flush()?;
    Ok(0)
}

fn describe(ports: &[PortInfo], out: &mut Lines) -> std::io::Result<()> {
    for port in ports {
        let bridge = port.bridge.map_or(String::new(), |b| format!("  {b}, found on ESP32 boards"));
        out.text(&format!("{}{bridge}", port.device.display()))?;
        if let Some(name) = &port.by_id {
            out.text(&format!("    by id    {}", name.display()))?;
        }
        if let Some(name) = &port.by_path {
            out.text(&format!("    by path  {}", name.display()))?;
        }
        if !port.openable {
            out.text(&format!(
                "    not yours to open (mode {:o}, group {}): add the user to that group, usually `usermod -aG dialout USER`",
                port.mode, port.gid
            ))?;
        }
    }
    let mut boards = ports.iter().filter(|p| p.bridge.is_some()).peekable();
    if boards.peek().is_some() {
        out.text("\n# to paste into /etc/aetherd/aetherd.toml")?;
    }
    for port in boards {
        let name = port.by_id.as_ref().or(port.by_path.as_ref()).unwrap_or(&port.device);
        out.text(&format!("[[frames.serial]]\nport = \"{}\"", name.display()))?;
    }
    Ok(())
}
