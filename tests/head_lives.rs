//! Lives of tracks as the head sees them: every way in which a cache is taken, kept, moved, given up and given back.

#![allow(clippy::unwrap_used)]

use aetherd::head::init::{InitSettings, init};
use aetherd::head::{Cached, HeadStage, Settings, WeightDtype};
use aetherd::signal::LinkChange;
use aetherd::track::{CacheSlot, EndReason, Lifecycle, LinkShare, PoseTrack, TrackEnded, TrackId};
use aetherd::types::SensingTime;

/// Room for this many tracks' caches.
fn head(tracks: f64) -> HeadStage {
    // One track takes 36,0xx to 37,0xx bytes, whatever the processor.
    let settings = Settings { cache_budget_mib: (tracks * 37_500.0) / 1_048_576.0, ..Settings::default() };
    HeadStage::load(&settings).unwrap().unwrap()
}

fn track(id: u64, slot: Option<u16>, lifecycle: Lifecycle, seen_s: i64) -> PoseTrack {
    PoseTrack {
        id: TrackId(id),
        lifecycle,
        zone: 0,
        placement: None,
        born: SensingTime(0),
        seen: SensingTime(seen_s * 1_000_000),
        slot: slot.map(CacheSlot),
        links: vec![LinkShare { link: 0, share: 1.0 }],
        embedding: None,
        keypoints: None,
    }
}

fn active(id: u64, slot: u16) -> PoseTrack {
    track(id, Some(slot), Lifecycle::Active, 0)
}

fn ended(id: u64, slot: Option<u16>, reason: EndReason) -> TrackEnded {
    TrackEnded { track: TrackId(id), at: SensingTime(1), reason, slot: slot.map(CacheSlot) }
}

fn stream(head: &mut HeadStage, tracks: &[PoseTrack], tokens: i64) {
    let change = [Some(LinkChange { change: [[1.0, 2.0, 0.5]; 4] })];
    for i in 0..tokens {
        head.fused(SensingTime(i * 50_000), tracks, &change);
    }
}

fn tokens(head: &HeadStage, id: u64) -> Option<u64> {
    head.cached(TrackId(id)).map(|c: Cached| c.tokens)
}

#[test]
fn a_lost_track_rests_and_goes_on_when_it_is_found() {
    let mut head = head(2.0);
    let now = SensingTime;
    head.tick(now(0), &[active(1, 0)], &[]);
    stream(&mut head, &[active(1, 0)], 5);
    let lost = [track(1, Some(0), Lifecycle::Lost, 3)];
    head.tick(now(1), &lost, &[]);
    stream(&mut head, &lost, 4);
    assert_eq!(tokens(&head, 1), Some(5), "frozen");
    let stats = head.stats();
    assert!(stats.active_bytes == 0 && stats.lost_bytes > 0, "{stats:?}");
    head.tick(now(2), &[active(1, 0)], &[]);
    stream(&mut head, &[active(1, 0)], 2);
    assert_eq!((tokens(&head, 1), head.stats().tokens), (Some(7), 7));
    head.tick(now(3), &[], &[ended(1, Some(0), EndReason::TimedOut)]);
    let stats = head.stats();
    assert!(stats.active_bytes + stats.lost_bytes == 0 && stats.spare_bytes > 0, "{stats:?}");
    assert_eq!((tokens(&head, 1), stats.gallery), (None, 0), "untrained weights leave nothing in the gallery");
}

#[test]
fn refused_for_want_of_room_counted_once_and_served_when_there_is_some() {
    let mut head = head(1.0);
    let both = [active(1, 0), active(2, 1)];
    for i in 0..5 {
        head.tick(SensingTime(i), &both, &[]);
    }
    assert_eq!((head.stats().refused, head.stats().evicted), (1, 0));
    assert!(tokens(&head, 1).is_some() && tokens(&head, 2).is_none());
    head.tick(SensingTime(9), &both[1..], &[ended(1, Some(0), EndReason::TimedOut)]);
    assert_eq!((tokens(&head, 2), head.stats().refused), (Some(0), 1), "the first has left");
}

#[test]
fn over_the_budget_lost_tracks_give_way_but_not_one_that_is_just_found() {
    let mut head = head(1.0);
    let now = SensingTime;
    head.tick(now(0), &[active(1, 0)], &[]);
    stream(&mut head, &[active(1, 0)], 3);
    let lost = track(1, Some(0), Lifecycle::Lost, 1);
    head.tick(now(1), std::slice::from_ref(&lost), &[]);
    head.tick(now(2), &[lost, active(2, 1)], &[]);
    assert_eq!((tokens(&head, 1), tokens(&head, 2), head.stats().evicted), (None, Some(0), 1));
    // The first is found again, the second is lost: the memory changes hands, and begins anew.
    head.tick(now(3), &[active(1, 0), track(2, Some(1), Lifecycle::Lost, 2)], &[]);
    assert_eq!((tokens(&head, 1), tokens(&head, 2), head.stats().evicted), (Some(0), None, 2));
    // Both are there in the same tick: whoever has it keeps it.
    head.tick(now(4), &[active(1, 0), active(2, 1)], &[]);
    assert_eq!((tokens(&head, 1), tokens(&head, 2), head.stats().evicted), (Some(0), None, 2));
}

#[test]
fn merged_tracks_keep_one_cache_whoever_had_it() {
    let merged = || EndReason::MergedInto(TrackId(1));
    // Both have one: the older cache survives. It is that of the track that streams on.
    let mut both = head(2.0);
    both.tick(SensingTime(0), &[active(1, 0)], &[]);
    both.tick(SensingTime(1), &[active(1, 0), active(2, 1)], &[]);
    stream(&mut both, &[active(1, 0)], 3);
    both.tick(SensingTime(2), &[active(1, 0)], &[ended(2, Some(1), merged())]);
    assert_eq!(tokens(&both, 1), Some(3));

    // Only the one that ends has one: the survivor takes it, with what is in it.
    let mut one = head(1.0);
    one.tick(SensingTime(0), &[active(2, 1)], &[]);
    stream(&mut one, &[active(2, 1)], 4);
    one.tick(SensingTime(1), &[active(1, 0), active(2, 1)], &[]);
    assert_eq!((tokens(&one, 1), one.stats().refused), (None, 1));
    one.tick(SensingTime(2), &[active(1, 0)], &[ended(2, Some(1), merged())]);
    stream(&mut one, &[active(1, 0)], 1);
    assert_eq!((tokens(&one, 1), tokens(&one, 2)), (Some(5), None));

    // The survivor had no place at all and was given that of the other.
    let mut place = head(2.0);
    place.tick(SensingTime(0), &[track(1, None, Lifecycle::Active, 0), active(2, 0)], &[]);
    stream(&mut place, &[active(2, 0)], 6);
    place.tick(SensingTime(1), &[active(1, 0)], &[ended(2, None, merged())]);
    stream(&mut place, &[active(1, 0)], 1);
    assert_eq!((tokens(&place, 1), place.stats().failed), (Some(7), 0));

    // Nobody has one.
    let mut none = head(0.0);
    none.tick(SensingTime(0), &[active(1, 0), active(2, 1)], &[]);
    none.tick(SensingTime(1), &[active(1, 0)], &[ended(2, Some(1), merged())]);
    let stats = none.stats();
    assert_eq!((tokens(&none, 1), stats.refused, stats.active_bytes + stats.spare_bytes), (None, 2, 0));
}

#[test]
fn trained_weights_give_embeddings_and_those_who_left_stay_in_the_gallery() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("head.rvne");
    // Random numbers all the same; only what the file says of itself is different.
    let mut weights = init(&InitSettings { seed: 5, ..InitSettings::default() }).unwrap();
    let info = weights.info.as_mut().unwrap();
    (info.trained, info.trained_on) = (true, Some("a test that only says so".to_owned()));
    weights.write(&path, WeightDtype::F32, false).unwrap();
    let mut head = HeadStage::load(&Settings { weights: Some(path), ..Settings::default() }).unwrap().unwrap();
    assert!(head.info().trained && head.info().weights.ends_with("head.rvne"));
    let tracks = [active(1, 0), active(2, 1)];
    head.tick(SensingTime(0), &tracks, &[]);
    stream(&mut head, &tracks, 3);
    assert_eq!(head.estimates().len(), 2);
    let length = |e: &[f32]| e.iter().map(|x| x * x).sum::<f32>();
    assert!(head.estimates().iter().all(|e| (length(&e.embedding) - 1.0).abs() < 1e-4 && e.logits.len() == 4));
    let known = head.estimates()[0].embedding.clone();
    head.tick(
        SensingTime(1),
        &tracks[..0],
        &[ended(1, Some(0), EndReason::TimedOut), ended(2, Some(1), EndReason::MergedInto(TrackId(9)))],
    );
    assert_eq!((head.estimates().len(), head.gallery().len()), (0, 1), "who was merged has not left");
    let (who, cosine) = head.gallery().nearest(&known).unwrap();
    assert!(who == TrackId(1) && cosine > 0.999);
    head.tick(SensingTime(4_000_000_000), &[], &[]);
    assert!(head.gallery().is_empty(), "an hour has passed");
}
