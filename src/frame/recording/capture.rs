//! Blocks of pcapng and records of pcap, read forwards.
//!
//! *In*: bytes of a capture file. *Out*: datagrams and lines with their times. *State*: one block buffer (bounded), the
//! interfaces of the section. Written here rather than with a crate because a recording may be torn or damaged anywhere,
//! because block lengths must never size an allocation, and because nothing may be allocated per packet.
//! Layout: draft-ietf-opsawg-pcapng and draft-ietf-opsawg-pcap.

use std::io::{self, BufRead, Read};
use std::ops::Range;

use super::container::read_full;
use super::packet::{self, LINK_LINE, NoDatagram};
use super::{Damage, Found, Notes, RecordingMeta, SerialPort};
use crate::frame::{LineHint, Origin};
use crate::types::SensingTime;

/// Largest block that is kept in memory; larger ones are damage (or skipped, if of a kind not needed).
const MAX_BLOCK: usize = 1 << 20;
/// Most interfaces of a section, and most text sources of a recording.
pub(super) const MAX_INTERFACES: usize = 1024;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const ENHANCED: u32 = 6;

struct Interface {
    link: u16,
    /// Ticks a second: a power of ten or of two.
    ticks_per_second: u128,
    offset_seconds: i64,
    /// Text source, for line interfaces.
    port: u16,
}

enum Kind {
    Ng,
    Classic { link: u16, nanos: bool },
}

/// Reader state for one capture file.
pub(super) struct Capture {
    kind: Option<Kind>,
    big_endian: bool,
    interfaces: Vec<Interface>,
    buffer: Vec<u8>,
    /// Bytes of whole blocks so far.
    position: u64,
    udp_port: Option<u16>,
    pub(super) ports: Vec<SerialPort>,
    pub(super) meta: Option<RecordingMeta>,
    pub(super) notes: Notes,
    pub(super) damage: Option<Damage>,
}

/// What one step came to.
enum Step {
    Found(Found),
    Skipped,
}

impl Capture {
    pub(super) fn new(udp_port: Option<u16>) -> Self {
        Self {
            kind: None,
            big_endian: false,
            interfaces: Vec::new(),
            buffer: Vec::new(),
            position: 0,
            udp_port,
            ports: Vec::new(),
            meta: None,
            notes: Notes::default(),
            damage: None,
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// Reads up to and including the first section header, so that the description is known before the first packet.
    pub(super) fn start(&mut self, input: &mut dyn BufRead) -> io::Result<()> {
        if self.kind.is_none() {
            match self.step(input) {
                Ok(_) => {}
                Err(e) => self.torn(e)?,
            }
        }
        Ok(())
    }

    /// The next datagram or line, `None` at the end or where the file is damaged.
    pub(super) fn advance(&mut self, input: &mut dyn BufRead) -> io::Result<Option<Found>> {
        while self.damage.is_none() {
            match self.step(input) {
                Ok(Some(Step::Found(found))) => return Ok(Some(found)),
                Ok(Some(Step::Skipped)) => {}
                Ok(None) => return Ok(None),
                Err(e) => {
                    self.torn(e)?;
                }
            }
        }
        Ok(None)
    }

    /// Turns an end in mid-block or mid-stream into damage; other failures stay errors.
    fn torn(&mut self, e: io::Error) -> io::Result<()> {
        match Damage::from_io(&e, self.position) {
            Some(damage) => {
                self.damage = Some(damage);
                Ok(())
            }
            None => Err(e),
        }
    }

    fn step(&mut self, input: &mut dyn BufRead) -> io::Result<Option<Step>> {
        let header_len = if matches!(self.kind, Some(Kind::Classic { .. })) { 16 } else { 8 };
        let mut header = [0u8; 16];
        match read_full(input, &mut header[..header_len])? {
            0 => return Ok(None),
            n if n < header_len => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ => {}
        }
        if self.kind.is_none() {
            let magic = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
            match magic {
                SECTION => self.kind = Some(Kind::Ng),
                0xa1b2_c3d4 | 0xd4c3_b2a1 | 0xa1b2_3c4d | 0x4d3c_b2a1 => return self.classic_header(magic, input),
                _ => return Err(bad("neither a pcapng section header nor a pcap header at the start")),
            }
        }
        match self.kind {
            Some(Kind::Classic { link, nanos }) => self.classic_record(&header, link, nanos, input),
            _ => self.block(&header, input),
        }
    }

    fn classic_header(&mut self, magic: u32, input: &mut dyn BufRead) -> io::Result<Option<Step>> {
        let mut rest = [0u8; 16];
        fill(input, &mut rest)?;
        self.big_endian = magic == 0xa1b2_c3d4 || magic == 0xa1b2_3c4d;
        let nanos = magic == 0xa1b2_3c4d || magic == 0x4d3c_b2a1;
        // The upper bits of the link type word say how long a frame check sequence is.
        let link = (self.u32(&rest[12..16]) & 0xffff) as u16;
        self.kind = Some(Kind::Classic { link, nanos });
        self.position = 24;
        Ok(Some(Step::Skipped))
    }

    fn classic_record(
        &mut self,
        header: &[u8; 16],
        link: u16,
        nanos: bool,
        input: &mut dyn BufRead,
    ) -> io::Result<Option<Step>> {
        let captured = self.u32(&header[8..12]) as usize;
        if captured > MAX_BLOCK {
            return Err(bad("a packet length beyond any network"));
        }
        self.take(input, captured)?;
        self.position += 16 + captured as u64;
        let fraction = i64::from(self.u32(&header[4..8]));
        let micros = if nanos { fraction / 1000 } else { fraction };
        let at = SensingTime(i64::from(self.u32(&header[0..4])) * 1_000_000 + micros);
        Ok(Some(self.packet(link, at, 0..captured)))
    }

    fn block(&mut self, header: &[u8; 16], input: &mut dyn BufRead) -> io::Result<Option<Step>> {
        let kind = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
        if kind == SECTION {
            // The byte order is known only from the magic number behind the length.
            let mut order = [0u8; 4];
            fill(input, &mut order)?;
            self.big_endian = match order {
                [0x1a, 0x2b, 0x3c, 0x4d] => true,
                [0x4d, 0x3c, 0x2b, 0x1a] => false,
                _ => return Err(bad("a section header without its byte-order magic")),
            };
            let length = self.block_length(&header[4..8], 28)?;
            self.body(input, length, 4)?;
            self.section();
            return Ok(Some(Step::Skipped));
        }
        let kind = self.u32(&header[0..4]);
        let length = self.u32(&header[4..8]) as usize;
        match kind {
            INTERFACE => {
                let length = self.block_length(&header[4..8], 20)?;
                self.body(input, length, 0)?;
                self.interface()?;
            }
            ENHANCED => {
                let length = self.block_length(&header[4..8], 32)?;
                self.body(input, length, 0)?;
                return self.enhanced().map(Some);
            }
            _ => {
                // Statistics, names, keys and the like: skipped without being read into memory.
                if length < 12 || !length.is_multiple_of(4) {
                    return Err(bad("a block length that cannot be"));
                }
                let rest = length as u64 - 8;
                if io::copy(&mut (&mut *input).take(rest), &mut io::sink())? < rest {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                self.position += length as u64;
                self.notes.other_blocks += 1;
            }
        }
        Ok(Some(Step::Skipped))
    }

    fn block_length(&self, field: &[u8], least: usize) -> io::Result<usize> {
        let length = self.u32(field) as usize;
        if length < least || !length.is_multiple_of(4) || length > MAX_BLOCK {
            return Err(bad("a block length that cannot be"));
        }
        Ok(length)
    }

    /// Reads the body of a block of `length` (of which 8 + `done` bytes are read) and checks the length behind it.
    fn body(&mut self, input: &mut dyn BufRead, length: usize, done: usize) -> io::Result<()> {
        self.take(input, length - 12 - done)?;
        let mut trailer = [0u8; 4];
        fill(input, &mut trailer)?;
        if self.u32(&trailer) as usize != length {
            return Err(bad("a block whose two lengths differ"));
        }
        self.position += length as u64;
        Ok(())
    }

    fn take(&mut self, input: &mut dyn BufRead, n: usize) -> io::Result<()> {
        self.buffer.clear();
        self.buffer.resize(n, 0);
        fill(input, &mut self.buffer)
    }

    fn section(&mut self) {
        self.interfaces.clear();
        // Version (4) and section length (8) stand before the options; the byte-order magic is already taken.
        let mut comment = None;
        for (code, value) in self.options(12) {
            if code == 1 {
                comment = comment.or_else(|| serde_json::from_slice::<RecordingMeta>(&self.buffer[value]).ok());
            }
        }
        // Of sections joined to one file, one simulated makes the whole simulated.
        match (&mut self.meta, comment) {
            (Some(old), Some(new)) if new.provenance == crate::types::Provenance::Simulated => {
                old.provenance = new.provenance;
            }
            (meta @ None, new) => *meta = new,
            _ => {}
        }
    }

    fn interface(&mut self) -> io::Result<()> {
        if self.interfaces.len() >= MAX_INTERFACES {
            return Err(bad("more interfaces than any recording has"));
        }
        let link = self.u16(&self.buffer[0..2]);
        let mut found = Interface { link, ticks_per_second: 1_000_000, offset_seconds: 0, port: 0 };
        let (mut name, mut hint) = (None, LineHint::default());
        for (code, value) in self.options(8) {
            let value = &self.buffer[value];
            match (code, value) {
                (2, _) => name = Some(String::from_utf8_lossy(value).into_owned()),
                (3, _) => hint = hint_from(value),
                (9, &[r]) if r & 0x80 == 0 && r <= 18 => found.ticks_per_second = 10u128.pow(u32::from(r)),
                (9, &[r]) if r & 0x80 != 0 && r & 0x7f <= 63 => found.ticks_per_second = 1 << (r & 0x7f),
                (9, _) => return Err(bad("a time stamp resolution that cannot be")),
                (14, bytes) if bytes.len() == 8 => {
                    let mut raw = [0u8; 8];
                    raw.copy_from_slice(bytes);
                    found.offset_seconds =
                        if self.big_endian { i64::from_be_bytes(raw) } else { i64::from_le_bytes(raw) };
                }
                _ => {}
            }
        }
        if link == LINK_LINE {
            let name = name.unwrap_or_else(|| format!("serial{}", self.ports.len()));
            // The same name in a later section is the same port.
            let at = match self.ports.iter().position(|p| p.name == name) {
                Some(at) => at,
                None if self.ports.len() < MAX_INTERFACES => {
                    self.ports.push(SerialPort { name, hint });
                    self.ports.len() - 1
                }
                None => return Err(bad("more text sources than any recording has")),
            };
            found.port = at as u16;
        }
        self.interfaces.push(found);
        Ok(())
    }

    fn enhanced(&mut self) -> io::Result<Step> {
        let b = &self.buffer;
        let id = self.u32(&b[0..4]) as usize;
        let ticks = (u128::from(self.u32(&b[4..8])) << 32) | u128::from(self.u32(&b[8..12]));
        let captured = self.u32(&b[12..16]) as usize;
        if captured > b.len() - 20 {
            return Err(bad("a packet longer than its block"));
        }
        let Some(interface) = self.interfaces.get(id) else {
            return Err(bad("a packet of an interface that was not described"));
        };
        let micros = ticks * 1_000_000 / interface.ticks_per_second;
        let micros = i64::try_from(micros).unwrap_or(i64::MAX);
        let at = SensingTime(micros.saturating_add(interface.offset_seconds.saturating_mul(1_000_000)));
        if interface.link == LINK_LINE {
            let port = interface.port;
            let hint = self.ports[usize::from(port)].hint;
            return Ok(Step::Found(Found { at, origin: Origin::Serial { port }, hint, range: 20..20 + captured }));
        }
        Ok(self.packet(interface.link, at, 20..20 + captured))
    }

    fn packet(&mut self, link: u16, at: SensingTime, range: Range<usize>) -> Step {
        match packet::datagram(link, &self.buffer[range.clone()]) {
            Ok(d) if self.udp_port.is_none_or(|p| p == d.port) => Step::Found(Found {
                at,
                origin: Origin::Udp { addr: d.source, port: d.source_port },
                hint: LineHint::default(),
                range: range.start + d.payload.start..range.start + d.payload.end,
            }),
            Ok(_) => {
                self.notes.other_ports += 1;
                Step::Skipped
            }
            Err(NoDatagram::NotUdp) => {
                self.notes.not_udp += 1;
                Step::Skipped
            }
            Err(NoDatagram::Partial) => {
                self.notes.partial_packets += 1;
                Step::Skipped
            }
            Err(NoDatagram::UnknownLink) => {
                self.notes.unknown_links += 1;
                Step::Skipped
            }
        }
    }

    /// Code and place of each option of the block in the buffer, from `at` on.
    fn options(&self, mut at: usize) -> impl Iterator<Item = (u16, Range<usize>)> + use<'_> {
        std::iter::from_fn(move || {
            let code = self.u16(self.buffer.get(at..at + 2)?);
            let length = usize::from(self.u16(self.buffer.get(at + 2..at + 4)?));
            let value = at + 4..at + 4 + length;
            if code == 0 || value.end > self.buffer.len() {
                return None;
            }
            at = value.start + length.next_multiple_of(4);
            Some((code, value))
        })
    }

    fn u32(&self, b: &[u8]) -> u32 {
        let raw = [b[0], b[1], b[2], b[3]];
        if self.big_endian { u32::from_be_bytes(raw) } else { u32::from_le_bytes(raw) }
    }

    fn u16(&self, b: &[u8]) -> u16 {
        if self.big_endian { u16::from_be_bytes([b[0], b[1]]) } else { u16::from_le_bytes([b[0], b[1]]) }
    }
}

fn hint_from(text: &[u8]) -> LineHint {
    serde_json::from_value(String::from_utf8_lossy(text).into()).unwrap_or_default()
}

fn bad(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn fill(input: &mut (impl Read + ?Sized), buf: &mut [u8]) -> io::Result<()> {
    if read_full(input, buf)? < buf.len() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}
