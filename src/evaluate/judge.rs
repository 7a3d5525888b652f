//! From verdicts over time to the report: labels, folds, figures per recording and pooled.
//!
//! What is fitted in a fold is the one thing a user can turn: the sensitivity. For each group left out it is the one
//! that does best on the other groups, where a tie (within [`TIE`]) goes to the shipped default. With
//! `leave_one_out = "none"` nothing is fitted.

use std::collections::BTreeMap;

use serde::Serialize;

use super::manifest::{Manifest, Options, Recording};
use super::metrics::{Figures, Intervals, Scored, figures, intervals};

/// Sensitivities a fold may choose from; 1 is the default.
pub const SENSITIVITIES: [f32; 7] = [0.5, 0.63, 0.8, 1.0, 1.25, 1.6, 2.0];
/// Position of the default in [`SENSITIVITIES`].
pub const DEFAULT: usize = 3;
/// Balanced accuracy that counts as the same, so that noise does not move the sensitivity.
pub(super) const TIE: f64 = 0.005;
/// Length of a bootstrap block in seconds.
pub(super) const BLOCK_S: f64 = 5.0;
/// Bootstrap repeats.
pub(super) const REPEATS: usize = 1000;

/// What the zone said at one tick.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Tick {
    /// Seconds since the recording's first frame.
    pub t_s: f64,
    /// Verdict; `None` = no verdict.
    pub moving: Option<bool>,
    /// Score, 1 = threshold at the sensitivity in force.
    pub score: Option<f32>,
}

/// One recording with what the pipeline said, for each sensitivity of [`SENSITIVITIES`] that was run.
#[derive(Debug, Clone)]
pub struct Run {
    /// As in the manifest.
    pub recording: Recording,
    /// Ticks by position in [`SENSITIVITIES`]; empty where that one was not run.
    pub ticks: Vec<Vec<Tick>>,
}

/// Figures and intervals, written side by side.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Summary {
    /// The figures.
    #[serde(flatten)]
    pub figures: Figures,
    /// Their 95 % intervals.
    pub ci95: Intervals,
    /// False alarms per hour of quiet time with a verdict; `None` without quiet time.
    pub false_alarms_per_hour: Option<f64>,
    /// Labelled quiet time, seconds.
    pub quiet_s: f64,
}

/// One recording's row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RecordingReport {
    /// As in the manifest.
    pub path: String,
    /// As in the manifest.
    pub session: String,
    /// Sensitivity it was judged at.
    pub sensitivity: f32,
    /// Figures.
    #[serde(flatten)]
    pub summary: Summary,
    /// Times the verdict went to "moving" in labelled quiet time.
    pub alarms: usize,
    /// First "moving" verdict of the whole recording, seconds since its first frame.
    pub first_alarm_s: Option<f64>,
    /// First labelled onset of motion.
    pub onset_s: Option<f64>,
    /// Median time from an onset to the verdict, over the onsets that were found within their stretch.
    pub time_to_detect_s: Option<f64>,
    /// Median time from the end of a motion stretch to "quiet", over the ends followed by labelled quiet.
    pub time_to_clear_s: Option<f64>,
}

/// One fold.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fold {
    /// The group left out.
    pub left_out: String,
    /// The sensitivity chosen on the others.
    pub sensitivity: f32,
}

/// The whole report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Task.
    pub task: super::manifest::Task,
    /// How it was judged.
    pub options: Options,
    /// All recordings together, each in the fold that left it out.
    pub pooled: Summary,
    /// All recordings together at the shipped default.
    pub defaults: Summary,
    /// Folds, empty where nothing is fitted.
    pub folds: Vec<Fold>,
    /// Each recording.
    pub recordings: Vec<RecordingReport>,
}

/// Judges `runs` as the manifest says. `n` in the report counts ticks, `ci95` resamples blocks of [`BLOCK_S`].
pub fn judge(manifest: &Manifest, runs: &[Run]) -> Report {
    let options = &manifest.evaluate;
    let groups: Vec<Option<String>> = runs.iter().map(|r| options.leave_one_out.group(&r.recording)).collect();
    let mut chosen = BTreeMap::new();
    for group in groups.iter().flatten() {
        chosen.entry(group.clone()).or_insert_with_key(|g| {
            let others = || runs.iter().zip(&groups).filter(|(_, other)| other.as_ref() != Some(g)).map(|(r, _)| r);
            choose(&others)
        });
    }
    let position = |group: &Option<String>| group.as_ref().map_or(DEFAULT, |g| chosen[g]);

    let (mut all, mut at_default) = (Vec::new(), Vec::new());
    let mut recordings = Vec::new();
    let (mut alarms, mut alarms_default) = (0, 0);
    for (run, group) in runs.iter().zip(&groups) {
        let at = position(group);
        let first_block = all.len() as u32;
        all.push(scored(&run.recording, &run.ticks[at], first_block));
        at_default.push(scored(&run.recording, &run.ticks[DEFAULT], first_block));
        let row = report_one(run, at, all.last().map_or(&[], Vec::as_slice), options.seed);
        alarms += row.alarms;
        alarms_default += count_alarms(&run.recording, &run.ticks[DEFAULT]);
        recordings.push(row);
    }
    Report {
        task: options.task,
        options: options.clone(),
        pooled: summarise(&renumber(&all), alarms, options.seed),
        defaults: summarise(&renumber(&at_default), alarms_default, options.seed),
        folds: chosen.into_iter().map(|(left_out, at)| Fold { left_out, sensitivity: SENSITIVITIES[at] }).collect(),
        recordings,
    }
}

/// Best sensitivity on the given runs; the default unless another is better by more than [`TIE`].
fn choose<'a, I: Iterator<Item = &'a Run>>(runs: &dyn Fn() -> I) -> usize {
    let quality = |at: usize| -> f64 {
        let set: Vec<Scored> = runs().flat_map(|r| scored(&r.recording, &r.ticks[at], 0)).collect();
        let f = figures(&set);
        f.balanced_accuracy.or(f.recall).or(f.fp_rate.map(|p| 1.0 - p)).unwrap_or(0.0)
    };
    let default = quality(DEFAULT);
    (0..SENSITIVITIES.len())
        .map(|at| (at, quality(at)))
        .filter(|(_, q)| *q > default + TIE)
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map_or(DEFAULT, |(at, _)| at)
}

/// The labelled ticks of one recording, with blocks numbered from `first_block`.
fn scored(recording: &Recording, ticks: &[Tick], first_block: u32) -> Vec<Scored> {
    let mut out: Vec<Scored> = Vec::with_capacity(ticks.len());
    let mut block = first_block;
    let mut block_of: Option<(bool, i64)> = None;
    for tick in ticks {
        let Some(label) = recording.label_at(tick.t_s) else { continue };
        let key = (label.is_motion(), (tick.t_s / BLOCK_S).floor() as i64);
        if block_of.is_some_and(|b| b != key) {
            block += 1;
        }
        block_of = Some(key);
        out.push(Scored { truth: label.is_motion(), said: tick.moving, score: tick.score, block });
    }
    out
}

/// One list with block numbers that are unique over the recordings.
fn renumber(sets: &[Vec<Scored>]) -> Vec<Scored> {
    let mut next = 0;
    let mut out = Vec::with_capacity(sets.iter().map(Vec::len).sum());
    for set in sets {
        for chunk in set.chunk_by(|a, b| a.block == b.block) {
            out.extend(chunk.iter().map(|s| Scored { block: next, ..*s }));
            next += 1;
        }
    }
    out
}

fn summarise(set: &[Scored], alarms: usize, seed: u64) -> Summary {
    let tick_s = crate::signal::TICK_MICROS as f64 / 1e6;
    let quiet = set.iter().filter(|s| !s.truth && s.said.is_some()).count() as f64 * tick_s;
    Summary {
        figures: figures(set),
        ci95: intervals(set, REPEATS, seed),
        false_alarms_per_hour: (quiet > 0.0).then(|| alarms as f64 * 3600.0 / quiet),
        quiet_s: quiet,
    }
}

fn count_alarms(recording: &Recording, ticks: &[Tick]) -> usize {
    let mut before = false;
    let mut alarms = 0;
    for tick in ticks {
        let moving = tick.moving == Some(true);
        let quiet = recording.label_at(tick.t_s).is_some_and(|l| !l.is_motion());
        // An alarm that began in unscored time and is still on is an alarm of the quiet it reaches into, once.
        if moving && quiet && !before {
            alarms += 1;
        }
        before = moving && quiet;
    }
    alarms
}

fn report_one(run: &Run, at: usize, set: &[Scored], seed: u64) -> RecordingReport {
    let (recording, ticks) = (&run.recording, &run.ticks[at]);
    let alarms = count_alarms(recording, ticks);
    RecordingReport {
        path: recording.path.clone(),
        session: recording.session.clone(),
        sensitivity: SENSITIVITIES[at],
        summary: summarise(set, alarms, seed),
        alarms,
        first_alarm_s: ticks.iter().find(|t| t.moving == Some(true)).map(|t| t.t_s),
        onset_s: recording.onsets().next(),
        time_to_detect_s: median(recording.truth.iter().filter(|s| s.label.is_motion() && s.from_s > 0.0).filter_map(
            |s| {
                let inside = ticks.iter().filter(|t| t.t_s >= s.from_s && t.t_s < s.to_s);
                inside.into_iter().find(|t| t.moving == Some(true)).map(|t| t.t_s - s.from_s)
            },
        )),
        time_to_clear_s: median(recording.truth.iter().filter(|s| s.label.is_motion()).filter_map(|s| {
            let after = |t: &&Tick| t.t_s >= s.to_s && recording.label_at(t.t_s).is_some_and(|l| !l.is_motion());
            let first = ticks.iter().find(after).filter(|t| t.t_s - s.to_s < BLOCK_S)?;
            let quiet = ticks.iter().find(|t| t.t_s >= first.t_s && t.moving == Some(false))?;
            Some(quiet.t_s - s.to_s)
        })),
    }
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    (!values.is_empty()).then(|| values[values.len() / 2])
}
