//! Which values of a frame are used, and the gain-free profile made of them.
//!
//! *In*: frames of one layout. *Out*: amplitudes of the bins that carry a measurement, in ascending frequency, divided by
//! their mean. *State*: the mask, decided on the first frames and then kept, so that the profiles of a series compare.
//!
//! Used is one training field: the HT (or HE) one where a layout has it, otherwise the legacy one. Its guard bins and DC
//! are left out by the layout, the first word where it is junk, and by the data what stays zero (firmware that sends
//! the legacy tones in a wider buffer) or repeats the same number for ever.

use crate::frame::{CsiFrame, Layout, SampleKind};

/// Frames the mask is decided on.
const FRAMES: u32 = 20;
/// A slow link does not wait for that many: so many are enough after [`PATIENCE_S`].
const FRAMES_SLOW: u32 = 8;
const PATIENCE_S: f64 = 1.0;
/// A bin is alive if its amplitude exceeds this in most frames (the numbers are whole).
const ALIVE: f32 = 0.5;
/// Frames may lack their last bins. Shorter ones than the mask needs are left out; if they come this often (net of
/// one tenth of the good ones), the mask is decided anew.
const SHORT_LIMIT: f32 = 10.0;

/// The bins of one link.
#[derive(Debug, Clone)]
pub(super) struct Bins {
    /// Candidates in ascending frequency, by position in the buffer.
    candidates: Vec<Candidate>,
    /// Positions in the buffer of the used bins, ascending in frequency; empty until decided.
    used: Vec<u16>,
    frames: u32,
    first_s: f64,
    /// Bins that every frame so far had.
    common: usize,
    first_word_invalid: bool,
    short: f32,
    profile: Vec<f32>,
    /// The frames the mask is decided on, which then become the first profiles: amplitudes of all candidates.
    pending: Vec<f32>,
    pending_times: Vec<(f64, f32)>,
}

#[derive(Debug, Clone, Copy)]
struct Candidate {
    position: u16,
    alive: u32,
    same: u32,
    last: (i16, i16),
}

/// What a frame was good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// It went into the decision on the mask.
    Learning,
    /// The mask stands now (this frame was the last that went into it), with so many bins. An earlier mask is void.
    Decided(usize),
    /// [`Bins::profile`] holds its profile.
    Profile,
    /// It lacks bins, or is all zeros.
    Unusable,
}

impl Bins {
    pub(super) fn new(layout: Layout) -> Self {
        let len = layout.len().min(CsiFrame::MAX_VALUES);
        let usable = |i: &usize| layout.usable(*i);
        let field = u8::from((0..len).filter(usable).any(|i| layout.field(i) == 1));
        let mut candidates: Vec<Candidate> = (0..len)
            .filter(usable)
            .filter(|i| layout.field(*i) == field)
            .map(|i| Candidate { position: i as u16, alive: 0, same: 0, last: (0, 0) })
            .collect();
        candidates.sort_by_key(|c| layout.bin(usize::from(c.position)));
        Self {
            used: Vec::with_capacity(candidates.len()),
            profile: Vec::with_capacity(candidates.len()),
            pending: Vec::with_capacity(candidates.len() * FRAMES as usize),
            pending_times: Vec::with_capacity(FRAMES as usize),
            candidates,
            frames: 0,
            first_s: 0.0,
            common: usize::MAX,
            first_word_invalid: false,
            short: 0.0,
        }
    }

    /// Takes a frame of time `t_s` on the link's axis.
    pub(super) fn take(&mut self, frame: &CsiFrame, t_s: f64) -> Use {
        let junk_appeared = frame.first_word_invalid && !self.first_word_invalid && self.used.iter().any(|&p| p < 2);
        self.first_word_invalid |= frame.first_word_invalid;
        if junk_appeared || self.short >= SHORT_LIMIT {
            self.restart();
        }
        if self.used.is_empty() {
            return self.learn(frame, t_s);
        }
        if frame.bin_count() < self.common {
            self.short += 1.0;
            return Use::Unusable;
        }
        self.short = (self.short - 0.1).max(0.0);
        if self.fill(frame) { Use::Profile } else { Use::Unusable }
    }

    /// The profile of the last frame taken: mean 1.
    pub(super) fn profile(&self) -> &[f32] {
        &self.profile
    }

    /// Number of frames that went into the decision; to be had by [`replay`](Self::replay).
    pub(super) fn pending(&self) -> usize {
        self.pending_times.len()
    }

    /// Makes the profile of one of them; its time and signal strength, unless it is unusable.
    pub(super) fn replay(&mut self, i: usize) -> Option<(f64, f32)> {
        let row = self.pending.chunks_exact(self.candidates.len().max(1)).nth(i)?;
        self.profile.clear();
        let used = |c: &Candidate| self.used.contains(&c.position);
        self.profile.extend(self.candidates.iter().zip(row).filter(|(c, _)| used(c)).map(|(_, a)| *a));
        normalise(&mut self.profile).then(|| self.pending_times[i])
    }

    /// Forgets the frames that wait for the mask, as a new segment began; what they said about the mask stays.
    pub(super) fn drop_pending(&mut self) {
        self.pending.clear();
        self.pending_times.clear();
    }

    fn restart(&mut self) {
        self.drop_pending();
        self.used.clear();
        (self.frames, self.common, self.short) = (0, usize::MAX, 0.0);
        for c in &mut self.candidates {
            (c.alive, c.same) = (0, 0);
        }
    }

    fn learn(&mut self, frame: &CsiFrame, t_s: f64) -> Use {
        let count = frame.bin_count();
        for c in &mut self.candidates {
            let position = usize::from(c.position);
            if position >= count {
                self.pending.push(0.0);
                continue;
            }
            let (raw, amplitude) = (raw(frame, position), amplitude(frame, position));
            self.pending.push(amplitude);
            c.alive += u32::from(amplitude > ALIVE);
            c.same += u32::from(self.frames > 0 && raw == c.last);
            c.last = raw;
        }
        if self.frames == 0 {
            self.first_s = t_s;
        }
        self.pending_times.push((t_s, frame.rssi_dbm.map_or(f32::NAN, f32::from)));
        self.frames += 1;
        self.common = self.common.min(count);
        let enough = self.frames >= FRAMES || (self.frames >= FRAMES_SLOW && t_s - self.first_s >= PATIENCE_S);
        if !enough {
            return Use::Learning;
        }
        let (frames, common) = (self.frames, self.common);
        let skip = if self.first_word_invalid { 2 } else { 0 };
        let stuck = |c: &Candidate| c.same + 1 == frames;
        // If many repeat, it is the source that repeats (a test pattern), not single dead bins.
        let some_stuck = self.candidates.iter().filter(|c| stuck(c)).count() * 4 < self.candidates.len();
        self.used.extend(
            self.candidates
                .iter()
                .filter(|c| usize::from(c.position) < common && c.position >= skip)
                .filter(|c| 2 * c.alive > frames && !(some_stuck && stuck(c)))
                .map(|c| c.position),
        );
        let used = self.used.len();
        if used == 0 {
            self.restart();
            return Use::Unusable;
        }
        Use::Decided(used)
    }

    fn fill(&mut self, frame: &CsiFrame) -> bool {
        self.profile.clear();
        self.profile.extend(self.used.iter().map(|&p| amplitude(frame, usize::from(p))));
        normalise(&mut self.profile)
    }
}

/// Divides by the mean; false if there is none.
fn normalise(profile: &mut [f32]) -> bool {
    let sum: f64 = profile.iter().map(|a| f64::from(*a)).sum();
    let mean = sum / profile.len() as f64;
    if mean <= 0.0 {
        return false;
    }
    let scale = (1.0 / mean) as f32;
    profile.iter_mut().for_each(|a| *a *= scale);
    true
}

/// The numbers of a bin as sent.
fn raw(frame: &CsiFrame, position: usize) -> (i16, i16) {
    match frame.kind {
        SampleKind::Iq => (frame.values[2 * position], frame.values[2 * position + 1]),
        SampleKind::Amplitude => (frame.values[position], 0),
    }
}

fn amplitude(frame: &CsiFrame, position: usize) -> f32 {
    let (a, b) = raw(frame, position);
    let (a, b) = (f32::from(a), f32::from(b));
    (a * a + b * b).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::NodeKey;

    fn frame(layout: Layout, value: impl Fn(usize) -> (i16, i16)) -> CsiFrame {
        let mut frame = CsiFrame::empty(NodeKey::Serial { port: 0 });
        frame.layout = layout;
        for i in 0..layout.len() {
            let (im, re) = value(i);
            frame.values.extend([im, re]);
        }
        frame
    }

    fn decide(layout: Layout, junk: bool, value: impl Fn(usize, i16) -> (i16, i16)) -> Bins {
        let mut bins = Bins::new(layout);
        for n in 0..FRAMES as i16 {
            let mut frame = frame(layout, |i| value(i, n));
            frame.first_word_invalid = junk;
            let used = bins.take(&frame, f64::from(n) * 0.01);
            assert_eq!(matches!(used, Use::Decided(_)), n == FRAMES as i16 - 1, "{n}");
        }
        bins
    }

    #[test]
    fn ascending_order_without_guards_dead_bins_and_junk() {
        let bins = decide(Layout::Natural64, true, |i, n| match i {
            27 | 28 => (0, 0),
            40 => (9, 9),
            _ => (10 + n % 3, i as i16),
        });
        let order: Vec<i16> = bins.used.iter().map(|&p| Layout::Natural64.bin(usize::from(p))).collect();
        assert!(order.is_sorted());
        assert_eq!(order.len(), 56 - 2 - 1 - 1);
        assert!(!order.contains(&27) && !order.contains(&1) && !order.contains(&-24) && order.contains(&2));
    }

    #[test]
    fn the_ht_field_alone_of_two() {
        let bins = decide(Layout::LltfHt128, true, |_, n| (10, n));
        assert_eq!(bins.used.len(), 56);
        assert!(bins.used.iter().all(|&p| p >= 64));
    }

    #[test]
    fn the_mean_is_one_whatever_the_gain() {
        let mut bins = decide(Layout::Natural64, false, |i, n| (n + 3, i as i16));
        assert_eq!(bins.take(&frame(Layout::Natural64, |i| (3, i as i16)), 1.0), Use::Profile);
        let one = bins.profile().to_vec();
        assert!((one.iter().sum::<f32>() / one.len() as f32 - 1.0).abs() < 1e-5);
        assert_eq!(bins.take(&frame(Layout::Natural64, |i| (300, 100 * i as i16)), 1.1), Use::Profile);
        assert!(one.iter().zip(bins.profile()).all(|(a, b)| (a - b).abs() < 1e-5));
        assert_eq!(bins.take(&frame(Layout::Natural64, |_| (0, 0)), 1.2), Use::Unusable);
    }

    #[test]
    fn short_frames_are_left_out_until_they_are_the_rule() {
        let mut bins = decide(Layout::Natural64, false, |i, n| (n + 3, i as i16));
        let mut short = frame(Layout::Natural64, |i| (3, i as i16));
        short.values.truncate(120);
        assert_eq!(bins.take(&short, 1.0), Use::Unusable);
        let mut decided = None;
        for i in 0..60i16 {
            short.values[8] = i;
            if let Use::Decided(n) = bins.take(&short, 1.0 + 0.01 * f64::from(i)) {
                decided = Some(n);
            }
        }
        assert_eq!(decided, Some(52), "the last four bins are gone");
    }

    #[test]
    fn junk_that_appears_later_re_opens_the_mask() {
        let mut bins = decide(Layout::Natural64, false, |i, n| (n + 3, i as i16));
        let mut junk = frame(Layout::Natural64, |i| (3, i as i16));
        junk.first_word_invalid = true;
        assert_eq!(bins.take(&junk, 1.0), Use::Learning);
    }
}
