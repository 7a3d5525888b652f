//! `aetherd record`: input as it arrives, into a file that Wireshark opens.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use clap::Args;

use super::Common;
use super::output::complain;
use super::run::{block_on, parse_duration, wait_for_stop};
use crate::frame::recording::{NodeEntry, RecordingMeta, SerialPort, Writer};
use crate::frame::udp::UdpSource;
use crate::frame::{Captured, Decoder, FrameStats, LineHint, SensingClock, serial};
use crate::types::Provenance;

/// Arguments of `record`.
#[derive(Debug, Args)]
pub(super) struct RecordArgs {
    /// Where to: NAME.pcapng, or NAME.pcapng.zst for a compressed one
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// Stop after this long, for example 60s or 10m; else with Ctrl-C
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    r#for: Option<Duration>,
    /// A note that is kept in the file, for example "empty" or "two people walking"
    #[arg(long)]
    label: Option<String>,
    /// Write over an existing file
    #[arg(long)]
    force: bool,
}

struct Tape {
    writer: Writer,
    decoder: Decoder,
    stats: FrameStats,
    failed: Option<crate::frame::recording::RecordingError>,
}

impl Tape {
    fn take(&mut self, captured: &Captured<'_>) {
        if self.failed.is_none() {
            self.failed = self.writer.write(captured, LineHint::Auto).err();
        }
        let stats = &mut self.stats;
        self.decoder.captured(captured, LineHint::Auto, &mut |node, item| stats.observe(node, captured.at, &item));
    }
}

/// Runs the command.
pub(super) fn run(common: &Common, args: &RecordArgs) -> anyhow::Result<u8> {
    let settings = common.load_and_log()?.settings;
    if args.out.exists() && !args.force {
        anyhow::bail!("{} exists; give --force to write over it", args.out.display());
    }
    let mut meta = RecordingMeta::new(Provenance::Sensed);
    meta.label.clone_from(&args.label);
    meta.udp_port = settings.frames.udp.listen.first().map_or(5005, std::net::SocketAddr::port);
    meta.serial = settings.serial_ports().into_iter().map(|name| SerialPort { name, hint: LineHint::Auto }).collect();
    meta.nodes = settings
        .node
        .iter()
        .map(|n| NodeEntry {
            key: match (n.address, n.node_id, &n.port) {
                (Some(addr), Some(id), _) => format!("{addr}/{id}"),
                (Some(addr), None, _) => addr.to_string(),
                (None, Some(id), _) => format!("*/{id}"),
                (None, None, port) => port.clone().unwrap_or_default(),
            },
            name: n.name.clone(),
            zone: None,
        })
        .collect();
    let tape = Arc::new(Mutex::new(Tape {
        writer: Writer::create(&args.out, meta)?,
        decoder: Decoder::new(settings.frames.decoder.clone()),
        stats: FrameStats::new(settings.frames.decoder.max_nodes),
        failed: None,
    }));
    complain("recording; what is recorded tells when somebody was at home: treat the file accordingly");
    block_on(record(settings, tape.clone(), args.r#for))?;
    let tape = Arc::into_inner(tape).context("a source still holds the recording")?;
    let tape = tape.into_inner().expect("no holder panics");
    let written = tape.writer.finish()?;
    if let Some(error) = tape.failed {
        return Err(error).context("the recording was cut short; what was written can be read");
    }
    let total = tape.stats.total();
    complain(&format!(
        "{}: {} datagrams, {} lines, {} bytes; {} frames, {} rejected",
        args.out.display(),
        written.datagrams,
        written.lines,
        written.bytes,
        total.frames,
        total.rejected_total()
    ));
    Ok(0)
}

async fn record(
    settings: crate::config::Settings,
    tape: Arc<Mutex<Tape>>,
    limit: Option<Duration>,
) -> anyhow::Result<()> {
    let clock = SensingClock::start();
    let mut tasks = tokio::task::JoinSet::new();
    for &addr in &settings.frames.udp.listen {
        let mut source = UdpSource::bind(addr, &settings.frames.udp)?;
        let (clock, tape) = (clock.clone(), tape.clone());
        tasks.spawn(async move {
            if let Err(error) = source.run(&clock, &mut |c| tape.lock().expect("no holder panics").take(&c)).await {
                tracing::error!(%error, "a source ended");
            }
        });
    }
    for (index, port) in (0u16..).zip(&settings.frames.serial) {
        let (clock, tape, port) = (clock.clone(), tape.clone(), port.clone());
        tasks.spawn(async move {
            serial::run(&port, index, &clock, &mut |c| tape.lock().expect("no holder panics").take(&c)).await
        });
    }
    let failed = || tape.lock().expect("no holder panics").failed.is_some();
    wait_for_stop(limit, None, failed).await?;
    tasks.shutdown().await;
    Ok(())
}
