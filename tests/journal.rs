//! The event journal: nothing acknowledged is lost, nothing is invented, whatever happens to the files.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aetherd::event::{
    Cause, Event, EventDraft, EventKind, Journal, JournalError, JournalSettings, event_id, spawn_journal_thread,
};
use aetherd::types::{Provenance, SensingTime};
use proptest::prelude::*;

fn draft(n: i64) -> EventDraft {
    EventDraft {
        zone: format!("zone{}", n.rem_euclid(3)),
        kind: EventKind::ALL[n.rem_euclid(4) as usize],
        time: SensingTime(1_700_000_000_000_000 + n),
        at: "2026-11-30T22:00:00+02:00".into(),
        cause: Cause { why: "motion \"quoted\" \u{1F600}\n".into(), link: None, score: Some(1.25) },
        source: Provenance::Recorded,
    }
}

fn open(dir: &Path) -> Journal {
    Journal::open(dir, JournalSettings::default()).unwrap()
}

fn all(journal: &Journal) -> Vec<Event> {
    journal.undelivered_after(0, usize::MAX).into_iter().map(|r| r.event).collect()
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "log"));
    files.sort();
    files
}

#[test]
fn numbers_ids_and_the_cursor_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut written = Vec::new();
    for round in 0..4 {
        let journal = open(dir.path());
        assert_eq!(journal.delivered(), round * 3);
        // The clock stands still over the restarts, or runs backwards: ids are unique and increase all the same.
        for _ in 0..5 {
            written.push(journal.append(draft(-(round as i64))).unwrap());
        }
        assert_eq!(all(&journal), written[(round * 3) as usize..]);
        let next = journal.next_undelivered().unwrap();
        assert_eq!((next.seq, &next.event), (round * 3 + 1, &written[round as usize * 3]));
        journal.mark_delivered(round * 3 + 3);
        assert_eq!(journal.waiting(), written.len() as u64 - (round * 3 + 3));
    }
    assert!(written.windows(2).all(|w| w[0].id < w[1].id));
    assert_eq!(written[0].id, event_id(1, SensingTime(1_700_000_000_000_000)));
    assert_eq!(open(dir.path()).status().last_seq, 20);
}

#[test]
fn a_record_torn_at_any_byte_is_cut_off_and_all_before_it_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path());
    let written: Vec<Event> = (0..3).map(|n| journal.append(draft(n)).unwrap()).collect();
    drop(journal);
    let file = segments(dir.path()).remove(0);
    let whole = fs::read(&file).unwrap();
    let ends: Vec<usize> = whole.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(i, _)| i + 1).collect();
    assert_eq!(ends.len(), 3);
    for cut in 0..whole.len() {
        fs::write(&file, &whole[..cut]).unwrap();
        let kept = ends.iter().filter(|end| **end <= cut).count();
        let journal = open(dir.path());
        assert_eq!(all(&journal), written[..kept], "cut at {cut}");
        let status = journal.status();
        let good = ends[..kept].last().copied().unwrap_or(0);
        assert_eq!((status.torn_bytes, status.corrupt_records), ((cut - good) as u64, 0), "cut at {cut}");
        let next = journal.append(draft(9)).unwrap();
        drop(journal);
        let again = all(&open(dir.path()));
        assert_eq!((&again[..kept], &again[kept..]), (&written[..kept], &[next][..]), "cut at {cut}");
    }
}

#[test]
fn a_damaged_cursor_means_delivering_again() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path());
    for n in 0..3 {
        journal.append(draft(n)).unwrap();
    }
    journal.mark_delivered(3);
    drop(journal);
    assert_eq!(open(dir.path()).delivered(), 3);
    let cursor = dir.path().join("delivered");
    let text = fs::read_to_string(&cursor).unwrap();
    for bad in ["", "junk", &text.replace('3', "9"), &text[..4]] {
        fs::write(&cursor, bad).unwrap();
        let journal = open(dir.path());
        assert_eq!((journal.delivered(), all(&journal).len()), (0, 3), "{bad:?}");
        std::mem::forget(journal);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Any damage anywhere: what comes back is a part of what was written, in order, and the journal goes on.
    #[test]
    fn damage_loses_only_what_it_hits(hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let dir = tempfile::tempdir().unwrap();
        let settings = JournalSettings { segment_bytes: 700, ..JournalSettings::default() };
        let journal = Journal::open(dir.path(), settings.clone()).unwrap();
        let written: Vec<Event> = (0..12).map(|n| journal.append(draft(n)).unwrap()).collect();
        drop(journal);
        let files = segments(dir.path());
        prop_assert!(files.len() > 2);
        let mut touched = 0;
        for (at, byte) in hits {
            let file = &files[at.index(files.len())];
            let mut bytes = fs::read(file).unwrap();
            let place = at.index(bytes.len());
            touched += usize::from(bytes[place] != byte);
            bytes[place] = byte;
            fs::write(file, bytes).unwrap();
        }
        let journal = Journal::open(dir.path(), settings.clone()).unwrap();
        let kept = all(&journal);
        // A hit on a line feed joins two records.
        prop_assert!(kept.len() + 2 * touched >= written.len());
        let mut rest = written.iter();
        prop_assert!(kept.iter().all(|k| rest.any(|w| w == k)), "invented or out of order");
        let next = journal.append(draft(99)).unwrap();
        prop_assert_eq!(all(&journal).last().cloned(), Some(next.clone()));
        drop(journal);
        let again = all(&Journal::open(dir.path(), settings).unwrap());
        prop_assert_eq!(&again[..again.len() - 1], &kept[..]);
        prop_assert_eq!(again.last(), Some(&next));
    }
}

#[test]
fn a_damaged_record_between_good_ones_is_skipped_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path());
    let written: Vec<Event> = (0..3).map(|n| journal.append(draft(n)).unwrap()).collect();
    drop(journal);
    let file = segments(dir.path()).remove(0);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replacen("zone1", "zone2", 1)).unwrap();
    let journal = open(dir.path());
    assert_eq!(all(&journal), [written[0].clone(), written[2].clone()]);
    assert_eq!(journal.status().corrupt_records, 1);
}

/// One record per segment, so that every append needs the directory.
fn one_per_segment(dir: &Path, memory_events: usize) -> Journal {
    Journal::open(dir, JournalSettings { segment_bytes: 1, keep_bytes: 1 << 20, memory_events }).unwrap()
}

#[test]
fn while_the_disk_is_away_events_are_kept_delivered_and_written_later() {
    let root = tempfile::tempdir().unwrap();
    let (dir, away) = (root.path().join("journal"), root.path().join("away"));
    let journal = one_per_segment(&dir, 100);
    let mut written = vec![journal.append(draft(0)).unwrap()];
    fs::rename(&dir, &away).unwrap();
    for n in 1..6 {
        match journal.append(draft(n)) {
            Err(JournalError::Kept { event, .. }) => written.push(*event),
            other => panic!("{other:?}"),
        }
    }
    let status = journal.status();
    assert_eq!(status.in_memory, 5);
    assert!(status.fault.unwrap().contains("cannot be written"));
    // Live delivery goes on.
    assert_eq!(all(&journal), written);
    journal.mark_delivered(2);
    journal.tick();
    assert_eq!(journal.status().in_memory, 5);

    fs::rename(&away, &dir).unwrap();
    journal.sync();
    let status = journal.status();
    assert_eq!((status.in_memory, status.lost, status.fault), (0, 0, None));
    written.push(journal.append(draft(6)).unwrap());
    drop(journal);
    let journal = one_per_segment(&dir, 100);
    assert_eq!(journal.delivered(), 2);
    assert_eq!(all(&journal), written[2..]);
}

#[test]
fn memory_is_bounded_and_what_it_cannot_hold_is_counted() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("journal");
    let journal = one_per_segment(&dir, 10);
    journal.append(draft(0)).unwrap();
    fs::rename(&dir, root.path().join("away")).unwrap();
    for n in 1..26 {
        assert!(journal.append(draft(n)).is_err());
    }
    let status = journal.status();
    assert_eq!((status.in_memory, status.lost, status.last_seq), (10, 15, 26));
    // Those that were delivered live before they fell out of memory are not lost.
    journal.mark_delivered(26);
    for n in 26..30 {
        assert!(journal.append(draft(n)).is_err());
    }
    assert_eq!(journal.status().lost, 15);
}

/// A file system that really is full, if the environment names a small one: `AETHERD_FULL_DISK_DIR`.
#[test]
fn a_full_disk_is_survived() {
    let Some(root) = std::env::var_os("AETHERD_FULL_DISK_DIR") else {
        eprintln!("skipped: AETHERD_FULL_DISK_DIR names no small file system");
        return;
    };
    let dir = Path::new(&root).join("journal");
    let journal = open(&dir);
    let mut written = vec![journal.append(draft(0)).unwrap()];
    let filler = Path::new(&root).join("filler");
    let mut full = fs::File::create(&filler).unwrap();
    while std::io::Write::write(&mut full, &[0; 512]).is_ok_and(|n| n > 0) {}
    drop(full);
    let mut refused = 0;
    for n in 1..200 {
        match journal.append(draft(n)) {
            Ok(event) => written.push(event),
            Err(JournalError::Kept { event, .. }) => {
                refused += 1;
                written.push(*event);
            }
            Err(other) => panic!("{other}"),
        }
    }
    eprintln!("{refused} of 199 events were refused by the full disk");
    assert!(refused > 0 && journal.status().fault.is_some());
    assert_eq!(all(&journal), written);
    fs::remove_file(filler).unwrap();
    journal.tick();
    assert_eq!((journal.status().in_memory, journal.status().fault), (0, None));
    drop(journal);
    let journal = open(&dir);
    assert_eq!((journal.status().corrupt_records, journal.status().torn_bytes), (0, 0));
    assert_eq!(all(&journal), written);
    drop(journal);
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn only_old_and_delivered_segments_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings { segment_bytes: 1, keep_bytes: 1, memory_events: 10 };
    let journal = Journal::open(dir.path(), settings.clone()).unwrap();
    let written: Vec<Event> = (0..10).map(|n| journal.append(draft(n)).unwrap()).collect();
    journal.sync();
    assert_eq!(segments(dir.path()).len(), 10, "nothing is delivered yet");
    journal.mark_delivered(7);
    journal.sync();
    assert_eq!(all(&journal), written[7..]);
    assert_eq!(segments(dir.path()).len(), 3);
    journal.mark_delivered(10);
    journal.sync();
    assert_eq!(segments(dir.path()).len(), 1, "the newest carries the sequence");
    drop(journal);
    let journal = Journal::open(dir.path(), settings).unwrap();
    assert_eq!(journal.append(draft(0)).unwrap().id, event_id(11, draft(0).time));
}

#[test]
fn old_events_come_from_the_disk_and_new_ones_from_memory() {
    let dir = tempfile::tempdir().unwrap();
    let settings = JournalSettings { segment_bytes: 20 << 10, ..JournalSettings::default() };
    let written: Vec<Event> = {
        let journal = Journal::open(dir.path(), settings.clone()).unwrap();
        (0..300).map(|n| journal.append(draft(n)).unwrap()).collect()
    };
    assert!(segments(dir.path()).len() > 2);
    let journal = Journal::open(dir.path(), settings).unwrap();
    assert!(journal.recent_after(0, 10).is_none());
    let mut after = 0;
    let mut read = Vec::new();
    loop {
        let batch = journal.undelivered_after(after, 64);
        let Some(last) = batch.last() else { break };
        after = last.seq;
        read.extend(batch.into_iter().map(|r| r.event));
    }
    assert_eq!(read, written);
    let new = journal.append(draft(300)).unwrap();
    assert_eq!(journal.recent_after(300, 10).unwrap()[0].event, new);
}

#[test]
fn the_thread_stores_in_order_and_its_sender_never_waits() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Arc::new(open(dir.path()));
    let stored: Arc<Mutex<Vec<Event>>> = Arc::default();
    let sink = stored.clone();
    let (gate, opened) = std::sync::mpsc::channel::<()>();
    let mut held = true;
    let (sender, thread) = spawn_journal_thread(journal.clone(), 8, move |event| {
        if std::mem::take(&mut held) {
            opened.recv_timeout(Duration::from_secs(30)).unwrap();
        }
        sink.lock().unwrap().push(event.clone());
    })
    .unwrap();
    // The thread hangs in the first event; eight more wait; then the queue is full and says so.
    let mut accepted = 0;
    while sender.send(draft(accepted)) {
        accepted += 1;
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!((accepted, sender.refused()), (9, 1));
    gate.send(()).unwrap();
    drop(sender);
    thread.join().unwrap();
    assert_eq!(stored.lock().unwrap().len(), 9);
    assert_eq!(all(&journal), *stored.lock().unwrap());
}
