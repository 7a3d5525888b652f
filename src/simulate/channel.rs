//! The radio channel between a transmitter and a node: a sum of paths at each subcarrier.
//!
//! Path gain is the free-space one, lambda / (4 pi d); a body scatters like a radar target, sqrt(sigma) lambda /
//! ((4 pi)^1.5 d1 d2). Walls are mirrors (image method, first order). A body near the direct line weakens it.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use realfft::num_complex::Complex64;

use super::person::Body;
use super::scenario::Room;

const LIGHT_M_S: f64 = 299_792_458.0;
/// Spacing of the subcarriers of a 20 MHz channel.
pub(super) const SPACING_HZ: f64 = 312_500.0;
/// Subcarriers -32..=31.
pub(super) const BINS: usize = 64;
/// Amplitude left after a reflection at a wall, floor or ceiling.
const WALL_GAIN: f64 = 0.5;
/// Radar cross-sections of a trunk and of a leg, square metres.
const TRUNK_M2: f64 = 0.6;
const LEG_M2: f64 = 0.08;
/// Depth and reach of the shadow on the direct line.
const SHADOW: f64 = 0.6;
const SHADOW_M: f64 = 0.35;
/// Random paths of furniture: their number, and their mean excess delay in seconds.
const DIFFUSE_PATHS: usize = 16;
const DIFFUSE_DELAY_S: f64 = 30e-9;

type Point = [f64; 3];

/// One link.
#[derive(Debug, Clone)]
pub(super) struct Channel {
    carrier_hz: f64,
    wavelength_m: f64,
    /// The transmitter and its six mirror images, with the amplitude left.
    sources: Vec<(Point, f64)>,
    node: Point,
    /// Everything static but the direct path.
    background: [Complex64; BINS],
    direct: [Complex64; BINS],
}

impl Channel {
    pub(super) fn new(room: &Room, transmitter: Point, node: Point, channel: u8, rng: &mut ChaCha8Rng) -> Self {
        let carrier_hz = (2407.0 + 5.0 * f64::from(channel)) * 1e6;
        let wavelength_m = LIGHT_M_S / carrier_hz;
        let mut sources = vec![(transmitter, 1.0)];
        for axis in 0..3 {
            for wall in [0.0, room.size_m[axis]] {
                let mut image = transmitter;
                image[axis] = 2.0 * wall - transmitter[axis];
                sources.push((image, WALL_GAIN));
            }
        }
        let mut this = Self {
            carrier_hz,
            wavelength_m,
            sources,
            node,
            background: [Complex64::ZERO; BINS],
            direct: [Complex64::ZERO; BINS],
        };
        let free_space = |d: f64| wavelength_m / (4.0 * std::f64::consts::PI * d.max(0.2));
        for i in 0..this.sources.len() {
            let (source, gain) = this.sources[i];
            let d = distance(source, node);
            let mut out = [Complex64::ZERO; BINS];
            this.add_path(&mut out, d, gain * free_space(d), 0.0);
            let sum = if i == 0 { &mut this.direct } else { &mut this.background };
            sum.iter_mut().zip(out).for_each(|(s, o)| *s += o);
        }
        let d0 = distance(transmitter, node);
        let mut background = this.background;
        for _ in 0..DIFFUSE_PATHS {
            let excess_s = -DIFFUSE_DELAY_S * (1.0 - rng.random::<f64>()).ln();
            let gain = 0.25 * free_space(d0) * (-excess_s / (2.0 * DIFFUSE_DELAY_S)).exp() * rng.random::<f64>();
            let phase = rng.random::<f64>() * std::f64::consts::TAU;
            this.add_path(&mut background, d0 + excess_s * LIGHT_M_S, gain, phase);
        }
        this.background = background;
        this
    }

    /// Mean power gain of the empty room.
    pub(super) fn empty_power(&self) -> f64 {
        self.background.iter().zip(&self.direct).map(|(b, d)| (b + d).norm_sqr()).sum::<f64>() / BINS as f64
    }

    /// The channel at subcarriers -32..=31 with these people in the room.
    pub(super) fn response(&self, bodies: impl Iterator<Item = Body>) -> [Complex64; BINS] {
        let mut out = self.background;
        let mut line = 1.0;
        for body in bodies {
            self.add_body(&mut out, &body);
            let d = to_segment(body.at, self.sources[0].0, self.node);
            line *= 1.0 - SHADOW * body.presence * (-(d / SHADOW_M).powi(2)).exp();
        }
        out.iter_mut().zip(self.direct).for_each(|(o, d)| *o += d * line);
        out
    }

    fn add_body(&self, out: &mut [Complex64; BINS], body: &Body) {
        let [x, y] = body.at;
        // Legs swing along the heading, more the faster the walk.
        let swing = 0.25 * body.speed_m_s.min(1.5) * body.gait.sin();
        let leg = |side: f64| [x + side * swing * body.heading[0], y + side * swing * body.heading[1], 0.5];
        let parts =
            [([x, y, body.height_m], TRUNK_M2, body.chest_m), (leg(1.0), LEG_M2, 0.0), (leg(-1.0), LEG_M2, 0.0)];
        let scale = self.wavelength_m / (4.0 * std::f64::consts::PI).powf(1.5);
        for (at, cross_section, towards) in parts {
            let to_node = distance(at, self.node).max(0.3);
            for &(source, gain) in &self.sources {
                let from_source = distance(source, at).max(0.3);
                let amplitude = body.presence * gain * cross_section.sqrt() * scale / (from_source * to_node);
                // A chest that rises shortens the way there and the way back.
                self.add_path(out, from_source + to_node - 2.0 * towards, amplitude, 0.0);
            }
        }
    }

    /// Adds a path of `length` metres: one turn of phase per wavelength, at each subcarrier's own wavelength.
    fn add_path(&self, out: &mut [Complex64; BINS], length: f64, amplitude: f64, phase: f64) {
        let turn = -std::f64::consts::TAU * length / LIGHT_M_S;
        let step = Complex64::from_polar(1.0, turn * SPACING_HZ);
        let lowest = self.carrier_hz - SPACING_HZ * (BINS / 2) as f64;
        let mut value = Complex64::from_polar(amplitude, turn * lowest + phase);
        for o in out {
            *o += value;
            value *= step;
        }
    }
}

fn distance(a: Point, b: Point) -> f64 {
    a.iter().zip(b).map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt()
}

/// Distance on the floor from a point to the line between two others.
fn to_segment(p: [f64; 2], a: Point, b: Point) -> f64 {
    let (dx, dy) = (b[0] - a[0], b[1] - a[1]);
    let length2 = dx * dx + dy * dy;
    let u = if length2 > 0.0 { (((p[0] - a[0]) * dx + (p[1] - a[1]) * dy) / length2).clamp(0.0, 1.0) } else { 0.0 };
    (p[0] - a[0] - u * dx).hypot(p[1] - a[1] - u * dy)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use rand::SeedableRng;

    use super::*;

    fn body(at: [f64; 2], chest_m: f64) -> Body {
        Body { at, heading: [1.0, 0.0], speed_m_s: 0.0, chest_m, gait: 0.0, height_m: 1.1, presence: 1.0 }
    }

    /// A body that moves away from a transmitter and receiver at one place lengthens its path by twice its way, so the
    /// phase of its part turns at 2 v / lambda.
    #[test]
    fn doppler_of_a_body_is_twice_its_speed_over_the_wavelength() {
        let room = Room {
            zone: "z".into(),
            size_m: [60.0, 60.0, 60.0],
            access_point_m: [10.0, 30.0, 1.1],
            door_m: [0.0, 0.0],
            transmitters: Vec::new(),
        };
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut link = Channel::new(&room, room.access_point_m, [10.0, 30.05, 1.1], 6, &mut rng);
        // Without mirrors, to look at the one path.
        link.sources.truncate(1);
        let speed = 1.2;
        let rate = 1000.0;
        let empty = link.response(std::iter::empty());
        let mut turned = 0.0;
        let mut last: Option<Complex64> = None;
        let n = 500;
        for i in 0..=n {
            let mut b = body([14.0 + speed * f64::from(i) / rate, 30.0], 0.0);
            b.height_m = 1.1;
            let part = link.response(std::iter::once(b))[32] - empty[32];
            if let Some(last) = last {
                turned += (part * last.conj()).arg();
            }
            last = Some(part);
        }
        let hz = -turned / std::f64::consts::TAU / (f64::from(n) / rate);
        let expected = 2.0 * speed / link.wavelength_m;
        assert!((hz - expected).abs() < 0.02 * expected, "{hz} Hz, expected {expected} Hz");
    }

    #[test]
    fn a_body_on_the_direct_line_weakens_it_and_breathing_turns_its_phase() {
        let room = Room {
            zone: "z".into(),
            size_m: [5.0, 4.0, 2.5],
            access_point_m: [0.5, 2.0, 1.0],
            door_m: [0.0, 0.0],
            transmitters: Vec::new(),
        };
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let link = Channel::new(&room, room.access_point_m, [4.5, 2.0, 1.0], 6, &mut rng);
        assert!(to_segment([2.5, 2.0], room.access_point_m, link.node) < 1e-9);
        assert!((to_segment([2.5, 3.0], room.access_point_m, link.node) - 1.0).abs() < 1e-9);
        let difference = |chest: f64| {
            let a = link.response(std::iter::once(body([2.0, 3.0], 0.0)));
            let b = link.response(std::iter::once(body([2.0, 3.0], chest)));
            a.iter().zip(b).map(|(a, b)| (a - b).norm()).sum::<f64>()
        };
        assert!(difference(0.003) > 0.0);
        assert!(difference(0.003) > 1.8 * difference(0.0015) && difference(0.003) < 2.2 * difference(0.0015));
    }
}
