//! `aetherd evaluate`: accuracy on labelled recordings.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum};

use super::Common;
use super::output::Lines;
use crate::evaluate::{LeaveOneOut, Manifest, judge, picture, run_all, table};

/// The split, as on the command line.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Split {
    None,
    Session,
    Room,
    Chip,
    Person,
}

impl From<Split> for LeaveOneOut {
    fn from(split: Split) -> Self {
        match split {
            Split::None => Self::None,
            Split::Session => Self::Session,
            Split::Room => Self::Room,
            Split::Chip => Self::Chip,
            Split::Person => Self::Person,
        }
    }
}

/// Arguments of `evaluate`.
#[derive(Debug, Args)]
pub(super) struct EvaluateArgs {
    /// Manifest: which recordings, what is true in them, how to split (docs/evaluation.md)
    #[arg(value_name = "MANIFEST.toml")]
    manifest: PathBuf,
    /// Write the report as JSON (`-` = standard output, instead of the table)
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
    /// Draw score, threshold, verdict and truth over time
    #[arg(long, value_name = "OUT")]
    svg: Option<PathBuf>,
    /// What to keep apart when the sensitivity is fitted (wins over the manifest)
    #[arg(long, value_enum)]
    leave_one_out: Option<Split>,
    /// Thin the frames to this rate first (wins over the manifest)
    #[arg(long, value_name = "HZ")]
    decimate_to_hz: Option<f64>,
    /// Drop this share of the frames at random first (wins over the manifest)
    #[arg(long, value_name = "0..1")]
    drop_fraction: Option<f64>,
    /// Seed of everything random (wins over the manifest)
    #[arg(long)]
    seed: Option<u64>,
}

/// Runs the command.
pub(super) fn run(common: &Common, args: &EvaluateArgs) -> anyhow::Result<u8> {
    let loaded = common.load_and_log()?;
    let mut manifest = Manifest::load(&args.manifest)?;
    let options = &mut manifest.evaluate;
    options.leave_one_out = args.leave_one_out.map_or(options.leave_one_out, LeaveOneOut::from);
    options.decimate_to_hz = args.decimate_to_hz.or(options.decimate_to_hz);
    options.drop_fraction = args.drop_fraction.unwrap_or(options.drop_fraction);
    options.seed = args.seed.unwrap_or(options.seed);
    manifest.check(&args.manifest)?;

    let base = args.manifest.parent().unwrap_or(Path::new("."));
    let runs = run_all(base, &manifest, &loaded.settings.signal)?;
    let report = judge(&manifest, &runs);
    if let Some(path) = &args.svg {
        std::fs::write(path, picture(&report, &runs)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let mut out = Lines::stdout();
    match &args.json {
        Some(path) if path.as_os_str() == "-" => out.json(&report)?,
        Some(path) => {
            let text = serde_json::to_string_pretty(&report)?;
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
            out.text(&table(&report))?;
        }
        None => out.text(&table(&report))?,
    }
    out.flush()?;
    Ok(0)
}
