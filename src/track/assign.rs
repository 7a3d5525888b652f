//! Which detection belongs to which track: the cheapest assignment of all.
//!
//! Cost of a pair: place (squared Mahalanobis distance and the logarithm of the innovation's volume, as a part of the gate)
//! and embedding (cosine distance), each with its weight; where an embedding is not known, place has all of it. Only
//! pairs within the gate count. A track may also go without: that costs more than any pair, so that as many tracks as
//! possible are served. Solved by the Hungarian method (`pathfinding::kuhn_munkres_min`) in fixed-point numbers, which
//! cannot be disturbed by rounding. Where no track shares a detection with another, nothing has to be solved (and
//! nothing is allocated).

use pathfinding::prelude::{Matrix, kuhn_munkres_min};

/// Fixed-point unit of costs.
const UNIT: f64 = 1e6;
/// Cost of a track without detection, in units of the gate.
const MISS: i64 = 10_000_000;
/// Cost of what cannot be; larger than any sum of possible ones.
const NEVER: i64 = 1_000_000_000_000;

/// What place and embedding weigh.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Weights {
    pub(super) position: f64,
    pub(super) embedding: f64,
    /// Squared Mahalanobis distance at the edge of the gate.
    pub(super) gate: f64,
}

impl Weights {
    /// Cost of a pair in units of the gate; `None` outside of it. `volume` is the determinant of the innovation's
    /// covariance over that of the detection's, at least 1; `cosine` the distance of the embeddings, 0 to 2.
    pub(super) fn cost(&self, d2: f64, volume: f64, cosine: Option<f64>) -> Option<f64> {
        if d2.is_nan() || d2 > self.gate {
            return None;
        }
        let place = ((d2 + volume.max(1.0).ln()) / self.gate).min(5.0);
        let total = self.position + self.embedding;
        Some(match cosine {
            Some(cosine) if total > 0.0 => (self.position * place + self.embedding * cosine) / total,
            _ => place,
        })
    }
}

/// Cosine distance of two embeddings, 0 to 2; `None` where one is missing, of another length, or has no direction.
pub(super) fn cosine_distance(a: Option<&[f32]>, b: Option<&[f32]>) -> Option<f64> {
    let (a, b) = (a?, b?);
    if a.len() != b.len() {
        return None;
    }
    let dot = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>();
    let norm = (dot(a, a) * dot(b, b)).sqrt();
    (norm > 0.0 && norm.is_finite()).then(|| (1.0 - dot(a, b) / norm).clamp(0.0, 2.0))
}

/// Room for one tick's assignment.
#[derive(Debug, Default)]
pub(super) struct Assignment {
    rows: usize,
    columns: usize,
    costs: Vec<Option<f64>>,
    chosen: Vec<Option<usize>>,
}

impl Assignment {
    /// Begins a tick with so many tracks and detections, every pair impossible.
    pub(super) fn begin(&mut self, tracks: usize, detections: usize) {
        (self.rows, self.columns) = (tracks, detections);
        self.costs.clear();
        self.costs.resize(tracks * detections, None);
        self.chosen.clear();
        self.chosen.resize(tracks, None);
    }

    /// Sets the cost of a pair.
    pub(super) fn set(&mut self, track: usize, detection: usize, cost: Option<f64>) {
        self.costs[track * self.columns + detection] = cost.filter(|c| c.is_finite());
    }

    /// Solves; the detection of each track.
    pub(super) fn solve(&mut self) -> &[Option<usize>] {
        let columns = self.columns;
        let pairs = |costs: &[Option<f64>], row: usize| {
            let mut all = (0..columns).filter(|c| costs[row * columns + c].is_some());
            (all.next(), all.next())
        };
        let mut simple = true;
        for row in 0..self.rows {
            match pairs(&self.costs, row) {
                (None, _) => {}
                (Some(only), None) if !self.chosen.contains(&Some(only)) => self.chosen[row] = Some(only),
                _ => simple = false,
            }
        }
        if !simple {
            let (rows, costs) = (self.rows, &self.costs);
            let matrix = Matrix::from_fn(rows, columns + rows, |(row, column)| {
                if column >= columns {
                    return if column - columns == row { MISS } else { NEVER };
                }
                costs[row * columns + column].map_or(NEVER, |c| (c.clamp(0.0, 9.0) * UNIT).round() as i64)
            });
            let (_, solution) = kuhn_munkres_min(&matrix);
            for (row, column) in solution.into_iter().enumerate() {
                self.chosen[row] = (column < columns).then_some(column);
            }
        }
        &self.chosen
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn solve(rows: usize, columns: usize, costs: &[Option<f64>]) -> Vec<Option<usize>> {
        let mut assignment = Assignment::default();
        assignment.begin(rows, columns);
        for (i, cost) in costs.iter().enumerate() {
            assignment.set(i / columns, i % columns, *cost);
        }
        assignment.solve().to_vec()
    }

    #[test]
    fn the_whole_is_cheapest_where_greed_is_not() {
        // Greedy takes 0.1 for the first track and leaves the second with 0.9; the best whole is 0.2 + 0.2.
        let found = solve(2, 2, &[Some(0.1), Some(0.2), Some(0.2), Some(0.9)]);
        assert_eq!(found, [Some(1), Some(0)]);
    }

    #[test]
    fn nobody_is_given_what_lies_outside_its_gate_and_all_that_can_are_served() {
        assert_eq!(solve(2, 1, &[None, Some(0.9)]), [None, Some(0)]);
        // Track 0 would be cheaper with detection 0, but track 1 has only that one.
        assert_eq!(solve(2, 2, &[Some(0.0), Some(0.9), Some(0.8), None]), [Some(1), Some(0)]);
        assert_eq!(solve(3, 1, &[Some(0.5), Some(0.1), Some(0.3)]), [None, Some(0), None]);
        assert!(solve(0, 0, &[]).is_empty());
    }

    #[test]
    fn weights_go_to_place_where_no_embedding_is_known() {
        let weights = Weights { position: 0.6, embedding: 0.4, gate: 9.0 };
        assert_eq!(weights.cost(4.5, 1.0, None), Some(0.5));
        assert!((weights.cost(4.5, 1.0, Some(1.0)).unwrap() - 0.7).abs() < 1e-12);
        assert_eq!(weights.cost(9.1, 1.0, None), None, "the gate is the gate, whatever the weights");
        assert_eq!(weights.cost(f64::NAN, 1.0, None), None);
        assert_eq!(cosine_distance(Some(&[1.0, 0.0]), None), None);
        assert_eq!(cosine_distance(Some(&[0.0, 0.0]), Some(&[1.0, 0.0])), None);
        assert_eq!(cosine_distance(Some(&[2.0, 0.0]), Some(&[-1.0, 0.0])), Some(2.0));
    }

    /// The best of all assignments by trying them.
    fn by_trying(rows: usize, columns: usize, costs: &[Option<f64>], row: usize, used: &mut Vec<bool>) -> f64 {
        if row == rows {
            return 0.0;
        }
        let mut best = MISS as f64 / UNIT + by_trying(rows, columns, costs, row + 1, used);
        for column in 0..columns {
            if let (false, Some(cost)) = (used[column], costs[row * columns + column]) {
                used[column] = true;
                best = best.min(cost + by_trying(rows, columns, costs, row + 1, used));
                used[column] = false;
            }
        }
        best
    }

    proptest! {
        #[test]
        fn it_is_the_best_of_all(
            rows in 1usize..5,
            columns in 1usize..5,
            raw in proptest::collection::vec(proptest::option::of(0.0f64..3.0), 25),
        ) {
            let costs = &raw[..rows * columns];
            let found = solve(rows, columns, costs);
            let mut seen = vec![false; columns];
            let mut total = 0.0;
            for (row, column) in found.iter().enumerate() {
                match column {
                    None => total += MISS as f64 / UNIT,
                    Some(c) => {
                        prop_assert!(!seen[*c], "a detection given twice");
                        seen[*c] = true;
                        total += costs[row * columns + c].unwrap();
                    }
                }
            }
            let best = by_trying(rows, columns, costs, 0, &mut vec![false; columns]);
            prop_assert!((total - best).abs() < 1e-4, "{total} against {best}");
        }
    }
}
