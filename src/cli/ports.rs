//! `aetherd ports`: serial ports by their stable names.

use clap::Args;

use super::Common;
use super::output::Lines;
use crate::frame::ports::list_ports;

/// Arguments of `ports`.
#[derive(Debug, Args)]
pub struct PortsArgs {
    /// JSON lines instead of text
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(common: &Common, args: &PortsArgs) -> anyhow::Result<u8> {
    common.log_only();
    let ports = list_ports();
    let mut out = Lines::stdout();
    if args.json {
        for port in &ports {
            out.json(port)?;
        }
    } else if ports.is_empty() {
        out.text("no serial port found. Plug the board in with a cable that carries data (many only charge).")?;
        out.text("Boards that send over Wi-Fi need no port: they are heard on UDP, see `frames.udp` in the configuration.")?;
    } else {
        for port in &ports {
            out.text(&port.to_string())?;
        }
        let likely: Vec<_> = ports.iter().filter(|p| p.likely_esp()).collect();
        if !likely.is_empty() {
            out.text("\n# lines to paste into /etc/aetherd/aetherd.toml")?;
            for port in likely {
                out.text(&format!("[[frames.serial]]\nport = \"{}\"", port.stable_name()))?;
            }
        }
    }
    out.flush()?;
    Ok(0)
}
