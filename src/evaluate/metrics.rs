//! Scores of a detector against truth, with confidence intervals by block bootstrap.
//!
//! Adjacent verdicts share most of their window, so they are not independent: the bootstrap resamples blocks of
//! several seconds of one recording and one label, not single verdicts (Künsch 1989, moving to fixed blocks).

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

/// One scored verdict.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scored {
    /// Somebody moved.
    pub truth: bool,
    /// What the detector said; `None` = no verdict.
    pub said: Option<bool>,
    /// The detector's score.
    pub score: Option<f32>,
    /// Number of the bootstrap block, unique over all recordings.
    pub block: u32,
}

/// The figures. `None` where they are not defined (no positive or no negative among the verdicts).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Figures {
    /// Share of moving verdict times that were called moving.
    pub recall: Option<f64>,
    /// Share of "moving" verdicts that were right.
    pub precision: Option<f64>,
    /// Share of quiet verdict times that were called moving.
    pub fp_rate: Option<f64>,
    /// Harmonic mean of recall and precision.
    pub f1: Option<f64>,
    /// Mean of recall and 1 - fp_rate.
    pub balanced_accuracy: Option<f64>,
    /// Area under the ROC curve of the score.
    pub auc: Option<f64>,
    /// Share of labelled times with a verdict.
    pub coverage: f64,
    /// Labelled times.
    pub n_windows: usize,
}

/// 95 % intervals of the figures.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[allow(missing_docs)] // as in `Figures`
pub struct Intervals {
    pub recall: Option<[f64; 2]>,
    pub precision: Option<[f64; 2]>,
    pub fp_rate: Option<[f64; 2]>,
    pub f1: Option<[f64; 2]>,
    pub balanced_accuracy: Option<[f64; 2]>,
    pub auc: Option<[f64; 2]>,
    pub coverage: Option<[f64; 2]>,
}

fn ratio(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Counts of one block, all that the counting figures need.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    true_positive: usize,
    false_positive: usize,
    true_negative: usize,
    false_negative: usize,
    labelled: usize,
}

impl Counts {
    fn add(&mut self, s: &Scored) {
        self.labelled += 1;
        match (s.truth, s.said) {
            (true, Some(true)) => self.true_positive += 1,
            (true, Some(false)) => self.false_negative += 1,
            (false, Some(true)) => self.false_positive += 1,
            (false, Some(false)) => self.true_negative += 1,
            (_, None) => {}
        }
    }

    fn merge(&mut self, o: &Self) {
        self.true_positive += o.true_positive;
        self.false_positive += o.false_positive;
        self.true_negative += o.true_negative;
        self.false_negative += o.false_negative;
        self.labelled += o.labelled;
    }

    fn figures(&self, auc: Option<f64>) -> Figures {
        let (tp, fp, tn, fneg) = (self.true_positive, self.false_positive, self.true_negative, self.false_negative);
        let recall = ratio(tp, tp + fneg);
        let fp_rate = ratio(fp, fp + tn);
        Figures {
            recall,
            precision: ratio(tp, tp + fp),
            fp_rate,
            f1: if tp + fneg == 0 { None } else { ratio(2 * tp, 2 * tp + fp + fneg) },
            balanced_accuracy: recall.zip(fp_rate).map(|(r, f)| 0.5 * (r + 1.0 - f)),
            auc,
            coverage: ratio(tp + fp + tn + fneg, self.labelled).unwrap_or(0.0),
            n_windows: self.labelled,
        }
    }
}

/// The figures of a set of verdicts.
pub fn figures(scored: &[Scored]) -> Figures {
    let mut counts = Counts::default();
    scored.iter().for_each(|s| counts.add(s));
    counts.figures(auc(scored.iter().copied()))
}

/// Area under the ROC curve by ranks (Mann-Whitney), ties counted half.
fn auc(scored: impl Iterator<Item = Scored>) -> Option<f64> {
    let mut ranked: Vec<(f32, bool)> = scored.filter_map(|s| s.score.map(|v| (v, s.truth))).collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    let positives = ranked.iter().filter(|(_, t)| *t).count();
    let negatives = ranked.len() - positives;
    if positives == 0 || negatives == 0 {
        return None;
    }
    let mut rank_sum = 0.0;
    for tie in ranked.chunk_by(|a, b| a.0 == b.0).scan(0usize, |start, chunk| {
        let first = *start;
        *start += chunk.len();
        Some((first, chunk))
    }) {
        let (first, chunk) = tie;
        let mean_rank = first as f64 + (chunk.len() as f64 + 1.0) / 2.0;
        rank_sum += mean_rank * chunk.iter().filter(|(_, t)| *t).count() as f64;
    }
    let p = positives as f64;
    Some((rank_sum - p * (p + 1.0) / 2.0) / (p * negatives as f64))
}

/// 95 % intervals by `repeats` block bootstraps with a fixed seed.
pub fn intervals(scored: &[Scored], repeats: usize, seed: u64) -> Intervals {
    let blocks: Vec<&[Scored]> = scored.chunk_by(|a, b| a.block == b.block).collect();
    if blocks.len() < 2 {
        return Intervals::default();
    }
    let counts: Vec<Counts> = blocks
        .iter()
        .map(|b| {
            let mut c = Counts::default();
            b.iter().for_each(|s| c.add(s));
            c
        })
        .collect();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let samples: Vec<Figures> = (0..repeats)
        .map(|repeat| {
            let picked: Vec<usize> = (0..blocks.len()).map(|_| rng.random_range(0..blocks.len())).collect();
            let mut total = Counts::default();
            picked.iter().for_each(|&i| total.merge(&counts[i]));
            // Ranking is the costly part: a fifth of the repeats is plenty for its interval.
            let area = (repeat % 5 == 0).then(|| auc(picked.iter().flat_map(|&i| blocks[i].iter().copied()))).flatten();
            total.figures(area)
        })
        .collect();
    let of = |get: fn(&Figures) -> Option<f64>| percentile_interval(samples.iter().filter_map(get).collect());
    Intervals {
        recall: of(|f| f.recall),
        precision: of(|f| f.precision),
        fp_rate: of(|f| f.fp_rate),
        f1: of(|f| f.f1),
        balanced_accuracy: of(|f| f.balanced_accuracy),
        auc: of(|f| f.auc),
        coverage: of(|f| Some(f.coverage)),
    }
}

fn percentile_interval(mut values: Vec<f64>) -> Option<[f64; 2]> {
    if values.is_empty() {
        return None;
    }
    values.sort_by(f64::total_cmp);
    let at = |q: f64| values[((values.len() - 1) as f64 * q).round() as usize];
    Some([at(0.025), at(0.975)])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn scored(truth: bool, said: Option<bool>, score: f32, block: u32) -> Scored {
        Scored { truth, said, score: said.map(|_| score), block }
    }

    #[test]
    fn figures_by_hand() {
        let set = [
            scored(true, Some(true), 3.0, 0),
            scored(true, Some(false), 1.0, 0),
            scored(true, None, 0.0, 0),
            scored(false, Some(true), 2.0, 1),
            scored(false, Some(false), 0.5, 1),
            scored(false, Some(false), 0.4, 1),
            scored(false, Some(false), 0.4, 1),
        ];
        let f = figures(&set);
        assert_eq!(f.recall, Some(0.5));
        assert_eq!(f.precision, Some(0.5));
        assert_eq!(f.fp_rate, Some(0.25));
        assert_eq!(f.f1, Some(0.5));
        assert_eq!(f.balanced_accuracy, Some(0.625));
        // pairs (positive above negative): 3.0 beats four, 1.0 beats three of four
        assert_eq!(f.auc, Some(7.0 / 8.0));
        assert!((f.coverage - 6.0 / 7.0).abs() < 1e-12);
    }

    #[test]
    fn ties_count_half_and_one_sided_sets_have_no_area() {
        let tie = [scored(true, Some(true), 1.0, 0), scored(false, Some(true), 1.0, 1)];
        assert_eq!(figures(&tie).auc, Some(0.5));
        assert_eq!(figures(&tie[..1]).auc, None);
        assert_eq!(figures(&tie[1..]).f1, None, "no motion in the set: F1 is not defined");
    }

    #[test]
    fn the_interval_covers_the_figure_and_is_wider_for_longer_blocks() {
        let make = |block_len: u32| {
            let mut rng = ChaCha8Rng::seed_from_u64(7);
            let set: Vec<Scored> = (0..2000u32)
                .map(|i| i / block_len)
                .map(|block| {
                    let good = ChaCha8Rng::seed_from_u64(u64::from(block)).random_bool(0.8);
                    scored(block % 2 == 0, Some((block % 2 == 0) == good), rng.random(), block)
                })
                .collect();
            let f = figures(&set).balanced_accuracy.unwrap();
            let [lo, hi] = intervals(&set, 400, 1).balanced_accuracy.unwrap();
            assert!(lo <= f && f <= hi, "{lo} {f} {hi}");
            hi - lo
        };
        assert!(make(40) > 2.0 * make(2), "correlated verdicts must widen the interval");
    }
}
