//! From levels to one number: 1 is the threshold.
//!
//! *In*: the history of a link at a tick, its rate and its memory. *Out*: a score, or why there is none. Two tests; the
//! stronger one counts:
//! - *growth*: the change over a tenth of a second against that over the shortest lag. Anything white in time gives 1,
//!   a body 1.5 and more, whatever the noise. It has power from 35 frames per second on, from 60 on also in 0.4 s, and
//!   from 80 on also in the last 0.2 s.
//! - *level*: the change itself, in units of the noise, against three times the link's own quiet level.

use super::memory::Memory;
use super::smooth::{History, Level};

/// Below this rate there is no verdict.
const LEAST_HZ: f64 = 5.0;
/// From here on the growth test has power.
const MID_HZ: f64 = 35.0;
/// From here on it has power in the short window.
const FAST_HZ: f64 = 60.0;
/// From here on the longer lag may be a tenth of a second.
const SHORT_LAG_HZ: f64 = 80.0;
/// Share of expected frames below which there is no verdict.
pub(super) const LEAST_COVERAGE: f64 = 0.70;
const SHORT_WINDOW_S: f64 = 0.4;
/// The newest frames against those before them, so that a sudden beginning is not diluted by the quiet before it.
const ONSET_WINDOW_S: f64 = 0.2;
const ONSET_LAG_S: f64 = 0.150;
const LEAST_PAIRS: usize = 8;
const LEAST_PAIRS_SHORT: usize = 15;
/// Growth at the threshold, and the number of pairs below which it must be larger.
const GROWTH: (f64, f64) = (1.5, 80.0);
const GROWTH_SHORT: (f64, f64) = (2.2, 40.0);
const GROWTH_ONSET: (f64, f64) = (3.0, 30.0);
/// Growth of a tiny change is no motion: level at the threshold.
const GROWTH_LEVEL: f64 = 3.2;
/// The score rises by 1 for each such factor of level.
const LEVEL_SCALE: f64 = 2.5;
/// Level at the threshold while the link's own is not known: below [`MID_HZ`], below [`FAST_HZ`], above.
const COLD: [f64; 3] = [20.0, 20.0, 30.0];
/// The learned threshold is this many times the floor, within limits; the growth test leaves it the strong changes.
const FLOOR_FACTOR: f64 = 3.0;
const LEARNED: (f64, f64) = (4.5, 25.0);
const LEARNED_FAST_LEAST: f64 = 15.0;
/// A threshold from here on is believed after so many seconds: until then the floor may be that of long motion.
const HIGH_LEVEL: f64 = 15.0;
const HIGH_LEVEL_AFTER_S: f64 = 180.0;
/// Below this growth the change is white in time: the radio switches between patterns, nobody moves.
const WHITE_GROWTH: f64 = 1.15;
const WHITE_SCORE: f64 = 0.65;
/// Noise of a component, as a share of the mean amplitude, above which weak motion cannot be seen.
const POOR_NOISE: f64 = 0.20;
/// Without memory and without growth test, quiet is only what lies below this level.
const SURELY_QUIET: f64 = 3.3;

/// Why a tick has no score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoScore {
    Starting,
    TooSlow,
    Gaps,
}

/// A tick with a score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Evidence {
    /// Before sensitivity.
    pub(super) score: f64,
    /// Natural logarithm of the change over the longer lag, in units of the noise.
    pub(super) ln_change: f64,
    /// Noise variance of one component of a profile of mean 1.
    pub(super) noise: f64,
    /// What forbids saying "quiet" though the score is low.
    pub(super) doubt: Option<Doubt>,
}

/// Why a low score does not mean "quiet".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doubt {
    /// So much noise that a weak motion would not show.
    Poor,
    /// At this rate the link's own switching and motion look alike until its quiet level is known.
    TooSlow,
}

/// The window that a tick looks at.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Window {
    pub(super) range: std::ops::Range<usize>,
    pub(super) coverage: f64,
    /// Seconds it covers.
    pub(super) span_s: f64,
    full: bool,
}

/// The window at `tick_s` for a link that delivers `hz`: 1 s at 100 frames per second, 2 s at 20, at most 3 s.
pub(super) fn window(history: &History, tick_s: f64, hz: f64) -> Window {
    let wanted = (0.6 + 40.0 / hz).clamp(1.0, 2.0).max(20.0 / hz).min(3.0);
    let oldest = history.times().first().copied().unwrap_or(tick_s);
    let span_s = wanted.min(tick_s - oldest).max(0.0);
    let range = history.window(tick_s - wanted, tick_s);
    let expected = hz * span_s;
    let coverage = if expected > 0.0 { (range.len() as f64 / expected).min(1.0) } else { 0.0 };
    // At many hundreds of frames per second the history is shorter than the window, and long enough.
    Window { range, coverage, span_s, full: span_s >= wanted - 1e-6 || history.is_full() }
}

/// Scores the tick at `tick_s`, and lets the memory learn from it.
pub(super) fn score(
    history: &mut History,
    memory: &mut Memory,
    tick_s: f64,
    hz: f64,
    window: &Window,
) -> Result<Evidence, NoScore> {
    if hz < LEAST_HZ {
        return Err(NoScore::TooSlow);
    }
    if !window.full {
        return Err(NoScore::Starting);
    }
    let range = &window.range;
    if (range.len() as f64) < LEAST_COVERAGE * hz * window.span_s {
        return Err(NoScore::Gaps);
    }
    let short_lag = (1.0 / hz).clamp(0.010, 0.150);
    let long_lag = short_lag.max(if hz >= SHORT_LAG_HZ { 0.100 } else { 0.150 });
    let near = history.level(range.clone(), short_lag);
    let far = history.level(range.clone(), long_lag);
    if near.pairs < LEAST_PAIRS || far.pairs < LEAST_PAIRS {
        return Err(NoScore::Gaps);
    }

    let (mid, fast) = (hz >= MID_HZ, hz >= FAST_HZ);
    let learned = learned(memory);
    let threshold = match learned {
        Some(level) if fast => level.max(LEARNED_FAST_LEAST),
        Some(level) => level,
        None => COLD[usize::from(mid) + usize::from(fast)],
    };
    let above = |level: f64| 1.0 + (far.ln_change - level.ln()) / LEVEL_SCALE.ln();
    let mut by_level = above(threshold);
    if hz >= SHORT_LAG_HZ && far.ln_change - near.ln_change < WHITE_GROWTH.ln() {
        by_level = by_level.min(WHITE_SCORE);
    }
    let mut best = by_level;
    if mid {
        best = best.max(growth(&near, &far, GROWTH));
    }
    if fast {
        let recent = history.window(tick_s - SHORT_WINDOW_S, tick_s);
        let recent = recent.start.max(range.start)..recent.end;
        let near = history.level(recent.clone(), short_lag);
        let far = history.level(recent, long_lag);
        if near.pairs.min(far.pairs) >= LEAST_PAIRS_SHORT {
            best = best.max(growth(&near, &far, GROWTH_SHORT));
        }
    }
    if hz >= SHORT_LAG_HZ {
        let recent = history.window(tick_s - ONSET_WINDOW_S, tick_s);
        let recent = recent.start.max(range.start)..recent.end;
        let near = history.level_back_to(recent.clone(), range.start, short_lag);
        let far = history.level_back_to(recent, range.start, ONSET_LAG_S);
        if near.pairs.min(far.pairs) >= LEAST_PAIRS_SHORT {
            best = best.max(growth(&near, &far, GROWTH_ONSET));
        }
    }
    memory.add(far.ln_change);
    let doubt = if far.noise.sqrt() > POOR_NOISE {
        Some(Doubt::Poor)
    } else if !mid && learned.is_none() && far.ln_change > SURELY_QUIET.ln() {
        Some(Doubt::TooSlow)
    } else {
        None
    };
    Ok(Evidence { score: best, ln_change: far.ln_change, noise: far.noise, doubt })
}

/// The level at the threshold as the link's own quiet level sets it, if that is known.
fn learned(memory: &Memory) -> Option<f64> {
    let level = FLOOR_FACTOR * memory.floor()?;
    (level < HIGH_LEVEL || memory.seconds() >= HIGH_LEVEL_AFTER_S).then(|| level.clamp(LEARNED.0, LEARNED.1))
}

/// The growth test: `(growth at the threshold, pairs for it)`.
fn growth(near: &Level, far: &Level, (growth, pairs): (f64, f64)) -> f64 {
    let spread = (pairs / near.pairs.min(far.pairs) as f64).max(1.0).sqrt();
    let by_growth = (far.ln_change - near.ln_change) / (growth.ln() * spread);
    by_growth.min(1.0 + (far.ln_change - GROWTH_LEVEL.ln()) / LEVEL_SCALE.ln())
}
