//! From links to places: variance-based radio tomographic imaging.
//!
//! *In*: per link of an area how much its profile changes above quiet, as a part of what is usual for that link while
//! somebody moves. *Out*: detections. *State*: the solver of the present set of links, and the usual changes.
//!
//! After Wilson and Patwari, *See-Through Walls: Motion Tracking Using Variance-Based Radio Tomography Networks* (IEEE
//! Transactions on Mobile Computing, 2011): y = W x + n with an exponential covariance between cells, solved by regularised
//! least squares. In the space of links that solution is x = C W' (W C W' + a I)^-1 y; the matrix before y is computed when
//! the set of links changes, and an image is one product. Two things differ from that paper, because what is imaged here
//! is not received power but the *shape* of a gain-free profile across 20 MHz:
//!
//! - An echo on the direct line is not later than the direct path and does not bend the profile, so links do not see
//!   best what is on their line. What counts is how strong the echo is, which falls with the distances to both ends
//!   (radar equation), above a part that the walls' echoes fill: w = (1/d1^2 + e)(1/d2^2 + e).
//! - Each link is measured by its own usual change, and the image is made of roots (amplitudes), since the change
//!   fades by factors.
//!
//! Several people: the strongest place is found, its part is taken off the links (successive interference
//! cancellation), the rest is imaged again, and the places found are refined in turn. One more person is believed only
//! where the misfit falls clearly.

use nalgebra::{DMatrix, DVector};

use super::plan::{Grid, crossing, distance};
use super::settings::Settings;

/// Distances to the ends of a link count as no shorter than this, squared, metres.
const NEAR_M2: f64 = 0.25;
/// Ticks for which the usual change of all links stands in for a link's own.
const PRIOR_TICKS: f64 = 40.0;
/// Memory of the usual change, ticks with motion.
const MEMORY_TICKS: f64 = 2400.0;
/// Rounds in which places are refined in turn.
const ROUNDS: usize = 2;

/// Somebody seen at a tick.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Detection {
    pub(super) position_m: [f64; 2],
    /// Change of the links that it explains; 1 is usual for one person.
    pub(super) strength: f64,
    cell: usize,
}

/// The image of one area.
#[derive(Debug, Clone)]
pub(super) struct Image {
    pub(super) grid: Grid,
    /// Cells where detections may be.
    covered: Vec<bool>,
    /// Links by cells: part of a link's change, mean 1 over the cells.
    weights: DMatrix<f64>,
    /// C W', cells by links.
    spread: DMatrix<f64>,
    /// W C W'.
    between: DMatrix<f64>,
    /// The set of links that `solver` is for.
    present: Vec<bool>,
    solver: DMatrix<f64>,
    solvable: bool,
    /// Sum of changes and number of ticks with motion, per link.
    usual: Vec<(f64, f64)>,
    // Scratch of one tick.
    change: Vec<f64>,
    rest: DVector<f64>,
    image: DVector<f64>,
    pub(super) detections: Vec<Detection>,
}

impl Image {
    /// The image of links with these ends.
    pub(super) fn new(ends: &[[[f64; 2]; 2]], settings: &Settings) -> Self {
        let grid = Grid::over(ends, settings.grid_step_m);
        let (links, cells) = (ends.len(), grid.cells.len());
        let echo = settings.echo_per_m2;
        let mut weights = DMatrix::from_fn(links, cells, |l, j| {
            let reach = |end: [f64; 2]| 1.0 / (distance(end, grid.cells[j]).powi(2) + NEAR_M2) + echo;
            reach(ends[l][0]) * reach(ends[l][1])
        });
        for l in 0..links {
            let mean = weights.row(l).mean();
            weights.row_mut(l).scale_mut(1.0 / mean);
        }
        let mut spread = DMatrix::zeros(cells, links);
        for i in 0..cells {
            for j in 0..cells {
                let c = (-distance(grid.cells[i], grid.cells[j]) / settings.correlation_m).exp();
                for l in 0..links {
                    spread[(i, l)] += c * weights[(l, j)];
                }
            }
        }
        let between = &weights * &spread;
        let covered = grid.cells.iter().map(|at| crossing(ends, *at, settings.ellipse_excess_m)).collect();
        Self {
            covered,
            weights,
            spread,
            between,
            present: vec![false; links],
            solver: DMatrix::zeros(cells, links),
            solvable: false,
            usual: vec![(0.0, 0.0); links],
            change: vec![0.0; links],
            rest: DVector::zeros(links),
            image: DVector::zeros(cells),
            detections: Vec::with_capacity(8),
            grid,
        }
    }

    /// Sum of changes and number of ticks with motion, per link.
    pub(super) fn usual(&self) -> &[(f64, f64)] {
        &self.usual
    }

    /// Takes over what was learned of the links before.
    pub(super) fn remember(&mut self, usual: impl Iterator<Item = (f64, f64)>) {
        self.usual.iter_mut().zip(usual).for_each(|(to, from)| *to = from);
    }

    /// Looks at one tick in which something moves: per link its change above quiet in linear units of noise, `None`
    /// where the link says nothing. Fills `detections`, strongest first. Returns false where no image can be made.
    pub(super) fn look(&mut self, changes: &[Option<f64>], settings: &Settings) -> bool {
        self.detections.clear();
        self.prepare(changes, settings);
        if !self.solvable {
            return false;
        }
        self.normalise(changes);
        let mut misfit = self.misfit();
        let first_misfit = misfit;
        for _ in 0..settings.max_detections {
            let known = self.detections.len();
            let before: [Option<Detection>; 8] = std::array::from_fn(|i| self.detections.get(i).copied());
            let Some(found) = self.strongest(None, settings) else { break };
            self.detections.push(found);
            if known > 0 {
                for _ in 0..ROUNDS {
                    for i in 0..=known {
                        if let Some(better) = self.strongest(Some(i), settings) {
                            self.detections[i] = better;
                        }
                    }
                }
            }
            let now = self.misfit();
            let weakest = self.detections.iter().map(|d| d.strength).fold(f64::INFINITY, f64::min);
            let most = self.detections.iter().map(|d| d.strength).fold(0.0, f64::max);
            let believed =
                known == 0 || (now <= settings.misfit_ratio * misfit && weakest >= settings.least_share * most);
            if !believed {
                self.detections.clear();
                self.detections.extend(before.into_iter().flatten());
                break;
            }
            misfit = now;
        }
        debug_assert!(misfit <= first_misfit || self.detections.len() <= 1);
        self.detections.sort_by(|a, b| b.strength.total_cmp(&a.strength));
        true
    }

    /// Makes the solver for the set of links that speak, where that has changed (this allocates).
    fn prepare(&mut self, changes: &[Option<f64>], settings: &Settings) {
        if self.solvable && self.present.iter().zip(changes).all(|(p, c)| *p == c.is_some()) {
            return;
        }
        self.present.iter_mut().zip(changes).for_each(|(p, c)| *p = c.is_some());
        let speaking: Vec<usize> = (0..changes.len()).filter(|l| changes[*l].is_some()).collect();
        self.solvable = speaking.len() >= 3;
        self.solver.fill(0.0);
        if !self.solvable {
            return;
        }
        let n = speaking.len();
        let mean: f64 = speaking.iter().map(|l| self.between[(*l, *l)]).sum::<f64>() / n as f64;
        let mut system = DMatrix::from_fn(n, n, |a, b| self.between[(speaking[a], speaking[b])]);
        for k in 0..n {
            system[(k, k)] += settings.regularisation * mean;
        }
        let Some(cholesky) = system.cholesky() else {
            self.solvable = false;
            return;
        };
        let right = DMatrix::from_fn(n, self.grid.cells.len(), |a, j| self.spread[(j, speaking[a])]);
        let solved = cholesky.solve(&right);
        for (a, l) in speaking.iter().enumerate() {
            for j in 0..self.grid.cells.len() {
                self.solver[(j, *l)] = solved[(a, j)];
            }
        }
    }

    /// Changes as parts of what is usual; and learns what is.
    fn normalise(&mut self, changes: &[Option<f64>]) {
        let (mut sum, mut ticks) = (0.0, 0.0);
        for (usual, change) in self.usual.iter_mut().zip(changes) {
            if let Some(change) = change {
                usual.0 += change;
                usual.1 += 1.0;
                if usual.1 > MEMORY_TICKS {
                    usual.0 /= 2.0;
                    usual.1 /= 2.0;
                }
            }
            sum += usual.0;
            ticks += usual.1;
        }
        let common = if ticks > 0.0 { (sum / ticks).max(1e-9) } else { 1.0 };
        for (l, change) in changes.iter().enumerate() {
            let (sum, ticks) = self.usual[l];
            let usual = (sum + PRIOR_TICKS * common) / (ticks + PRIOR_TICKS);
            self.change[l] = change.map_or(0.0, |c| c / usual.max(1e-9));
        }
    }

    /// Change of link `l` that the detections explain, without detection `but`.
    fn explained(&self, l: usize, but: Option<usize>) -> f64 {
        let others = self.detections.iter().enumerate().filter(|(i, _)| Some(*i) != but);
        others.map(|(_, d)| d.strength * self.weights[(l, d.cell)]).sum()
    }

    /// Sum of squared differences of the amplitudes of the links.
    fn misfit(&self) -> f64 {
        let speaking = (0..self.change.len()).filter(|l| self.present[*l]);
        speaking.map(|l| (self.change[l].sqrt() - self.explained(l, None).sqrt()).powi(2)).sum()
    }

    /// The strongest place of what the other detections leave, not nearer to them than the resolution.
    fn strongest(&mut self, but: Option<usize>, settings: &Settings) -> Option<Detection> {
        for l in 0..self.change.len() {
            let rest = if self.present[l] { (self.change[l] - self.explained(l, but)).max(0.0) } else { 0.0 };
            self.rest[l] = rest.sqrt();
        }
        self.image.gemv(1.0, &self.solver, &self.rest, 0.0);
        let free = |j: usize| {
            let at = self.grid.cells[j];
            self.covered[j]
                && self
                    .detections
                    .iter()
                    .enumerate()
                    .all(|(i, d)| Some(i) == but || distance(d.position_m, at) >= settings.resolution_m)
        };
        let cell =
            (0..self.grid.cells.len()).filter(|j| free(*j)).max_by(|a, b| self.image[*a].total_cmp(&self.image[*b]))?;
        let (mut with, mut whole) = (0.0, 0.0);
        for l in (0..self.change.len()).filter(|l| self.present[*l]) {
            let w = self.weights[(l, cell)];
            with += self.rest[l] * w.sqrt();
            whole += w;
        }
        let strength = if whole > 0.0 { (with / whole).powi(2) } else { 0.0 };
        (strength > 0.0).then_some(Detection { position_m: self.grid.cells[cell], strength, cell })
    }

    /// The cell nearest to `at`.
    pub(super) fn cell_at(&self, at: [f64; 2]) -> usize {
        let far = |j: &usize| distance(self.grid.cells[*j], at);
        (0..self.grid.cells.len()).min_by(|a, b| far(a).total_cmp(&far(b))).unwrap_or(0)
    }

    /// Part of the change of link `l` that somebody in `cell` makes; 1 is the mean over the cells.
    pub(super) fn weight(&self, l: usize, cell: usize) -> f64 {
        self.weights[(l, cell)]
    }

    /// What link `l` says at this tick about somebody in `cell`: its weight there times its change.
    pub(super) fn evidence(&self, l: usize, cell: usize) -> f64 {
        if self.present[l] { self.weights[(l, cell)] * self.change[l] } else { 0.0 }
    }
}
