//! Alternating samples.

use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// How long to measure.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Samples of each contender; an odd number.
    pub samples: usize,
    /// Length of a sample of about this many nanoseconds.
    pub sample_ns: f64,
    /// Divides lengths of streams.
    pub shrink: usize,
}

impl Effort {
    pub const FULL: Self = Self { samples: 401, sample_ns: 120_000.0, shrink: 1 };
    pub const QUICK: Self = Self { samples: 3, sample_ns: 1_000.0, shrink: 16 };

    /// The same with fewer samples, for contenders that take long.
    pub fn fewer(self) -> Self {
        Self { samples: (self.samples / 4) | 1, ..self }
    }
}

/// What came out for two or more contenders, in nanoseconds per call.
pub struct Outcome {
    medians: Vec<f64>,
    /// Ratios of all samples of contender 1 to the samples of contender 0 right before them, sorted.
    ratios: Vec<f64>,
}

impl Outcome {
    pub fn median(&self, contender: usize) -> f64 {
        self.medians[contender]
    }

    /// Prints a line: contender 0 is ours, 1 is the peer.
    pub fn row(&self, goal: &str, what: &str, must: &str) {
        let (ours, peer) = (self.medians[0], self.medians[1]);
        let at = |share: f64| self.ratios[((self.ratios.len() - 1) as f64 * share) as usize];
        println!(
            "{goal:<4} {what:<44} {:>12} {:>12} {:>8.1}x  {:>6.1} to {:>5.1}  {must}",
            time(ours),
            time(peer),
            peer / ours,
            at(0.1),
            at(0.9)
        );
    }
}

/// Lets contenders take turns. Each is called with a running number.
pub fn contest(effort: Effort, contenders: &mut [&mut dyn FnMut(usize)]) -> Outcome {
    let n = contenders.len();
    let mut calls = vec![0usize; n];
    let mut run = |c: usize, times: usize, calls: &mut [usize]| {
        let start = Instant::now();
        for _ in 0..times {
            contenders[c](calls[c]);
            calls[c] += 1;
        }
        start.elapsed().as_nanos() as f64 / times as f64
    };
    let times: Vec<usize> = (0..n)
        .map(|c| {
            run(c, 1, &mut calls);
            let once = run(c, 2, &mut calls);
            ((effort.sample_ns / once) as usize).clamp(1, 100_000)
        })
        .collect();
    let mut samples = vec![Vec::with_capacity(effort.samples); n];
    for _ in 0..effort.samples {
        for c in 0..n {
            let sample = run(c, times[c], &mut calls);
            samples[c].push(sample);
        }
    }
    let mut ratios: Vec<f64> = match n {
        1 => vec![1.0],
        _ => samples[1].iter().zip(&samples[0]).map(|(peer, ours)| peer / ours).collect(),
    };
    ratios.sort_by(f64::total_cmp);
    let medians = samples.iter_mut().map(|s| {
        s.sort_by(f64::total_cmp);
        s[s.len() / 2]
    });
    Outcome { medians: medians.collect(), ratios }
}

pub fn time(ns: f64) -> String {
    match ns {
        _ if ns < 1e4 => format!("{ns:.0} ns"),
        _ if ns < 1e7 => format!("{:.1} µs", ns / 1e3),
        _ => format!("{:.1} ms", ns / 1e6),
    }
}

/// Additions that wait for each other, per nanosecond: what the core is given at the moment.
pub fn clock() -> String {
    let mut add = |_: usize| {
        let mut x = black_box(1u64);
        for _ in 0..30_000 {
            x = black_box(x.wrapping_mul(3));
        }
    };
    let outcome = contest(Effort { samples: 101, ..Effort::FULL }, &mut [&mut add]);
    format!("{:.2} dependent multiplications through memory a nanosecond", 3e4 / outcome.median(0))
}

pub fn random(rng: &mut ChaCha8Rng, n: usize) -> Vec<f32> {
    (0..n).map(|_| rng.random_range(-1.0f32..1.0)).collect()
}

pub fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// Starts the process again on one core and with one thread for each peer; says how it went. (Setting variables of a
/// running process is unsafe, and peers read them when they start.)
pub fn pinned() -> String {
    const MARK: &str = "AETHERD_BENCH_CORE";
    if let Ok(core) = std::env::var(MARK) {
        return core;
    }
    let exe = std::env::current_exe().unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).unwrap_or("0").trim();
    let last = allowed.rsplit(['-', ',']).next().unwrap_or("0");
    let start = |command: &mut Command, mark: String| {
        let command = command.args(std::env::args().skip(1)).env(MARK, mark);
        command.env("CANDLE_NUM_THREADS", "1").env("RAYON_NUM_THREADS", "1").status()
    };
    let status = start(Command::new("taskset").args(["-c", last]).arg(&exe), format!("pinned to core {last}"))
        .or_else(|_| start(&mut Command::new(&exe), "not pinned (there is no taskset)".to_owned()));
    std::process::exit(status.ok().and_then(|s| s.code()).unwrap_or(1));
}
