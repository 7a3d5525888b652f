//! ESPectre's `.npz` recordings, as the datagrams they were made from.
//!
//! A zip archive of numpy arrays: `csi_data` (int8, N rows of 128), `duration_ms`, `chip`, `gain_locked`. A row becomes one
//! ESPectre v2 datagram of 135 bytes. Times are evenly spaced (N over the duration): that is all the file keeps. Zip is
//! read by its central directory (PKWARE APPNOTE 4.3), arrays by the npy header (NEP 1).

use std::io::{Cursor, Read};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

use super::container::read_full;
use super::{Damage, Found};
use crate::frame::{LineHint, Origin};
use crate::types::SensingTime;

/// Largest archive that is read; a recording of an hour is about 30 MB.
pub(super) const MAX_ARCHIVE: u64 = 256 << 20;
const MAX_HEADER: usize = 4096;
const ROW: usize = 128;
const HEADER: usize = 7;

type Rows = flate2::read::DeflateDecoder<Cursor<Vec<u8>>>;

enum Body {
    Stored(Cursor<Vec<u8>>),
    Deflated(Box<Rows>),
}

impl Read for Body {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Stored(r) => r.read(buf),
            Self::Deflated(r) => r.read(buf),
        }
    }
}

/// Reader state: the compressed rows and one datagram.
pub(super) struct Npz {
    body: Body,
    datagram: [u8; HEADER + ROW],
    rows: u64,
    row: u64,
    micros_per_row: f64,
    start: SensingTime,
    pub(super) damage: Option<Damage>,
}

impl Npz {
    /// Opens the archive in `bytes`; errors say what was expected.
    pub(super) fn new(bytes: Vec<u8>, rate_hz: Option<f64>, start: Option<SensingTime>) -> Result<Self, String> {
        let mut chip = 0u8;
        let mut gain_locked = false;
        let mut duration_ms = None;
        let mut rows_at = None;
        let mut start = start;
        for entry in directory(&bytes)? {
            let Some(name) = entry.name.strip_suffix(".npy") else { continue };
            match name {
                "csi_data" => rows_at = Some(entry),
                "chip" => chip = chip_code(&scalar_text(&bytes, &entry)?),
                "gain_locked" => gain_locked = scalar(&bytes, &entry)?.first().is_some_and(|&b| b != 0),
                "duration_ms" => {
                    let raw: [u8; 8] = scalar(&bytes, &entry)?
                        .get(..8)
                        .and_then(|s| s.try_into().ok())
                        .ok_or("duration_ms must be one 64-bit number")?;
                    duration_ms = Some(f64::from_le_bytes(raw));
                }
                // Local time without a zone: taken as UTC, good enough to tell recordings apart.
                "collected_at" if start.is_none() => {
                    let text = scalar_text(&bytes, &entry)?;
                    start = text
                        .parse::<jiff::civil::DateTime>()
                        .ok()
                        .and_then(|t| t.to_zoned(jiff::tz::TimeZone::UTC).ok())
                        .map(|t| SensingTime(t.timestamp().as_microsecond()));
                }
                _ => {}
            }
        }
        let entry = rows_at.ok_or("no array `csi_data` in it")?;
        let mut body = open_entry(bytes, &entry)?;
        let header = npy_header(&mut body)?;
        if !header.contains("'|i1'") || header.contains("'fortran_order': True") {
            return Err("csi_data must be int8 in C order".into());
        }
        let rows = shape(&header)
            .and_then(|s| match s.as_slice() {
                [rows, 128] => Some(*rows),
                _ => None,
            })
            .ok_or_else(|| format!("csi_data must have the shape (N, 128), the header says {}", header.trim()))?;
        let micros_per_row = match (rate_hz, duration_ms) {
            (Some(rate), _) => 1e6 / rate,
            (None, Some(ms)) if ms > 0.0 && ms.is_finite() && rows > 0 => ms * 1e3 / rows as f64,
            _ => return Err("no duration_ms above zero in it; pass the frame rate (rate_hz)".into()),
        };
        let mut datagram = [0u8; HEADER + ROW];
        datagram[..HEADER].copy_from_slice(&[0x53, 0x43, chip, u8::from(gain_locked), 0, 64, 0]);
        let start = start.unwrap_or_default();
        Ok(Self { body, datagram, rows, row: 0, micros_per_row, start, damage: None })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.datagram
    }

    pub(super) fn advance(&mut self) -> Option<Found> {
        if self.row >= self.rows || self.damage.is_some() {
            return None;
        }
        let n = read_full(&mut self.body, &mut self.datagram[HEADER..]);
        let position = self.row * ROW as u64;
        match n {
            Ok(ROW) => {}
            Ok(_) => {
                let what = format!("csi_data ends after {} of {} rows", self.row, self.rows);
                self.damage = Some(Damage { position, what });
                return None;
            }
            Err(e) => {
                self.damage = Some(Damage { position, what: e.to_string() });
                return None;
            }
        }
        self.datagram[4] = self.row as u8;
        let at = self.start.plus_micros((self.row as f64 * self.micros_per_row).round() as i64);
        self.row += 1;
        // A documentation address (RFC 5737): the sender's is not recorded.
        let origin = Origin::Udp { addr: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), port: 5001 };
        Some(Found { at, origin, hint: LineHint::Auto, range: 0..HEADER + ROW })
    }
}

fn chip_code(name: &str) -> u8 {
    match name.to_ascii_lowercase().as_str() {
        "esp32" => 1,
        "s2" | "esp32s2" => 2,
        "s3" | "esp32s3" => 3,
        "c3" | "esp32c3" => 4,
        "c5" | "esp32c5" => 5,
        "c6" | "esp32c6" => 6,
        _ => 0,
    }
}

struct Entry {
    name: String,
    deflated: bool,
    data: Range<usize>,
}

/// The members of a zip archive.
fn directory(bytes: &[u8]) -> Result<Vec<Entry>, String> {
    const CUT: &str = "the zip archive is cut or damaged";
    let tail = bytes.len().saturating_sub(65_557);
    let end = bytes[tail..].windows(4).rposition(|w| w == b"PK\x05\x06").ok_or(CUT)? + tail;
    let count = le(bytes, end + 10, 2).ok_or(CUT)?;
    let mut at = le(bytes, end + 16, 4).ok_or(CUT)?;
    let mut entries = Vec::new();
    for _ in 0..count {
        if bytes.get(at..at.saturating_add(4)) != Some(b"PK\x01\x02") {
            return Err(CUT.into());
        }
        let field = |offset: usize, n: usize| le(bytes, at + offset, n).ok_or(CUT);
        let method = field(10, 2)?;
        let size = field(20, 4)?;
        let (name_len, extra, comment) = (field(28, 2)?, field(30, 2)?, field(32, 2)?);
        let local = field(42, 4)?;
        let name = bytes.get(at + 46..at + 46 + name_len).ok_or(CUT)?;
        if bytes.get(local..local.saturating_add(4)) != Some(b"PK\x03\x04") {
            return Err(CUT.into());
        }
        let skip = le(bytes, local + 26, 2).ok_or(CUT)? + le(bytes, local + 28, 2).ok_or(CUT)?;
        let start = local + 30 + skip;
        let data = start..start.saturating_add(size);
        if data.end > bytes.len() {
            return Err(CUT.into());
        }
        if method != 0 && method != 8 {
            return Err(format!("zip compression method {method} is not supported (stored and deflated are)"));
        }
        entries.push(Entry { name: String::from_utf8_lossy(name).into_owned(), deflated: method == 8, data });
        at += 46 + name_len + extra + comment;
    }
    Ok(entries)
}

/// Little-endian number of `n` bytes.
fn le(bytes: &[u8], at: usize, n: usize) -> Option<usize> {
    bytes.get(at..at.checked_add(n)?)?.iter().rev().try_fold(0usize, |v, &b| Some((v << 8) | usize::from(b)))
}

fn open_entry(mut bytes: Vec<u8>, entry: &Entry) -> Result<Body, String> {
    bytes.truncate(entry.data.end);
    let mut cursor = Cursor::new(bytes);
    cursor.set_position(entry.data.start as u64);
    Ok(if entry.deflated {
        Body::Deflated(Box::new(flate2::read::DeflateDecoder::new(cursor)))
    } else {
        Body::Stored(cursor)
    })
}

/// Reads the npy header and returns its text.
fn npy_header(body: &mut impl Read) -> Result<String, String> {
    let io = |e: std::io::Error| format!("an array cannot be unpacked: {e}");
    let mut start = [0u8; 12];
    if read_full(body, &mut start[..10]).map_err(io)? < 10 || start[..6] != *b"\x93NUMPY" {
        return Err("an array is no npy file".into());
    }
    let len = if start[6] == 1 {
        usize::from(u16::from_le_bytes([start[8], start[9]]))
    } else {
        read_full(body, &mut start[10..12]).map_err(io)?;
        u32::from_le_bytes([start[8], start[9], start[10], start[11]]) as usize
    };
    if len > MAX_HEADER {
        return Err(format!("an npy header of {len} bytes"));
    }
    let mut text = vec![0; len];
    if read_full(body, &mut text).map_err(io)? < len {
        return Err("an npy header is cut".into());
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn shape(header: &str) -> Option<Vec<u64>> {
    let rest = &header[header.find("'shape':")?..];
    let inner = &rest[rest.find('(')? + 1..rest.find(')')?];
    inner.split(',').map(str::trim).filter(|p| !p.is_empty()).map(|p| p.parse().ok()).collect()
}

/// The bytes of a small array.
fn scalar(bytes: &[u8], entry: &Entry) -> Result<Vec<u8>, String> {
    let data = &bytes[entry.data.clone()];
    if data.len() > MAX_HEADER {
        return Err(format!("{} must be one value", entry.name));
    }
    let mut body = open_entry(data.to_vec(), &Entry { name: String::new(), data: 0..data.len(), ..*entry })?;
    npy_header(&mut body)?;
    let mut value = Vec::new();
    body.take(1024).read_to_end(&mut value).map_err(|e| format!("{} cannot be unpacked: {e}", entry.name))?;
    Ok(value)
}

/// A numpy text: UTF-32 code points.
fn scalar_text(bytes: &[u8], entry: &Entry) -> Result<String, String> {
    let raw = scalar(bytes, entry)?;
    let points = raw.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]]));
    Ok(points.filter_map(char::from_u32).filter(|&c| c != '\0').collect())
}
