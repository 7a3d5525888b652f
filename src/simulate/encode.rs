//! [`CsiFrame`] -> the bytes a board would send: the counterpart of the decoders, and their partner in round-trip tests.
//!
//! Columns that a frame does not hold are written as the firmware writes them for an HT20 packet.

use std::io::Write;

use crate::frame::{Chip, CsiFrame, SampleKind, WireFormat};
use crate::types::{MacAddr, NodeKey};

/// Why a frame cannot be written in its format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The simulator does not write this format.
    #[error("frames of the format {} cannot be encoded", .0.name())]
    Format(WireFormat),
    /// The format needs a field that the frame does not have.
    #[error("a frame of the format {} needs `{field}`", format.name())]
    Missing {
        /// The format.
        format: WireFormat,
        /// The field.
        field: &'static str,
    },
    /// Values that are no signed bytes, or too many of them.
    #[error("a frame of the format {} holds pairs of signed bytes, at most 306 of them", .0.name())]
    Values(WireFormat),
}

/// Writes `frame` in its own format into `out` (cleared first): a datagram, or a line without its end.
pub fn encode(frame: &CsiFrame, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    out.clear();
    let format = frame.format;
    let bytes = frame.values.iter().all(|v| i8::try_from(*v).is_ok());
    if frame.kind != SampleKind::Iq || !bytes || !frame.values.len().is_multiple_of(2) || frame.values.len() > 612 {
        return Err(EncodeError::Values(format));
    }
    match format {
        WireFormat::Adr018 => adr018(frame, out),
        WireFormat::EspectreV2 => espectre_v2(frame, out),
        WireFormat::EspCsi25 => esp_csi_25(frame, out),
        WireFormat::EspCsi15 => esp_csi_15(frame, out),
        WireFormat::CsiTool => csi_tool(frame, out),
        other => Err(EncodeError::Format(other)),
    }
}

fn need<T>(frame: &CsiFrame, field: &'static str, value: Option<T>) -> Result<T, EncodeError> {
    value.ok_or(EncodeError::Missing { format: frame.format, field })
}

fn put_values(frame: &CsiFrame, out: &mut Vec<u8>) {
    out.extend(frame.values.iter().map(|&v| v as i8 as u8));
}

fn adr018(frame: &CsiFrame, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let NodeKey::Udp { id, .. } = frame.node else {
        return Err(EncodeError::Missing { format: frame.format, field: "node id" });
    };
    let bins = frame.values.len() as u16 / 2;
    out.extend_from_slice(&0xc511_0001u32.to_le_bytes());
    out.extend_from_slice(&[id, 1]);
    out.extend_from_slice(&bins.to_le_bytes());
    out.extend_from_slice(&u32::from(frame.freq_mhz.unwrap_or(0)).to_le_bytes());
    out.extend_from_slice(&need(frame, "seq", frame.seq)?.to_le_bytes());
    let flags = match frame.bandwidth_mhz {
        Some(40) => 1,
        _ => 0,
    };
    let first_word = if frame.first_word_invalid { 0x20 } else { 0 };
    let dbm = |v: Option<i8>| v.unwrap_or(0) as u8;
    out.extend_from_slice(&[dbm(frame.rssi_dbm), dbm(frame.noise_dbm), 0, flags | first_word]);
    put_values(frame, out);
    Ok(())
}

fn espectre_v2(frame: &CsiFrame, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let chip = match frame.chip {
        Some(Chip::Esp32) => 1,
        Some(Chip::Esp32S2) => 2,
        Some(Chip::Esp32S3) => 3,
        Some(Chip::Esp32C3) => 4,
        Some(Chip::Esp32C5) => 5,
        Some(Chip::Esp32C6) => 6,
        Some(Chip::Esp32C61) | None => 0,
    };
    let seq = need(frame, "seq", frame.seq)? as u8;
    let bins = (frame.values.len() as u16 / 2).to_le_bytes();
    out.extend_from_slice(&[0x53, 0x43, chip, 0, seq, bins[0], bins[1]]);
    put_values(frame, out);
    Ok(())
}

/// What every text line carries.
struct Line {
    mac: MacAddr,
    rssi: i8,
    noise: i8,
    channel: u8,
    stamp: u32,
    len: usize,
}

impl Line {
    fn of(frame: &CsiFrame) -> Result<Self, EncodeError> {
        Ok(Self {
            mac: need(frame, "transmitter", frame.transmitter)?,
            rssi: need(frame, "rssi_dbm", frame.rssi_dbm)?,
            noise: need(frame, "noise_dbm", frame.noise_dbm)?,
            channel: need(frame, "channel", frame.channel)?,
            stamp: need(frame, "device_us", frame.device_us)? as u32,
            len: frame.values.len(),
        })
    }
}

/// Writing to a vector cannot fail.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => { write!($out, $($arg)*).expect("a vector takes any number of bytes") };
}

fn put_array(frame: &CsiFrame, separator: char, out: &mut Vec<u8>) {
    for (i, v) in frame.values.iter().enumerate() {
        if i > 0 {
            put!(out, "{separator}");
        }
        put!(out, "{v}");
    }
}

fn esp_csi_25(frame: &CsiFrame, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let Line { mac, rssi, noise, channel, stamp, len } = Line::of(frame)?;
    // The firmware prints the 32-bit counters as signed numbers.
    let seq = need(frame, "seq", frame.seq)? as i32;
    let stamp = stamp as i32;
    let bandwidth = u8::from(frame.bandwidth_mhz == Some(40));
    let first_word = u8::from(frame.first_word_invalid);
    put!(
        out,
        "CSI_DATA,{seq},{mac},{rssi},11,1,0,{bandwidth},1,1,0,0,0,0,{noise},0,{channel},0,{stamp},0,67,0,{len},{first_word},\"["
    );
    put_array(frame, ',', out);
    put!(out, "]\"");
    Ok(())
}

fn esp_csi_15(frame: &CsiFrame, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let Line { mac, rssi, noise, channel, stamp, len } = Line::of(frame)?;
    let seq = need(frame, "seq", frame.seq)? as i32;
    let fft = need(frame, "fft_gain", frame.fft_gain)?;
    let agc = need(frame, "agc_gain", frame.agc_gain)?;
    let first_word = u8::from(frame.first_word_invalid);
    let stamp = stamp as i32;
    put!(out, "CSI_DATA,{seq},{mac},{rssi},11,{noise},{fft},{agc},{channel},{stamp},47,0,{len},{first_word},\"[");
    put_array(frame, ',', out);
    put!(out, "]\"");
    Ok(())
}

fn csi_tool(frame: &CsiFrame, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let Line { mac, rssi, noise, channel, stamp, len } = Line::of(frame)?;
    let bandwidth = u8::from(frame.bandwidth_mhz == Some(40));
    let mac = mac.to_string().to_ascii_uppercase();
    let seconds = f64::from(stamp) / 1e6;
    put!(
        out,
        "CSI_DATA,AP,{mac},{rssi},11,1,0,{bandwidth},1,1,0,0,0,0,{noise},0,{channel},0,{stamp},0,67,0,0,{seconds:.6},{len},["
    );
    put_array(frame, ' ', out);
    put!(out, " ]");
    Ok(())
}
