//! Recordings in memory: what is written comes back, and nothing that comes in can do harm.
#![allow(clippy::unwrap_used)]

use std::io::{Cursor, Write};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use pcap_file::pcapng::{Block, PcapNgReader};
use proptest::prelude::*;

use super::*;
use crate::frame::{DecoderSettings, Payload};
use crate::types::Provenance;

/// A file that can be looked at while it is being written.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq)]
struct Piece {
    at: i64,
    origin: Origin,
    bytes: Vec<u8>,
    hint: LineHint,
}

fn udp(at: i64, addr: &str, bytes: &[u8]) -> Piece {
    let origin = Origin::Udp { addr: addr.parse().unwrap(), port: 40_001 };
    Piece { at, origin, bytes: bytes.to_vec(), hint: LineHint::Auto }
}

fn line(at: i64, port: u16, hint: LineHint, bytes: &[u8]) -> Piece {
    Piece { at, origin: Origin::Serial { port }, bytes: bytes.to_vec(), hint }
}

fn put(writer: &mut Writer, piece: &Piece) {
    let payload = match piece.origin {
        Origin::Udp { .. } => Payload::Datagram(&piece.bytes),
        Origin::Serial { .. } => Payload::Line(&piece.bytes),
    };
    writer.write(&Captured { at: SensingTime(piece.at), origin: piece.origin, payload }, piece.hint).unwrap();
}

fn written(pieces: &[Piece], meta: RecordingMeta, compress: bool) -> Vec<u8> {
    let file = Shared::default();
    let mut writer = Writer::new(Box::new(file.clone()), meta, compress).unwrap();
    pieces.iter().for_each(|p| put(&mut writer, p));
    writer.finish().unwrap();
    std::mem::take(&mut file.0.lock().unwrap())
}

fn read(bytes: Vec<u8>, name: &str) -> (Vec<Piece>, Reader) {
    let mut reader = open_bytes(bytes, name, Format::Auto, &Options::default()).unwrap();
    let mut pieces = Vec::new();
    while let Some(unit) = reader.next() {
        let Unit::Captured(c, hint) = unit.unwrap() else { panic!("a unit without bytes") };
        let (Payload::Datagram(bytes) | Payload::Line(bytes)) = c.payload;
        pieces.push(Piece { at: c.at.0, origin: c.origin, bytes: bytes.to_vec(), hint });
    }
    (pieces, reader)
}

fn sample() -> Vec<Piece> {
    vec![
        udp(1_767_225_600_000_001, "192.0.2.7", b"first"),
        line(1_767_225_600_000_500, 1, LineHint::Albany, b"1720464521679,1,2,3"),
        udp(1_767_225_600_500_000, "2001:db8::9", &[0xff; 1401]),
        line(1_767_225_601_000_500, 0, LineHint::Auto, b""),
        udp(1_767_225_602_000_000, "192.0.2.7", b""),
        line(1_767_225_603_000_500, 1, LineHint::Albany, &[0, 0x1b, 0xfe, b'x']),
    ]
}

#[test]
fn what_is_written_comes_back_byte_for_byte() {
    for compress in [false, true] {
        let mut meta = RecordingMeta::new(Provenance::Simulated);
        meta.label = Some("walk \"1\" ä".into());
        meta.serial = vec![SerialPort { name: "/dev/ttyUSB0".into(), hint: LineHint::Auto }];
        let (pieces, reader) = read(written(&sample(), meta.clone(), compress), "x");
        assert_eq!(pieces, sample());
        assert_eq!(reader.provenance(), Provenance::Simulated);
        assert_eq!(reader.meta(), Some(&meta));
        assert_eq!(reader.ports()[0].name, "/dev/ttyUSB0");
        assert_eq!(reader.ports()[1], SerialPort { name: "serial1".into(), hint: LineHint::Albany });
        assert_eq!((reader.damage(), reader.notes()), (None, Notes::default()));
    }
    // A live recording read back is recorded, not sensed.
    let (_, reader) = read(written(&sample(), RecordingMeta::new(Provenance::Sensed), false), "x");
    assert_eq!(reader.provenance(), Provenance::Recorded);
}

#[test]
fn another_reader_of_pcapng_agrees() {
    let bytes = written(&sample(), RecordingMeta::new(Provenance::Sensed), false);
    let mut reader = PcapNgReader::new(Cursor::new(bytes)).unwrap();
    let mut links = Vec::new();
    let mut packets = Vec::new();
    while let Some(block) = reader.next_block() {
        match block.unwrap() {
            Block::InterfaceDescription(i) => links.push(u32::from(i.linktype)),
            Block::EnhancedPacket(p) => {
                // That crate takes ticks for nanoseconds whatever the resolution.
                packets.push((links[p.interface_id as usize], p.timestamp.as_nanos() as i64, p.data.into_owned()));
            }
            _ => {}
        }
    }
    assert_eq!(packets.len(), sample().len());
    for ((link, at, data), piece) in packets.iter().zip(sample()) {
        assert_eq!(*at, piece.at);
        assert!(data.ends_with(&piece.bytes));
        assert_eq!(*link, if matches!(piece.origin, Origin::Udp { .. }) { 101 } else { 147 });
    }
}

#[test]
fn a_torn_recording_keeps_everything_before_the_tear() {
    let whole = written(&sample(), RecordingMeta::new(Provenance::Sensed), false);
    let mut most = 0;
    for cut in 28..whole.len() {
        let (pieces, reader) = read(whole[..cut].to_vec(), "x.pcapng");
        assert_eq!(pieces, sample()[..pieces.len()], "cut at {cut}");
        assert!(pieces.len() >= most && pieces.len() <= most + 1, "cut at {cut}");
        most = pieces.len();
        // Where it is cut between two blocks nothing can be seen.
        if let Some(damage) = reader.damage() {
            assert!(damage.position < cut as u64 && damage.what.contains("torn"), "{damage:?}");
        }
    }
    let packed = written(&sample(), RecordingMeta::new(Provenance::Sensed), true);
    let (pieces, reader) = read(packed[..packed.len() - 3].to_vec(), "x.pcapng.zst");
    assert!(reader.damage().is_some());
    assert_eq!(pieces, sample()[..pieces.len()]);
}

#[test]
fn a_killed_recorder_leaves_a_readable_file() {
    for compress in [false, true] {
        let file = Shared::default();
        let mut writer = Writer::new(Box::new(file.clone()), RecordingMeta::new(Provenance::Sensed), compress).unwrap();
        let pieces: Vec<Piece> = (0..500).map(|i| udp(i * 10_000, "192.0.2.1", &[i as u8; 148])).collect();
        pieces.iter().for_each(|p| put(&mut writer, p));
        // As after SIGKILL: only what reached the file counts.
        let on_disk = file.0.lock().unwrap().clone();
        let (found, _) = read(on_disk, "x");
        assert!(found.len() >= 400 && found == pieces[..found.len()], "{} (compressed: {compress})", found.len());
    }
}

#[test]
fn a_damaged_block_ends_the_recording_and_says_where() {
    let whole = written(&sample(), RecordingMeta::new(Provenance::Sensed), false);
    for (offset, value) in [(4usize, 0xffu8), (7, 0xff), (4, 1)] {
        let mut bytes = whole.clone();
        // The last block: its length stands at its end.
        let length = u32::from_le_bytes(bytes[bytes.len() - 4..].try_into().unwrap()) as usize;
        let block = bytes.len() - length;
        bytes[block + offset] = value;
        let (pieces, reader) = read(bytes, "x");
        assert_eq!(pieces.len(), sample().len() - 1);
        assert_eq!(reader.damage().unwrap().position, block as u64);
    }
}

#[test]
fn big_endian_nanoseconds_and_foreign_blocks() {
    fn block(out: &mut Vec<u8>, kind: u32, body: &[u8]) {
        let length = (12 + body.len()) as u32;
        out.extend_from_slice(&kind.to_be_bytes());
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(body);
        out.extend_from_slice(&length.to_be_bytes());
    }
    let mut file = Vec::new();
    block(&mut file, 0x0a0d_0d0a, &[&[0x1a, 0x2b, 0x3c, 0x4d, 0, 1, 0, 0][..], &[0xff; 8]].concat());
    // Interface: raw IP, nanoseconds.
    block(&mut file, 1, &[0, 101, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 9, 0, 0, 0, 0, 0, 0, 0]);
    block(&mut file, 0x0bad, &[0; 400]);
    let mut packet = Vec::new();
    packet::wrap(&mut packet, "192.0.2.3".parse().unwrap(), 9, 5005, b"hello");
    let ns: u64 = 1_767_225_600_123_456_789;
    let mut body = vec![0, 0, 0, 0];
    body.extend_from_slice(&ns.to_be_bytes());
    body.extend_from_slice(&(packet.len() as u32).to_be_bytes());
    body.extend_from_slice(&(packet.len() as u32).to_be_bytes());
    body.extend_from_slice(&packet);
    body.resize(body.len().next_multiple_of(4), 0);
    block(&mut file, 6, &body);
    let (pieces, reader) = read(file.clone(), "x");
    assert_eq!(pieces.len(), 1);
    assert_eq!((pieces[0].at, &pieces[0].bytes[..]), (1_767_225_600_123_456, &b"hello"[..]));
    assert_eq!((reader.notes().other_blocks, reader.provenance()), (1, Provenance::Recorded));
    let options = Options { udp_port: Some(5001), ..Options::default() };
    let mut filtered = open_bytes(file, "x", Format::Auto, &options).unwrap();
    assert!(filtered.next().is_none());
    assert_eq!(filtered.notes().other_ports, 1);
}

#[test]
fn limits_and_refusals() {
    let mut writer = Writer::new(Box::new(io::sink()), RecordingMeta::new(Provenance::Sensed), false).unwrap();
    let big = vec![0; packet::MAX_DATAGRAM + 1];
    let origin = Origin::Udp { addr: IpAddr::from([192, 0, 2, 1]), port: 1 };
    let captured = Captured { at: SensingTime(0), origin, payload: Payload::Datagram(&big) };
    assert!(matches!(writer.write(&captured, LineHint::Auto), Err(RecordingError::TooLarge { .. })));
    let far = Captured { at: SensingTime(0), origin: Origin::Serial { port: u16::MAX }, payload: Payload::Line(b"x") };
    assert!(matches!(writer.write(&far, LineHint::Auto), Err(RecordingError::TooLarge { .. })));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcapng");
    Writer::create(&path, RecordingMeta::new(Provenance::Sensed)).unwrap();
    let e = Writer::create(&path, RecordingMeta::new(Provenance::Sensed)).unwrap_err();
    assert!(matches!(e, RecordingError::Create { .. }), "an existing file is not overwritten: {e}");
    let options = Options { rate_hz: Some(f64::NAN), ..Options::default() };
    let e = open_bytes(Vec::new(), "a.txt", Format::Text, &options).unwrap_err();
    assert!(matches!(e, RecordingError::BadRate(_)));
    let e = open_bytes(b"CSI_DATA,1\n".to_vec(), "a.txt", Format::Text, &Options::default()).unwrap_err();
    assert!(matches!(e, RecordingError::NoTime), "{e}");
    let e = recording_of_nothing();
    assert!(matches!(e, RecordingError::Unrecognised { .. }), "{e}");
}

fn recording_of_nothing() -> RecordingError {
    open_bytes(Vec::new(), "nothing", Format::Auto, &Options::default()).unwrap_err()
}

#[test]
fn ruview_entries_without_bytes_are_counted_not_invented() {
    let text = concat!(
        r#"{"timestamp": 10.5, "node_id": 3, "magic": "0xC5110001", "size": 24, "iq_hex": "01020304"}"#,
        "\n",
        r#"{"timestamp": 10.6, "node_id": 3, "magic": "0xC5110001", "size": 25, "iq_hex": "01020304"}"#,
        "\n",
        r#"{"timestamp": 10.7, "node_id": 3, "magic": "0xC5110002", "size": 32, "breathing_bpm": 15.0}"#,
        "\n",
        r#"{"timestamp": 10.8, "node_id": 3, "magic": "0xC51100"#,
    );
    let mut reader = open_bytes(text.into(), "x", Format::Auto, &Options::default()).unwrap();
    let mut seen = Vec::new();
    while let Some(unit) = reader.next() {
        match unit.unwrap() {
            Unit::Captured(c, _) => {
                let Payload::Datagram(bytes) = c.payload else { panic!() };
                let expected = [1, 0, 0x11, 0xc5, 3, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];
                assert_eq!((c.at, bytes), (SensingTime(10_500_000), &expected[..]));
            }
            Unit::Counted(c) => seen.push(c.what),
        }
    }
    assert_eq!(
        seen,
        [
            CountedAs::Reject(Reject::LengthMismatch),
            CountedAs::Other(Other::RuviewVitals),
            CountedAs::Reject(Reject::Truncated)
        ]
    );
}

/// Reads whatever `bytes` are to the end; returns the number of units.
fn drain(bytes: &[u8], format: Format) -> usize {
    let Ok(mut reader) = open_bytes(bytes.to_vec(), "input.txt", format, &Options::default()) else { return 0 };
    let mut decoder = Decoder::new(DecoderSettings::default());
    let mut units = 0;
    while let Some(unit) = reader.next() {
        let Ok(unit) = unit else { break };
        unit.decode(&mut decoder, &mut |_, _| {});
        units += 1;
    }
    assert!(reader.next().is_none(), "the end stays the end");
    units
}

#[test]
fn members_are_named_with_either_mark_and_an_import_takes_one() {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, seq) in [("a/one.txt", 1), ("notes.md", 0), ("a/._one.txt", 0), ("a/two.txt", 2), ("a/three.csv", 3)] {
        let body = format!("CSIRAW {seq} 1000 -40 2 00ff\n").repeat(seq.max(1));
        let mut header = tar::Header::new_ustar();
        header.set_size(body.len() as u64);
        archive.append_data(&mut header, name, body.as_bytes()).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("set.tar");
    std::fs::write(&path, archive.into_inner().unwrap()).unwrap();
    assert_eq!(members(&path).unwrap(), ["a/one.txt", "a/two.txt", "a/three.csv"]);
    let named = |mark: &str, member: &str| std::path::PathBuf::from(format!("{}{mark}{member}", path.display()));
    for (mark, member) in [("#", "a/two.txt"), (":", "a/two.txt"), ("#", "two.txt")] {
        let mut reader = open(&named(mark, member), Format::Auto, &Options::default()).unwrap();
        assert_eq!(reader.member(), Some("a/two.txt"));
        let mut units = 0;
        while let Some(unit) = reader.next() {
            unit.unwrap();
            units += 1;
        }
        assert_eq!((units, reader.segment()), (2, 0));
    }
    let mut reader = open(&path, Format::Auto, &Options::default()).unwrap();
    let mut seen = Vec::new();
    while let Some(unit) = reader.next() {
        unit.unwrap();
        seen.push((reader.segment(), reader.member().unwrap().to_owned()));
    }
    assert_eq!(seen.iter().map(|s| s.0).collect::<Vec<_>>(), [0, 1, 1, 2, 2, 2]);
    assert_eq!(seen[5].1, "a/three.csv");
    let e = open(&named("#", "four.txt"), Format::Auto, &Options::default()).unwrap_err();
    assert!(matches!(&e, RecordingError::NoMember { found, .. } if found.len() == 3), "{e}");
    let mut reader = open(&path, Format::Auto, &Options::default()).unwrap();
    let mut writer = Writer::new(Box::new(io::sink()), RecordingMeta::of_import(&reader), false).unwrap();
    let e = import(&mut reader, &mut writer).unwrap_err();
    assert!(matches!(e, RecordingError::SeveralMembers { .. }), "{e}");
}

const MAGICS: &[&[u8]] = &[
    b"\x0a\x0d\x0d\x0a\x1c\0\0\0\x4d\x3c\x2b\x1a",
    b"\xd4\xc3\xb2\xa1",
    b"PK\x03\x04",
    b"BZh9",
    b"\xfd7zXZ\0",
    b"\x28\xb5\x2f\xfd",
    b"\x1f\x8b",
    b"{\"magic\":",
    b"CSI_DATA,",
    b"CSIRAW 1 2 -40 4 ",
    b"[1,2,3,4,5,6,",
];

fn any_format() -> impl Strategy<Value = Format> {
    prop_oneof![Just(Format::Auto), proptest::sample::select(Format::ALL)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..600), format in any_format()) {
        drain(&bytes, format);
    }

    #[test]
    fn random_bytes_behind_a_magic_number_do_no_harm(
        magic in proptest::sample::select(MAGICS),
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
    ) {
        drain(&[magic, &bytes].concat(), Format::Auto);
    }

    #[test]
    fn flipped_bytes_do_no_harm(flips in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = written(&sample(), RecordingMeta::new(Provenance::Sensed), false);
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        prop_assert!(drain(&bytes, Format::Pcapng) <= 100);
    }

    #[test]
    fn any_payload_comes_back(
        pieces in proptest::collection::vec(
            (0i64..1 << 52, any::<bool>(), 0u16..4, proptest::collection::vec(any::<u8>(), 0..300)), 0..20),
        compress in any::<bool>(),
    ) {
        let pieces: Vec<Piece> = pieces
            .into_iter()
            .map(|(at, text, n, bytes)| {
                if text { line(at, n, LineHint::Auto, &bytes) } else { udp(at, "198.51.100.4", &bytes) }
            })
            .collect();
        let (found, reader) = read(written(&pieces, RecordingMeta::new(Provenance::Sensed), compress), "x");
        prop_assert_eq!(found, pieces);
        prop_assert!(reader.damage().is_none());
    }
}
