//! Opening recordings, as `decode`, `replay` and `import` take them.

use std::path::Path;

use anyhow::Context;
use clap::Args;

use crate::frame::recording::{self, Format, Options, Reader};

/// How the input is read.
#[derive(Debug, Clone, Args)]
pub(super) struct InputArgs {
    /// Format of the input: auto, pcapng, espectre-npz, ruview-jsonl, csi-tool, esp-csi, csi-raw, albany, ialr, text
    #[arg(long, value_name = "FORMAT", default_value = "auto", value_parser = parse_format)]
    pub(super) format: Format,
    /// Frames per second, for forms whose rows carry no time
    #[arg(long, value_name = "HZ")]
    pub(super) rate_hz: Option<f64>,
    /// Take only datagrams to this UDP port from a capture
    #[arg(long, value_name = "PORT")]
    pub(super) udp_port: Option<u16>,
}

fn parse_format(text: &str) -> Result<Format, String> {
    text.parse().map_err(|e: recording::RecordingError| e.to_string())
}

impl InputArgs {
    /// Opens one input; `-` is standard input, `archive.tar.bz2#member` one file of an archive.
    pub(super) fn open(&self, path: &Path) -> anyhow::Result<Reader> {
        let options = Options { rate_hz: self.rate_hz, udp_port: self.udp_port, ..Options::default() };
        recording::open(path, self.format, &options).with_context(|| format!("cannot read {}", path.display()))
    }
}
