//! The live sources as tasks: one per socket and per serial port.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::frame::udp::{UdpCounters, UdpError, UdpSource};
use crate::frame::{LineHint, SensingClock, Settings, serial};
use crate::pipeline::intake::Intake;

/// Opens the sockets and starts a task for each source. Serial ports may be away: they are opened when they come.
/// Returns the counters of the sockets.
///
/// # Errors
/// If a socket cannot be opened.
pub(super) fn spawn_live(
    settings: &Settings,
    clock: &SensingClock,
    intake: &dyn Fn() -> Intake,
    tasks: &mut JoinSet<()>,
) -> Result<Vec<Arc<UdpCounters>>, UdpError> {
    let mut counters = Vec::new();
    for &addr in &settings.udp.listen {
        let mut source = UdpSource::bind(addr, &settings.udp)?;
        counters.push(source.counters());
        let (clock, mut intake) = (clock.clone(), intake());
        tracing::info!(address = %source.local_addr(), "listening for datagrams");
        tasks.spawn(async move {
            loop {
                let ended = source.run(&clock, &mut |c| intake.take(&c, LineHint::Auto)).await;
                if let Err(error) = ended {
                    tracing::warn!(%error, "reading datagrams failed, trying again in a second");
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                }
            }
        });
    }
    for (index, port) in settings.serial.iter().enumerate() {
        let (clock, mut intake, port) = (clock.clone(), intake(), port.clone());
        let index = u16::try_from(index).unwrap_or(u16::MAX);
        tasks.spawn(async move { serial::run(&port, index, &clock, &mut |c| intake.take(&c, LineHint::Auto)).await });
    }
    Ok(counters)
}
