//! [`Writer`]: recordings in pcapng, so that Wireshark, tshark and tcpdump open them.
//!
//! *In*: captured input. *Out*: one section; UDP payloads behind IP and UDP headers made here (link type 101), text lines
//! as link type 147 with one interface a port. *State*: which interfaces are described. Microsecond time stamps.
//! What is buffered is written out every second of the recording's own time, so that a killed recorder leaves a readable
//! file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::capture::MAX_INTERFACES;
use super::packet::{LINK_LINE, LINK_RAW_IP, MAX_DATAGRAM, wrap};
use super::{RecordingError, RecordingMeta, SerialPort};
use crate::frame::{Captured, LineHint, MAX_LINE_BYTES, Origin, Payload};

const FLUSH_EVERY_US: i64 = 1_000_000;
const ZSTD_LEVEL: i32 = 3;
/// Above every packet that is written.
const SNAP_LENGTH: u32 = 262_144;
/// Lines come cut to one byte above the limit when they are longer.
const MAX_LINE: usize = MAX_LINE_BYTES + 1;

enum Sink {
    Plain(BufWriter<Box<dyn Write + Send>>),
    // `None` only after `finish`.
    Zstd(Option<zstd::stream::write::Encoder<'static, BufWriter<Box<dyn Write + Send>>>>),
}

impl Sink {
    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Self::Plain(w) => w,
            Self::Zstd(w) => w.as_mut().expect("the encoder is taken only when the writer is consumed"),
        }
    }
}

/// What was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriterSummary {
    /// Datagrams.
    pub datagrams: u64,
    /// Text lines.
    pub lines: u64,
    /// Bytes before compression.
    pub bytes: u64,
}

/// A recording being written.
pub struct Writer {
    sink: Sink,
    meta: RecordingMeta,
    udp_interface: Option<u32>,
    /// Interface of each text port described so far.
    line_interfaces: Vec<u32>,
    interfaces: u32,
    packet: Vec<u8>,
    block: Vec<u8>,
    last_flush: Option<i64>,
    summary: WriterSummary,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("summary", &self.summary).finish_non_exhaustive()
    }
}

impl Writer {
    /// Creates the file at `path`, which must not exist; a name that ends in `.zst` is compressed.
    pub fn create(path: &Path, meta: RecordingMeta) -> Result<Self, RecordingError> {
        let create_error = |source| RecordingError::Create { path: path.to_owned(), source };
        let file = File::options().write(true).create_new(true).open(path).map_err(create_error)?;
        let compress = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("zst"));
        Self::new(Box::new(file), meta, compress)
    }

    /// Writes to `out`, compressed with zstd if asked for.
    pub fn new(out: Box<dyn Write + Send>, meta: RecordingMeta, compress: bool) -> Result<Self, RecordingError> {
        let out = BufWriter::with_capacity(64 * 1024, out);
        let sink = if compress {
            let encoder = zstd::stream::write::Encoder::new(out, ZSTD_LEVEL).map_err(RecordingError::Write)?;
            Sink::Zstd(Some(encoder))
        } else {
            Sink::Plain(out)
        };
        let mut writer = Self {
            sink,
            meta,
            udp_interface: None,
            line_interfaces: Vec::new(),
            interfaces: 0,
            packet: Vec::new(),
            block: Vec::new(),
            last_flush: None,
            summary: WriterSummary::default(),
        };
        writer.section()?;
        writer.flush()?;
        Ok(writer)
    }

    /// Appends one piece of input. `hint` is what the line decoder has to know about it (as configured for the port).
    pub fn write(&mut self, captured: &Captured<'_>, hint: LineHint) -> Result<(), RecordingError> {
        let (what, len, limit) = match captured.payload {
            Payload::Datagram(d) => ("datagram", d.len(), MAX_DATAGRAM),
            Payload::Line(l) => ("line", l.len(), MAX_LINE),
        };
        if len > limit {
            return Err(RecordingError::TooLarge { what, value: len, limit });
        }
        let interface = match captured.origin {
            Origin::Udp { .. } => self.udp_interface()?,
            Origin::Serial { port } => self.line_interface(port, hint)?,
        };
        let packet = match (captured.origin, captured.payload) {
            (Origin::Udp { addr, port }, Payload::Datagram(bytes) | Payload::Line(bytes)) => {
                wrap(&mut self.packet, addr, port, self.meta.udp_port, bytes);
                self.summary.datagrams += 1;
                &self.packet
            }
            (Origin::Serial { .. }, Payload::Datagram(bytes) | Payload::Line(bytes)) => {
                self.summary.lines += 1;
                bytes
            }
        };
        // The file knows no time before the epoch.
        let ticks = u64::try_from(captured.at.0).unwrap_or(0);
        let block = &mut self.block;
        begin(block, 6);
        for word in [interface, (ticks >> 32) as u32, ticks as u32, packet.len() as u32, packet.len() as u32] {
            block.extend_from_slice(&word.to_le_bytes());
        }
        block.extend_from_slice(packet);
        end(block);
        self.put_block()?;
        let at = captured.at.0;
        let since = *self.last_flush.get_or_insert(at);
        if at.saturating_sub(since) >= FLUSH_EVERY_US || at < since {
            self.flush()?;
            self.last_flush = Some(at);
        }
        Ok(())
    }

    /// Writes out what is buffered: everything so far is readable then.
    pub fn flush(&mut self) -> Result<(), RecordingError> {
        self.sink.writer().flush().map_err(RecordingError::Write)
    }

    /// Ends the recording.
    pub fn finish(mut self) -> Result<WriterSummary, RecordingError> {
        self.close()?;
        Ok(self.summary)
    }

    /// What was written so far.
    pub fn summary(&self) -> WriterSummary {
        self.summary
    }

    fn close(&mut self) -> Result<(), RecordingError> {
        match &mut self.sink {
            Sink::Plain(w) => w.flush(),
            Sink::Zstd(w) => match w.take() {
                Some(encoder) => encoder.finish().and_then(|mut w| w.flush()),
                None => Ok(()),
            },
        }
        .map_err(RecordingError::Write)
    }

    fn put_block(&mut self) -> Result<(), RecordingError> {
        self.summary.bytes += self.block.len() as u64;
        self.sink.writer().write_all(&self.block).map_err(RecordingError::Write)
    }

    fn section(&mut self) -> Result<(), RecordingError> {
        let comment = serde_json::to_vec(&self.meta).map_err(|e| RecordingError::Write(io::Error::other(e)))?;
        if comment.len() > usize::from(u16::MAX) {
            let limit = usize::from(u16::MAX);
            return Err(RecordingError::TooLarge { what: "description", value: comment.len(), limit });
        }
        let block = &mut self.block;
        begin(block, 0x0a0d_0d0a);
        block.extend_from_slice(&0x1a2b_3c4du32.to_le_bytes());
        block.extend_from_slice(&[1, 0, 0, 0]);
        block.extend_from_slice(&[0xff; 8]); // length of the section: not known
        option(block, 1, &comment);
        option(block, 4, concat!("aetherd ", env!("CARGO_PKG_VERSION")).as_bytes());
        option(block, 0, &[]);
        end(block);
        self.put_block()
    }

    fn interface(&mut self, link: u16, name: &str, description: &str) -> Result<u32, RecordingError> {
        let block = &mut self.block;
        begin(block, 1);
        block.extend_from_slice(&link.to_le_bytes());
        block.extend_from_slice(&[0, 0]);
        block.extend_from_slice(&SNAP_LENGTH.to_le_bytes());
        option(block, 2, clip(name).as_bytes());
        if !description.is_empty() {
            option(block, 3, description.as_bytes());
        }
        option(block, 9, &[6]);
        option(block, 0, &[]);
        end(block);
        self.put_block()?;
        self.interfaces += 1;
        Ok(self.interfaces - 1)
    }

    fn udp_interface(&mut self) -> Result<u32, RecordingError> {
        if let Some(id) = self.udp_interface {
            return Ok(id);
        }
        let id = self.interface(LINK_RAW_IP, "udp", "")?;
        self.udp_interface = Some(id);
        Ok(id)
    }

    /// The interface of a text port. Ports before it are described too, so that a reader gives it the same number.
    fn line_interface(&mut self, port: u16, hint: LineHint) -> Result<u32, RecordingError> {
        let port = usize::from(port);
        if port >= MAX_INTERFACES - 1 {
            return Err(RecordingError::TooLarge { what: "port number", value: port, limit: MAX_INTERFACES - 2 });
        }
        while self.line_interfaces.len() <= port {
            let n = self.line_interfaces.len();
            let known = self.meta.serial.get(n).cloned();
            let hint = if n == port { hint } else { LineHint::default() };
            let mut entry = known.unwrap_or_else(|| SerialPort { name: format!("serial{n}"), hint });
            // Two ports of one name would be read back as one.
            if self.meta.serial.iter().take(n).any(|p| p.name == entry.name) {
                entry.name = format!("{}#{n}", entry.name);
            }
            let described = serde_json::to_value(entry.hint).ok();
            let described = described.as_ref().and_then(|v| v.as_str()).unwrap_or_default();
            let id = self.interface(LINK_LINE, &entry.name, described)?;
            self.line_interfaces.push(id);
        }
        Ok(self.line_interfaces[port])
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Without `finish` nobody hears of a failure here; what was flushed before is on disk all the same.
        let _ = self.close();
    }
}

fn begin(block: &mut Vec<u8>, kind: u32) {
    block.clear();
    block.extend_from_slice(&kind.to_le_bytes());
    block.extend_from_slice(&[0; 4]);
}

/// Pads the block and sets its two lengths.
fn end(block: &mut Vec<u8>) {
    block.resize(block.len().next_multiple_of(4), 0);
    let length = (block.len() as u32 + 4).to_le_bytes();
    block[4..8].copy_from_slice(&length);
    block.extend_from_slice(&length);
}

fn option(block: &mut Vec<u8>, code: u16, value: &[u8]) {
    block.extend_from_slice(&code.to_le_bytes());
    block.extend_from_slice(&(value.len() as u16).to_le_bytes());
    block.extend_from_slice(value);
    block.resize(block.len() + value.len().next_multiple_of(4) - value.len(), 0);
}

/// Names in the file are at most this long; cut at a character.
fn clip(name: &str) -> &str {
    let mut end = name.len().min(255);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}
