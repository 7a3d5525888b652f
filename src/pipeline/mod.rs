//! Wires the stages: threads, bounded queues, shutdown.

mod nodes;
mod queue;
mod sensing;

pub use nodes::{Directory, NodeIdentity, NodeSettings};
pub use queue::{FrameQueue, Popped};
pub use sensing::{Sensing, TickView};
