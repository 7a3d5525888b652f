//! The receiver of a board: noise, packet phase, gain steps, 8-bit rounding, and the layout of its chip's buffer.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use realfft::num_complex::Complex64;

use super::channel::{BINS, Channel};
use super::scenario::{NodeFormat, RadioSetup};
use crate::frame::{Chip, CsiFrame, Layout};

/// Root mean square of a value after gain control, in steps of the 8-bit buffer.
const TARGET_RMS: f64 = 20.0;
/// The gain follows the signal when it is off by more than this.
const GAIN_HYSTERESIS_DB: f64 = 1.5;
/// Power of the transmitter, and the noise floor that boards report.
const TRANSMIT_DBM: f64 = 15.0;
const NOISE_DBM: i8 = -95;
/// Spread of the sampling-time error, radians a bin.
const SLOPE_SPREAD: f64 = 0.03;
/// Gain that is reported as zero, decibels.
const GAIN_OFFSET_DB: f64 = 40.0;

/// State of one receiver.
#[derive(Debug, Clone)]
pub(super) struct Receiver {
    format: NodeFormat,
    /// Noise power at a subcarrier, in units of the channel's power gain.
    noise_power: f64,
    gain_db: Option<f64>,
    flicker: f64,
}

impl Receiver {
    pub(super) fn new(format: NodeFormat, channel: &Channel, radio: &RadioSetup) -> Self {
        let noise_power = channel.empty_power() / 10f64.powf(radio.snr_db / 10.0);
        Self { format, noise_power, gain_db: None, flicker: radio.gain_flicker }
    }

    /// Measures `response` (subcarriers -32..=31) into `frame`: values, layout, RSSI, gains, chip.
    pub(super) fn measure(&mut self, response: &[Complex64; BINS], frame: &mut CsiFrame, rng: &mut ChaCha8Rng) {
        let ht = matches!(self.format, NodeFormat::EspectreV2 | NodeFormat::EspCsi15);
        let reach = if ht { 28 } else { 26 };
        let turn = rng.random::<f64>() * std::f64::consts::TAU;
        let slope = SLOPE_SPREAD * normal(rng);
        let noise = (self.noise_power / 2.0).sqrt();
        let mut received = [Complex64::ZERO; BINS];
        let mut power = 0.0;
        for (i, value) in received.iter_mut().enumerate() {
            let k = i as i32 - 32;
            let noise = Complex64::new(normal(rng), normal(rng)) * noise;
            if k == 0 || k.abs() > reach {
                continue;
            }
            *value = response[i] * Complex64::from_polar(1.0, turn + slope * f64::from(k)) + noise;
            power += value.norm_sqr() / f64::from(2 * reach);
        }
        // Pairs of two values share the power of a bin.
        let wanted_db = 20.0 * TARGET_RMS.log10() - 10.0 * (power / 2.0).max(1e-30).log10();
        let held = *self.gain_db.get_or_insert(wanted_db.round());
        let mut gain_db = if (held - wanted_db).abs() > GAIN_HYSTERESIS_DB { wanted_db.round() } else { held };
        self.gain_db = Some(gain_db);
        if rng.random::<f64>() < self.flicker {
            gain_db += if rng.random::<bool>() { 1.0 } else { -1.0 };
        }
        let gain = 10f64.powf(gain_db / 20.0);
        let centred = self.format == NodeFormat::EspCsi15;
        frame.values.clear();
        for place in 0..BINS {
            // FFT order puts subcarrier 0 first; the C6 puts -32 first.
            let value = received[if centred { place } else { (place + 32) % BINS }] * gain;
            frame.values.extend([quantise(value.im), quantise(value.re)]);
        }
        let rssi = TRANSMIT_DBM + 10.0 * power.max(1e-30).log10() + 0.4 * normal(rng);
        frame.rssi_dbm = Some(rssi.round().clamp(-100.0, -10.0) as i8);
        frame.noise_dbm = Some(NOISE_DBM);
        frame.bandwidth_mhz = Some(20);
        let (chip, layout) = match self.format {
            NodeFormat::Adr018 => (Chip::Esp32S3, Layout::Natural64),
            NodeFormat::EspectreV2 => (Chip::Esp32C3, Layout::HtLtf64),
            NodeFormat::EspCsi15 => (Chip::Esp32C6, Layout::Centred64),
            NodeFormat::EspCsi25 | NodeFormat::CsiTool => (Chip::Esp32, Layout::Lltf64),
        };
        (frame.chip, frame.layout) = (Some(chip), layout);
        if chip == Chip::Esp32 {
            // What real boards leave in the first word.
            frame.values[..4].copy_from_slice(&[67, 48, 4, 0]);
            frame.first_word_invalid = true;
        }
        if centred {
            frame.agc_gain = Some((gain_db - GAIN_OFFSET_DB).round() as i16);
            frame.fft_gain = Some(0);
        }
    }
}

fn quantise(value: f64) -> i16 {
    value.round().clamp(-128.0, 127.0) as i16
}

fn normal(rng: &mut ChaCha8Rng) -> f64 {
    StandardNormal.sample(rng)
}
