//! Runs the recordings of a manifest through the pipeline, each once for all sensitivities that are asked for.

use std::path::{Path, PathBuf};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::judge::{DEFAULT, Run, SENSITIVITIES, Tick};
use super::manifest::{LeaveOneOut, Manifest, Options, Recording};
use crate::event::ZoneSettings;
use crate::frame::recording::{self, RecordingError};
use crate::frame::{Decoder, DecoderSettings, Item};
use crate::pipeline::{Directory, Sensing, Setup};
use crate::signal;
use crate::types::{Provenance, SensingTime};

/// A recording of the manifest cannot be evaluated.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It cannot be read.
    #[error("recording {path}")]
    Recording {
        /// The recording.
        path: PathBuf,
        /// Why.
        source: RecordingError,
    },
    /// Nothing in it is a frame.
    #[error(
        "recording {path}: {units} pieces of input and not one frame; is `format = \"{format}\"` right? `aetherd decode` tells what was refused"
    )]
    NoFrames {
        /// The recording.
        path: PathBuf,
        /// Datagrams and lines read.
        units: u64,
        /// The format of the manifest.
        format: String,
    },
}

/// Runs every recording, two at a time. `base` is the folder of the manifest.
///
/// # Errors
/// The first recording (in the manifest's order) that cannot be read.
pub fn run_all(base: &Path, manifest: &Manifest, signal: &signal::Settings) -> Result<Vec<Run>, RunError> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let results: Vec<std::sync::Mutex<Option<Result<Run, RunError>>>> =
        manifest.recording.iter().map(|_| std::sync::Mutex::new(None)).collect();
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some(recording) = manifest.recording.get(i) else { break };
                    let result = run_one(base, recording, &manifest.evaluate, signal);
                    *results[i].lock().expect("no holder panics") = Some(result);
                }
            });
        }
    });
    results.into_iter().map(|r| r.into_inner().expect("no holder panics").expect("every recording was run")).collect()
}

/// Runs one recording.
fn run_one(base: &Path, recording: &Recording, options: &Options, signal: &signal::Settings) -> Result<Run, RunError> {
    let fail = |source| RunError::Recording { path: recording.path.clone().into(), source };
    let path = base.join(&recording.path);
    let format = recording.format.parse().map_err(fail)?;
    let open = recording::Options { rate_hz: recording.rate_hz, ..recording::Options::default() };
    let mut reader = recording::open(&path, format, &open).map_err(fail)?;
    // One entry of the manifest is one recording with one truth.
    reader.refuse_second_member();

    let wanted = |at: usize| at == DEFAULT || options.leave_one_out != LeaveOneOut::None;
    let mut lanes: Vec<Option<Sensing>> = SENSITIVITIES
        .iter()
        .enumerate()
        .map(|(at, &sensitivity)| wanted(at).then(|| one_zone(signal, sensitivity)))
        .collect();
    let mut ticks: Vec<Vec<Tick>> = vec![Vec::new(); SENSITIVITIES.len()];
    let mut thin = Thinning::new(options, &recording.path);
    let mut decoder = Decoder::new(DecoderSettings::default());
    let mut start: Option<SensingTime> = None;
    let mut units = 0;
    while let Some(unit) = reader.next() {
        let unit = unit.map_err(fail)?;
        units += 1;
        unit.decode(&mut decoder, &mut |_, item| {
            let Item::Frame(frame) = item else { return };
            let start = *start.get_or_insert(frame.host_time);
            let t_s = frame.host_time.secs_since(start);
            let cropped = recording.start_s.is_some_and(|s| t_s < s) || recording.end_s.is_some_and(|e| t_s >= e);
            if cropped || !thin.keep(t_s) {
                return;
            }
            for (lane, ticks) in lanes.iter_mut().zip(&mut ticks) {
                let Some(sensing) = lane else { continue };
                sensing.frame(frame, &mut |tick| {
                    let zone = tick.zones.states().next().expect("there is one zone");
                    ticks.push(Tick { t_s: tick.at.secs_since(start), moving: zone.moving, score: zone.score });
                });
            }
        });
    }
    if start.is_none() {
        return Err(RunError::NoFrames { path, units, format: recording.format.clone() });
    }
    Ok(Run { recording: recording.clone(), ticks })
}

/// The pipeline with one zone that every board watches.
fn one_zone(signal: &signal::Settings, sensitivity: f32) -> Sensing {
    let zones =
        [ZoneSettings { name: "recording".to_owned(), sensitivity: Some(sensitivity), ..ZoneSettings::default() }];
    let directory = Directory::new(&[], &zones, Vec::new());
    let setup = Setup::of_zones(zones.to_vec(), directory, Provenance::Recorded);
    Sensing::new(Setup { signal: signal.clone(), ..setup })
}

/// Thins frames as the options say: to a lower rate, and by random loss.
struct Thinning {
    rate_hz: Option<f64>,
    slot: i64,
    drop_fraction: f64,
    rng: ChaCha8Rng,
}

impl Thinning {
    fn new(options: &Options, path: &str) -> Self {
        Self {
            rate_hz: options.decimate_to_hz,
            slot: i64::MIN,
            drop_fraction: options.drop_fraction,
            rng: ChaCha8Rng::seed_from_u64(options.seed ^ (u64::from(crc32fast::hash(path.as_bytes())) << 32)),
        }
    }

    fn keep(&mut self, t_s: f64) -> bool {
        if let Some(hz) = self.rate_hz {
            // One frame a slot: the first that comes in it.
            let slot = (t_s * hz).floor() as i64;
            if slot == self.slot {
                return false;
            }
            self.slot = slot;
        }
        self.drop_fraction <= 0.0 || self.rng.random::<f64>() >= self.drop_fraction
    }
}
