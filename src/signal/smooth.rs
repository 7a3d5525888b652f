//! The statistic: how much the smooth part of the profile across the bins changes over a lag, in units of the noise.
//!
//! *In*: gain-free profiles (amplitude of each bin divided by the frame's mean) with their times. *Out*: a level per lag.
//!
//! Each profile is projected on an orthonormal cosine basis across the bins (DCT-II). A body adds paths a few metres
//! longer than the direct one, and a path of d metres turns once in c/d hertz: over 20 MHz that is a profile that bends
//! once or twice. So motion shows in the lowest three components, while receiver noise is white across the bins and
//! shows in all of them alike. The differences of the rough components measure it in the very frames that are judged.
//! A constant factor has no part in either. Logarithms keep one corrupted frame from carrying a window.

use super::rate::median;

/// Smooth components, 1 to 3. Component 0 is the mean, which gain normalisation has taken away.
pub(super) const SMOOTH: usize = 3;
/// Lowest rough component: a third of the bins, and not below this one.
const ROUGH_FROM: usize = 16;
/// Frames kept. At most 3 s are looked at.
pub(super) const KEEP: usize = 512;
/// A pair of frames stands for lag h if it is 0.7 h to 2.4 h apart.
const LAG_LOW: f64 = 0.7;
const LAG_HIGH: f64 = 2.4;
/// Least noise of a component of a profile of mean 1, squared: that of an exact series is not 0.
const LEAST_NOISE: f64 = 1e-9;
const LANES: usize = 8;

/// The cosine basis for a number of bins: smooth and rough rows, bin by bin.
#[derive(Debug, Clone)]
pub(super) struct Basis {
    bins: usize,
    rough: usize,
    /// Rough rows, padded to whole lanes with zeros.
    padded: usize,
    smooth_rows: Vec<[f32; SMOOTH]>,
    rough_rows: Vec<f32>,
}

impl Basis {
    /// Fewest bins for which smooth and rough can be told apart.
    pub(super) const LEAST_BINS: usize = 24;

    pub(super) fn new(bins: usize) -> Self {
        let first = ROUGH_FROM.max(bins / 3) + 1;
        let rough = bins.saturating_sub(first);
        let padded = rough.div_ceil(LANES) * LANES;
        let row = |k: usize, n: usize| {
            let angle = std::f64::consts::PI * (n as f64 + 0.5) * k as f64 / bins as f64;
            ((2.0 / bins as f64).sqrt() * angle.cos()) as f32
        };
        let smooth_rows = (0..bins).map(|n| std::array::from_fn(|k| row(k + 1, n))).collect();
        let mut rough_rows = vec![0.0; bins * padded];
        for n in 0..bins {
            for k in 0..rough {
                rough_rows[n * padded + k] = row(first + k, n);
            }
        }
        Self { bins, rough, padded, smooth_rows, rough_rows }
    }
}

/// What one lag says about a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Level {
    /// Pairs of frames that went in.
    pub(super) pairs: usize,
    /// Noise per component of one profile (variance; the profile's mean is 1).
    pub(super) noise: f64,
    /// Natural logarithm of the change of the smooth components in units of the noise.
    pub(super) ln_change: f64,
}

/// The last [`KEEP`] projected profiles of a segment, contiguous, oldest first.
#[derive(Debug, Clone)]
pub(super) struct History {
    basis: Basis,
    /// The frames kept are `start..times.len()`.
    start: usize,
    times: Vec<f64>,
    smooth: Vec<[f32; SMOOTH]>,
    rough: Vec<f32>,
    rssi: Vec<f32>,
    pair_noise: Vec<f64>,
    pair_change: Vec<[f32; SMOOTH]>,
}

impl History {
    pub(super) fn new(basis: Basis) -> Self {
        let room = 2 * KEEP;
        Self {
            start: 0,
            times: Vec::with_capacity(room),
            smooth: Vec::with_capacity(room),
            rough: Vec::with_capacity(room * basis.padded),
            rssi: Vec::with_capacity(room),
            pair_noise: Vec::with_capacity(room),
            pair_change: Vec::with_capacity(room),
            basis,
        }
    }

    pub(super) fn clear(&mut self) {
        self.start = 0;
        self.times.clear();
        self.smooth.clear();
        self.rough.clear();
        self.rssi.clear();
    }

    /// Times of the frames kept, seconds.
    pub(super) fn times(&self) -> &[f64] {
        &self.times[self.start..]
    }

    /// True once frames have begun to fall out of the history.
    pub(super) fn is_full(&self) -> bool {
        self.times().len() == KEEP
    }

    /// Adds a profile of as many values as the basis has bins, later than all before; `rssi_dbm` NaN where unknown.
    pub(super) fn push(&mut self, t_s: f64, profile: &[f32], rssi_dbm: f32) {
        debug_assert_eq!(profile.len(), self.basis.bins);
        let padded = self.basis.padded;
        if self.times.len() == 2 * KEEP {
            // The newer half moves to the front, so that a window is always one slice.
            self.times.drain(..self.start);
            self.smooth.drain(..self.start);
            self.rough.drain(..self.start * padded);
            self.rssi.drain(..self.start);
            self.start = 0;
        }
        let mut smooth = [0.0f32; SMOOTH];
        for (row, x) in self.basis.smooth_rows.iter().zip(profile) {
            for (y, m) in smooth.iter_mut().zip(row) {
                *y += m * x;
            }
        }
        let begin = self.rough.len();
        self.rough.resize(begin + padded, 0.0);
        let rough = &mut self.rough[begin..];
        for (row, x) in self.basis.rough_rows.chunks_exact(padded.max(1)).zip(profile) {
            for (y, m) in rough.iter_mut().zip(row) {
                *y += m * x;
            }
        }
        self.times.push(t_s);
        self.smooth.push(smooth);
        self.rssi.push(rssi_dbm);
        self.start = self.times.len().saturating_sub(KEEP).max(self.start);
    }

    /// Positions of the frames with `from_s <= t <= to_s`, for [`level`](Self::level).
    pub(super) fn window(&self, from_s: f64, to_s: f64) -> std::ops::Range<usize> {
        let times = self.times();
        let first = times.partition_point(|t| *t < from_s);
        let end = times.partition_point(|t| *t <= to_s).max(first);
        self.start + first..self.start + end
    }

    /// Squared change of the smooth components over each lag at `now_s`, in units of what noise of variance `noise`
    /// alone would give. `None` without a frame in the last `span_s`.
    ///
    /// Each end is the mean of the frames in a span; where the older span is empty, the latest frame that still stands
    /// for the lag serves.
    pub(super) fn change<const LAGS: usize>(
        &self,
        now_s: f64,
        span_s: f64,
        lags_s: [f64; LAGS],
        noise: f64,
    ) -> Option<[[f32; SMOOTH]; LAGS]> {
        let span = |end_s: f64| {
            let times = self.times();
            let first = times.partition_point(|t| *t <= end_s - span_s);
            let end = times.partition_point(|t| *t <= end_s);
            self.start + first..self.start + end.max(first)
        };
        let mean = |range: std::ops::Range<usize>| {
            let n = range.len() as f32;
            let sum = self.smooth[range].iter().fold([0.0f32; SMOOTH], |s, x| std::array::from_fn(|k| s[k] + x[k]));
            (sum.map(|s| s / n), n)
        };
        let newest = span(now_s);
        if newest.is_empty() {
            return None;
        }
        let first_s = self.times[newest.start];
        let (new, new_n) = mean(newest);
        Some(lags_s.map(|lag_s| {
            let mut older = span(now_s - lag_s);
            if older.is_empty() {
                let end = older.end;
                if end == self.start || first_s - self.times[end - 1] > LAG_HIGH * lag_s {
                    return [f32::NAN; SMOOTH];
                }
                older = end - 1..end;
            }
            let (old, old_n) = mean(older);
            let expected = (noise.max(LEAST_NOISE) as f32) * (1.0 / new_n + 1.0 / old_n);
            std::array::from_fn(|k| (new[k] - old[k]) * (new[k] - old[k]) / expected)
        }))
    }

    /// Mean signal strength over a window, where known.
    pub(super) fn rssi(&self, window: std::ops::Range<usize>) -> Option<f32> {
        let known = self.rssi[window].iter().filter(|r| !r.is_nan());
        let (n, sum) = known.fold((0u16, 0.0), |(n, sum), r| (n + 1, sum + r));
        (n > 0).then(|| sum / f32::from(n))
    }

    /// The change over lag `lag_s` in a window.
    ///
    /// Each frame is paired with the latest one at least 0.7 lags older and with that one's predecessor: the second
    /// cancels patterns that alternate from frame to frame. The noise is the median over the pairs, so that single
    /// corrupted frames do not raise it.
    pub(super) fn level(&mut self, window: std::ops::Range<usize>, lag_s: f64) -> Level {
        let from = window.start;
        self.level_back_to(window, from, lag_s)
    }

    /// As [`level`](Self::level), with partners back to `from`, before the window.
    pub(super) fn level_back_to(&mut self, window: std::ops::Range<usize>, from: usize, lag_s: f64) -> Level {
        self.pair_noise.clear();
        self.pair_change.clear();
        let padded = self.basis.padded;
        let mut after = from;
        for j in window.clone() {
            let t = self.times[j];
            while after < j && self.times[after] <= t - LAG_LOW * lag_s + 1e-9 {
                after += 1;
            }
            for i in (after.saturating_sub(2)..after).filter(|i| *i >= from) {
                if t - self.times[i] > LAG_HIGH * lag_s {
                    continue;
                }
                let rough = half_square_distance(
                    &self.rough[j * padded..(j + 1) * padded],
                    &self.rough[i * padded..(i + 1) * padded],
                );
                self.pair_noise.push(f64::from(rough) / self.basis.rough as f64);
                let (a, b) = (&self.smooth[j], &self.smooth[i]);
                self.pair_change.push(std::array::from_fn(|k| 0.5 * (a[k] - b[k]) * (a[k] - b[k])));
            }
        }
        let pairs = self.pair_noise.len();
        if pairs == 0 {
            return Level { pairs, noise: LEAST_NOISE, ln_change: 0.0 };
        }
        let noise = median(&mut self.pair_noise).max(LEAST_NOISE);
        let sum: f64 =
            self.pair_change.iter().map(|d| d.iter().map(|q| 1.0 + f64::from(*q) / noise).product::<f64>().ln()).sum();
        Level { pairs, noise, ln_change: sum / (SMOOTH * pairs) as f64 }
    }
}

/// Half the squared distance of two rows of whole lanes.
fn half_square_distance(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    for (a, b) in a.chunks_exact(LANES).zip(b.chunks_exact(LANES)) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += (a - b) * (a - b);
        }
    }
    0.5 * sums.iter().sum::<f32>()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A profile of 56 bins with a slowly sliding bump and noise of a linear congruential generator, every seventh
    /// frame missing. The expected numbers are those of an independent implementation in double precision.
    fn history(frames: i32) -> History {
        let mut state: u32 = 12345;
        let mut history = History::new(Basis::new(56));
        for i in 0..frames {
            let mut row: Vec<f32> = (0..56)
                .map(|n| {
                    state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345) & 0x7fff_ffff;
                    let noise = f64::from((state >> 16) % 7);
                    (40.0 + 15.0 * (0.2 * f64::from(n) + 0.02 * f64::from(i)).sin() + noise).trunc() as f32
                })
                .collect();
            if i % 7 == 3 {
                continue;
            }
            let mean = row.iter().sum::<f32>() / 56.0;
            row.iter_mut().for_each(|v| *v /= mean);
            history.push(f64::from(i) * 0.01, &row, if i % 2 == 0 { -50.0 } else { f32::NAN });
        }
        history
    }

    #[test]
    fn levels_are_those_of_the_reference() {
        let mut history = history(240);
        let window = history.window(1.0, 2.0);
        assert_eq!(window, 86..172);
        let near = history.level(window.clone(), 0.01);
        assert_eq!(near.pairs, 141);
        assert!((near.noise / 0.002_425_852_317_754 - 1.0).abs() < 1e-4, "{near:?}");
        assert!((near.ln_change - 0.592_821_639_402).abs() < 1e-4, "{near:?}");
        let far = history.level(window.clone(), 0.1);
        assert_eq!(far.pairs, 159);
        assert!((far.noise / 0.002_392_202_268_546 - 1.0).abs() < 1e-4, "{far:?}");
        assert!((far.ln_change - 1.211_094_266_540).abs() < 1e-4, "{far:?}");
        assert_eq!(history.rssi(window), Some(-50.0));
    }

    #[test]
    fn the_history_is_bounded_and_never_grows() {
        let few = history(10);
        let many = history(3000);
        assert_eq!(many.times().len(), KEEP);
        assert!(many.is_full());
        let room = |h: &History| [h.times.capacity(), h.smooth.capacity(), h.rough.capacity(), h.rssi.capacity()];
        assert_eq!(room(&few), room(&many));
        let mut many = many;
        let room = [many.pair_noise.capacity(), many.pair_change.capacity()];
        let all = many.window(0.0, 1e9);
        assert!(many.level(all, 0.1).pairs > KEEP);
        assert_eq!(room, [many.pair_noise.capacity(), many.pair_change.capacity()]);
    }

    #[test]
    fn change_is_one_for_noise_and_large_for_motion() {
        let (mut history, mut rng) = (History::new(Basis::new(56)), 7u64);
        let mut noise = || {
            // The sum of twelve uniform numbers has variance 1.
            let uniform = |_| {
                rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (rng >> 40) as f32 / (1u32 << 24) as f32
            };
            (0..12).map(uniform).sum::<f32>() - 6.0
        };
        let (lags, mut sum, mut n) = ([0.05, 0.1, 0.2, 0.4], [0.0f64; 4], 0.0);
        for i in 0..4000 {
            let profile: Vec<f32> = (0..56).map(|_| 1.0 + 0.05 * noise()).collect();
            history.push(f64::from(i) * 0.01, &profile, f32::NAN);
            if i > 60 && i % 5 == 0 {
                let change = history.change(f64::from(i) * 0.01, 0.05, lags, 0.0025).unwrap();
                for (sum, lag) in sum.iter_mut().zip(change) {
                    *sum += f64::from(lag.iter().sum::<f32>()) / SMOOTH as f64;
                }
                n += 1.0;
            }
        }
        for sum in sum {
            assert!((sum / n - 1.0).abs() < 0.08, "{}", sum / n);
        }
        let bent: Vec<f32> = (0..56).map(|b| if b < 28 { 1.2 } else { 0.8 }).collect();
        for i in 0..5 {
            history.push(40.0 + f64::from(i) * 0.01, &bent, f32::NAN);
        }
        let change = history.change(40.04, 0.05, lags, 0.0025).unwrap();
        assert!(change.iter().all(|lag| lag[0] > 100.0), "{change:?}");
        // Ten frames per second: half of the spans are empty, the shortest lag takes the frame before.
        let mut slow = History::new(Basis::new(56));
        for i in 0..20 {
            slow.push(f64::from(i) * 0.1, &bent, f32::NAN);
        }
        assert_eq!(slow.change(1.96, 0.05, lags, 0.0025), None);
        assert!(slow.change(1.91, 0.05, lags, 0.0025).unwrap().iter().flatten().all(|r| *r == 0.0));
        let early = history.change(0.02, 0.05, lags, 0.0025);
        assert!(early.is_none(), "frames long gone: {early:?}");
    }

    #[test]
    fn an_empty_window_is_no_change() {
        let mut history = history(100);
        let level = history.level(history.window(5.0, 6.0), 0.1);
        assert_eq!((level.pairs, level.ln_change), (0, 0.0));
    }
}
