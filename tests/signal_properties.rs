//! What must hold for the motion detector on any link: noise, damage and gain are not motion, a moving profile is.

#![allow(clippy::unwrap_used, missing_docs)]

use aetherd::frame::{CsiFrame, Layout, SampleKind, WireFormat};
use aetherd::signal::{LinkFeatures, NoVerdict, Settings, Signal, TICK_MICROS, Verdict};
use aetherd::types::{NodeKey, SensingTime};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

const START: i64 = 1_700_000_000_000_000;
const NODE: NodeKey = NodeKey::Serial { port: 3 };

/// A link that is fed frame by frame; ticks come as the pipeline gives them.
struct Feed {
    signal: Signal,
    rng: ChaCha8Rng,
    frame: CsiFrame,
    next_tick: i64,
    out: Vec<LinkFeatures>,
}

/// Amplitude of bin `n` of 64 in an empty room.
fn quiet_profile(n: usize) -> f64 {
    60.0 + 20.0 * (n as f64 * 0.15).sin() + 8.0 * (n as f64 * 0.31).cos()
}

impl Feed {
    fn new(seed: u64) -> Self {
        Self {
            signal: Signal::new(Settings::default()),
            rng: ChaCha8Rng::seed_from_u64(seed),
            frame: CsiFrame::empty(NODE),
            next_tick: START + TICK_MICROS,
            out: Vec::new(),
        }
    }

    fn ticks_until(&mut self, now: i64) {
        while self.next_tick <= now {
            self.signal.tick(SensingTime(self.next_tick), &mut self.out);
            self.next_tick += TICK_MICROS;
        }
    }

    /// Sends amplitudes of a random common phase with white noise of deviation `noise` on each part.
    fn send(&mut self, t_s: f64, noise: f64, gain: f64, amplitude: impl Fn(usize) -> f64) {
        self.send_stamped(t_s, None, noise, gain, amplitude);
    }

    fn send_stamped(
        &mut self,
        t_s: f64,
        board_s: Option<f64>,
        noise: f64,
        gain: f64,
        amplitude: impl Fn(usize) -> f64,
    ) {
        let at = START + (t_s * 1e6).round() as i64;
        self.ticks_until(at);
        self.frame.reset(NODE, WireFormat::EspCsi25, SensingTime(at));
        self.frame.layout = Layout::Natural64;
        self.frame.rssi_dbm = Some(-50);
        self.frame.device_us = board_s.map(|s| (s * 1e6) as u64 & 0xffff_ffff);
        self.frame.device_us_bits = if board_s.is_some() { 32 } else { 0 };
        let phase: f64 = self.rng.random_range(0.0..std::f64::consts::TAU);
        for n in 0..64 {
            let a = if Layout::Natural64.usable(n) { amplitude(n) } else { 0.0 };
            for part in [phase.sin(), phase.cos()] {
                let z: f64 = StandardNormal.sample(&mut self.rng);
                let value = if a > 0.0 { gain * (a * part + noise * z) } else { 0.0 };
                self.frame.values.push(value.round() as i16);
            }
        }
        self.signal.push(&self.frame);
    }

    /// Share of ticks after `from_s` with this verdict.
    fn share(&self, from_s: f64, verdict: Verdict) -> f64 {
        let late: Vec<_> = self.out.iter().filter(|f| (f.at.0 - START) as f64 / 1e6 > from_s).collect();
        assert!(!late.is_empty());
        late.iter().filter(|f| f.verdict == verdict).count() as f64 / late.len() as f64
    }

    fn best_score(&self) -> f32 {
        self.out.iter().filter_map(|f| f.score).fold(0.0, f32::max)
    }
}

/// A path that turns by `turns` per second beside the direct one.
fn moving_profile(n: usize, t_s: f64, turns: f64) -> f64 {
    let bin = f64::from(Layout::Natural64.bin(n));
    let phase = std::f64::consts::TAU * (turns * t_s + bin * 0.02);
    quiet_profile(n) * ((1.0 + 0.35 * phase.cos()).powi(2) + (0.35 * phase.sin()).powi(2)).sqrt()
}

#[test]
fn noise_is_quiet_at_every_rate_and_loss() {
    for (i, hz) in [10.0, 14.0, 20.0, 33.0, 50.0, 70.0, 100.0, 140.0].into_iter().enumerate() {
        for (j, loss) in [0.0, 0.3, 0.5].into_iter().enumerate() {
            if hz * (1.0 - loss) < 6.0 {
                continue;
            }
            let mut feed = Feed::new((10 * i + j) as u64);
            for k in 0..(40.0 * hz) as u32 {
                if feed.rng.random::<f64>() < loss {
                    continue;
                }
                let jitter = feed.rng.random_range(0.0..0.2) / hz;
                feed.send(f64::from(k) / hz + jitter, 1.5, 1.0, quiet_profile);
            }
            assert!(feed.best_score() < 0.7, "{hz}/s, loss {loss}: {}", feed.best_score());
            let still = feed.share(4.0, Verdict::Still);
            assert!(still > if loss > 0.0 { 0.85 } else { 0.99 }, "{hz}/s, loss {loss}: {still}");
            assert_eq!(feed.share(0.0, Verdict::Moving), 0.0);
        }
    }
}

#[test]
fn a_moving_profile_moves_and_stops() {
    for hz in [10.0, 20.0, 50.0, 100.0, 140.0] {
        let mut feed = Feed::new(1);
        let end = (30.0 * hz) as u32;
        for k in 0..end {
            let t = f64::from(k) / hz;
            let moves = (10.0..20.0).contains(&t);
            feed.send(t, 1.5, 1.0, |n| if moves { moving_profile(n, t, 2.3) } else { quiet_profile(n) });
        }
        let said = |from: f64, to: f64, verdict| {
            feed.out
                .iter()
                .filter(|f| (from..to).contains(&((f.at.0 - START) as f64 / 1e6)))
                .filter(|f| f.verdict == verdict)
                .count()
        };
        assert_eq!(said(4.0, 10.0, Verdict::Still), 24, "{hz}/s before");
        assert_eq!(said(12.0, 20.0, Verdict::Moving), 32, "{hz}/s during");
        assert_eq!(said(24.0, 30.0, Verdict::Still), 24, "{hz}/s after");
    }
}

#[test]
fn onset_is_found_within_half_a_second_at_100_per_second() {
    for seed in 0..10 {
        let mut feed = Feed::new(seed);
        let onset = 8.0 + f64::from(seed as u32) * 0.031;
        for k in 0..1200u32 {
            let t = f64::from(k) * 0.01;
            feed.send(t, 1.5, 1.0, |n| moving_profile(n, if t < onset { onset } else { t }, 2.0));
        }
        let first = feed.out.iter().find(|f| f.verdict == Verdict::Moving).unwrap();
        let delay = (first.at.0 - START) as f64 / 1e6 - onset;
        assert!((0.0..0.5).contains(&delay), "{delay}");
    }
}

#[test]
fn damage_gain_and_switching_patterns_are_not_motion() {
    type Case = (&'static str, fn(&mut Feed, u32, f64));
    let cases: [Case; 4] = [
        ("corrupted frames", |feed, k, t| {
            if k % 170 == 99 {
                let junk: Vec<f64> = (0..64).map(|_| feed.rng.random_range(1.0..120.0)).collect();
                feed.send(t, 1.5, 1.0, |n| junk[n]);
            } else {
                feed.send(t, 1.5, 1.0, quiet_profile);
            }
        }),
        ("gain steps", |feed, k, t| {
            let gain = [1.0, 2.0, 1.5, 0.8][(k / 27) as usize % 4];
            feed.send(t, 1.5, gain, quiet_profile);
        }),
        ("alternating patterns", |feed, k, t| {
            let tilt = if k % 2 == 0 { 1.0 } else { -1.0 };
            feed.send(t, 1.5, 1.0, |n| quiet_profile(n) + tilt * f64::from(Layout::Natural64.bin(n)) * 0.3);
        }),
        ("patterns at random", |feed, _, t| {
            let tilt = if feed.rng.random::<f64>() < 0.3 { 1.0 } else { -1.0 };
            feed.send(t, 1.5, 1.0, |n| quiet_profile(n) + tilt * f64::from(Layout::Natural64.bin(n)) * 0.2);
        }),
    ];
    for (name, send) in cases {
        let mut feed = Feed::new(5);
        for k in 0..4000u32 {
            send(&mut feed, k, f64::from(k) * 0.01);
        }
        assert_eq!(feed.share(0.0, Verdict::Moving), 0.0, "{name}: {}", feed.best_score());
        assert!(feed.share(2.0, Verdict::Still) > 0.99, "{name}");
    }
}

#[test]
fn a_constant_factor_changes_nothing() {
    let run = |gain: i16, kind: SampleKind| {
        let mut feed = Feed::new(9);
        let mut signal = Signal::new(Settings::default());
        let mut out = Vec::new();
        for k in 0..1000u32 {
            let t = f64::from(k) * 0.01;
            feed.send(t, 1.5, 1.0, |n| if t > 5.0 { moving_profile(n, t, 2.0) } else { quiet_profile(n) });
            let mut frame = feed.frame.clone();
            frame.kind = kind;
            if kind == SampleKind::Amplitude {
                frame.values = feed.frame.values.chunks(2).map(|p| p[0].abs() + p[1].abs()).collect();
            }
            frame.values.iter_mut().for_each(|v| *v *= gain);
            if k % 25 == 0 {
                signal.tick(frame.host_time, &mut out);
            }
            signal.push(&frame);
        }
        out
    };
    for kind in [SampleKind::Iq, SampleKind::Amplitude] {
        let (one, many) = (run(1, kind), run(37, kind));
        assert_eq!(one.len(), many.len());
        for (a, b) in one.iter().zip(&many) {
            assert_eq!(a.verdict, b.verdict);
            let (a, b) = (a.score.unwrap_or(0.0), b.score.unwrap_or(0.0));
            assert!((a - b).abs() < 2e-3, "{a} {b}");
        }
        assert_eq!(run(1, kind), one, "same input, same output");
    }
}

#[test]
fn gaps_slow_links_and_few_bins_have_no_verdict() {
    let mut feed = Feed::new(2);
    for k in 0..500u32 {
        feed.send(f64::from(k) * 0.01, 1.5, 1.0, quiet_profile);
    }
    for k in 0..500u32 {
        feed.send(8.0 + f64::from(k) * 0.01, 1.5, 1.0, quiet_profile);
    }
    let at = |t: f64| feed.out.iter().find(|f| (f.at.0 - START) as f64 / 1e6 >= t).unwrap();
    assert_eq!(at(4.0).verdict, Verdict::Still);
    assert_eq!(at(6.5).verdict, Verdict::None(NoVerdict::Silent));
    assert_eq!(at(8.5).verdict, Verdict::None(NoVerdict::WarmingUp));
    assert_eq!(at(9.5).verdict, Verdict::Still);
    assert_eq!(at(4.0).rssi_dbm, Some(-50.0));
    assert!((at(4.0).rate_hz - 100.0).abs() < 1.0 && at(4.0).coverage > 0.98);
    assert!(feed.out.iter().all(|f| f.score.is_some() == !matches!(f.verdict, Verdict::None(_))));

    for hz in [0.4, 2.0, 4.0] {
        let mut feed = Feed::new(3);
        for k in 0..(60.0 * hz) as u32 {
            feed.send(f64::from(k) / hz, 1.5, 1.0, quiet_profile);
        }
        assert_eq!(feed.share(20.0, Verdict::Still) + feed.share(20.0, Verdict::Moving), 0.0, "{hz}/s");
        assert!(feed.share(20.0, Verdict::None(NoVerdict::RateTooLow)) > 0.3, "{hz}/s");
    }

    let mut feed = Feed::new(4);
    for k in 0..500u32 {
        feed.send(f64::from(k) * 0.01, 1.5, 1.0, |n| if n < 12 { quiet_profile(n) } else { 0.0 });
    }
    assert_eq!(feed.share(2.0, Verdict::None(NoVerdict::LinkTooPoor)), 1.0);
}

#[test]
fn board_time_makes_bursty_arrival_harmless() {
    let run = |bursts: bool| {
        let mut feed = Feed::new(11);
        for k in 0..3000u32 {
            let sent = f64::from(k) * 0.01;
            let arrival = if bursts { (sent * 10.0).floor() / 10.0 + 0.1 } else { sent + 0.1 };
            let moves = sent > 15.0;
            feed.send_stamped(arrival, Some(4290.0 + sent), 1.5, 1.0, |n| {
                if moves { moving_profile(n, sent, 2.0) } else { quiet_profile(n) }
            });
        }
        (feed.share(17.0, Verdict::Moving), feed.best_score(), feed.out)
    };
    for bursts in [false, true] {
        let (moving, best, out) = run(bursts);
        assert_eq!(moving, 1.0);
        assert!(best > 2.0);
        let quiet = out.iter().filter(|f| f.at.0 - START < 15_000_000);
        assert!(quiet.clone().count() > 50);
        assert!(quiet.clone().all(|f| f.verdict != Verdict::Moving), "bursts {bursts}");
        assert!(quiet.filter(|f| f.verdict == Verdict::Still).count() > 50, "bursts {bursts}");
    }
}

#[test]
fn sensitivity_scales_the_score() {
    let run = |factor: f32| {
        let mut feed = Feed::new(12);
        feed.signal.set_sensitivity(NODE, factor);
        for k in 0..600u32 {
            let t = f64::from(k) * 0.01;
            feed.send(t, 1.5, 1.0, |n| moving_profile(n, t, 2.0));
        }
        feed.out.last().unwrap().score.unwrap()
    };
    assert!((run(2.0) / run(1.0) - 2.0).abs() < 1e-4);
}
