//! Makes the [`Snapshot`] that is published and served, of counts, zone states and health.

use std::sync::{Arc, Mutex};

use crate::event::ZoneSettings;
use crate::frame::{FrameStats, Other, Reject};
use crate::mqtt::{NodeView, Snapshot, ZoneView};
use crate::pipeline::nodes::Directory;
use crate::pipeline::queue::FrameQueue;
use crate::pipeline::view::Board;
use crate::pipeline::wall::rfc3339;
use crate::telemetry;
use crate::types::{Provenance, SensingTime};

/// A board is offline after this much silence, seconds.
const NODE_OFFLINE_S: f64 = 10.0;

/// What a snapshot is made of.
pub struct Composer {
    /// Counts of the sources.
    pub stats: Arc<Mutex<FrameStats>>,
    /// Zones.
    pub board: Arc<Board>,
    /// The frame queue, for its drops.
    pub queue: Arc<FrameQueue>,
    /// Names.
    pub directory: Directory,
    /// Zones as configured, for their names and areas.
    pub zones: Vec<ZoneSettings>,
    /// Where the frames come from.
    pub source: Provenance,
    /// Start, RFC 3339.
    pub started: String,
}

/// What changes from outside at every composition.
#[derive(Debug, Clone, Default)]
pub struct Moment {
    /// The sensing clock now (a replay's: its last tick).
    pub now: SensingTime,
    /// Wall clock minus sensing clock, microseconds.
    pub wall_offset: i64,
    /// Whole seconds since start.
    pub uptime_s: u64,
    /// Events the broker has not acknowledged.
    pub events_waiting: u64,
    /// What is wrong.
    pub faults: Vec<String>,
}

impl Composer {
    /// The snapshot of this moment.
    pub fn compose(&self, moment: Moment) -> Snapshot {
        let view = self.board.read();
        let zones = view.zones.into_iter().map(|z| {
            let configured = self.zones.iter().find(|c| c.effective_id() == z.state.zone);
            ZoneView {
                name: configured.map_or_else(|| z.state.zone.clone(), |c| c.name.clone()),
                area: configured.and_then(|c| c.area.clone()),
                since: z.state.since.map(|t| rfc3339(t, moment.wall_offset)),
                hold_s: z.hold_s,
                sensitivity: z.sensitivity,
                state: z.state,
            }
        });
        Snapshot {
            zones: zones.collect(),
            nodes: self.nodes(&moment),
            faults: moment.faults,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: self.started.clone(),
            uptime_s: moment.uptime_s,
            memory_bytes: telemetry::resident_bytes(),
            frames_dropped: self.queue.dropped(),
            events_waiting: moment.events_waiting,
            source: self.source,
        }
    }

    fn nodes(&self, moment: &Moment) -> Vec<NodeView> {
        let stats = self.stats.lock().unwrap();
        let mut nodes: Vec<NodeView> = stats
            .nodes()
            .filter(|(_, s)| s.frames > 0)
            .map(|(key, s)| {
                let who = self.directory.identify(*key);
                let mut rejects: Vec<(String, u64)> = Reject::ALL
                    .iter()
                    .map(|r| (r.name().to_owned(), s.rejected(*r)))
                    .filter(|(_, n)| *n > 0)
                    .collect();
                let dropped = self.queue.dropped_of(*key);
                if dropped > 0 {
                    rejects.push(("queue_full".to_owned(), dropped));
                }
                NodeView {
                    id: who.id,
                    name: who.name,
                    available: moment.now.secs_since(s.last_seen) < NODE_OFFLINE_S,
                    mac: who.mac,
                    chip: s.chip.map(|c| format!("{c:?}")),
                    rate_hz: s.rate_hz(moment.now),
                    loss: s.loss(),
                    rssi_dbm: s.rssi_dbm.map(f32::from),
                    noise_dbm: s.noise_dbm.map(f32::from),
                    channel: s.channel,
                    frames: s.frames,
                    rejects,
                    last_seen: Some(rfc3339(s.last_seen, moment.wall_offset)),
                }
            })
            .collect();
        drop(stats);
        nodes.sort_by(|a, b| a.id.cmp(&b.id));
        // Two boards that a configuration entry makes one (address without id) are shown as the livelier one.
        nodes.dedup_by(|b, a| {
            let same = a.id == b.id;
            if same && b.rate_hz > a.rate_hz {
                std::mem::swap(a, b);
            }
            same
        });
        nodes
    }

    /// Everything refused that belongs to no accepted board, by reason: junk on the port, wrong formats.
    pub fn strangers(&self) -> Vec<(&'static str, u64)> {
        let stats = self.stats.lock().unwrap();
        let overflow = stats.overflow();
        let rejects = Reject::ALL.iter().map(|r| (r.name(), overflow.rejected(*r)));
        let others = Other::ALL.iter().map(|o| (o.name(), overflow.other(*o)));
        rejects.chain(others).filter(|(_, n)| *n > 0).collect()
    }
}
