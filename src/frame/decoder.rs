//! The decoder: a datagram or a line in, frames, recognised other packets and rejects out.
//!
//! *State*: per node what [`memory`](super::memory) keeps, and one scratch frame that every result is built in, so that
//! after warm-up a frame allocates nothing. Nodes come into being by an accepted frame only and their number is limited,
//! so that a flood of junk cannot grow the memory.

use std::collections::HashMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::captured::{Captured, Origin, Payload};
use super::datagram::{espectre, ruview};
use super::memory::NodeMemory;
use super::order::{self, Evidence};
use super::shape::{FirstWord, LayoutRule, Shape};
use super::text::{self, Found};
use super::{CsiFrame, Item, Other, Reject, SampleKind, WireFormat};
use crate::types::{NodeKey, SensingTime};

/// What may be set about decoding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DecoderSettings {
    /// Most boards to keep apart. Frames of further ones are refused until one of the known has been silent for long.
    pub max_nodes: usize,
    /// Refuse a frame that was seen before (same transmitter and radio time stamp, or same sequence number).
    pub drop_duplicates: bool,
}

impl Default for DecoderSettings {
    fn default() -> Self {
        Self { max_nodes: 256, drop_duplicates: true }
    }
}

/// A node silent for longer than this gives up its place when places run out.
const SILENT_SECS: f64 = 600.0;

/// In which form to read lines. Only forms that do not show what they are need naming.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LineHint {
    /// Formats that identify themselves, found per line.
    #[default]
    Auto,
    /// Host milliseconds and 128 values in which every 10 was turned into 13,10 (albany recordings).
    Albany,
    /// Rows of amplitudes (IALR recordings).
    Ialr,
}

/// Where results go: the node they belong to, and the result.
pub type Sink<'a> = dyn FnMut(NodeKey, Item<'_>) + 'a;

/// Decodes datagrams and lines of any number of nodes.
#[derive(Debug)]
pub struct Decoder {
    settings: DecoderSettings,
    nodes: HashMap<NodeKey, NodeMemory>,
    frame: CsiFrame,
    /// A line without its colour codes.
    clean: Vec<u8>,
}

impl Decoder {
    /// A decoder that knows no node yet.
    pub fn new(settings: DecoderSettings) -> Self {
        Self {
            nodes: HashMap::with_capacity(settings.max_nodes.min(1024)),
            settings,
            frame: CsiFrame::empty(NodeKey::Serial { port: 0 }),
            clean: Vec::with_capacity(super::MAX_LINE_BYTES + 1),
        }
    }

    /// Decodes a piece of input as it was received.
    pub fn captured(&mut self, captured: &Captured<'_>, hint: LineHint, sink: &mut Sink<'_>) {
        match (captured.payload, captured.origin) {
            (Payload::Datagram(bytes), Origin::Udp { addr, .. }) => self.datagram(bytes, addr, captured.at, sink),
            (Payload::Line(line), Origin::Serial { port }) => self.line(line, port, captured.at, hint, sink),
            // A recording can hold any pairing; neither of these is made by a source.
            (Payload::Datagram(_), Origin::Serial { port }) => {
                sink(NodeKey::Serial { port }, Item::Reject(Reject::UnknownMagic));
            }
            (Payload::Line(_), Origin::Udp { addr, .. }) => {
                sink(NodeKey::Udp { addr, id: 0 }, Item::Reject(Reject::UnknownMagic));
            }
        }
    }

    /// Decodes one datagram. Gives at least one item.
    pub fn datagram(&mut self, bytes: &[u8], from: IpAddr, at: SensingTime, sink: &mut Sink<'_>) {
        let addr = from.to_canonical();
        if espectre::has_magic(bytes) {
            return self.espectre(bytes, addr, at, sink);
        }
        let (id, packet) = ruview::classify(bytes);
        let node = NodeKey::Udp { addr, id };
        match packet {
            Ok(ruview::Packet::RawCsi) => {
                self.frame.reset(node, WireFormat::Adr018, at);
                let shape = ruview::raw_csi(bytes, &mut self.frame);
                self.finish(shape, sink);
            }
            Ok(ruview::Packet::TimeSync { seq, board_us }) => {
                if let Some(memory) = self.nodes.get_mut(&node) {
                    memory.sync.learn(seq, board_us);
                }
                sink(node, Item::Other(Other::RuviewTimeSync));
            }
            Ok(ruview::Packet::Other(other)) => sink(node, Item::Other(other)),
            Err(reject) => sink(node, Item::Reject(reject)),
        }
    }

    fn espectre(&mut self, bytes: &[u8], addr: IpAddr, at: SensingTime, sink: &mut Sink<'_>) {
        let node = NodeKey::Udp { addr, id: 0 };
        if !espectre::is_record(bytes) {
            self.frame.reset(node, WireFormat::EspectreV2, at);
            let shape = espectre::stream(bytes, &mut self.frame);
            return self.finish(shape, sink);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            if !espectre::is_record(rest) {
                return sink(node, Item::Reject(Reject::BadLength));
            }
            match espectre::record_len(rest) {
                Ok(length) => {
                    let (record, after) = rest.split_at(length);
                    self.frame.reset(node, WireFormat::EspectreV3, at);
                    let shape = espectre::record(record, &mut self.frame);
                    self.finish(shape, sink);
                    rest = after;
                }
                Err(reject) => return sink(node, Item::Reject(reject)),
            }
        }
    }

    /// Decodes one line, without its line ending. Gives at least one item.
    pub fn line(&mut self, line: &[u8], port: u16, at: SensingTime, hint: LineHint, sink: &mut Sink<'_>) {
        let node = NodeKey::Serial { port };
        if line.len() > super::MAX_LINE_BYTES {
            return sink(node, Item::Reject(Reject::LineTooLong));
        }
        let mut clean = std::mem::take(&mut self.clean);
        let line = text::without_colours(line, &mut clean);
        let mut rest = line;
        loop {
            self.frame.reset(node, WireFormat::EspCsi25, at);
            let (found, consumed) = match hint {
                LineHint::Auto => text::next(rest, &mut self.frame),
                LineHint::Albany => (text::albany::row(rest, &mut self.frame), rest.len()),
                LineHint::Ialr => (text::ialr::row(rest, &mut self.frame), rest.len()),
            };
            match found {
                Found::Frame(shape) => self.finish(Ok(shape), sink),
                Found::Other(other) => sink(node, Item::Other(other)),
                Found::Reject(reject) => sink(node, Item::Reject(reject)),
            }
            rest = rest.get(consumed.max(1)..).unwrap_or_default();
            if rest.trim_ascii().is_empty() {
                break;
            }
        }
        self.clean = clean;
    }

    /// Judges the parsed scratch frame as a measurement and hands it on.
    fn finish(&mut self, shape: Result<Shape, Reject>, sink: &mut Sink<'_>) {
        let node = self.frame.node;
        match shape.and_then(|shape| self.judge(shape)) {
            Ok(()) => sink(node, Item::Frame(&self.frame)),
            Err(reject) => sink(node, Item::Reject(reject)),
        }
    }

    fn judge(&mut self, shape: Shape) -> Result<(), Reject> {
        let frame = &mut self.frame;
        // The first word is left out: junk there and nothing else is no measurement either.
        if frame.values.iter().skip(4).all(|&v| v == 0) {
            return Err(Reject::AllZero);
        }
        let iq = frame.kind == SampleKind::Iq;
        if iq && frame.values.iter().all(|&v| matches!(v, -128 | 127)) {
            return Err(Reject::ValueRange);
        }
        let bins = frame.bin_count();
        let evidence = match shape.rule {
            LayoutRule::Fixed(_) => Evidence::Ambiguous,
            _ if iq => order::examine(&frame.values),
            _ => Evidence::Ambiguous,
        };
        if evidence == Evidence::GuardsOccupied {
            return Err(Reject::GuardBinsNotEmpty);
        }
        // Refuse lengths of no layout before a node is made of them.
        shape.rule.layout(bins, None)?;

        let at = frame.host_time;
        if !self.nodes.contains_key(&frame.node) && self.nodes.len() >= self.settings.max_nodes {
            self.nodes.retain(|_, memory| at.secs_since(memory.last_seen) <= SILENT_SECS);
            if self.nodes.len() >= self.settings.max_nodes {
                return Err(Reject::TooManyNodes);
            }
        }
        let memory = self.nodes.entry(frame.node).or_insert_with(|| NodeMemory::new(at));
        if self.settings.drop_duplicates && memory.is_copy(frame.transmitter, shape.identity, at) {
            return Err(Reject::Duplicate);
        }
        memory.last_seen = at;
        let (junk, decided_by_look) = match shape.first_word {
            FirstWord::Told(told) => (told, false),
            FirstWord::Look => (iq && frame.values[..2] != [0, 0], true),
        };
        match shape.rule {
            LayoutRule::Fixed(layout) => {
                frame.layout = layout;
                frame.first_word_invalid = junk && !decided_by_look;
            }
            rule => {
                let decision = memory.orders.decide(
                    frame.transmitter,
                    bins,
                    evidence,
                    rule.prior(bins),
                    junk && decided_by_look && matches!(bins, 64 | 128 | 188 | 190 | 192 | 256 | 306),
                );
                frame.layout = rule.layout(bins, decision.order)?;
                frame.first_word_invalid = if decided_by_look { decision.first_word_invalid } else { junk };
            }
        }
        if frame.format == WireFormat::Adr018
            && let Some(board_us) = frame.seq.and_then(|seq| memory.sync.board_us(seq))
        {
            frame.device_us = Some(board_us);
            frame.device_us_bits = 64;
        }
        Ok(())
    }
}

/// The host's wall time that a line carries in itself: albany's milliseconds, IALR's `host_unix_us`, and the 27th field
/// that host helpers append to lines of the ESP32-CSI-Tool.
pub fn line_wall_time(line: &[u8], hint: LineHint) -> Option<SensingTime> {
    match hint {
        LineHint::Auto => text::csi_data::appended_time(line),
        LineHint::Albany => text::albany::wall_time(line),
        LineHint::Ialr => text::ialr::wall_time(line),
    }
}
