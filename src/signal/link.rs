//! One series: a board, a transmitter, a layout.
//!
//! *In*: its frames, and ticks. *Out*: [`LinkFeatures`]. *State*: axis, mask, history of a segment, and what outlives
//! segments: the memory of the quiet level. A segment ends with a gap of more than a second, a clock that steps back, or
//! a new mask.

use super::FUSED_S;
use super::bins::{Bins, Use};
use super::features::{CHANGE_LAGS_S, LinkChange, LinkFeatures, NoVerdict, Verdict};
use super::memory::Memory;
use super::rate::Rate;
use super::score::{Doubt, NoScore, score, window};
use super::smooth::{Basis, History, KEEP};
use super::time::Axis;
use super::verdict::Hysteresis;
use crate::frame::{CsiFrame, LinkKey};
use crate::types::SensingTime;

/// A longer pause ends a segment and makes the link silent, seconds.
pub(super) const GAP_S: f64 = 1.0;
/// A step back in time beyond this ends a segment, seconds.
const STEP_BACK_S: f64 = 0.1;
/// Frames at the same time are set this far apart, seconds.
const APART_S: f64 = 1e-4;
/// Segments with fewer frames than this, so many in a row, are what a link too slow for a verdict looks like.
const LEAN_FRAMES: usize = 10;
const LEAN_SEGMENTS: u32 = 3;

/// State of one link.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) key: LinkKey,
    pub(super) last_heard: SensingTime,
    /// Frames since it was first heard.
    pub(super) frames: u64,
    axis: Axis,
    bins: Bins,
    /// `None` until the mask stands, or where it leaves too few bins.
    history: Option<History>,
    too_few_bins: bool,
    last_s: Option<f64>,
    segment_frames: usize,
    lean_segments: u32,
    rate: Rate,
    memory: Memory,
    state: Hysteresis,
    /// Noise variance of a component, as of the last tick that measured it.
    noise: Option<f64>,
}

impl Link {
    /// A link first heard with `frame`.
    pub(super) fn new(frame: &CsiFrame, release_s: f64) -> Self {
        Self {
            key: frame.link(),
            last_heard: frame.host_time,
            frames: 0,
            axis: Axis::new(frame.host_time),
            bins: Bins::new(frame.layout),
            history: None,
            too_few_bins: false,
            last_s: None,
            segment_frames: 0,
            lean_segments: 0,
            rate: Rate::new(),
            memory: Memory::new(),
            state: Hysteresis::new(release_s),
            noise: None,
        }
    }

    /// Seconds since the last frame.
    pub(super) fn silent_s(&self, now: SensingTime) -> f64 {
        now.secs_since(self.last_heard)
    }

    /// Takes a frame of this link.
    pub(super) fn push(&mut self, frame: &CsiFrame) {
        self.last_heard = frame.host_time;
        self.frames += 1;
        let mut t_s = self.axis.frame(frame.host_time, frame.device_us, frame.device_us_bits);
        if let Some(last_s) = self.last_s {
            let step_s = t_s - last_s;
            if !(-STEP_BACK_S..=GAP_S).contains(&step_s) {
                self.end_segment();
            } else {
                t_s = t_s.max(last_s + APART_S);
                self.rate.add(t_s, t_s - last_s);
            }
        }
        self.last_s = Some(t_s);
        self.segment_frames += 1;
        match self.bins.take(frame, t_s) {
            Use::Learning | Use::Unusable => {}
            Use::Decided(bins) => {
                self.state.reset();
                self.noise = None;
                self.too_few_bins = bins < Basis::LEAST_BINS;
                self.history = (!self.too_few_bins).then(|| History::new(Basis::new(bins)));
                if let Some(history) = &mut self.history {
                    for i in 0..self.bins.pending() {
                        if let Some((t_s, rssi)) = self.bins.replay(i) {
                            history.push(t_s, self.bins.profile(), rssi);
                        }
                    }
                }
                self.bins.drop_pending();
            }
            Use::Profile => {
                if let Some(history) = &mut self.history {
                    history.push(t_s, self.bins.profile(), frame.rssi_dbm.map_or(f32::NAN, f32::from));
                }
            }
        }
    }

    fn end_segment(&mut self) {
        self.lean_segments = if self.segment_frames < LEAN_FRAMES { self.lean_segments + 1 } else { 0 };
        self.segment_frames = 0;
        self.last_s = None;
        self.noise = None;
        self.rate.clear();
        self.state.reset();
        self.bins.drop_pending();
        if let Some(history) = &mut self.history {
            history.clear();
        }
    }

    /// What the profile did at a fused frame; `None` without a frame in it, or before the noise is known.
    pub(super) fn change(&self, now: SensingTime) -> Option<LinkChange> {
        let (history, noise) = (self.history.as_ref()?, self.noise?);
        let change = history.change(self.axis.at(now), FUSED_S, CHANGE_LAGS_S, noise)?;
        Some(LinkChange { change })
    }

    /// The link at a tick; `sensitivity` multiplies the score.
    pub(super) fn tick(&mut self, now: SensingTime, sensitivity: f64) -> LinkFeatures {
        let mut features = LinkFeatures {
            link: self.key,
            at: now,
            verdict: Verdict::None(NoVerdict::WarmingUp),
            score: None,
            change: None,
            quiet: None,
            rate_hz: 0.0,
            coverage: 0.0,
            rssi_dbm: None,
        };
        if self.silent_s(now) > GAP_S {
            if self.last_s.is_some() {
                self.end_segment();
            }
            features.verdict = Verdict::None(NoVerdict::Silent);
            return features;
        }
        let hz = self.rate.hz();
        features.rate_hz = hz.unwrap_or(0.0) as f32;
        if self.lean_segments >= LEAN_SEGMENTS {
            features.verdict = Verdict::None(NoVerdict::RateTooLow);
        }
        if self.too_few_bins {
            features.verdict = Verdict::None(NoVerdict::LinkTooPoor);
        }
        let (Some(hz), Some(history)) = (hz, &mut self.history) else { return features };
        self.lean_segments = 0;
        let tick_s = self.axis.at(now);
        let window = window(history, tick_s, hz);
        features.coverage = window.coverage as f32;
        features.rssi_dbm = history.rssi(window.range.clone());
        match score(history, &mut self.memory, tick_s, hz, &window) {
            Err(NoScore::Starting) => features.verdict = Verdict::None(NoVerdict::WarmingUp),
            Err(reason) => {
                self.state.skip();
                let why = if reason == NoScore::TooSlow { NoVerdict::RateTooLow } else { NoVerdict::Gaps };
                features.verdict = Verdict::None(why);
            }
            Ok(evidence) => {
                let score = evidence.score * sensitivity;
                self.noise = Some(evidence.noise);
                features.change = Some(evidence.ln_change as f32);
                features.quiet = self.memory.floor().map(|f| f.ln() as f32);
                features.verdict = match (self.state.score(score), evidence.doubt) {
                    (Some(true), _) => Verdict::Moving,
                    (None, _) => Verdict::None(NoVerdict::WarmingUp),
                    (Some(false), Some(Doubt::Poor)) => Verdict::None(NoVerdict::LinkTooPoor),
                    (Some(false), Some(Doubt::TooSlow)) => Verdict::None(NoVerdict::RateTooLow),
                    (Some(false), None) => Verdict::Still,
                };
                if !matches!(features.verdict, Verdict::None(_)) {
                    features.score = Some(score.max(0.0) as f32);
                }
            }
        }
        features
    }
}

const _: () = assert!(KEEP >= 3 * 140, "the history holds the longest window at any usual rate");
