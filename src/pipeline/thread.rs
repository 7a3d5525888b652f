//! The sensing thread: takes frames from the queue, runs the stages, shows zones, hands events to the journal.
//!
//! It does no disk and no network I/O and, in steady state, allocates nothing. Its heartbeat feeds the watchdog.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::event::Draft;
use crate::frame::{CsiFrame, SensingClock};
use crate::pipeline::queue::{FrameQueue, Popped};
use crate::pipeline::sensing::{Sensing, Setup, TickView};
use crate::pipeline::view::Board;
use crate::telemetry::Heartbeat;
use crate::types::{NodeKey, SensingTime};

/// How time passes while no frame comes.
#[derive(Debug, Clone)]
pub(super) enum TimeBase {
    /// Live: by the host's clock.
    Clock(SensingClock),
    /// A replay: only by frames.
    Frames,
}

/// Changes while running.
#[derive(Debug)]
pub(super) enum Control {
    /// New zones, names, tracking and occupancy settings.
    Reconfigure(Box<Setup>),
    /// Hold time of a zone, seconds.
    SetHold(String, f32),
    /// Sensitivity of a zone.
    SetSensitivity(String, f32),
}

/// What the thread works with.
pub(super) struct Wiring {
    /// Frames.
    pub queue: Arc<FrameQueue>,
    /// Changes.
    pub control: mpsc::Receiver<Control>,
    /// Where zones are shown.
    pub board: Arc<Board>,
    /// Beats every round.
    pub heartbeat: Heartbeat,
    /// Age of the last frame when it was taken, microseconds.
    pub lag_micros: Arc<AtomicI64>,
    /// How time passes.
    pub time: TimeBase,
}

/// Longest wait for a frame; also how late a tick can be while nothing comes.
const PATIENCE: Duration = Duration::from_millis(50);

/// Ticks between two showings of unchanged zones (scores move even when states do not): one second.
const SHOW_EVERY_MICROS: i64 = 1_000_000;

/// Starts the thread. `on_events` gets the drafts of a tick and must not block for long.
///
/// # Errors
/// If the system gives no thread.
pub(super) fn spawn(
    mut sensing: Sensing,
    wiring: Wiring,
    mut on_events: impl FnMut(&[Draft]) + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("sensing".to_owned()).spawn(move || {
        let mut slot = CsiFrame::empty(NodeKey::Serial { port: 0 });
        let mut last_shown = SensingTime(i64::MIN);
        let board = wiring.board.clone();
        board.show(None, sensing.shown(), true);
        let mut on_tick = move |tick: &TickView<'_>| {
            if !tick.events.is_empty() {
                on_events(tick.events);
            }
            if tick.changed || tick.at.0.saturating_sub(last_shown.0) >= SHOW_EVERY_MICROS {
                board.show(Some(tick.at), tick.shown(), tick.changed);
                last_shown = tick.at;
            }
        };
        loop {
            wiring.heartbeat.beat();
            while let Ok(change) = wiring.control.try_recv() {
                apply(&mut sensing, change);
                wiring.board.show(None, sensing.shown(), true);
            }
            match wiring.queue.pop(&mut slot, PATIENCE) {
                Popped::Frame => {
                    if let TimeBase::Clock(clock) = &wiring.time {
                        wiring.lag_micros.store(clock.now().0 - slot.host_time.0, Ordering::Relaxed);
                    }
                    sensing.frame(&slot, &mut on_tick);
                }
                Popped::Timeout => {
                    if let TimeBase::Clock(clock) = &wiring.time {
                        sensing.advance(clock.now(), &mut on_tick);
                    }
                }
                Popped::Closed => break,
            }
        }
        wiring.board.show(None, sensing.shown(), true);
    })
}

fn apply(sensing: &mut Sensing, change: Control) {
    match change {
        Control::Reconfigure(new) => sensing.reconfigure(*new),
        Control::SetHold(zone, seconds) => {
            if !sensing.set_hold(&zone, seconds) {
                tracing::warn!(zone, "hold time for a zone that is not configured");
            }
        }
        Control::SetSensitivity(zone, factor) => {
            if !sensing.set_sensitivity(&zone, factor) {
                tracing::warn!(zone, "sensitivity for a zone that is not configured");
            }
        }
    }
}
