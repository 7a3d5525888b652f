//! Where input enters: decode, count, queue. One intake per source task; counts and queue are shared.

use std::sync::{Arc, Mutex};

use crate::frame::{Captured, Decoder, DecoderSettings, FrameStats, Item, LineHint};
use crate::pipeline::queue::FrameQueue;

/// Decoder of one source with the shared counts and queue.
pub struct Intake {
    decoder: Decoder,
    stats: Arc<Mutex<FrameStats>>,
    queue: Arc<FrameQueue>,
    waits: bool,
}

impl Intake {
    /// An intake that feeds `queue` and counts into `stats`. A live one never waits: a full queue drops its oldest
    /// frame. A recording `waits` instead, so that its result does not depend on the speed of the machine.
    pub fn new(settings: DecoderSettings, stats: Arc<Mutex<FrameStats>>, queue: Arc<FrameQueue>, waits: bool) -> Self {
        Self { decoder: Decoder::new(settings), stats, queue, waits }
    }

    /// Takes one datagram or line.
    pub fn take(&mut self, captured: &Captured<'_>, hint: LineHint) {
        let (stats, queue, waits) = (&self.stats, &self.queue, self.waits);
        self.decoder.captured(captured, hint, &mut |node, item| {
            stats.lock().expect("no holder panics").observe(node, captured.at, &item);
            if let Item::Frame(frame) = item {
                if waits {
                    queue.wait_for_room();
                }
                queue.push(frame);
            }
        });
    }
}
