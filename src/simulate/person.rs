//! Where a person is at a time: walking through a room along a smooth path, standing, lying, or away.
//!
//! The whole walk is drawn up once from the seed, so that any node can ask for any time.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::scenario::{Doing, PersonSetup, Room};

/// Step of the drawn path.
const STEP_S: f64 = 0.05;
/// Turns are rounded over this many steps to each side (0.25 s).
const ROUNDING: usize = 5;
/// Distance kept from walls.
const MARGIN_M: f64 = 0.4;
/// Time in which a person appears or is gone at the door.
const DOOR_S: f64 = 0.3;
/// Sway of quiet standing, millimetres (postural sway is of a few millimetres below 0.5 Hz).
const SWAY_MM: f64 = 2.0;

/// A person somewhere in a room.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Body {
    /// Place on the floor.
    pub(super) at: [f64; 2],
    /// Unit vector of walking.
    pub(super) heading: [f64; 2],
    /// Speed of walking.
    pub(super) speed_m_s: f64,
    /// Chest moved forward by breathing, metres.
    pub(super) chest_m: f64,
    /// Phase of the gait in radians.
    pub(super) gait: f64,
    /// Height of the trunk.
    pub(super) height_m: f64,
    /// 0 to 1 while passing the door.
    pub(super) presence: f64,
}

/// A person's whole plan, drawn up.
#[derive(Debug, Clone)]
pub(super) struct Person {
    pub(super) zone: String,
    setup: PersonSetup,
    duration_s: f64,
    knots: Vec<[f64; 2]>,
    breath_phase: f64,
    sway_phase: [f64; 2],
}

impl Person {
    pub(super) fn new(setup: &PersonSetup, room: &Room, duration_s: f64, rng: &mut ChaCha8Rng) -> Self {
        let steps = (duration_s / STEP_S).ceil() as usize + 2;
        let mut raw = Vec::with_capacity(steps);
        let mut vias = setup.via_m.iter().copied().cycle();
        let mut pick = |rng: &mut ChaCha8Rng| {
            vias.next().unwrap_or_else(|| {
                std::array::from_fn(|i| MARGIN_M + rng.random::<f64>() * (room.size_m[i] - 2.0 * MARGIN_M).max(0.0))
            })
        };
        let mut at = pick(rng);
        let mut target = at;
        let mut was_away = false;
        for step in 0..steps {
            let t = step as f64 * STEP_S;
            let phase = setup.plan.iter().position(|p| p.from_s <= t && t < p.to_s);
            match phase {
                // Whoever is away waits at the door, so that coming in is no leap.
                None => (at, was_away) = (room.door_m, true),
                Some(index) => {
                    if was_away {
                        (target, was_away) = (pick(rng), false);
                    }
                    if setup.plan[index].doing == Doing::Walk {
                        let stride = setup.speed_m_s * STEP_S;
                        let end = setup.plan[index].to_s;
                        let leaves = end < duration_s && !setup.plan.iter().any(|p| (p.from_s - end).abs() < 1e-9);
                        if leaves && distance(at, room.door_m) >= (end - t - 2.0 * STEP_S) * setup.speed_m_s {
                            target = room.door_m;
                        } else {
                            // Short hops would be standing still in disguise.
                            for _ in 0..20 {
                                if distance(at, target) > stride.max(0.05) {
                                    break;
                                }
                                target = pick(rng);
                            }
                        }
                        at = towards(at, target, stride);
                    } else {
                        target = at;
                    }
                }
            }
            raw.push(at);
        }
        let phase = |rng: &mut ChaCha8Rng| rng.random::<f64>() * std::f64::consts::TAU;
        Self {
            zone: setup.zone.clone(),
            duration_s,
            knots: round_turns(&raw),
            breath_phase: phase(rng),
            sway_phase: [phase(rng), phase(rng)],
            setup: setup.clone(),
        }
    }

    /// The body at `t` seconds, `None` while away.
    pub(super) fn at(&self, t: f64) -> Option<Body> {
        let plan = &self.setup.plan;
        let phase = plan.iter().find(|p| p.from_s <= t && t < p.to_s)?;
        // Fade only where the person really comes or goes: not between two stretches, nor at the ends of the run.
        let before = phase.from_s <= 0.0 || plan.iter().any(|p| (p.to_s - phase.from_s).abs() < 1e-9);
        let after = phase.to_s >= self.duration_s || plan.iter().any(|p| (p.from_s - phase.to_s).abs() < 1e-9);
        let mut presence: f64 = 1.0;
        if !before {
            presence = presence.min((t - phase.from_s) / DOOR_S);
        }
        if !after {
            presence = presence.min((phase.to_s - t) / DOOR_S);
        }
        let (mut at, velocity) = self.path(t);
        let speed_m_s = velocity[0].hypot(velocity[1]);
        let heading = if speed_m_s > 1e-6 { velocity.map(|v| v / speed_m_s) } else { [1.0, 0.0] };
        if phase.doing == Doing::Stand {
            for (i, x) in at.iter_mut().enumerate() {
                let slow = (std::f64::consts::TAU * (0.13 + 0.06 * i as f64) * t + self.sway_phase[i]).sin();
                let fast = (std::f64::consts::TAU * (0.41 - 0.09 * i as f64) * t + self.sway_phase[1 - i]).sin();
                *x += SWAY_MM / 2000.0 * (0.7 * slow + 0.3 * fast);
            }
        }
        let breath = std::f64::consts::TAU * self.setup.breaths_per_min / 60.0 * t + self.breath_phase;
        Some(Body {
            at,
            heading,
            speed_m_s,
            chest_m: self.setup.breath_depth_mm / 2000.0 * breath.sin(),
            // About 1.4 m a double step.
            gait: std::f64::consts::TAU * self.setup.speed_m_s / 1.4 * t,
            height_m: if phase.doing == Doing::Lie { 0.6 } else { 1.1 },
            presence: presence.clamp(0.0, 1.0),
        })
    }

    /// Place and velocity on the drawn path (cubic between knots, so that the phase of a path has no kinks).
    fn path(&self, t: f64) -> ([f64; 2], [f64; 2]) {
        let x = (t / STEP_S).max(0.0);
        let i = (x as usize).min(self.knots.len() - 2);
        let u = (x - i as f64).min(1.0);
        let knot = |k: usize| self.knots[k.min(self.knots.len() - 1)];
        let (p0, p1, p2, p3) = (knot(i.saturating_sub(1)), knot(i), knot(i + 1), knot(i + 2));
        let mut at = [0.0; 2];
        let mut velocity = [0.0; 2];
        for k in 0..2 {
            // Catmull-Rom.
            let a = -0.5 * p0[k] + 1.5 * p1[k] - 1.5 * p2[k] + 0.5 * p3[k];
            let b = p0[k] - 2.5 * p1[k] + 2.0 * p2[k] - 0.5 * p3[k];
            let c = 0.5 * (p2[k] - p0[k]);
            at[k] = ((a * u + b) * u + c) * u + p1[k];
            velocity[k] = ((3.0 * a * u + 2.0 * b) * u + c) / STEP_S;
        }
        (at, velocity)
    }
}

fn round_turns(raw: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let mean = |i: usize, k: usize| {
        let window = &raw[i.saturating_sub(ROUNDING)..(i + ROUNDING + 1).min(raw.len())];
        window.iter().map(|p| p[k]).sum::<f64>() / window.len() as f64
    };
    (0..raw.len()).map(|i| [mean(i, 0), mean(i, 1)]).collect()
}

fn distance(a: [f64; 2], b: [f64; 2]) -> f64 {
    (a[0] - b[0]).hypot(a[1] - b[1])
}

fn towards(at: [f64; 2], target: [f64; 2], stride: f64) -> [f64; 2] {
    let d = distance(at, target);
    if d <= stride { target } else { [0, 1].map(|k| at[k] + (target[k] - at[k]) * stride / d) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use rand::SeedableRng;

    use super::*;
    use crate::simulate::Scenario;

    #[test]
    fn a_visitor_comes_and_goes_by_the_door_at_walking_pace() {
        let scenario = Scenario::preset("visit").unwrap();
        let room = &scenario.rooms[0];
        for seed in 0..20 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let person = Person::new(&scenario.people[0], room, scenario.duration_s, &mut rng);
            assert!(person.at(19.9).is_none() && person.at(62.1).is_none());
            let (enter, leave) = (person.at(20.0).unwrap(), person.at(61.99).unwrap());
            assert!(distance(enter.at, room.door_m) < 0.3 && enter.presence == 0.0);
            assert!(distance(leave.at, room.door_m) < 0.6, "seed {seed}: leaves at {:?}", leave.at);
            let mut walked = 0.0;
            for i in 0..4200 {
                let t = 20.0 + f64::from(i) / 100.0;
                let (a, b) = (person.at(t).unwrap(), person.at(t + 0.005).unwrap());
                let speed = distance(a.at, b.at) / 0.005;
                assert!(speed < 1.15, "seed {seed}: {speed} m/s at {t} s");
                walked += distance(a.at, b.at);
                for k in 0..2 {
                    assert!((0.0..=room.size_m[k]).contains(&a.at[k]));
                }
                if (41.0..54.0).contains(&t) {
                    assert!(speed < 0.02, "stands: {speed} m/s at {t} s");
                }
            }
            // Half of 27 s at 1 m/s (every other half centimetre is looked at), less the turns and the wait at the door.
            assert!(walked > 8.0, "seed {seed}: {walked} m");
        }
    }
}
