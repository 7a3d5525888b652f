//! RuView's recorder: one JSON object a line, raw CSI bytes as `iq_hex`.
//!
//! The recorder kept the time, node id, magic, size and CSI bytes of a raw frame, nothing else of its header: its `rssi`
//! is a byte of the sequence number (a known fault of its parser). So the datagram is built again with that header: node,
//! counts and bytes as recorded; frequency, RSSI and noise zero ("not known"); the sequence number counts the node's
//! recorded frames, so that no loss is claimed that was not seen. Lines of decoded values carry no bytes: they are
//! counted as what they were, never turned into packets.

use std::borrow::Cow;
use std::io::{self, BufRead, Read};
use std::net::{IpAddr, Ipv4Addr};

use serde::Deserialize;

use super::{Counted, CountedAs, Damage, Event, Found};
use crate::frame::{LineHint, Origin, Other, Reject};
use crate::types::{NodeKey, SensingTime};

/// Longest line: the largest frame of the firmware (2,068 bytes) in hex with room for the rest.
const MAX_LINE: u64 = 64 * 1024;
const HEADER: usize = 20;

#[derive(Deserialize)]
struct Row<'a> {
    timestamp: f64,
    node_id: Option<u8>,
    #[serde(borrow)]
    magic: Option<Cow<'a, str>>,
    size: Option<usize>,
    #[serde(borrow)]
    iq_hex: Option<Cow<'a, str>>,
}

/// Reader state.
pub(super) struct Ruview {
    line: Vec<u8>,
    datagram: Vec<u8>,
    seq: Box<[u32; 256]>,
    now: SensingTime,
    position: u64,
    pub(super) damage: Option<Damage>,
}

impl Ruview {
    pub(super) fn new() -> Self {
        Self {
            line: Vec::new(),
            datagram: Vec::new(),
            seq: Box::new([0; 256]),
            now: SensingTime(0),
            position: 0,
            damage: None,
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.datagram
    }

    pub(super) fn advance(&mut self, input: &mut dyn BufRead) -> io::Result<Option<Event>> {
        if self.damage.is_some() {
            return Ok(None);
        }
        self.line.clear();
        let n = match (&mut *input).take(MAX_LINE).read_until(b'\n', &mut self.line) {
            Ok(n) => n,
            Err(e) => {
                // What came of the line is not a line.
                self.damage = Some(Damage::from_io(&e, self.position).ok_or(e)?);
                return Ok(None);
            }
        };
        if n == 0 {
            return Ok(None);
        }
        self.position += n as u64;
        let line = self.line.trim_ascii();
        let nobody = NodeKey::Udp { addr: address(0), id: 0 };
        let counted = |node, what| Ok(Some(Event::Counted(Counted { at: self.now, node, what })));
        if line.is_empty() {
            return counted(nobody, CountedAs::Other(Other::Blank));
        }
        let Ok(row) = serde_json::from_slice::<Row<'_>>(line) else {
            let too_long = n as u64 == MAX_LINE;
            let why = if too_long { Reject::LineTooLong } else { Reject::Truncated };
            return counted(nobody, CountedAs::Reject(why));
        };
        if !row.timestamp.is_finite() || row.timestamp.abs() > 1e11 {
            return counted(nobody, CountedAs::Reject(Reject::BadNumber));
        }
        self.now = SensingTime::from_secs_f64(row.timestamp);
        let id = row.node_id.unwrap_or(0);
        let node = NodeKey::Udp { addr: address(id), id };
        let magic = row.magic.as_deref().and_then(|m| u32::from_str_radix(m.strip_prefix("0x")?, 16).ok());
        let what = match (magic, row.iq_hex.as_deref()) {
            (Some(0xc511_0001), Some(hex)) => match rebuild(&mut self.datagram, id, row.size, hex) {
                Ok(()) => {
                    let seq = &mut self.seq[usize::from(id)];
                    self.datagram[12..16].copy_from_slice(&seq.to_le_bytes());
                    *seq = seq.wrapping_add(1);
                    return Ok(Some(Event::Bytes(Found {
                        at: self.now,
                        origin: Origin::Udp { addr: address(id), port: 5005 },
                        hint: LineHint::Auto,
                        range: 0..self.datagram.len(),
                    })));
                }
                Err(why) => CountedAs::Reject(why),
            },
            (Some(0xc511_0001), None) => CountedAs::Reject(Reject::Truncated),
            (Some(magic), _) => other(magic, row.size),
            (None, _) => CountedAs::Reject(Reject::UnknownMagic),
        };
        Ok(Some(Event::Counted(Counted { at: self.now, node, what })))
    }
}

/// Each board had an address of its own; which is not recorded, so it gets one of the documentation range (RFC 5737).
fn address(node: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, node).into()
}

fn rebuild(out: &mut Vec<u8>, node: u8, size: Option<usize>, hex: &str) -> Result<(), Reject> {
    let csi_bytes = hex.len() / 2;
    if !hex.len().is_multiple_of(2) {
        return Err(Reject::BadHex);
    }
    if size.is_some_and(|s| s != HEADER + csi_bytes) || !csi_bytes.is_multiple_of(2) {
        return Err(Reject::LengthMismatch);
    }
    let Ok(bins) = u16::try_from(csi_bytes / 2) else { return Err(Reject::BadBins) };
    out.clear();
    out.extend_from_slice(&0xc511_0001u32.to_le_bytes());
    out.extend_from_slice(&[node, 1]);
    out.extend_from_slice(&bins.to_le_bytes());
    out.resize(HEADER, 0);
    for pair in hex.as_bytes().chunks_exact(2) {
        let digit = |b: u8| (b as char).to_digit(16);
        let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else { return Err(Reject::BadHex) };
        out.push((high * 16 + low) as u8);
    }
    Ok(())
}

/// What a line without bytes was, by the recorded magic number and size.
fn other(magic: u32, size: Option<usize>) -> CountedAs {
    let other = match (magic, size) {
        (0xc511_0002, Some(32)) => Other::RuviewVitals,
        (0xc511_0003, Some(48)) => Other::RuviewFeatures,
        (0xc511_0004, Some(48)) => Other::RuviewFusedVitals,
        (0xc511_0004 | 0xc511_0007, Some(n)) if n >= 8 && (n - 8).is_multiple_of(5) => Other::RuviewWasmEvents,
        (0xc511_0005, Some(n)) if n >= 10 => Other::RuviewCompressed,
        // Its checksum was not recorded; the recorder wrote only what its own parser accepted.
        (0xc511_0006, Some(60)) => Other::RuviewFeatureState,
        (0xc511_a110, Some(n)) if n >= 32 => Other::RuviewTimeSync,
        (0xc511_0002..=0xc511_0007 | 0xc511_a110, _) => return CountedAs::Reject(Reject::BadLength),
        _ => return CountedAs::Reject(Reject::UnknownMagic),
    };
    CountedAs::Other(other)
}
