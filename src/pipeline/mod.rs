//! Wires the stages: threads, bounded queues, shutdown.
//!
//! | file | what |
//! |---|---|
//! | `sensing` | signal -> event, pure: the same for live frames, replays and evaluations |
//! | `intake`, `queue`, `sources` | live input -> decoder -> bounded queue, oldest frame dropped |
//! | `thread` | the sensing thread |
//! | `view`, `snapshot` | what it shows, and what is published of it |
//! | `control`, `tuning` | requests, reload, watchdog; settings made from outside |
//! | `daemon` | all of it, started and stopped in order |

mod control;
mod daemon;
mod intake;
mod nodes;
mod queue;
mod sensing;
mod snapshot;
mod sources;
mod thread;
mod tuning;
mod view;
mod wall;

pub use control::Reload;
pub use daemon::{Daemon, DaemonError, Feed, PacedFeed};
pub use intake::Intake;
pub use nodes::{Directory, NodeIdentity, NodeSettings, TransmitterSettings};
pub use queue::{FrameQueue, Popped};
pub use sensing::{Sensing, Setup, TickView};
pub use wall::rfc3339;
