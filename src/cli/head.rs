//! `aetherd head`: weights of the temporal head, written anew or described.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum, value_parser};
use serde::Serialize;

use super::output::{Lines, complain};
use super::{Common, exit};
use crate::head::init::{InitSettings, class_names, init};
use crate::head::schema::TOKEN_SCHEMA;
use crate::head::weights::{
    FLAG_GAINS, FLAG_INFO, FLAG_PROJECTION, WeightBlob, WeightDtype, WeightError, WeightInfo, WeightTensor,
};

/// Arguments of `head`.
#[derive(Debug, Args)]
pub(super) struct HeadArgs {
    #[command(subcommand)]
    command: HeadCommand,
}

#[derive(Debug, Subcommand)]
enum HeadCommand {
    /// Write untrained weights: random numbers from a seed, marked as untrained in the file
    Init(InitArgs),
    /// Check a weight file and say what is in it (exit 65 if it cannot be used here)
    Info(InfoArgs),
}

#[derive(Debug, Args)]
struct InitArgs {
    /// Seed; the same seed gives the same file
    #[arg(long, value_name = "N")]
    seed: u64,
    /// Where to, for example head.rvne
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Layers
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u16).range(1..=64))]
    layers: u16,
    /// Query heads
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = value_parser!(u16).range(1..=64))]
    q_heads: u16,
    /// Key/value heads; divides the query heads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u16).range(1..=64))]
    kv_heads: u16,
    /// Numbers per head
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = value_parser!(u16).range(1..=512))]
    head_dim: u16,
    /// Classes
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = value_parser!(u16).range(1..=1024))]
    classes: u16,
    /// Half precision: half the size, used without conversion
    #[arg(long)]
    f16: bool,
    /// Write over an existing file
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
struct InfoArgs {
    /// The weight file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// How it is written
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Runs the command.
pub(super) fn run(common: &Common, args: &HeadArgs) -> anyhow::Result<u8> {
    common.log_only();
    match &args.command {
        HeadCommand::Init(args) => run_init(args),
        HeadCommand::Info(args) => run_info(args),
    }
}

fn run_init(args: &InitArgs) -> anyhow::Result<u8> {
    let dtype = if args.f16 { WeightDtype::F16 } else { WeightDtype::F32 };
    let settings = InitSettings {
        seed: args.seed,
        layers: args.layers,
        q_heads: args.q_heads,
        kv_heads: args.kv_heads,
        head_dim: args.head_dim,
        classes: class_names(args.classes),
        dtype,
    };
    init(&settings)?.write(&args.out, dtype, args.force)?;
    let size = std::fs::metadata(&args.out).with_context(|| format!("cannot read {}", args.out.display()))?.len();
    complain(&format!(
        "{}: {size} bytes, {dtype}, UNTRAINED: random numbers from seed {}; with them aetherd names nobody and no activity",
        args.out.display(),
        args.seed
    ));
    Ok(0)
}

fn run_info(args: &InfoArgs) -> anyhow::Result<u8> {
    let blob = match WeightBlob::open(&args.file) {
        Ok(blob) => blob,
        Err(error @ WeightError::Io { .. }) => return Err(error.into()),
        Err(error) => {
            let error = anyhow::Error::from(error).context(format!("{}", args.file.display()));
            complain(&format!("aetherd: {error:#}"));
            return Ok(exit::DATA);
        }
    };
    let report = Report::of(&args.file, &blob);
    let mut out = Lines::stdout();
    match args.format {
        Format::Json => out.json(&report)?,
        Format::Text => {
            for line in report.lines(&blob) {
                out.text(&line)?;
            }
        }
    }
    out.flush()?;
    Ok(if report.usable { 0 } else { exit::DATA })
}

#[derive(Serialize)]
struct Report<'a> {
    file: String,
    bytes: usize,
    crc32: String,
    dtype: String,
    input_dim: u16,
    q_heads: u16,
    kv_heads: u16,
    head_dim: u16,
    layers: u16,
    classes: u16,
    parameters: usize,
    sections: Vec<Section>,
    trained: bool,
    /// Whether this aetherd can use the file.
    usable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why_not: Option<String>,
    info: Option<&'a WeightInfo>,
}

#[derive(Serialize)]
struct Section {
    name: &'static str,
    bytes: usize,
}

impl<'a> Report<'a> {
    fn of(file: &Path, blob: &'a WeightBlob) -> Self {
        let header = blob.header();
        let info = blob.info();
        let size = |select: fn(&WeightTensor) -> bool| -> usize {
            let chosen = blob.tensors().filter(|(t, _)| select(t));
            chosen.map(|(_, v)| v.len() * header.dtype().size()).sum()
        };
        let gain = |t: &WeightTensor| matches!(t, WeightTensor::Gain(_) | WeightTensor::FinalGain);
        let projection = |t: &WeightTensor| matches!(t, WeightTensor::Projection1 | WeightTensor::Projection2);
        let numbers: [(&'static str, u8, usize); 2] =
            [("RMSNorm gains", FLAG_GAINS, size(gain)), ("projection head", FLAG_PROJECTION, size(projection))];
        let mut sections = vec![Section { name: "payload", bytes: header.weights_len as usize }];
        sections.extend(numbers.iter().filter(|s| header.has(s.1)).map(|&(name, _, bytes)| Section { name, bytes }));
        if header.has(FLAG_INFO) {
            let known: usize = sections.iter().map(|s| s.bytes).sum();
            let prefixes = 4 * sections.len();
            // All that is left between header and check sum.
            let bytes = blob.as_bytes().len() - crate::head::WEIGHT_BLOB_HEADER_LEN - known - prefixes - 4;
            sections.push(Section { name: "information", bytes });
        }
        let why_not = match info {
            Some(info) => info.check_schema(&TOKEN_SCHEMA).err(),
            None => Some(WeightError::NoInfo),
        };
        Self {
            file: file.display().to_string(),
            bytes: blob.as_bytes().len(),
            crc32: format!("{:08x}", blob.crc32()),
            dtype: header.dtype().to_string(),
            input_dim: header.input_dim,
            q_heads: header.n_q_heads,
            kv_heads: header.n_kv_heads,
            head_dim: header.head_dim,
            layers: header.n_layers,
            classes: header.n_classes,
            parameters: blob.tensors().map(|(_, v)| v.len()).sum(),
            sections,
            trained: info.is_some_and(|i| i.trained),
            usable: why_not.is_none(),
            why_not: why_not.map(|e| e.to_string()),
            info,
        }
    }

    fn lines(&self, blob: &WeightBlob) -> Vec<String> {
        let sections: Vec<String> = self.sections.iter().map(|s| format!("{} {} bytes", s.name, s.bytes)).collect();
        let mut lines = vec![
            format!("{}: {} bytes, checked: CRC-32 {}, all numbers finite", self.file, self.bytes, self.crc32),
            format!(
                "network       {} features, {} layers, {} query heads on {} key/value heads of {}, {} classes, {} parameters in {}",
                self.input_dim,
                self.layers,
                self.q_heads,
                self.kv_heads,
                self.head_dim,
                self.classes,
                self.parameters,
                self.dtype
            ),
            format!("sections      {}", sections.join(", ")),
        ];
        if let Some(info) = blob.info() {
            lines.extend(about(info));
        }
        match &self.why_not {
            None => lines.push("usable here   yes".to_owned()),
            Some(why) => lines.push(format!("usable here   no: {why}")),
        }
        lines
    }
}

/// The information block in words. Text of the file is shown with control characters escaped.
fn about(info: &WeightInfo) -> Vec<String> {
    let shown = |text: &str| text.escape_debug().to_string();
    let optional = |text: &Option<String>| text.as_deref().map_or_else(|| "not said".to_owned(), shown);
    let mut lines = if info.trained {
        vec![
            format!("trained       yes, on: {}", optional(&info.trained_on)),
            format!("scores        {}", optional(&info.scores)),
        ]
    } else {
        vec![
            "trained       no, UNTRAINED: its numbers are random; with them aetherd names nobody and no activity"
                .to_owned(),
        ]
    };
    if let Some(seed) = info.seed {
        lines.push(format!("seed          {seed}"));
    }
    if let Some(command) = &info.command {
        lines.push(format!("written by    {}", shown(command)));
    }
    let classes: Vec<String> = info.classes.iter().map(|c| shown(c)).collect();
    lines.push(format!("classes       {}", classes.join(", ")));
    lines.push(format!("schema        {} (hash {})", shown(&info.schema.name), shown(&info.schema.hash)));
    let (mean, std) = (&info.normalisation.mean, &info.normalisation.std);
    if mean.iter().all(|m| *m == 0.0) && std.iter().all(|s| *s == 1.0) {
        lines.push("normalisation none: features go in as they are".to_owned());
        return lines;
    }
    lines.push("normalisation (x - mean) / std:".to_owned());
    // Names only where they are surely those of the file.
    let names = info.check_schema(&TOKEN_SCHEMA).is_ok();
    lines.extend(mean.iter().zip(std).enumerate().map(|(i, (mean, std))| {
        let name = TOKEN_SCHEMA.features.get(i).filter(|_| names).map_or("", |f| f.name);
        format!("  {i:>3} {name:<16} {mean:>12.6} {std:>12.6}")
    }));
    lines
}
