//! Constant-velocity Kalman filter in the plane, with the whole covariance.
//!
//! State (x, y, vx, vy) in metres and metres per second; white acceleration as process noise (Bar-Shalom, Li and
//! Kirubarajan, *Estimation with Applications to Tracking and Navigation*, section 6.2.2); the update in Joseph's form, so
//! that rounding cannot make the covariance lose its symmetry or sign.

use nalgebra::{Matrix2, SMatrix, SVector, Vector2};

type State = SVector<f64, 4>;
type Covariance = SMatrix<f64, 4, 4>;

/// Standard deviation of the velocity of a newcomer, m/s.
const BIRTH_SPEED_M_S: f64 = 1.0;
/// A place is never less certain than this, metres: a lost person is still in the house.
const MOST_SIGMA_M: f64 = 2.0;

/// A place as measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Measured {
    pub(super) position_m: [f64; 2],
    pub(super) covariance: Matrix2<f64>,
    /// How long ago, on average, the person was there, seconds.
    pub(super) age_s: f64,
}

/// A filter.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Kalman {
    x: State,
    p: Covariance,
}

impl Kalman {
    /// A newcomer at `position_m`, seen with standard deviation `sigma_m`; its velocity is unknown.
    pub(super) fn new(position_m: [f64; 2], sigma_m: f64) -> Self {
        let (s, v) = (sigma_m * sigma_m, BIRTH_SPEED_M_S * BIRTH_SPEED_M_S);
        Self {
            x: State::new(position_m[0], position_m[1], 0.0, 0.0),
            p: Covariance::from_diagonal(&State::new(s, s, v, v)),
        }
    }

    /// Goes on by `dt_s` seconds with a white acceleration of density `acceleration` squared.
    pub(super) fn predict(&mut self, dt_s: f64, acceleration: f64) {
        let mut f = Covariance::identity();
        f[(0, 2)] = dt_s;
        f[(1, 3)] = dt_s;
        let q = acceleration * acceleration;
        let (a, b, c) = (q * dt_s.powi(3) / 3.0, q * dt_s.powi(2) / 2.0, q * dt_s);
        self.x = f * self.x;
        self.p = f * self.p * f.transpose();
        for k in 0..2 {
            self.p[(k, k)] += a;
            self.p[(k, k + 2)] += b;
            self.p[(k + 2, k)] += b;
            self.p[(k + 2, k + 2)] += c;
        }
    }

    /// Where it was last, at rest, ever less certain: for a track that is not seen.
    pub(super) fn wait(&mut self, dt_s: f64, acceleration: f64) {
        self.x[2] = 0.0;
        self.x[3] = 0.0;
        for k in 0..2 {
            // Velocity is unknown again and has no part in the place.
            for other in 0..4 {
                self.p[(k + 2, other)] = 0.0;
                self.p[(other, k + 2)] = 0.0;
            }
            self.p[(k + 2, k + 2)] = BIRTH_SPEED_M_S * BIRTH_SPEED_M_S;
            let most = MOST_SIGMA_M * MOST_SIGMA_M;
            self.p[(k, k)] = (self.p[(k, k)] + acceleration * acceleration * dt_s).min(most.max(self.p[(k, k)]));
        }
    }

    /// What a detection sees of the state: where the person was `z.age_s` ago, p - age v.
    fn sees(age_s: f64) -> SMatrix<f64, 2, 4> {
        let mut h = SMatrix::<f64, 2, 4>::identity();
        h[(0, 2)] = -age_s;
        h[(1, 3)] = -age_s;
        h
    }

    /// Innovation and its covariance.
    fn innovation(&self, z: &Measured) -> (Vector2<f64>, Matrix2<f64>) {
        let h = Self::sees(z.age_s);
        (Vector2::from(z.position_m) - h * self.x, h * self.p * h.transpose() + z.covariance)
    }

    /// Squared Mahalanobis distance of a detection, and the determinant of the innovation's covariance; `None` where
    /// that covariance is singular.
    pub(super) fn distance(&self, z: &Measured) -> Option<(f64, f64)> {
        let (v, s) = self.innovation(z);
        Some(((v.transpose() * s.try_inverse()? * v)[0], s.determinant()))
    }

    /// Takes a detection in. False where the innovation's covariance is singular (nothing changed).
    pub(super) fn update(&mut self, z: &Measured) -> bool {
        let (v, s) = self.innovation(z);
        let Some(inverse) = s.try_inverse() else { return false };
        let h = Self::sees(z.age_s);
        let gain: SMatrix<f64, 4, 2> = self.p * h.transpose() * inverse;
        let left = Covariance::identity() - gain * h;
        self.x += gain * v;
        let p = left * self.p * left.transpose() + gain * z.covariance * gain.transpose();
        self.p = 0.5 * (p + p.transpose());
        true
    }

    /// Keeps the place within a box; at its edge the velocity across it ends.
    pub(super) fn keep_within(&mut self, low_m: [f64; 2], high_m: [f64; 2]) {
        for k in 0..2 {
            let kept = self.x[k].clamp(low_m[k], high_m[k]);
            if kept != self.x[k] {
                self.x[k] = kept;
                self.x[k + 2] = 0.0;
            }
        }
    }

    /// Place, metres.
    pub(super) fn position(&self) -> [f64; 2] {
        [self.x[0], self.x[1]]
    }

    /// Velocity, metres per second.
    pub(super) fn velocity(&self) -> [f64; 2] {
        [self.x[2], self.x[3]]
    }

    /// Covariance of the place.
    pub(super) fn position_covariance(&self) -> Matrix2<f64> {
        self.p.fixed_view::<2, 2>(0, 0).into_owned()
    }

    /// Standard deviation of the place along its longer axis.
    pub(super) fn sigma(&self) -> f64 {
        let p = self.position_covariance();
        let (mean, half) = ((p[(0, 0)] + p[(1, 1)]) / 2.0, (p[(0, 0)] - p[(1, 1)]) / 2.0);
        (mean + half.hypot(p[(0, 1)])).max(0.0).sqrt()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn seen(x: f64, y: f64, variance: f64, age_s: f64) -> Measured {
        Measured { position_m: [x, y], covariance: Matrix2::identity() * variance, age_s }
    }

    #[test]
    fn late_detections_of_a_walker_do_not_make_the_track_late() {
        let mut filter = Kalman::new([0.0, 0.0], 0.2);
        for i in 1..=60 {
            filter.predict(0.25, 0.3);
            // Walks at 1 m/s; what is seen is a second old.
            filter.update(&seen(0.25 * f64::from(i) - 1.0, 0.0, 0.04, 1.0));
        }
        assert!((filter.position()[0] - 15.0).abs() < 0.1, "{:?}", filter.position());
    }

    #[test]
    fn velocity_is_learned_from_places_alone() {
        let mut filter = Kalman::new([0.0, 0.0], 0.2);
        for i in 1..=40 {
            filter.predict(0.25, 0.3);
            assert!(filter.update(&seen(0.25 * f64::from(i), -0.1 * f64::from(i), 0.04, 0.0)));
        }
        let v = filter.velocity();
        assert!((v[0] - 1.0).abs() < 0.05 && (v[1] + 0.4).abs() < 0.05, "{v:?}");
        assert!(filter.p[(0, 2)] > 0.0, "place and velocity are correlated");
    }

    #[test]
    fn prediction_is_that_of_the_closed_form() {
        // From a known state: P = diag(1, 1, 4, 4), dt = 2, q = 0.25.
        let mut filter = Kalman::new([1.0, 2.0], 1.0);
        filter.x[2] = 3.0;
        filter.p[(2, 2)] = 4.0;
        filter.predict(2.0, 0.5);
        assert_eq!(filter.position(), [7.0, 2.0]);
        assert!((filter.p[(0, 0)] - (1.0 + 4.0 * 4.0 + 0.25 * 8.0 / 3.0)).abs() < 1e-12);
        assert!((filter.p[(0, 2)] - (4.0 * 2.0 + 0.25 * 2.0)).abs() < 1e-12);
        assert!((filter.p[(2, 2)] - (4.0 + 0.25 * 2.0)).abs() < 1e-12);
    }

    #[test]
    fn an_update_is_the_weighted_mean_and_keeps_the_covariance_proper() {
        let mut filter = Kalman::new([0.0, 0.0], 1.0);
        filter.update(&seen(1.0, 0.0, 1.0, 0.0));
        assert!((filter.position()[0] - 0.5).abs() < 1e-12);
        assert!((filter.position_covariance()[(0, 0)] - 0.5).abs() < 1e-12);
        let (d2, det) = filter.distance(&seen(2.5, 0.0, 0.5, 0.0)).unwrap();
        assert!((d2 - 4.0).abs() < 1e-12 && (det - 1.0).abs() < 1e-12);
        for i in 0..10_000 {
            filter.predict(0.25, 0.5);
            filter.update(&seen(f64::from(i % 3), 0.0, 1e-6, 0.5));
            assert!(filter.p.symmetric_eigenvalues().min() > 0.0, "{i}");
        }
    }

    #[test]
    fn who_is_not_seen_waits_and_grows_uncertain_within_limits() {
        let mut filter = Kalman::new([1.0, 1.0], 0.5);
        filter.x[2] = 1.5;
        for _ in 0..4000 {
            filter.wait(0.25, 0.5);
        }
        assert_eq!(filter.position(), [1.0, 1.0]);
        assert!((filter.sigma() - MOST_SIGMA_M).abs() < 1e-9);
    }
}
