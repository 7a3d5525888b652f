//! The thread that writes the journal, so that the sensing thread never waits for a disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Event, EventDraft, Journal, JournalError};

/// How often housekeeping runs while no events come.
const TICK: Duration = Duration::from_secs(1);

/// The sensing side of the journal thread. Cheap to clone; the thread ends when the last one is dropped.
#[derive(Debug, Clone)]
pub struct DraftSender {
    drafts: SyncSender<EventDraft>,
    refused: Arc<AtomicU64>,
}

impl DraftSender {
    /// Hands an event to the journal thread without waiting. False, and counted, if the thread is so far behind that
    /// its queue is full.
    pub fn send(&self, draft: EventDraft) -> bool {
        match self.drafts.try_send(draft) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                false
            }
        }
    }

    /// Events refused because the queue was full.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// Starts the journal thread. `capacity` is the number of drafts that may wait for the disk; `stored` is called on the
/// thread for each event with its id, after it was stored (or kept in memory, see [`JournalError::Kept`]).
///
/// # Errors
/// The system's, if no thread can be started.
pub fn spawn_journal_thread(
    journal: Arc<Journal>,
    capacity: usize,
    stored: impl FnMut(&Event) + Send + 'static,
) -> std::io::Result<(DraftSender, JoinHandle<()>)> {
    let (drafts, incoming) = sync_channel(capacity);
    let thread = std::thread::Builder::new().name("journal".into()).spawn(move || run(&journal, &incoming, stored))?;
    Ok((DraftSender { drafts, refused: Arc::default() }, thread))
}

fn run(journal: &Journal, incoming: &Receiver<EventDraft>, mut stored: impl FnMut(&Event)) {
    let mut failing = false;
    loop {
        match incoming.recv_timeout(TICK) {
            Ok(draft) => match journal.append(draft) {
                Ok(event) => {
                    if std::mem::take(&mut failing) {
                        tracing::warn!("event journal can be written again");
                    }
                    stored(&event);
                }
                Err(JournalError::Kept { event, source }) => {
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(error = %source, "event journal cannot be written, events are kept in memory");
                    }
                    stored(&event);
                }
                Err(error @ JournalError::Open { .. }) => tracing::error!(%error, "event journal"),
            },
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        journal.tick();
    }
    journal.sync();
}
