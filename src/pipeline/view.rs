//! What the sensing thread shows the rest of the program: the latest zone states. Latest value wins.

use std::sync::Mutex;

use tokio::sync::Notify;

use crate::event::{ZoneState, Zones};
use crate::head::{HeadStage, HeadStats};
use crate::track::{Lifecycle, Placement, Tracker};
use crate::types::SensingTime;

/// One zone as the sensing thread has it.
#[derive(Debug, Clone)]
pub(super) struct ZoneNow {
    /// State.
    pub state: ZoneState,
    /// Hold time in force, seconds.
    pub hold_s: f32,
    /// Sensitivity in force.
    pub sensitivity: f32,
}

/// One track as the sensing thread has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct TrackNow {
    pub id: u64,
    pub zone: u16,
    pub lifecycle: Lifecycle,
    pub born: SensingTime,
    pub seen: SensingTime,
    pub placement: Option<Placement>,
    pub tokens: u64,
    pub cache_bytes: u64,
}

/// Everything shown at one moment.
#[derive(Debug, Clone, Default)]
pub(super) struct View {
    /// Zones in the order of the configuration.
    pub zones: Vec<ZoneNow>,
    /// People that are followed, oldest first.
    pub tracks: Vec<TrackNow>,
    /// Tracks without a place for a cache, and tracks not begun, since start.
    pub tracks_refused: [u64; 2],
    /// Numbers of the temporal head.
    pub head: Option<HeadStats>,
    /// The last tick.
    pub at: SensingTime,
}

/// The stages whose state is shown.
#[derive(Clone, Copy)]
pub(super) struct Shown<'a> {
    pub zones: &'a Zones,
    pub tracker: &'a Tracker,
    pub head: Option<&'a HeadStage>,
}

/// The place where it is shown.
#[derive(Debug, Default)]
pub(super) struct Board {
    view: Mutex<View>,
    changed: Notify,
}

impl Board {
    /// Shows the stages as of `at` (`None`: the time shown stays). Reuses what is there, so that an unchanged set of
    /// zones allocates nothing.
    pub(super) fn show(&self, at: Option<SensingTime>, shown: Shown<'_>, wake: bool) {
        let Shown { zones, tracker, head } = shown;
        let mut view = self.view.lock().expect("no holder panics");
        view.head = head.map(HeadStage::stats);
        let figures = tracker.stats();
        view.tracks_refused = [figures.without_slot, figures.not_begun];
        view.tracks.clear();
        view.tracks.extend(tracker.tracks().iter().map(|t| {
            let cached = head.and_then(|h| h.cached(t.id)).unwrap_or_default();
            TrackNow {
                id: t.id.0,
                zone: t.zone,
                lifecycle: t.lifecycle,
                born: t.born,
                seen: t.seen,
                placement: t.placement,
                tokens: cached.tokens,
                cache_bytes: cached.bytes,
            }
        }));
        view.at = at.unwrap_or(view.at);
        let tuning = |i| zones.tuning(i).unwrap_or((0.0, 1.0));
        if view.zones.len() == zones.states().len() {
            for (i, (old, new)) in view.zones.iter_mut().zip(zones.states()).enumerate() {
                if old.state.zone != new.zone {
                    old.state.zone.clone_from(&new.zone);
                }
                let zone = std::mem::take(&mut old.state.zone);
                old.state = ZoneState { zone, ..*new };
                (old.hold_s, old.sensitivity) = tuning(i);
            }
        } else {
            view.zones.clear();
            view.zones.extend(zones.states().enumerate().map(|(i, state)| {
                let (hold_s, sensitivity) = tuning(i);
                ZoneNow { state: state.clone(), hold_s, sensitivity }
            }));
        }
        drop(view);
        if wake {
            self.changed.notify_one();
        }
    }

    /// A copy of what is shown.
    pub(super) fn read(&self) -> View {
        self.view.lock().expect("no holder panics").clone()
    }

    /// Waits until something changed.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}
