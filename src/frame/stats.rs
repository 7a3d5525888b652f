//! Counts per node: frames, rejects by reason, other packets, sequence numbers, rate, last seen.
//!
//! Fed with every item that a decoder gives. A node comes into being by an accepted frame; items of unknown addresses, and
//! of nodes beyond the limit, go to one common overflow count, so that junk cannot grow the memory.

use std::collections::HashMap;

use super::memory::seq_distance;
use super::{Chip, CsiFrame, Item, Other, Reject};
use crate::types::{NodeKey, SensingTime};

/// What the frames of a node say about its radio; a value that a frame does not carry stays as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LastFrame {
    /// Received signal strength.
    pub rssi_dbm: Option<i8>,
    /// Noise floor.
    pub noise_dbm: Option<i8>,
    /// Primary channel number.
    pub channel: Option<u8>,
    /// Chip of the board.
    pub chip: Option<Chip>,
    /// The frames are numbered.
    pub numbered: bool,
}

impl LastFrame {
    fn keep(&mut self, frame: &CsiFrame) {
        self.rssi_dbm = frame.rssi_dbm.or(self.rssi_dbm);
        self.noise_dbm = frame.noise_dbm.or(self.noise_dbm);
        self.channel = frame.channel.or_else(|| frame.freq_mhz.and_then(channel_of)).or(self.channel);
        self.chip = frame.chip.or(self.chip);
        self.numbered |= frame.seq.is_some();
    }
}

/// Channel number of a centre frequency in MHz (IEEE 802.11, 2.4 and 5 GHz).
fn channel_of(freq_mhz: u16) -> Option<u8> {
    match freq_mhz {
        2484 => Some(14),
        2412..=2472 if (freq_mhz - 2407).is_multiple_of(5) => u8::try_from((freq_mhz - 2407) / 5).ok(),
        5180..=5885 if (freq_mhz - 5000).is_multiple_of(5) => u8::try_from((freq_mhz - 5000) / 5).ok(),
        _ => None,
    }
}

/// Counts of one node, or of everything that belongs to none.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeStats {
    /// Accepted frames.
    pub frames: u64,
    rejects: [u64; Reject::ALL.len()],
    others: [u64; Other::ALL.len()],
    /// Sequence numbers that never came. A board may use numbers up without sending (RuView does when it limits its
    /// rate), so this is not proof of loss on the network.
    pub missing: u64,
    /// Frames that came after a later one.
    pub reordered: u64,
    /// Times the sequence began anew: the board, or its sender, restarted.
    pub restarts: u64,
    /// First item.
    pub first_seen: Option<SensingTime>,
    /// Last accepted frame.
    pub last_frame: Option<SensingTime>,
    /// Last item of any kind.
    pub last_seen: Option<SensingTime>,
    /// What the last accepted frame said about the radio.
    pub last: LastFrame,
    seq: SeqTrack,
    rate: Rate,
}

impl Default for NodeStats {
    fn default() -> Self {
        Self {
            frames: 0,
            rejects: [0; Reject::ALL.len()],
            others: [0; Other::ALL.len()],
            missing: 0,
            reordered: 0,
            restarts: 0,
            first_seen: None,
            last_frame: None,
            last_seen: None,
            last: LastFrame::default(),
            seq: SeqTrack::default(),
            rate: Rate::default(),
        }
    }
}

impl NodeStats {
    /// Rejects for this reason.
    pub fn rejected(&self, reason: Reject) -> u64 {
        self.rejects[reason as usize]
    }

    /// Rejects for any reason.
    pub fn rejected_total(&self) -> u64 {
        self.rejects.iter().sum()
    }

    /// Other packets and lines of this kind.
    pub fn other(&self, kind: Other) -> u64 {
        self.others[kind as usize]
    }

    /// Frames per second at `now`, over the last ten seconds or so; 0 for a silent node.
    pub fn rate_hz(&self, now: SensingTime) -> f64 {
        self.rate.at(now)
    }

    fn observe(&mut self, at: SensingTime, item: &Item<'_>) {
        self.first_seen.get_or_insert(at);
        self.last_seen = Some(self.last_seen.map_or(at, |last| last.max(at)));
        match item {
            Item::Frame(frame) => {
                self.frames += 1;
                self.last_frame = Some(self.last_frame.map_or(at, |last| last.max(at)));
                self.rate.add(at);
                self.last.keep(frame);
                self.track(frame);
            }
            Item::Other(other) => self.others[*other as usize] += 1,
            Item::Reject(reject) => self.rejects[*reject as usize] += 1,
        }
    }

    fn track(&mut self, frame: &CsiFrame) {
        let Some(seq) = frame.seq else { return };
        match self.seq.step(seq, frame.seq_bits) {
            Step::Ahead(missing) => self.missing += missing,
            Step::Late { was_missing } => {
                self.reordered += 1;
                self.missing = self.missing.saturating_sub(u64::from(was_missing));
            }
            Step::Restart => self.restarts += 1,
        }
    }

    fn add(&mut self, other: &Self) {
        self.frames += other.frames;
        for (sum, n) in self.rejects.iter_mut().zip(other.rejects) {
            *sum += n;
        }
        for (sum, n) in self.others.iter_mut().zip(other.others) {
            *sum += n;
        }
        self.missing += other.missing;
        self.reordered += other.reordered;
        self.restarts += other.restarts;
        self.first_seen = self.first_seen.into_iter().chain(other.first_seen).min();
        self.last_frame = self.last_frame.max(other.last_frame);
        self.last_seen = self.last_seen.max(other.last_seen);
    }
}

enum Step {
    /// So many numbers were left out.
    Ahead(u64),
    Late {
        was_missing: bool,
    },
    Restart,
}

/// Follows one counter of 8 or 32 bits.
///
/// Some firmwares count twice per frame. The stride is the smallest step of the first frames; a smaller one later takes its
/// place. Steps up to then are only summed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct SeqTrack {
    newest: Option<u32>,
    stride: u64,
    learning: u8,
    frames: u64,
    sum: u64,
}

impl SeqTrack {
    const LEARNING: u8 = 16;
    /// Further back than this is a restart, not reordering on a network.
    const LATE: i64 = 64;
    /// Further ahead than this is a restart too: a counter that was reset, not a gap.
    const GAP: i64 = 100_000;

    fn step(&mut self, seq: u32, bits: u8) -> Step {
        let Some(newest) = self.newest else {
            self.newest = Some(seq);
            return Step::Ahead(0);
        };
        let distance = seq_distance(newest, seq, bits);
        if !(-Self::LATE..=Self::GAP).contains(&distance) {
            *self = Self { newest: Some(seq), ..Self::default() };
            return Step::Restart;
        }
        if distance <= 0 {
            // Within the first frames nothing was counted as missing yet.
            return Step::Late { was_missing: self.learning >= Self::LEARNING };
        }
        self.newest = Some(seq);
        let distance = distance as u64;
        self.stride = if self.stride == 0 { distance } else { self.stride.min(distance) };
        if self.learning < Self::LEARNING {
            self.learning += 1;
            self.frames += 1;
            self.sum += distance;
            if self.learning < Self::LEARNING {
                return Step::Ahead(0);
            }
            return Step::Ahead((self.sum / self.stride).saturating_sub(self.frames));
        }
        Step::Ahead((distance / self.stride).saturating_sub(1))
    }
}

/// Frames per second as an exponential mean with a memory of [`Self::MEMORY_SECS`], right from the second frame on.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Rate {
    since: Option<SensingTime>,
    last: SensingTime,
    weight: f64,
}

impl Rate {
    const MEMORY_SECS: f64 = 5.0;

    fn decay(secs: f64) -> f64 {
        (-secs.max(0.0) / Self::MEMORY_SECS).exp()
    }

    fn add(&mut self, at: SensingTime) {
        let Some(since) = self.since else {
            // The first frame opens the time that is counted over, and is not counted itself.
            *self = Self { since: Some(at), last: at, weight: 0.0 };
            return;
        };
        // After a long silence the mean begins anew; otherwise the rate would take its memory to recover.
        if at.secs_since(self.last) > 4.0 * Self::MEMORY_SECS || at < since {
            *self = Self { since: Some(at), last: at, weight: 0.0 };
            return;
        }
        self.weight = self.weight * Self::decay(at.secs_since(self.last)) + 1.0;
        self.last = self.last.max(at);
    }

    fn at(&self, now: SensingTime) -> f64 {
        let Some(since) = self.since else { return 0.0 };
        let covered = Self::MEMORY_SECS * (1.0 - Self::decay(now.secs_since(since)));
        if covered <= 0.0 { 0.0 } else { self.weight * Self::decay(now.secs_since(self.last)) / covered }
    }
}

/// Counts of all nodes.
#[derive(Debug, Clone)]
pub struct FrameStats {
    max_nodes: usize,
    nodes: HashMap<NodeKey, NodeStats>,
    overflow: NodeStats,
}

impl FrameStats {
    /// With room for so many nodes.
    pub fn new(max_nodes: usize) -> Self {
        Self { max_nodes, nodes: HashMap::with_capacity(max_nodes.min(1024)), overflow: NodeStats::default() }
    }

    /// Counts one item of a decoder.
    pub fn observe(&mut self, key: NodeKey, at: SensingTime, item: &Item<'_>) {
        if let Some(stats) = self.nodes.get_mut(&key) {
            return stats.observe(at, item);
        }
        if matches!(item, Item::Frame(_)) && self.nodes.len() < self.max_nodes {
            self.nodes.entry(key).or_default().observe(at, item);
        } else {
            self.overflow.observe(at, item);
        }
    }

    /// The known nodes, in no order.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeKey, &NodeStats)> {
        self.nodes.iter()
    }

    /// Counts of one node.
    pub fn node(&self, key: &NodeKey) -> Option<&NodeStats> {
        self.nodes.get(key)
    }

    /// Forgets nodes without an item since `limit`; their counts stay in the overflow, so that totals never fall.
    pub fn forget_silent(&mut self, limit: SensingTime) {
        let overflow = &mut self.overflow;
        self.nodes.retain(|_, stats| {
            let keep = stats.last_seen >= Some(limit);
            if !keep {
                overflow.add(stats);
            }
            keep
        });
    }

    /// Counts of everything that belongs to no known node.
    pub fn overflow(&self) -> &NodeStats {
        &self.overflow
    }

    /// Sum over all nodes and the overflow; its rate is 0.
    pub fn total(&self) -> NodeStats {
        let mut sum = NodeStats::default();
        for stats in self.nodes.values().chain([&self.overflow]) {
            sum.add(stats);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const NODE: NodeKey = NodeKey::Serial { port: 1 };

    fn feed(seqs: impl IntoIterator<Item = u32>, bits: u8) -> NodeStats {
        let mut stats = FrameStats::new(4);
        let mut frame = CsiFrame::empty(NODE);
        frame.seq_bits = bits;
        for (i, seq) in seqs.into_iter().enumerate() {
            frame.seq = Some(seq);
            stats.observe(NODE, SensingTime(i as i64 * 10_000), &Item::Frame(&frame));
        }
        stats.node(&NODE).unwrap().clone()
    }

    #[test]
    fn sequences() {
        let all = feed(0..100, 32);
        assert_eq!((all.missing, all.reordered, all.restarts), (0, 0, 0));
        let gap = feed((0..50).chain(53..100), 32);
        assert_eq!((gap.missing, gap.reordered, gap.restarts), (3, 0, 0));
        let early_gap = feed((0..5).chain(1005..1100), 32);
        assert_eq!(early_gap.missing, 1000);
        let twice = feed((0..200).step_by(2).filter(|n| *n != 120), 32);
        assert_eq!((twice.missing, twice.restarts), (1, 0), "a firmware that counts two per frame");
        let wrap = feed((u32::MAX - 20..=u32::MAX).chain(0..20), 32);
        assert_eq!((wrap.missing, wrap.restarts), (0, 0));
        let small = feed((0..600).filter(|n| n % 100 != 99).map(|n| n % 256), 8);
        assert_eq!((small.missing, small.restarts), (5, 0));
        let sign = feed((0x7FFF_FFF0..=0x8000_0010).chain([0]), 32);
        assert_eq!((sign.missing, sign.restarts), (0, 1), "31-bit sign is no gap, a fall to 0 is a restart");
        let swapped = feed((0..30).chain([31, 30]).chain(32..40), 32);
        assert_eq!((swapped.missing, swapped.reordered), (0, 1));
        let reboot = feed((0..1000).chain(0..10), 32);
        assert_eq!((reboot.missing, reboot.restarts), (0, 1));
    }

    #[test]
    fn rate_follows_and_dies_away() {
        let mut stats = FrameStats::new(4);
        let frame = CsiFrame::empty(NODE);
        let rate = |stats: &FrameStats, now: i64| stats.node(&NODE).unwrap().rate_hz(SensingTime(now));
        for i in 0..=300 {
            stats.observe(NODE, SensingTime(i * 10_000), &Item::Frame(&frame));
            if i == 50 {
                assert!((rate(&stats, i * 10_000) - 100.0).abs() < 3.0, "half a second in");
            }
        }
        assert!((rate(&stats, 3_000_000) - 100.0).abs() < 1.0);
        assert!(rate(&stats, 33_000_000) < 1.0);
        stats.observe(NODE, SensingTime(60_000_000), &Item::Frame(&frame));
        assert_eq!(rate(&stats, 60_000_000), 0.0);
    }

    #[test]
    fn junk_makes_no_node_and_total_never_falls() {
        let mut stats = FrameStats::new(2);
        let at = SensingTime(5);
        for port in 0..10 {
            stats.observe(NodeKey::Serial { port }, at, &Item::Reject(Reject::UnknownMagic));
        }
        assert_eq!(stats.nodes().count(), 0);
        assert_eq!(stats.overflow().rejected(Reject::UnknownMagic), 10);
        for port in 0..10 {
            let key = NodeKey::Serial { port };
            stats.observe(key, at, &Item::Frame(&CsiFrame::empty(key)));
        }
        assert_eq!(stats.nodes().count(), 2);
        stats.observe(NodeKey::Serial { port: 0 }, at, &Item::Other(Other::Blank));
        let before = stats.total();
        assert_eq!((before.frames, before.rejected_total(), before.other(Other::Blank)), (10, 10, 1));
        stats.forget_silent(SensingTime(6));
        assert_eq!(stats.nodes().count(), 0);
        assert_eq!((stats.total().frames, stats.total().other(Other::Blank)), (10, 1));
    }
}
