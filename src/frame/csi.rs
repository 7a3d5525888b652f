//! [`CsiFrame`], one decoded channel measurement, and the small types it is made of.

use serde::{Deserialize, Serialize};

use super::Layout;
use crate::types::{MacAddr, NodeKey, SensingTime};

/// What the numbers of a frame are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SampleKind {
    /// Pairs (imaginary, real), in the order the radio gives them.
    #[default]
    Iq,
    /// One amplitude per bin; the source never carried a phase.
    Amplitude,
}

/// The wire format a frame was decoded from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WireFormat {
    /// RuView raw CSI datagram (ADR-018, magic 0xC5110001).
    #[default]
    Adr018,
    /// ESPectre streaming datagram, 4-, 6- or 7-byte header.
    EspectreV2,
    /// ESPectre 64-byte record (version 7 or 8).
    EspectreV3,
    /// esp-csi `csi_recv` line of ESP32/S2/S3/C3, 25 fields.
    EspCsi25,
    /// esp-csi line of C5/C6/C61 (and esp-crab), 15 fields.
    EspCsi15,
    /// esp-radar console line, 30 or 28 fields.
    EspRadar,
    /// ESP32-CSI-Tool line, 26 or 27 fields.
    CsiTool,
    /// esp-csi-rs array-list line.
    EspCsiRs,
    /// `CSIRAW seq ms rssi len hex` line.
    CsiRaw,
    /// Host milliseconds and 128 values, of the albany recordings.
    Albany,
    /// Amplitude rows of the IALR recordings.
    IalrAmplitude,
}

impl WireFormat {
    /// The stable name used in `decode` output and in configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Adr018 => "adr018",
            Self::EspectreV2 => "espectre-v2",
            Self::EspectreV3 => "espectre-v3",
            Self::EspCsi25 => "esp-csi25",
            Self::EspCsi15 => "esp-csi15",
            Self::EspRadar => "esp-radar",
            Self::CsiTool => "csi-tool",
            Self::EspCsiRs => "esp-csi-rs",
            Self::CsiRaw => "csi-raw",
            Self::Albany => "albany",
            Self::IalrAmplitude => "ialr-amplitude",
        }
    }
}

/// The chip of the receiving board, where the format names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // the names are the chips
pub enum Chip {
    Esp32,
    Esp32S2,
    Esp32S3,
    Esp32C3,
    Esp32C5,
    Esp32C6,
    Esp32C61,
}

impl Chip {
    /// The name as its maker writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Esp32 => "ESP32",
            Self::Esp32S2 => "ESP32-S2",
            Self::Esp32S3 => "ESP32-S3",
            Self::Esp32C3 => "ESP32-C3",
            Self::Esp32C5 => "ESP32-C5",
            Self::Esp32C6 => "ESP32-C6",
            Self::Esp32C61 => "ESP32-C61",
        }
    }
}

/// What identifies one series of comparable frames. Frames of two layouts are never mixed in one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LinkKey {
    /// Receiving board.
    pub node: NodeKey,
    /// Sending station, where the format names it.
    pub transmitter: Option<MacAddr>,
    /// Which bin each value belongs to.
    pub layout: Layout,
}

/// One channel measurement of one received packet.
///
/// A frame is plain data and is reused: decoders fill one in place, so that steady state allocates nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CsiFrame {
    /// Receiving board.
    pub node: NodeKey,
    /// Wire format it was decoded from.
    pub format: WireFormat,
    /// Sending station, where the format names it.
    pub transmitter: Option<MacAddr>,
    /// Arrival at the host, on the sensing clock.
    pub host_time: SensingTime,
    /// The radio's or board's own time stamp in microseconds, as sent; 32-bit ones wrap after 71.6 minutes.
    pub device_us: Option<u64>,
    /// Bits of `device_us` before it wraps (32 or 64); 0 without a time stamp.
    pub device_us_bits: u8,
    /// Sequence number as sent.
    pub seq: Option<u32>,
    /// Bits of `seq` before it wraps (8 or 32); 0 without a sequence number.
    pub seq_bits: u8,
    /// Received signal strength.
    pub rssi_dbm: Option<i8>,
    /// Noise floor.
    pub noise_dbm: Option<i8>,
    /// Primary channel number (1-14, 36-177).
    pub channel: Option<u8>,
    /// Centre frequency of the primary channel, where the format carries it instead of the channel.
    pub freq_mhz: Option<u16>,
    /// Channel bandwidth, where known.
    pub bandwidth_mhz: Option<u8>,
    /// Automatic gain control setting, where the format carries it.
    pub agc_gain: Option<i16>,
    /// Digital (FFT) gain setting, where the format carries it.
    pub fft_gain: Option<i16>,
    /// Chip of the receiving board, where known.
    pub chip: Option<Chip>,
    /// Which bin each pair (or amplitude) of `values` is.
    pub layout: Layout,
    /// The first four bytes (two bins) of the radio's buffer are not a measurement.
    pub first_word_invalid: bool,
    /// What `values` holds.
    pub kind: SampleKind,
    /// `Iq`: imaginary, real, imaginary, real, …, two per bin. `Amplitude`: one per bin. As sent, before any cleaning.
    /// May hold fewer bins than the layout where the last ones were lost on the way (albany recordings): those are missing, not zero.
    pub values: Vec<i16>,
}

impl CsiFrame {
    /// An empty frame of `node` with room for the largest measurement any format carries.
    pub fn empty(node: NodeKey) -> Self {
        Self {
            node,
            format: WireFormat::default(),
            transmitter: None,
            host_time: SensingTime(0),
            device_us: None,
            device_us_bits: 0,
            seq: None,
            seq_bits: 0,
            rssi_dbm: None,
            noise_dbm: None,
            channel: None,
            freq_mhz: None,
            bandwidth_mhz: None,
            agc_gain: None,
            fft_gain: None,
            chip: None,
            layout: Layout::default(),
            first_word_invalid: false,
            kind: SampleKind::Iq,
            values: Vec::with_capacity(Self::MAX_VALUES),
        }
    }

    /// Most values a frame can hold: four antennas of 256 bins, two numbers each.
    pub const MAX_VALUES: usize = 2048;

    /// Forgets everything but the allocation, ready for the next decode.
    pub fn reset(&mut self, node: NodeKey, format: WireFormat, host_time: SensingTime) {
        let mut values = std::mem::take(&mut self.values);
        values.clear();
        *self = Self {
            node,
            format,
            host_time,
            values,
            transmitter: None,
            device_us: None,
            device_us_bits: 0,
            seq: None,
            seq_bits: 0,
            rssi_dbm: None,
            noise_dbm: None,
            channel: None,
            freq_mhz: None,
            bandwidth_mhz: None,
            agc_gain: None,
            fft_gain: None,
            chip: None,
            layout: Layout::default(),
            first_word_invalid: false,
            kind: SampleKind::Iq,
        };
    }

    /// Copies `other` into this frame, keeping this frame's allocation.
    pub fn copy_from(&mut self, other: &Self) {
        let mut values = std::mem::take(&mut self.values);
        values.clear();
        values.extend_from_slice(&other.values);
        *self = Self { values, ..*other };
    }

    /// The series this frame belongs to.
    pub fn link(&self) -> LinkKey {
        LinkKey { node: self.node, transmitter: self.transmitter, layout: self.layout }
    }

    /// Number of bins (pairs, or amplitudes).
    pub fn bin_count(&self) -> usize {
        match self.kind {
            SampleKind::Iq => self.values.len() / 2,
            SampleKind::Amplitude => self.values.len(),
        }
    }
}
