//! The service manager: ready, status, watchdog.
//!
//! The watchdog is fed only while the sensing thread turns: it stamps a [`Heartbeat`] on every round, and a stamp
//! older than the watchdog's period means that nothing is fed any more, so systemd restarts the service.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// A stamp that the sensing thread renews on every round.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    start: Instant,
    millis: Arc<AtomicU64>,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self { start: Instant::now(), millis: Arc::new(AtomicU64::new(0)) }
    }
}

impl Heartbeat {
    /// Renews the stamp.
    pub fn beat(&self) {
        self.millis.store(self.start.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// Time since the last stamp.
    pub fn age(&self) -> Duration {
        self.start.elapsed().saturating_sub(Duration::from_millis(self.millis.load(Ordering::Relaxed)))
    }
}

/// systemd, where it is the parent; otherwise every call does nothing.
#[derive(Debug, Default)]
pub struct ServiceManager {
    last_status: String,
}

impl ServiceManager {
    /// Period of the watchdog, where one is set.
    pub fn watchdog_period(&self) -> Option<Duration> {
        sd_notify::watchdog_enabled()
    }

    /// The daemon is ready.
    pub fn ready(&self) {
        Self::send(&[NotifyState::Ready]);
    }

    /// The daemon reads its configuration again; followed by [`Self::ready`].
    pub fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(stamp) => Self::send(&[NotifyState::Reloading, stamp]),
            Err(_) => Self::send(&[NotifyState::Reloading]),
        }
    }

    /// The daemon stops.
    pub fn stopping(&self) {
        Self::send(&[NotifyState::Stopping]);
    }

    /// One line for `systemctl status`; sent only when it changes.
    pub fn status(&mut self, line: &str) {
        if self.last_status != line {
            Self::send(&[NotifyState::Status(line)]);
            self.last_status = line.to_owned();
        }
    }

    /// Feeds the watchdog if the heart beats. Returns whether it was fed.
    pub fn feed(&self, heart: &Heartbeat) -> bool {
        let alive = self.watchdog_period().is_none_or(|period| heart.age() < period / 2);
        if alive {
            Self::send(&[NotifyState::Watchdog]);
        }
        alive
    }

    fn send(states: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(states) {
            tracing::debug!(%error, "the service manager was not reached");
        }
    }
}
