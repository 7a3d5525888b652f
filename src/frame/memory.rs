//! What the decoder remembers of one node: bin orders, frames seen lately, and the relation of sequence to board time.

use super::order::OrderMemory;
use super::shape::Identity;
use crate::types::{MacAddr, SensingTime};

/// A copy that comes later than this after the last frame is a restarted counter, not a copy.
const COPY_WITHIN_SECS: f64 = 0.5;
const STAMPS: usize = 8;

/// Memory of one node.
#[derive(Debug, Clone)]
pub(super) struct NodeMemory {
    pub(super) orders: OrderMemory,
    stamps: [Option<(Option<MacAddr>, u64)>; STAMPS],
    next_stamp: usize,
    window: Option<SeqWindow>,
    pub(super) sync: SyncMap,
    pub(super) last_seen: SensingTime,
}

impl NodeMemory {
    pub(super) fn new(at: SensingTime) -> Self {
        Self {
            orders: OrderMemory::default(),
            stamps: [None; STAMPS],
            next_stamp: 0,
            window: None,
            sync: SyncMap::default(),
            last_seen: at,
        }
    }

    /// Remembers the frame; true if it was seen before.
    pub(super) fn is_copy(&mut self, transmitter: Option<MacAddr>, identity: Identity, at: SensingTime) -> bool {
        match identity {
            Identity::None => false,
            Identity::Stamp(stamp) => {
                let entry = Some((transmitter, stamp));
                if self.stamps.contains(&entry) {
                    return true;
                }
                self.stamps[self.next_stamp] = entry;
                self.next_stamp = (self.next_stamp + 1) % STAMPS;
                false
            }
            Identity::Seq(seq, bits) => {
                let recent = at.secs_since(self.last_seen).abs() <= COPY_WITHIN_SECS;
                match &mut self.window {
                    Some(window) => window.is_copy(seq, bits, recent),
                    none => {
                        *none = Some(SeqWindow { newest: seq, seen: 1 });
                        false
                    }
                }
            }
        }
    }
}

/// Signed distance from `from` to `to` on a counter of `bits` bits.
pub(super) fn seq_distance(from: u32, to: u32, bits: u8) -> i64 {
    match bits {
        8 => i64::from((to as u8).wrapping_sub(from as u8) as i8),
        _ => i64::from(to.wrapping_sub(from) as i32),
    }
}

/// Which of the last 64 sequence numbers were seen.
#[derive(Debug, Clone, Copy)]
struct SeqWindow {
    newest: u32,
    /// Bit n: `newest - n` was seen.
    seen: u64,
}

impl SeqWindow {
    fn is_copy(&mut self, seq: u32, bits: u8, recent: bool) -> bool {
        let distance = seq_distance(self.newest, seq, bits);
        match distance {
            1..=63 => {
                self.seen = self.seen << distance | 1;
                self.newest = seq;
                false
            }
            -63..=0 => {
                let bit = 1u64 << -distance;
                if self.seen & bit == 0 {
                    self.seen |= bit;
                    return false;
                }
                if recent {
                    return true;
                }
                *self = Self { newest: seq, seen: 1 };
                false
            }
            _ => {
                *self = Self { newest: seq, seen: 1 };
                false
            }
        }
    }
}

/// Board time of a frame from its sequence number, learned from the board's time-sync packets.
///
/// Each packet names the highest sequence number so far and the board's time. Between packets the time is extrapolated
/// at the last pace. That is only as good as the pace is even, so it is used only while the last packets came where the
/// extrapolation expected them; otherwise a frame has no device time, and its arrival counts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SyncMap {
    last: Option<(u32, u64)>,
    micros_per_frame: f64,
    good: u8,
}

impl SyncMap {
    const TOLERANCE_MICROS: f64 = 5_000.0;
    const GOOD_NEEDED: u8 = 3;
    const REACH: i64 = 60;

    pub(super) fn learn(&mut self, seq: u32, board_us: u64) {
        let before = self.last.replace((seq, board_us));
        let Some((old_seq, old_us)) = before else { return };
        let frames = seq_distance(old_seq, seq, 32);
        if !(1..=10_000).contains(&frames) || board_us <= old_us {
            *self = Self { last: self.last, ..Self::default() };
            return;
        }
        let elapsed = (board_us - old_us) as f64;
        let error = (self.micros_per_frame * frames as f64 - elapsed).abs();
        self.good = if error <= Self::TOLERANCE_MICROS { self.good.saturating_add(1) } else { 0 };
        self.micros_per_frame = elapsed / frames as f64;
    }

    pub(super) fn board_us(&self, seq: u32) -> Option<u64> {
        let (last_seq, last_us) = self.last?;
        let ahead = seq_distance(last_seq, seq, 32);
        (self.good >= Self::GOOD_NEEDED && (0..=Self::REACH).contains(&ahead))
            .then(|| last_us.saturating_add((self.micros_per_frame * ahead as f64) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copies(seqs: &[u32], bits: u8, step_micros: i64) -> Vec<bool> {
        let mut memory = NodeMemory::new(SensingTime(0));
        seqs.iter()
            .enumerate()
            .map(|(i, &seq)| {
                let at = SensingTime(i as i64 * step_micros);
                let copy = memory.is_copy(None, Identity::Seq(seq, bits), at);
                memory.last_seen = at;
                copy
            })
            .collect()
    }

    #[test]
    fn copies_are_found_and_reordering_wrap_and_restart_are_not() {
        assert_eq!(copies(&[5, 6, 6, 8, 7, 7], 32, 20_000), [false, false, true, false, false, true]);
        assert_eq!(copies(&[u32::MAX - 1, u32::MAX, 0, 1], 32, 20_000), [false; 4]);
        assert_eq!(copies(&[254, 255, 0, 1, 0], 8, 20_000), [false, false, false, false, true]);
        assert_eq!(copies(&[1000, 1001, 0, 1], 32, 20_000), [false; 4], "restart");
        assert_eq!(copies(&[10, 11, 10], 32, 2_000_000), [false; 3], "restart soon after a start, seconds later");
    }

    #[test]
    fn the_same_stamp_of_another_transmitter_is_no_copy() {
        let mut memory = NodeMemory::new(SensingTime(0));
        let (a, b) = (Some(MacAddr([1; 6])), Some(MacAddr([2; 6])));
        assert!(!memory.is_copy(a, Identity::Stamp(9), SensingTime(0)));
        assert!(!memory.is_copy(b, Identity::Stamp(9), SensingTime(0)));
        assert!(memory.is_copy(a, Identity::Stamp(9), SensingTime(0)));
        assert!(!memory.is_copy(a, Identity::Stamp(10), SensingTime(0)));
    }

    #[test]
    fn board_time_holds_while_the_pace_is_even() {
        let mut map = SyncMap::default();
        for i in 0..5u32 {
            assert_eq!(map.board_us(i * 20 + 1), None);
            map.learn(i * 20, 1_000_000 + u64::from(i) * 400_000);
        }
        assert_eq!(map.board_us(85), Some(2_600_000 + 5 * 20_000));
        assert_eq!(map.board_us(79), None, "behind");
        assert_eq!(map.board_us(200), None, "out of reach");
        map.learn(100, 3_900_000);
        assert_eq!(map.board_us(101), None, "the pace changed");
        map.learn(0, 10_000);
        assert_eq!(map.board_us(1), None, "restart");
    }
}
