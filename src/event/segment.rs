//! The journal's files: one text line per record, `crc32hex {json}`, in segments named by their first sequence number.
//!
//! *In*: numbered records. *Out*: the same records, read back. *State*: the list of segments, the open writer, records
//! that the disk refused. The checksum (CRC-32, IEEE) covers the JSON text. A line that ends without a line feed is
//! torn and cut off at opening; a damaged line between good ones is skipped and counted.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use super::journal::{JournalSettings, JournalStatus, Record};

const PREFIX: &str = "events-";
const SUFFIX: &str = ".log";
const CURSOR: &str = "delivered";
/// Longest line that is taken for a record; beyond it the file is damaged.
const MAX_LINE: usize = 64 << 10;

#[derive(Debug)]
struct Segment {
    /// Last sequence number in it; one less than the one in its name while it is empty.
    last: u64,
    bytes: u64,
    path: PathBuf,
}

/// The files of one journal.
pub(super) struct Store {
    dir: PathBuf,
    settings: JournalSettings,
    segments: Vec<Segment>,
    writer: Option<File>,
    next: u64,
    /// Records not on disk yet, in order.
    unsaved: VecDeque<Record>,
    corrupt: u64,
    torn_bytes: u64,
    lost: u64,
    write_fault: Option<String>,
    cursor_fault: Option<String>,
}

impl Store {
    /// Opens the directory and returns the saved delivery cursor with it.
    pub(super) fn open(dir: &Path, settings: JournalSettings) -> io::Result<(Self, u64)> {
        fs::create_dir_all(dir)?;
        let mut store = Self {
            dir: dir.to_path_buf(),
            settings,
            segments: Vec::new(),
            writer: None,
            next: 1,
            unsaved: VecDeque::new(),
            corrupt: 0,
            torn_bytes: 0,
            lost: 0,
            write_fault: None,
            cursor_fault: None,
        };
        let mut found: Vec<(u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            let number = name.strip_prefix(PREFIX).and_then(|n| n.strip_suffix(SUFFIX));
            if let Some(first) = number.and_then(|n| n.parse().ok()) {
                found.push((first, path));
            }
        }
        found.sort();
        let count = found.len();
        for (i, (first, path)) in found.into_iter().enumerate() {
            let segment = store.scan(first, path, i + 1 == count)?;
            store.segments.push(segment);
        }
        let cursor = store.read_cursor();
        let last = store.segments.iter().map(|s| s.last).max().unwrap_or(0);
        store.next = last.max(cursor) + 1;
        Ok((store, cursor))
    }

    /// Reads one segment; in the newest one a torn end is cut off.
    fn scan(&mut self, first: u64, path: PathBuf, newest: bool) -> io::Result<Segment> {
        let mut last = first.saturating_sub(1);
        let mut good = 0u64;
        let mut end = 0u64;
        let mut corrupt = 0;
        for_each_line(&path, |line, complete| {
            end += line.len() as u64;
            match parse(line) {
                // A record after one that cannot be read still counts; so does its number.
                Some(record) if complete => {
                    last = last.max(record.seq);
                    good = end;
                }
                _ if complete => {
                    corrupt += 1;
                    good = end;
                }
                _ => {}
            }
            true
        })?;
        self.corrupt += corrupt;
        if good < end {
            self.torn_bytes += end - good;
            if newest {
                let cut = OpenOptions::new().write(true).open(&path).and_then(|f| {
                    f.set_len(good)?;
                    f.sync_all()
                });
                if let Err(e) = cut {
                    self.write_fault = Some(write_fault_text(&e));
                }
            }
        }
        Ok(Segment { last, bytes: good, path })
    }

    pub(super) fn next_seq(&self) -> u64 {
        self.next
    }

    pub(super) fn last_seq(&self) -> u64 {
        self.next - 1
    }

    /// Stores the record (its number is [`Store::next_seq`]), after those that still wait.
    ///
    /// While the disk refuses, the oldest beyond the memory limit are dropped, and counted as lost if they lie after
    /// `delivered`.
    pub(super) fn append(&mut self, record: Record, delivered: u64) -> io::Result<()> {
        self.next = record.seq + 1;
        self.unsaved.push_back(record);
        let result = self.flush();
        if result.is_err() {
            while self.unsaved.len() > self.settings.memory_events {
                self.lost += u64::from(self.unsaved.pop_front().is_some_and(|r| r.seq > delivered));
            }
        }
        result
    }

    /// Tries again to store what the disk refused.
    pub(super) fn retry(&mut self) {
        if !self.unsaved.is_empty() {
            // The outcome is in `write_fault`.
            let _ = self.flush();
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.write_unsaved();
        match &result {
            Ok(()) => self.write_fault = None,
            Err(e) => {
                // Whatever was written of the last record is cut off when the file is opened again.
                self.writer = None;
                self.write_fault = Some(write_fault_text(e));
            }
        }
        result
    }

    fn write_unsaved(&mut self) -> io::Result<()> {
        while !self.unsaved.is_empty() {
            self.ready_writer()?;
            let (Some(writer), Some(segment)) = (self.writer.as_mut(), self.segments.last_mut()) else {
                return Err(io::Error::other("no segment is open"));
            };
            // As many records as fit in the segment share one sync.
            let mut text = Vec::new();
            let mut count = 0;
            let mut last = segment.last;
            for record in &self.unsaved {
                if count > 0 && segment.bytes + text.len() as u64 >= self.settings.segment_bytes {
                    break;
                }
                encode(record, &mut text)?;
                last = record.seq;
                count += 1;
            }
            writer.write_all(&text)?;
            writer.sync_data()?;
            segment.bytes += text.len() as u64;
            segment.last = last;
            self.unsaved.drain(..count);
        }
        Ok(())
    }

    /// Opens the newest segment at its last good byte, or begins a new one.
    fn ready_writer(&mut self) -> io::Result<()> {
        let full = self.segments.last().is_none_or(|s| s.bytes >= self.settings.segment_bytes);
        if full {
            let Some(first) = self.unsaved.front().map(|r| r.seq) else { return Ok(()) };
            let path = self.dir.join(format!("{PREFIX}{first:020}{SUFFIX}"));
            let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
            file.sync_all()?;
            sync_dir(&self.dir)?;
            self.writer = Some(file);
            self.segments.push(Segment { last: first - 1, bytes: 0, path });
        } else if self.writer.is_none()
            && let Some(segment) = self.segments.last()
        {
            let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(&segment.path)?;
            file.set_len(segment.bytes)?;
            io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
            self.writer = Some(file);
        }
        Ok(())
    }

    /// Up to `max` records after `after`, from the files and then from memory.
    pub(super) fn read_after(&self, after: u64, max: usize) -> Vec<Record> {
        let mut records: Vec<Record> = Vec::new();
        let mut last = after;
        for segment in self.segments.iter().filter(|s| s.last > after) {
            let mut left = segment.bytes;
            // A segment that cannot be read is passed over; opening counted its damage.
            let _ = for_each_line(&segment.path, |line, complete| {
                let len = line.len() as u64;
                if !complete || len > left {
                    return false;
                }
                left -= len;
                if let Some(record) = parse(line)
                    && record.seq > last
                {
                    last = record.seq;
                    records.push(record);
                }
                records.len() < max
            });
            if records.len() >= max {
                return records;
            }
        }
        records.extend(self.unsaved.iter().filter(|r| r.seq > last).take(max - records.len()).cloned());
        records
    }

    fn read_cursor(&self) -> u64 {
        let Ok(text) = fs::read_to_string(self.dir.join(CURSOR)) else { return 0 };
        let Some((sum, number)) = text.trim_end().split_once(' ') else { return 0 };
        let good = u32::from_str_radix(sum, 16).is_ok_and(|sum| sum == crc32fast::hash(number.as_bytes()));
        // A damaged cursor means: deliver again. Subscribers drop what they know by its id.
        if good { number.parse().unwrap_or(0) } else { 0 }
    }

    /// Writes the cursor to a temporary name, syncs, renames. True if it is on disk.
    pub(super) fn save_cursor(&mut self, seq: u64) -> bool {
        let number = seq.to_string();
        let text = format!("{:08x} {number}\n", crc32fast::hash(number.as_bytes()));
        let result = write_atomically(&self.dir.join(CURSOR), text.as_bytes());
        self.cursor_fault = result
            .as_ref()
            .err()
            .map(|e| format!("The delivery cursor of the journal cannot be saved ({e}): events may be sent twice after a restart. Free space on the disk of the state directory."));
        result.is_ok()
    }

    /// Removes the oldest fully delivered segments beyond the limit; never the newest, which carries the sequence.
    pub(super) fn remove_delivered(&mut self, delivered: u64) {
        let mut total: u64 = self.segments.iter().map(|s| s.bytes).sum();
        while self.segments.len() > 1 && total > self.settings.keep_bytes && self.segments[0].last <= delivered {
            if fs::remove_file(&self.segments[0].path).is_err() {
                break;
            }
            total -= self.segments.remove(0).bytes;
        }
    }

    pub(super) fn status(&self) -> JournalStatus {
        let lost =
            (self.lost > 0).then(|| format!("{} events were lost while the journal could not be written.", self.lost));
        JournalStatus {
            last_seq: self.last_seq(),
            delivered: 0,
            corrupt_records: self.corrupt,
            torn_bytes: self.torn_bytes,
            in_memory: self.unsaved.len(),
            lost: self.lost,
            fault: self.write_fault.clone().or_else(|| self.cursor_fault.clone()).or(lost),
        }
    }
}

fn write_fault_text(e: &io::Error) -> String {
    format!(
        "The event journal cannot be written ({e}): new events are kept in memory only. Free space on the disk of the state directory or make it writable."
    )
}

fn encode(record: &Record, out: &mut Vec<u8>) -> io::Result<()> {
    let json = serde_json::to_string(record).map_err(io::Error::other)?;
    writeln!(out, "{:08x} {json}", crc32fast::hash(json.as_bytes()))
}

fn parse(line: &[u8]) -> Option<Record> {
    let text = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
    let (sum, json) = text.split_once(' ')?;
    if sum.len() != 8 || u32::from_str_radix(sum, 16).ok()? != crc32fast::hash(json.as_bytes()) {
        return None;
    }
    serde_json::from_str(json).ok()
}

/// Calls `each(line with its line feed, complete)` until it returns false. Overlong lines arrive in pieces, which no
/// record is.
fn for_each_line(path: &Path, mut each: impl FnMut(&[u8], bool) -> bool) -> io::Result<()> {
    let mut reader = BufReader::new(File::open(path)?);
    let mut line = Vec::new();
    loop {
        line.clear();
        let n = io::Read::take(&mut reader, MAX_LINE as u64).read_until(b'\n', &mut line)?;
        if n == 0 {
            return Ok(());
        }
        let complete = line.ends_with(b"\n") || n == MAX_LINE;
        if !each(&line, complete) {
            return Ok(());
        }
    }
}

/// Replaces `path` by `bytes` so that after a power cut there is either the old or the new content.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut file = File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&temporary, path)?;
    path.parent().map_or(Ok(()), sync_dir)
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
