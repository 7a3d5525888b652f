//! `aetherd import`: any recording into aetherd's own form.

use std::path::PathBuf;

use clap::Args;

use super::Common;
use super::input::InputArgs;
use super::output::complain;
use crate::frame::recording::{RecordingMeta, Writer, import};

/// Arguments of `import`.
#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// What to import; `archive.tar.bz2#member` names one file of an archive
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where to: NAME.pcapng, or NAME.pcapng.zst for a compressed one
    #[arg(value_name = "OUT")]
    out: PathBuf,
    #[command(flatten)]
    input: InputArgs,
    /// A note that is kept in the file, for example what happens in the recording
    #[arg(long)]
    label: Option<String>,
    /// Write over an existing file
    #[arg(long)]
    force: bool,
}

/// Runs the command.
pub(super) fn run(common: &Common, args: &ImportArgs) -> anyhow::Result<u8> {
    common.log_only();
    if args.out.exists() && !args.force {
        anyhow::bail!("{} exists; give --force to write over it", args.out.display());
    }
    let mut reader = args.input.open(&args.file)?;
    let mut meta = RecordingMeta::of_import(&reader);
    meta.label = args.label.clone().or(meta.label);
    let mut writer = Writer::create(&args.out, meta)?;
    let imported = import(&mut reader, &mut writer)?;
    let written = writer.finish()?;
    complain(&format!(
        "{}: {} datagrams, {} lines, {} bytes; left out: {} packets whose bytes the source does not have, {} rejected",
        args.out.display(),
        imported.datagrams,
        imported.lines,
        written.bytes,
        imported.without_bytes,
        imported.rejected
    ));
    if let Some(damage) = imported.damage {
        complain(&format!(
            "the source is damaged at byte {}: {}; everything before it was kept",
            damage.position, damage.what
        ));
    }
    Ok(0)
}
