//! `aetherd demo`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::Common;
use super::run::parse_duration;

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    /// Recording to use; without one a simulated visit, labelled as simulated
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Stop by itself after this long
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    r#for: Option<Duration>,
}

/// Runs the command.
pub(super) fn run(_common: &Common, _args: &DemoArgs) -> anyhow::Result<u8> {
    Ok(0)
}
