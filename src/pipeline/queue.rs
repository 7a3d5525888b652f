//! The queue of frames between the sources and the sensing thread: bounded, drops the oldest, allocates only at start.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use crate::frame::CsiFrame;
use crate::types::NodeKey;

/// A bounded queue of frames. Frames are copied into slots that are made once and go round.
#[derive(Debug)]
pub struct FrameQueue {
    inner: Mutex<Inner>,
    ready: Condvar,
    room: Condvar,
}

#[derive(Debug)]
struct Inner {
    waiting: VecDeque<CsiFrame>,
    free: Vec<CsiFrame>,
    dropped: u64,
    dropped_by_node: Vec<(NodeKey, u64)>,
    closed: bool,
}

/// Most nodes whose drops are counted one by one.
const MAX_COUNTED_NODES: usize = 256;

/// What waiting for a frame brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Popped {
    /// A frame, now in the caller's slot.
    Frame,
    /// Nothing came in time.
    Timeout,
    /// The queue is closed and empty.
    Closed,
}

impl FrameQueue {
    /// A queue with room for `capacity` frames (at least one).
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        let slot = || CsiFrame::empty(NodeKey::Serial { port: 0 });
        Self {
            inner: Mutex::new(Inner {
                waiting: VecDeque::with_capacity(capacity),
                free: (0..capacity).map(|_| slot()).collect(),
                dropped: 0,
                dropped_by_node: Vec::with_capacity(MAX_COUNTED_NODES),
                closed: false,
            }),
            ready: Condvar::new(),
            room: Condvar::new(),
        }
    }

    /// Copies a frame in. When the queue is full, the oldest frame is dropped and counted for its node.
    pub fn push(&self, frame: &CsiFrame) {
        let mut inner = self.inner.lock().expect("no holder panics");
        if inner.closed {
            return;
        }
        let mut slot = match inner.free.pop() {
            Some(slot) => slot,
            None => {
                let oldest = inner.waiting.pop_front().expect("no slot is free, so every slot waits");
                inner.count_drop(oldest.node);
                oldest
            }
        };
        slot.copy_from(frame);
        inner.waiting.push_back(slot);
        drop(inner);
        self.ready.notify_one();
    }

    /// Waits until a frame can be pushed without dropping one, or the queue is closed.
    pub fn wait_for_room(&self) {
        let inner = self.inner.lock().expect("no holder panics");
        drop(self.room.wait_while(inner, |i| i.free.is_empty() && !i.closed).expect("no holder panics"));
    }

    /// Takes the oldest frame into `slot`, waiting at most `patience` for one.
    pub fn pop(&self, slot: &mut CsiFrame, patience: Duration) -> Popped {
        let inner = self.inner.lock().expect("no holder panics");
        let (mut inner, _) = self
            .ready
            .wait_timeout_while(inner, patience, |i| i.waiting.is_empty() && !i.closed)
            .expect("no holder panics");
        match inner.waiting.pop_front() {
            Some(mut frame) => {
                std::mem::swap(slot, &mut frame);
                inner.free.push(frame);
                drop(inner);
                self.room.notify_one();
                Popped::Frame
            }
            None if inner.closed => Popped::Closed,
            None => Popped::Timeout,
        }
    }

    /// No more frames come; what waits is still given out.
    pub fn close(&self) {
        self.inner.lock().expect("no holder panics").closed = true;
        self.ready.notify_all();
        self.room.notify_all();
    }

    /// Frames that wait now.
    pub fn depth(&self) -> usize {
        self.inner.lock().expect("no holder panics").waiting.len()
    }

    /// Frames dropped since the start.
    pub fn dropped(&self) -> u64 {
        self.inner.lock().expect("no holder panics").dropped
    }

    /// Frames of one node dropped since the start.
    pub fn dropped_of(&self, node: NodeKey) -> u64 {
        let inner = self.inner.lock().expect("no holder panics");
        inner.dropped_by_node.iter().find(|(n, _)| *n == node).map_or(0, |(_, c)| *c)
    }
}

impl Inner {
    fn count_drop(&mut self, node: NodeKey) {
        self.dropped += 1;
        if let Some((_, count)) = self.dropped_by_node.iter_mut().find(|(n, _)| *n == node) {
            *count += 1;
        } else if self.dropped_by_node.len() < MAX_COUNTED_NODES {
            self.dropped_by_node.push((node, 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::SensingTime;

    fn frame(port: u16, at: i64) -> CsiFrame {
        let mut f = CsiFrame::empty(NodeKey::Serial { port });
        f.host_time = SensingTime(at);
        f.values.extend([1, 2, 3, 4]);
        f
    }

    #[test]
    fn the_oldest_is_dropped_and_counted_for_its_node() {
        let queue = FrameQueue::new(3);
        (0..5).for_each(|i| queue.push(&frame(i as u16 % 2, i)));
        assert_eq!((queue.depth(), queue.dropped()), (3, 2));
        assert_eq!(queue.dropped_of(NodeKey::Serial { port: 0 }), 1);
        assert_eq!(queue.dropped_of(NodeKey::Serial { port: 1 }), 1);
        let mut slot = frame(9, 0);
        for expected in 2..5 {
            assert_eq!(queue.pop(&mut slot, Duration::ZERO), Popped::Frame);
            assert_eq!(slot, frame(expected as u16 % 2, expected));
        }
        assert_eq!(queue.pop(&mut slot, Duration::ZERO), Popped::Timeout);
    }

    #[test]
    fn closing_gives_out_what_waits_and_wakes_the_reader() {
        let queue = FrameQueue::new(2);
        queue.push(&frame(0, 1));
        std::thread::scope(|s| {
            let reader = s.spawn(|| {
                let mut slot = frame(0, 0);
                let first = queue.pop(&mut slot, Duration::from_secs(30));
                let second = queue.pop(&mut slot, Duration::from_secs(30));
                (first, second)
            });
            queue.close();
            assert_eq!(reader.join().expect("the reader ends"), (Popped::Frame, Popped::Closed));
        });
        queue.push(&frame(0, 2));
        assert_eq!(queue.depth(), 0, "a closed queue takes nothing");
    }
}
