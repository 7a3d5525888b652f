//! Makes the [`Snapshot`] that is published and served, of counts, zone states and health.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crate::event::ZoneSettings;
use crate::frame::udp::UdpCounters;
use crate::frame::{FrameStats, NodeStats, Other, Reject};
use crate::head::HeadInfo;
use crate::mqtt::{HeadView, NodeView, Snapshot, TrackView, ZoneView};
use crate::pipeline::nodes::Directory;
use crate::pipeline::queue::FrameQueue;
use crate::pipeline::view::Board;
use crate::pipeline::wall::rfc3339;
use crate::telemetry;
use crate::types::{NodeKey, Provenance, SensingTime};

/// A board silent for an hour is no longer counted one by one.
const FORGET_MICROS: i64 = 3_600_000_000;

/// A board is offline after this much silence, seconds.
const NODE_OFFLINE_S: f64 = 10.0;

/// Seconds between two marks of a board's counts, and how many are kept: loss is told over the last minute.
const MARK_S: f64 = 10.0;
const MARKS: usize = 7;

/// What a snapshot is made of.
pub(super) struct Composer {
    stats: Arc<Mutex<FrameStats>>,
    board: Arc<Board>,
    queue: Arc<FrameQueue>,
    /// Counters of the sockets, for what the list of allowed senders refuses; none in a replay.
    pub(super) sockets: Vec<Arc<UdpCounters>>,
    /// The temporal head in words; `None` without one.
    pub(super) head: Option<HeadInfo>,
    directory: Directory,
    zones: Vec<ZoneSettings>,
    /// Where the frames come from.
    pub source: Provenance,
    started: String,
    marks: Vec<(NodeKey, VecDeque<Mark>)>,
    warned_ids: Vec<u8>,
}

/// Counts of a board at one time.
#[derive(Debug, Clone, Copy)]
struct Mark {
    at: SensingTime,
    frames: u64,
    missing: u64,
}

/// What changes from outside at every composition.
#[derive(Debug, Clone, Default)]
pub(super) struct Moment {
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
    /// A composer of what is shared with the sources (`stats`, `queue`) and the sensing thread (`board`). `zones` are
    /// the configured ones, for their names and areas; `started` is the start as RFC 3339.
    pub(super) fn new(
        stats: Arc<Mutex<FrameStats>>,
        board: Arc<Board>,
        queue: Arc<FrameQueue>,
        directory: Directory,
        zones: Vec<ZoneSettings>,
        source: Provenance,
        started: String,
    ) -> Self {
        let (marks, warned_ids) = (Vec::new(), Vec::new());
        Self {
            stats,
            board,
            queue,
            sockets: Vec::new(),
            head: None,
            directory,
            zones,
            source,
            started,
            marks,
            warned_ids,
        }
    }

    /// New names and zones.
    pub(super) fn rename(&mut self, directory: Directory, zones: Vec<ZoneSettings>) {
        (self.directory, self.zones) = (directory, zones);
    }

    /// No board has given a frame since the start.
    pub(super) fn nothing_heard(&self) -> bool {
        self.stats.lock().expect("no holder panics").nodes().all(|(_, s)| s.frames == 0)
    }

    /// The snapshot of this moment.
    pub(super) fn compose(&mut self, moment: Moment) -> Snapshot {
        // Addresses change; the table of boards has room for those that live.
        let limit = moment.now.plus_micros(-FORGET_MICROS);
        self.stats.lock().expect("no holder panics").forget_silent(limit);
        self.warn_shared_ids();
        let view = self.board.read();
        let tracks = view.tracks.iter().map(|t| TrackView {
            id: t.id,
            zone: view.zones.get(usize::from(t.zone)).map(|z| z.state.zone.clone()).unwrap_or_default(),
            state: t.lifecycle,
            age_s: view.at.secs_since(t.born) as f32,
            unseen_s: view.at.secs_since(t.seen) as f32,
            placement: t.placement,
            tokens: t.tokens,
            cache_bytes: t.cache_bytes,
        });
        let tracks = tracks.collect();
        let head = self.head.as_ref().zip(view.head).map(|(info, stats)| HeadView {
            kernel: info.kernel.clone(),
            weights: info.weights.clone(),
            trained: info.trained,
            policy: info.policy.clone(),
            active_bytes: stats.active_bytes,
            lost_bytes: stats.lost_bytes,
            spare_bytes: stats.spare_bytes,
            budget_bytes: stats.budget_bytes,
            evicted: stats.evicted,
            refused: stats.refused,
            tokens: stats.tokens,
            failed: stats.failed,
        });
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
            tracks,
            tracks_refused: view.tracks_refused,
            head,
            faults: moment.faults,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: self.started.clone(),
            uptime_s: moment.uptime_s,
            memory_bytes: telemetry::resident_bytes(),
            frames_dropped: self.queue.dropped(),
            strangers: self.strangers(),
            others: self.others(),
            events_waiting: moment.events_waiting,
            source: self.source,
        }
    }

    fn nodes(&mut self, moment: &Moment) -> Vec<NodeView> {
        let stats = self.stats.lock().expect("no holder panics");
        let mut nodes: Vec<NodeView> = Vec::new();
        for (key, s) in stats.nodes().filter(|(_, s)| s.frames > 0) {
            let who = self.directory.identify(*key);
            let mut rejects: Vec<(String, u64)> =
                Reject::ALL.iter().map(|r| (r.name().to_owned(), s.rejected(*r))).filter(|(_, n)| *n > 0).collect();
            let dropped = self.queue.dropped_of(*key);
            if dropped > 0 {
                rejects.push(("queue_full".to_owned(), dropped));
            }
            let loss = s.last.numbered.then(|| {
                let mark = Mark { at: moment.now, frames: s.frames, missing: s.missing };
                loss_since_oldest(&mut self.marks, *key, mark)
            });
            nodes.push(NodeView {
                id: who.id,
                name: who.name,
                available: s.last_frame.is_some_and(|t| moment.now.secs_since(t) < NODE_OFFLINE_S),
                mac: who.mac,
                chip: s.last.chip.map(|c| c.name().to_owned()),
                rate_hz: s.rate_hz(moment.now) as f32,
                loss: loss.flatten(),
                rssi_dbm: s.last.rssi_dbm.map(f32::from),
                noise_dbm: s.last.noise_dbm.map(f32::from),
                channel: s.last.channel,
                frames: s.frames,
                rejects,
                last_seen: s.last_frame.map(|t| rfc3339(t, moment.wall_offset)),
            });
        }
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

    /// Old firmware lets every board call itself 1: both work, as they are told apart by address, but it is worth a
    /// word, once per id.
    fn warn_shared_ids(&mut self) {
        let stats = self.stats.lock().expect("no holder panics");
        let mut seen: Vec<(u8, std::net::IpAddr)> = Vec::new();
        for (key, _) in stats.nodes().filter(|(_, s)| s.frames > 0) {
            let NodeKey::Udp { addr, id } = *key else { continue };
            match seen.iter().find(|(i, _)| *i == id) {
                Some((_, other)) if id != 0 && !self.warned_ids.contains(&id) => {
                    tracing::warn!(id, first = %other, second = %addr, "two boards use one id; both work, told apart by address");
                    self.warned_ids.push(id);
                }
                Some(_) => {}
                None => seen.push((id, addr)),
            }
        }
    }

    /// Everything refused that belongs to no accepted board, by reason: junk on the port, wrong formats.
    pub(super) fn strangers(&self) -> Vec<(String, u64)> {
        let mut rejects = refused(self.stats.lock().expect("no holder panics").overflow());
        let not_allowed = self.sockets.iter().map(|s| s.not_allowed()).sum();
        if not_allowed > 0 {
            rejects.push((Reject::NotAllowed.name().to_owned(), not_allowed));
        }
        rejects
    }

    /// Recognised packets without raw CSI, of all boards and strangers, by kind.
    pub(super) fn others(&self) -> Vec<(String, u64)> {
        let total = self.stats.lock().expect("no holder panics").total();
        Other::ALL.iter().map(|o| (o.name().to_owned(), total.other(*o))).filter(|(_, n)| *n > 0).collect()
    }
}

/// Share of frames that are missing by sequence number since the oldest mark (about a minute ago); marks are renewed
/// every [`MARK_S`] seconds. `None` while nothing came since.
fn loss_since_oldest(marks: &mut Vec<(NodeKey, VecDeque<Mark>)>, key: NodeKey, now: Mark) -> Option<f32> {
    let position = match marks.iter().position(|(k, _)| *k == key) {
        Some(i) => i,
        None => {
            marks.push((key, VecDeque::with_capacity(MARKS)));
            marks.len() - 1
        }
    };
    let row = &mut marks[position].1;
    if row.back().is_none_or(|m| now.at.secs_since(m.at) >= MARK_S) {
        if row.len() == MARKS {
            row.pop_front();
        }
        row.push_back(now);
    }
    let oldest = row.front()?;
    let frames = now.frames.saturating_sub(oldest.frames);
    let missing = now.missing.saturating_sub(oldest.missing);
    (frames + missing > 0).then(|| missing as f32 / (frames + missing) as f32)
}

/// Rejects by reason, without the reasons that did not occur.
fn refused(stats: &NodeStats) -> Vec<(String, u64)> {
    Reject::ALL.iter().map(|r| (r.name().to_owned(), stats.rejected(*r))).filter(|(_, n)| *n > 0).collect()
}
