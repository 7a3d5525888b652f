//! How well tracks follow people: CLEAR MOT and identity figures.
//!
//! *In*: per tick where people are and where tracks are. *Out*: MOTA, MOTP, identity switches (K. Bernardin and
//! R. Stiefelhagen, *Evaluating Multiple Object Tracking Performance: The CLEAR MOT Metrics*, 2008), IDF1 (E. Ristani and
//! others, *Performance Measures and a Data Set for Multi-Target, Multi-Camera Tracking*, 2016), and the share of ticks
//! with the right count.

use std::collections::BTreeMap;

use pathfinding::prelude::{Matrix, kuhn_munkres};
use serde::Serialize;

/// Fixed-point unit of distances in an assignment.
const UNIT: f64 = 1e6;

/// The figures of a scene. Shares are of 1; `None` where nothing was there to be judged.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct TrackingFigures {
    /// Ticks judged.
    pub ticks: usize,
    /// Places of people, one per person and tick.
    pub truths: usize,
    /// Places of tracks, one per track and tick.
    pub outputs: usize,
    /// Places of people that a track was matched to.
    pub matches: usize,
    /// People without a track.
    pub misses: usize,
    /// Tracks without a person.
    pub false_positives: usize,
    /// Times that a person was matched to another track than before.
    pub switches: usize,
    /// 1 - (misses + false positives + switches) / truths; below 0 where there are more errors than people.
    pub mota: Option<f64>,
    /// Mean distance of the matches, metres.
    pub motp_m: Option<f64>,
    /// 2 IDTP / (truths + outputs) under the best one-to-one map of people to tracks over the whole scene.
    pub idf1: Option<f64>,
    /// Ticks at which the count said was that of the people, of those with a count.
    pub count_right: Option<f64>,
    /// ... at which it was at least not more than the people there.
    pub count_not_above: Option<f64>,
    /// Ticks with a count.
    pub counted: usize,
}

/// Collects ticks.
#[derive(Debug, Clone)]
pub struct TrackingScore {
    distance_m: f64,
    figures: TrackingFigures,
    sum_m: f64,
    /// Track that a person was last matched to.
    last: BTreeMap<u64, u64>,
    /// Matches of the tick before.
    standing: BTreeMap<u64, u64>,
    /// Ticks at which a person and a track were within the distance.
    together: BTreeMap<(u64, u64), usize>,
    right: usize,
    not_above: usize,
}

impl TrackingScore {
    /// Nothing seen yet; a match is at most `distance_m` metres wide (1 is usual for people on a floor).
    pub fn new(distance_m: f64) -> Self {
        Self {
            distance_m,
            figures: TrackingFigures::default(),
            sum_m: 0.0,
            last: BTreeMap::new(),
            standing: BTreeMap::new(),
            together: BTreeMap::new(),
            right: 0,
            not_above: 0,
        }
    }

    /// One tick: people and tracks with their identities and places in metres, and the count said, if any.
    pub fn tick(&mut self, people: &[(u64, [f64; 2])], tracks: &[(u64, [f64; 2])], count: Option<usize>) {
        let apart = |a: [f64; 2], b: [f64; 2]| (a[0] - b[0]).hypot(a[1] - b[1]);
        let f = &mut self.figures;
        f.ticks += 1;
        f.truths += people.len();
        f.outputs += tracks.len();
        if let Some(count) = count {
            f.counted += 1;
            self.right += usize::from(count == people.len());
            self.not_above += usize::from(count <= people.len());
        }
        for (person, at) in people {
            for (track, place) in tracks {
                if apart(*at, *place) <= self.distance_m {
                    *self.together.entry((*person, *track)).or_default() += 1;
                }
            }
        }
        // What was matched and still is near stays matched; the rest is matched as well as possible.
        let mut matched: BTreeMap<u64, (u64, f64)> = BTreeMap::new();
        for (person, at) in people {
            let kept = self.standing.get(person).and_then(|t| tracks.iter().find(|(id, _)| id == t));
            if let Some((track, place)) = kept
                && apart(*at, *place) <= self.distance_m
            {
                matched.insert(*person, (*track, apart(*at, *place)));
            }
        }
        let free_people: Vec<_> = people.iter().filter(|(p, _)| !matched.contains_key(p)).collect();
        let free_tracks: Vec<_> =
            tracks.iter().filter(|(t, _)| !matched.values().any(|(taken, _)| taken == t)).collect();
        if !free_people.is_empty() && !free_tracks.is_empty() {
            // As many matches as possible, then the shortest: each match is worth more than all distances together.
            let worth = UNIT * self.distance_m * (free_people.len() + 1) as f64;
            let weights = Matrix::from_fn(free_people.len(), free_tracks.len() + free_people.len(), |(p, t)| {
                let Some((_, place)) = free_tracks.get(t) else { return 0 };
                let d = apart(free_people[p].1, *place);
                if d <= self.distance_m { (worth - d * UNIT).round() as i64 } else { 0 }
            });
            let (_, chosen) = kuhn_munkres(&weights);
            for (p, t) in chosen.into_iter().enumerate() {
                let Some((track, place)) = free_tracks.get(t) else { continue };
                let d = apart(free_people[p].1, *place);
                if d <= self.distance_m {
                    matched.insert(free_people[p].0, (*track, d));
                }
            }
        }
        f.matches += matched.len();
        f.misses += people.len() - matched.len();
        f.false_positives += tracks.len() - matched.len();
        for (person, (track, d)) in &matched {
            self.sum_m += d;
            if let Some(before) = self.last.insert(*person, *track) {
                f.switches += usize::from(before != *track);
            }
        }
        self.standing = matched.into_iter().map(|(p, (t, _))| (p, t)).collect();
    }

    /// The figures of all ticks.
    pub fn figures(&self) -> TrackingFigures {
        let mut f = self.figures;
        if f.truths > 0 {
            f.mota = Some(1.0 - (f.misses + f.false_positives + f.switches) as f64 / f.truths as f64);
        }
        if f.matches > 0 {
            f.motp_m = Some(self.sum_m / f.matches as f64);
        }
        if f.truths + f.outputs > 0 {
            f.idf1 = Some(2.0 * self.identity_matches() as f64 / (f.truths + f.outputs) as f64);
        }
        if f.counted > 0 {
            f.count_right = Some(self.right as f64 / f.counted as f64);
            f.count_not_above = Some(self.not_above as f64 / f.counted as f64);
        }
        f
    }

    /// IDTP: ticks together under the best one-to-one map.
    fn identity_matches(&self) -> usize {
        let mut people: Vec<u64> = self.together.keys().map(|k| k.0).collect();
        people.dedup();
        let mut tracks: Vec<u64> = self.together.keys().map(|k| k.1).collect();
        tracks.sort_unstable();
        tracks.dedup();
        if people.is_empty() {
            return 0;
        }
        let weights = Matrix::from_fn(people.len(), tracks.len() + people.len(), |(p, t)| {
            let key = tracks.get(t).map(|track| (people[p], *track));
            key.and_then(|k| self.together.get(&k)).map_or(0, |n| *n as i64)
        });
        kuhn_munkres(&weights).0.max(0) as usize
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const A: [f64; 2] = [0.0, 0.0];
    const B: [f64; 2] = [3.0, 0.0];

    fn near(at: [f64; 2], by: f64) -> [f64; 2] {
        [at[0] + by, at[1]]
    }

    #[test]
    fn a_perfect_tracker() {
        let mut score = TrackingScore::new(1.0);
        for _ in 0..10 {
            score.tick(&[(1, A), (2, B)], &[(7, A), (8, B)], Some(2));
        }
        let f = score.figures();
        assert_eq!((f.mota, f.motp_m, f.idf1, f.count_right), (Some(1.0), Some(0.0), Some(1.0), Some(1.0)));
        assert_eq!((f.matches, f.misses, f.false_positives, f.switches), (20, 0, 0, 0));
    }

    #[test]
    fn an_example_by_hand() {
        let mut score = TrackingScore::new(1.0);
        // 4 ticks: one person; track 1 at 0.5 m for two ticks, then nothing, then track 2 at 0.2 m and a ghost far away.
        score.tick(&[(1, A)], &[(1, near(A, 0.5))], Some(1));
        score.tick(&[(1, A)], &[(1, near(A, 0.5))], Some(1));
        score.tick(&[(1, A)], &[], Some(0));
        score.tick(&[(1, A)], &[(2, near(A, 0.2)), (3, B)], Some(2));
        let f = score.figures();
        // 1 miss, 1 false positive, 1 switch of 4 truths.
        assert_eq!((f.matches, f.misses, f.false_positives, f.switches), (3, 1, 1, 1));
        assert!((f.mota.unwrap() - 0.25).abs() < 1e-12);
        assert!((f.motp_m.unwrap() - 1.2 / 3.0).abs() < 1e-12);
        // Best map: person 1 to track 1, 2 ticks; 2 * 2 / (4 + 4).
        assert!((f.idf1.unwrap() - 0.5).abs() < 1e-12);
        assert_eq!((f.count_right, f.count_not_above), (Some(0.5), Some(0.75)));
    }

    #[test]
    fn tracks_that_swap_people_cost_identity_and_two_switches() {
        let mut score = TrackingScore::new(1.0);
        for tick in 0..10 {
            let (a, b) = if tick < 6 { (A, B) } else { (B, A) };
            score.tick(&[(1, A), (2, B)], &[(7, a), (8, b)], None);
        }
        let f = score.figures();
        assert_eq!((f.matches, f.switches), (20, 2));
        assert!((f.mota.unwrap() - 0.9).abs() < 1e-12);
        // IDTP 12 of 20 each: 24 / 40.
        assert!((f.idf1.unwrap() - 0.6).abs() < 1e-12);
        assert_eq!(f.count_right, None);
    }

    #[test]
    fn a_standing_match_is_kept_though_another_track_is_nearer() {
        let mut score = TrackingScore::new(1.0);
        score.tick(&[(1, A)], &[(7, near(A, 0.6))], None);
        score.tick(&[(1, A)], &[(7, near(A, 0.6)), (8, A)], None);
        let f = score.figures();
        assert_eq!((f.switches, f.false_positives), (0, 1));
        assert!((f.motp_m.unwrap() - 0.6).abs() < 1e-12);
    }

    #[test]
    fn as_many_as_possible_are_matched_and_nothing_beyond_the_distance() {
        let mut score = TrackingScore::new(1.0);
        // Track 7 is near both; greedy would give it to person 1 (0.1 m) and leave person 2 (0.9 m) alone.
        let people = [(1, A), (2, near(A, 1.0))];
        score.tick(&people, &[(7, near(A, 0.1)), (8, near(A, -0.9))], None);
        assert_eq!(score.figures().matches, 2);
        score.tick(&[(3, B)], &[(9, near(B, 1.01))], None);
        assert_eq!(score.figures().matches, 2);
        assert_eq!(TrackingScore::new(1.0).figures().mota, None);
    }
}
