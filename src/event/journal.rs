//! The event journal: drafts of events in, numbered and stored [`Event`]s out, in order and none missing.
//!
//! *In*: [`EventDraft`]s of the zone rules. *Out*: [`Event`]s with an id, durable before they are handed on, and read
//! again from the delivery cursor after a restart. *State*: segment files and the cursor file under the state
//! directory ([`segment`](super::segment) holds their form), a short tail of recent events in memory.
//!
//! Delivery is at least once: the cursor is saved at most once a second, so that after a `kill -9` the last events may
//! be handed out again with the same id, and a subscriber drops the repetition by that id.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::segment::Store;
use super::{Cause, Event, EventKind};
use crate::types::{Provenance, SensingTime};

/// How often the cursor file is written at most.
const CURSOR_INTERVAL: Duration = Duration::from_secs(1);
/// Recent events kept in memory, so that live delivery does not read the disk.
const TAIL_EVENTS: usize = 512;

/// Settings of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JournalSettings {
    /// A segment file is closed when it has grown beyond this many bytes.
    pub segment_bytes: u64,
    /// Fully delivered segments are removed, oldest first, while all segments together exceed this many bytes.
    pub keep_bytes: u64,
    /// Events kept in memory while the disk refuses them.
    pub memory_events: usize,
}

impl Default for JournalSettings {
    fn default() -> Self {
        Self { segment_bytes: 1 << 20, keep_bytes: 16 << 20, memory_events: 4096 }
    }
}

/// Why the journal could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The directory cannot be used at all.
    #[error("cannot open the event journal in {}: make the directory writable for the daemon's user", path.display())]
    Open {
        /// The journal's directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The event is numbered, kept in memory and delivered, but not on disk yet.
    #[error("event {} is kept in memory only, the journal cannot be written: free space or remount the disk", event.id)]
    Kept {
        /// The event with its id.
        event: Box<Event>,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// An event before it has an id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventDraft {
    /// Zone id.
    pub zone: String,
    /// What happened.
    pub kind: EventKind,
    /// When, on the sensing clock; part of the id.
    pub time: SensingTime,
    /// The same time as RFC 3339 with offset, by the wall clock.
    pub at: String,
    /// The measurement behind it.
    pub cause: Cause,
    /// Where the frames come from.
    pub source: Provenance,
}

/// The id of an event: sequence first, so that ids increase even if the clock was set back over a restart; the time
/// keeps them unique should the journal directory be lost and the sequence begin anew.
pub fn event_id(seq: u64, time: SensingTime) -> String {
    format!("{seq:010x}-{:014x}", time.0.max(0))
}

/// An event with its place in the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Sequence number: from 1, one more each time, over restarts too.
    pub seq: u64,
    /// The event.
    pub event: Event,
}

/// Counts and condition of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct JournalStatus {
    /// Last sequence number given.
    pub last_seq: u64,
    /// Every event up to this one is acknowledged.
    pub delivered: u64,
    /// Damaged records skipped since the journal was opened.
    pub corrupt_records: u64,
    /// Bytes of a torn last record that were cut off at opening.
    pub torn_bytes: u64,
    /// Events that are in memory only, waiting for the disk.
    pub in_memory: usize,
    /// Events lost because the disk refused them for longer than the memory lasts.
    pub lost: u64,
    /// One sentence while something is wrong.
    pub fault: Option<String>,
}

/// What the delivery side needs, held for microseconds only.
struct Tail {
    recent: VecDeque<Record>,
    delivered: u64,
    saved: u64,
    saved_at: Instant,
}

/// The journal. Shared as `Arc<Journal>` between the thread that writes and the task that delivers.
///
/// Two locks: `store` is held during disk I/O, `tail` never is, so that an acknowledgement does not wait for a slow
/// card. Where both are needed, `store` is taken first.
pub struct Journal {
    store: Mutex<Store>,
    last_status: Mutex<JournalStatus>,
    tail: Mutex<Tail>,
    newest: watch::Sender<u64>,
    dir: PathBuf,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Journal {
    /// Opens the journal in `dir`, which is made if need be. A torn last record is cut off; everything before it is
    /// kept. A directory that cannot be written still opens if it can be read or made: events then stay in memory and
    /// [`JournalStatus::fault`] says so.
    pub fn open(dir: &Path, settings: JournalSettings) -> Result<Self, JournalError> {
        let (store, delivered) =
            Store::open(dir, settings).map_err(|source| JournalError::Open { path: dir.to_path_buf(), source })?;
        let last = store.last_seq();
        Ok(Self {
            last_status: Mutex::new(store.status()),
            store: Mutex::new(store),
            tail: Mutex::new(Tail { recent: VecDeque::new(), delivered, saved: delivered, saved_at: Instant::now() }),
            newest: watch::Sender::new(last),
            dir: dir.to_path_buf(),
        })
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().expect("nothing panics while it holds the store")
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().expect("nothing panics while it holds the tail")
    }

    /// Numbers the event and stores it; it is on disk when this returns `Ok`.
    ///
    /// # Errors
    /// [`JournalError::Kept`] if the disk refused it: the event is then in memory, is delivered, and is written as soon
    /// as the disk is back ([`Journal::tick`]).
    pub fn append(&self, draft: EventDraft) -> Result<Event, JournalError> {
        let mut store = self.store();
        let seq = store.next_seq();
        let event = Event {
            id: event_id(seq, draft.time),
            zone: draft.zone,
            kind: draft.kind,
            at: draft.at,
            cause: draft.cause,
            source: draft.source,
        };
        let record = Record { seq, event };
        let result = store.append(record.clone(), self.delivered());
        {
            let mut tail = self.tail();
            if tail.recent.len() == TAIL_EVENTS {
                tail.recent.pop_front();
            }
            tail.recent.push_back(record.clone());
        }
        drop(store);
        self.newest.send_replace(seq);
        match result {
            Ok(()) => Ok(record.event),
            Err(source) => Err(JournalError::Kept { event: Box::new(record.event), source }),
        }
    }

    /// Changes whenever an event was appended: the last sequence number.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Every event up to this sequence number is acknowledged.
    pub fn delivered(&self) -> u64 {
        self.tail().delivered
    }

    /// The oldest event that is not marked as delivered. Reads the disk if it is old.
    pub fn next_undelivered(&self) -> Option<Record> {
        let after = self.delivered();
        self.undelivered_after(after, 1).into_iter().next()
    }

    /// Up to `max` events after sequence number `after` (and after the cursor), in order. Events of the recent past
    /// come from memory, older ones from the disk: call it where a short disk read does no harm.
    pub fn undelivered_after(&self, after: u64, max: usize) -> Vec<Record> {
        let after = after.max(self.delivered());
        if let Some(records) = self.recent_after(after, max) {
            return records;
        }
        self.store().read_after(after, max)
    }

    /// The last events, at most `max`, delivered or not, in order. Reads the disk.
    pub fn last(&self, max: usize) -> Vec<Record> {
        let newest = *self.newest.borrow();
        self.store().read_after(newest.saturating_sub(max as u64), max)
    }

    /// As [`Journal::undelivered_after`], from memory alone; `None` if the disk would have to be read.
    pub fn recent_after(&self, after: u64, max: usize) -> Option<Vec<Record>> {
        if *self.newest.borrow() <= after {
            return Some(Vec::new());
        }
        let tail = self.tail();
        if tail.recent.front().is_none_or(|r| r.seq > after + 1) {
            return None;
        }
        Some(tail.recent.iter().filter(|r| r.seq > after).take(max).cloned().collect())
    }

    /// Every event up to `seq` was acknowledged by the broker. Costs no disk access; [`Journal::tick`] saves it.
    pub fn mark_delivered(&self, seq: u64) {
        let mut tail = self.tail();
        tail.delivered = tail.delivered.max(seq);
    }

    /// Whether there is a cursor position that [`Journal::tick`] has not saved yet.
    pub fn cursor_moved(&self) -> bool {
        let tail = self.tail();
        tail.delivered > tail.saved
    }

    /// Housekeeping, to be called about once a second on a thread that may wait for the disk: saves the cursor if it
    /// moved, writes events that the disk refused before, removes old segments.
    pub fn tick(&self) {
        let due = {
            let tail = self.tail();
            tail.delivered > tail.saved && tail.saved_at.elapsed() >= CURSOR_INTERVAL
        };
        self.housekeeping(due);
    }

    /// As [`Journal::tick`], with the cursor saved at once. For a clean stop.
    pub fn sync(&self) {
        self.housekeeping(self.cursor_moved());
    }

    fn housekeeping(&self, save_cursor: bool) {
        let mut store = self.store();
        store.retry();
        if save_cursor {
            let delivered = self.delivered();
            let saved = store.save_cursor(delivered);
            let mut tail = self.tail();
            tail.saved_at = Instant::now();
            if saved {
                tail.saved = delivered;
            }
            drop(tail);
            store.remove_delivered(delivered);
        }
    }

    /// Counts and condition. Never waits for the disk: while it is busy, the condition is that of the last look.
    pub fn status(&self) -> JournalStatus {
        let mut last = self.last_status.lock().expect("nothing panics while it holds the status");
        if let Ok(store) = self.store.try_lock() {
            *last = store.status();
        }
        JournalStatus { delivered: self.delivered(), ..last.clone() }
    }

    /// Events that are not acknowledged yet. Never waits for the disk.
    pub fn waiting(&self) -> u64 {
        self.newest.borrow().saturating_sub(self.delivered())
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.sync();
    }
}
