//! `aetherd decode`: one JSON object per frame on standard output, rejects on standard error, a summary at the end.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::input::InputArgs;
use super::output::{Lines, complain};
use super::{Common, exit};
use crate::frame::{CsiFrame, Decoder, DecoderSettings, Item, SampleKind};

/// Arguments of `decode`.
#[derive(Debug, Args)]
pub(super) struct DecodeArgs {
    /// Recording; `-` reads standard input; .bz2, .xz, .zst, .gz and tar archives are opened as they are
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    input: InputArgs,
    /// Write the measurement too: "iq" as imaginary, real, imaginary, … (or "amplitude" where there is no phase)
    #[arg(long)]
    iq: bool,
    /// Only the summary, no line per reject
    #[arg(long)]
    no_rejects: bool,
}

#[derive(Serialize)]
struct FrameLine<'a> {
    node: String,
    format: &'static str,
    transmitter: Option<crate::types::MacAddr>,
    seq: Option<u32>,
    t_us: Option<u64>,
    host_ms: f64,
    rssi_dbm: Option<i8>,
    noise_dbm: Option<i8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    freq_mhz: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    channel: Option<u8>,
    bandwidth_mhz: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agc_gain: Option<i16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fft_gain: Option<i16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chip: Option<crate::frame::Chip>,
    layout: &'static str,
    bins: &'a [i16],
    first_word_invalid: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    iq: Option<&'a [i16]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    amplitude: Option<&'a [i16]>,
}

#[derive(Serialize)]
struct RejectLine {
    reject: &'static str,
    node: String,
    host_ms: f64,
}

#[derive(Default, Serialize)]
struct Summary {
    frames: u64,
    rejects: BTreeMap<&'static str, u64>,
    other: BTreeMap<&'static str, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<String>,
}

/// Runs the command.
pub(super) fn run(common: &Common, args: &DecodeArgs) -> anyhow::Result<u8> {
    common.log_only();
    let mut reader = args.input.open(&args.file)?;
    // As the daemon decodes: the same packet of the same sender twice is a counted reject.
    let mut decoder = Decoder::new(DecoderSettings::default());
    let mut out = Lines::stdout();
    let mut summary = Summary::default();
    let mut bins = Vec::new();
    let mut failure = None;
    let mut segment = reader.segment();
    while let Some(next) = reader.next_in_segment() {
        let (of, unit) = next?;
        if of != segment {
            // Another file of the archive: another board, another clock.
            segment = of;
            decoder = Decoder::new(DecoderSettings::default());
        }
        let host_ms = unit.at().0 as f64 / 1e3;
        unit.decode(&mut decoder, &mut |node, item| match item {
            Item::Frame(frame) => {
                summary.frames += 1;
                bins.clear();
                bins.extend((0..frame.bin_count()).map(|i| frame.layout.bin(i)));
                if let Err(error) = out.json(&line_of(frame, &bins, args.iq)) {
                    failure.get_or_insert(error);
                }
            }
            Item::Other(other) => *summary.other.entry(other.name()).or_default() += 1,
            Item::Reject(reject) => {
                *summary.rejects.entry(reject.name()).or_default() += 1;
                if !args.no_rejects {
                    let line = RejectLine { reject: reject.name(), node: node.to_string(), host_ms };
                    complain(&serde_json::to_string(&line).expect("plain data"));
                }
            }
        });
        if let Some(error) = failure.take() {
            return Err(error.into());
        }
    }
    out.flush()?;
    summary.damage = reader.damage().map(|d| format!("at byte {}: {}", d.position, d.what));
    complain(&serde_json::to_string(&summary)?);
    Ok(if summary.frames == 0 { exit::DATA } else { 0 })
}

fn line_of<'a>(frame: &'a CsiFrame, bins: &'a [i16], with_values: bool) -> FrameLine<'a> {
    let values = |kind| (with_values && frame.kind == kind).then_some(frame.values.as_slice());
    FrameLine {
        node: frame.node.to_string(),
        format: frame.format.name(),
        transmitter: frame.transmitter,
        seq: frame.seq,
        t_us: frame.device_us,
        host_ms: frame.host_time.0 as f64 / 1e3,
        rssi_dbm: frame.rssi_dbm,
        noise_dbm: frame.noise_dbm,
        freq_mhz: frame.freq_mhz,
        channel: frame.channel,
        bandwidth_mhz: frame.bandwidth_mhz,
        agc_gain: frame.agc_gain,
        fft_gain: frame.fft_gain,
        chip: frame.chip,
        layout: frame.layout.name(),
        bins,
        first_word_invalid: frame.first_word_invalid,
        iq: values(SampleKind::Iq),
        amplitude: values(SampleKind::Amplitude),
    }
}
