//! The UDP packets of the wire-format page, good and bad, through the decoder.

#![allow(clippy::unwrap_used, missing_docs)]

use std::net::{IpAddr, Ipv4Addr};

use aetherd::frame::{Chip, CsiFrame, Decoder, DecoderSettings, Item, Layout, Other, Reject, WireFormat};
use aetherd::types::{NodeKey, SensingTime};

const FROM: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 1, 20));

#[derive(Debug, Clone, PartialEq)]
enum Got {
    Frame(Box<CsiFrame>),
    Other(Other),
    Reject(Reject),
}

struct Bench {
    decoder: Decoder,
    now: i64,
}

impl Bench {
    fn new() -> Self {
        Self { decoder: Decoder::new(DecoderSettings::default()), now: 0 }
    }

    fn from(&mut self, addr: IpAddr, bytes: &[u8]) -> Vec<(NodeKey, Got)> {
        self.now += 20_000;
        let mut got = Vec::new();
        self.decoder.datagram(bytes, addr, SensingTime(self.now), &mut |key, item| {
            got.push((
                key,
                match item {
                    Item::Frame(frame) => Got::Frame(Box::new(frame.clone())),
                    Item::Other(other) => Got::Other(other),
                    Item::Reject(reject) => Got::Reject(reject),
                },
            ));
        });
        assert!(!got.is_empty(), "silence is no answer");
        got
    }

    fn all(&mut self, bytes: &[u8]) -> Vec<Got> {
        self.from(FROM, bytes).into_iter().map(|(_, got)| got).collect()
    }

    fn one(&mut self, bytes: &[u8]) -> Got {
        let mut all = self.all(bytes);
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    fn frame(&mut self, bytes: &[u8]) -> CsiFrame {
        match self.one(bytes) {
            Got::Frame(frame) => *frame,
            other => panic!("expected a frame, got {other:?}"),
        }
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// 64 bins in FFT order with their zeros where a radio has them.
fn natural(bin: usize) -> [i8; 2] {
    if bin.is_multiple_of(64) || (29..36).contains(&(bin % 64)) {
        [0, 0]
    } else {
        [(bin % 50) as i8 + 1, -((bin % 30) as i8) - 1]
    }
}

fn centred(bin: usize) -> [i8; 2] {
    if bin % 64 < 4 || bin % 64 == 32 || bin % 64 > 60 { [0, 0] } else { [9, -(bin as i8 % 7) - 1] }
}

fn pairs(bins: usize, value: impl Fn(usize) -> [i8; 2]) -> Vec<u8> {
    (0..bins).flat_map(value).map(|v| v as u8).collect()
}

fn raw_header(node: u8, antennas: u8, bins: u16, seq: u32) -> Vec<u8> {
    let mut bytes = hex("01 00 11 C5");
    bytes.extend([node, antennas]);
    bytes.extend(bins.to_le_bytes());
    bytes.extend(2437u32.to_le_bytes());
    bytes.extend(seq.to_le_bytes());
    bytes.extend([0xCE, 0xA1, 0, 0]);
    bytes
}

fn raw(node: u8, bins: u16, seq: u32, value: impl Fn(usize) -> [i8; 2]) -> Vec<u8> {
    let mut bytes = raw_header(node, 1, bins, seq);
    bytes.extend(pairs(usize::from(bins), value));
    bytes
}

const VITALS: &str = "02 00 11 C5 03 05 DC 05 80 FC 0A 00 CE 04 00 00 00 00 80 3E 00 00 80 3E 60 EA 00 00 00 00 00 00";
const FUSED: &str = "04 00 11 C5 03 0D DC 05 80 FC 0A 00 CE 01 01 5A 00 00 80 3E 00 00 80 3E 60 EA 00 00
    00 00 90 42 00 00 70 41 00 00 16 43 01 50 00 00 00 00 00 00";
const WASM: &str = "04 00 11 C5 03 00 01 00 0A 00 00 80 3F";
const STATE: &str =
    "06 00 11 C5 03 01 07 00 00 87 93 03 00 00 00 00 00 00 80 3E 00 00 80 3E 00 00 70 41 00 00 00 3F 00 00 90 42
    00 00 80 3E 00 00 00 00 00 00 00 00 00 00 80 3F 07 00 00 00 F2 95 5A B4";
const SYNC: &str = "10 A1 11 C5 03 01 07 00 00 87 93 03 00 00 00 00 9B 88 93 03 00 00 00 00 02 01 00 00 00 00 00 00";

#[test]
fn example_one_imaginary_first() {
    let mut bytes = hex("01 00 11 C5 | 03 | 01 | 40 00 | 85 09 00 00 | 02 01 00 00 | CE | A1 | 00 00");
    bytes.extend(pairs(64, natural));
    assert_eq!(bytes.len(), 148);
    let mut bench = Bench::new();
    let (key, got) = bench.from(FROM, &bytes).remove(0);
    assert_eq!(key, NodeKey::Udp { addr: FROM, id: 3 });
    let Got::Frame(frame) = got else { panic!("{got:?}") };
    assert_eq!(frame.node, key);
    assert_eq!(frame.format, WireFormat::Adr018);
    assert_eq!((frame.seq, frame.seq_bits), (Some(0x0102), 32));
    assert_eq!((frame.rssi_dbm, frame.noise_dbm), (Some(-50), Some(-95)));
    assert_eq!((frame.freq_mhz, frame.channel, frame.bandwidth_mhz), (Some(2437), None, None));
    assert_eq!((frame.transmitter, frame.device_us), (None, None));
    assert_eq!(frame.host_time, SensingTime(20_000));
    assert_eq!(frame.layout, Layout::Natural64);
    assert!(!frame.first_word_invalid);
    // As sent: imaginary, real, imaginary, real.
    assert_eq!(frame.values[2..6], [2, -2, 3, -3]);
    assert_eq!(frame.bin_count(), 64);
}

#[test]
fn every_other_example_is_recognised() {
    let mut bench = Bench::new();
    let mesh = {
        let mut bytes = hex("00 81 11 C5 01 06 00 00 01 00 00 00 1C 00 00 00");
        bytes.extend([3; 28]);
        bytes.extend(crc(&bytes).to_le_bytes());
        bytes
    };
    let temporal = {
        let mut bytes = hex("07 00 11 C5 01 00 04 00 03 00 00 00");
        bytes.extend([0; 24]);
        bytes.extend(crc(&bytes).to_le_bytes());
        bytes
    };
    let mut features = hex("03 00 11 C5");
    features.resize(48, 0);
    let mut radar = hex("08 00 11 C5 03 01 02 00");
    radar.resize(40, 0);
    let compressed = hex("05 00 11 C5 03 06 80 00 04 00 01 02 03 04");
    let mut eight_events = hex("04 00 11 C5 03 00 08 00");
    eight_events.resize(48, 1);
    let mut wasm_later = hex(WASM);
    wasm_later[0] = 7;
    let mut sync_v4 = hex(SYNC);
    sync_v4.resize(58, 9);
    for (bytes, other) in [
        (hex(VITALS), Other::RuviewVitals),
        (features, Other::RuviewFeatures),
        (hex(FUSED), Other::RuviewFusedVitals),
        (hex(WASM), Other::RuviewWasmEvents),
        (eight_events, Other::RuviewWasmEvents),
        (wasm_later, Other::RuviewWasmEvents),
        (compressed, Other::RuviewCompressed),
        (hex(STATE), Other::RuviewFeatureState),
        (temporal, Other::RuviewTemporal),
        (radar, Other::RuviewRadarTargets),
        (mesh, Other::RuviewMesh),
        (hex(SYNC), Other::RuviewTimeSync),
        (sync_v4, Other::RuviewTimeSync),
    ] {
        assert_eq!(bench.one(&bytes), Got::Other(other));
    }
    assert_eq!(hex(STATE).len(), 60);
}

/// The zlib CRC bit by bit, not the one the decoder uses.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |mut crc, &byte| {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
        }
        crc
    })
}

#[test]
fn damaged_packets_are_refused_by_reason() {
    let good = raw(3, 64, 1, natural);
    let mut broken_sum = hex(STATE);
    broken_sum[20] ^= 1;
    let mut old_sync = hex(SYNC);
    old_sync[5] = 2;
    let mut mesh_version = hex("00 81 11 C5 02 06 00 00 01 00 00 00 00 00 00 00");
    mesh_version.extend(crc(&mesh_version).to_le_bytes());
    let mut odd_radar = hex("08 00 11 C5 03 01 09 00");
    odd_radar.resize(40, 0);
    let header = |antennas: u8, bins: u16, size: usize| {
        let mut bytes = raw_header(3, antennas, bins, 1);
        bytes.resize(size, 7);
        bytes
    };
    let one_short = good[..147].to_vec();
    let mut one_long = good.clone();
    one_long.push(0);
    for (name, bytes, reject) in [
        ("empty", vec![], Reject::TooShort),
        ("one byte", vec![1], Reject::TooShort),
        ("19 bytes", good[..19].to_vec(), Reject::TooShort),
        ("header alone", good[..20].to_vec(), Reject::BadLength),
        ("one short", one_short, Reject::BadLength),
        ("one long", one_long, Reject::BadLength),
        ("no bins", header(1, 0, 20), Reject::BadBins),
        ("65535 bins", header(1, 0xFFFF, 2068), Reject::BadBins),
        ("no antenna", header(0, 64, 148), Reject::BadAntennas),
        ("five antennas", header(5, 64, 20 + 640), Reject::BadAntennas),
        ("C5 12-bit", raw(3, 53, 1, |_| [5, 1]), Reject::Packed12Bit),
        ("61 bins", raw(3, 61, 1, |_| [5, 1]), Reject::UnknownLayout),
        ("all zero", raw(3, 64, 1, |_| [0, 0]), Reject::AllZero),
        ("junk word and zeros", raw(3, 64, 1, |bin| if bin < 2 { [100, 8] } else { [0, 0] }), Reject::AllZero),
        ("all -128", raw(3, 64, 1, |_| [-128, -128]), Reject::ValueRange),
        ("all 127", raw(3, 128, 1, |_| [127, 127]), Reject::ValueRange),
        ("noise burst", raw(3, 64, 1, |bin| [bin as i8 % 5 + 20, -20]), Reject::GuardBinsNotEmpty),
        ("short vitals", hex(VITALS)[..31].to_vec(), Reject::BadLength),
        ("broken sum", broken_sum, Reject::BadChecksum),
        ("sync protocol 2", old_sync, Reject::BadVersion),
        ("short sync", hex(SYNC)[..31].to_vec(), Reject::BadLength),
        ("mesh version", mesh_version, Reject::BadVersion),
        ("too many targets", odd_radar, Reject::BadLength),
        ("wasm with a byte more", [hex(WASM), vec![0]].concat(), Reject::BadLength),
        ("0009", hex("09 00 11 C5 00 00 00 00"), Reject::UnknownMagic),
        ("000A", hex("0A 00 11 C5 00 00 00 00"), Reject::UnknownMagic),
        ("noise", vec![0xAA; 200], Reject::UnknownMagic),
    ] {
        assert_eq!(Bench::new().one(&bytes), Got::Reject(reject), "{name}");
    }
}

#[test]
fn every_length_of_the_table_has_its_layout() {
    for (bins, value, layout) in [
        (64, natural as fn(usize) -> [i8; 2], Layout::Natural64),
        (64, centred, Layout::Centred64),
        (128, natural, Layout::LltfHt128),
        (128, centred, Layout::Paired128),
        (192, natural, Layout::Stbc192),
        (192, centred, Layout::Ht40x192),
        (190, centred, Layout::Below190),
        (188, centred, Layout::Above188),
        (306, centred, Layout::Ht40Stbc306),
        (57, |_| [3, 4], Layout::C5Ht57),
        (114, |_| [3, 4], Layout::C5Stbc114),
        (117, |_| [3, 4], Layout::C5Ht117),
        (234, |_| [3, 4], Layout::C5Stbc234),
        (245, |_| [3, 4], Layout::C5He245),
        (
            256,
            |bin| if !(6..=250).contains(&bin) || (127..130).contains(&bin) { [0, 0] } else { [1, 2] },
            Layout::Unknown(256),
        ),
        (256, |bin| if !(6..=250).contains(&bin) { [0, 0] } else { [1, 2] }, Layout::Centred256),
        (256, |bin| if (123..134).contains(&bin) { [0, 0] } else { [1, 2] }, Layout::Natural256),
    ] {
        let bytes = raw(1, bins, 5, value);
        let frame = Bench::new().frame(&bytes);
        assert_eq!(frame.layout, layout, "{bins}");
        assert_eq!(frame.layout.len(), usize::from(bins));
        assert_eq!(frame.bin_count(), usize::from(bins));
    }
    // 256 bins are 00 01 on the wire, 532 bytes; 306 bins are 632 bytes.
    assert_eq!(raw(1, 256, 0, natural)[6..8], [0, 1]);
    assert_eq!((raw(1, 256, 0, natural).len(), raw(1, 306, 0, natural).len()), (532, 632));
}

#[test]
fn odd_signal_values_are_no_measurement_but_the_frame_is_good() {
    let mut bench = Bench::new();
    for (seq, (sent, read)) in
        [(0i8, None), (9, None), (-1, None), (-2, None), (-128, None), (-46, Some(-46))].into_iter().enumerate()
    {
        let mut bytes = raw(3, 64, seq as u32, natural);
        bytes[16] = sent as u8;
        assert_eq!(bench.frame(&bytes).rssi_dbm, read, "{sent}");
    }
    let mut bytes = raw(3, 64, 100, natural);
    bytes[8..12].fill(0);
    assert_eq!(bench.frame(&bytes).freq_mhz, None);
}

#[test]
fn later_flags_are_read() {
    let mut bytes = raw(3, 64, 1, natural);
    bytes[19] = 0x20 | 1;
    let frame = Bench::new().frame(&bytes);
    assert!(frame.first_word_invalid);
    assert_eq!(frame.bandwidth_mhz, Some(40));
    // Without the flag, something in bin 0 is the junk itself.
    let frame = Bench::new().frame(&raw(3, 64, 1, |bin| if bin < 2 { [67, 48] } else { natural(bin) }));
    assert!(frame.first_word_invalid);
}

#[test]
fn widths_alternate_and_nodes_with_one_id_are_apart() {
    let mut bench = Bench::new();
    let other: IpAddr = "192.168.1.21".parse().unwrap();
    for seq in 0..20 {
        let bins = if seq % 2 == 0 { 64 } else { 128 };
        let layout = if seq % 2 == 0 { Layout::Natural64 } else { Layout::LltfHt128 };
        assert_eq!(bench.frame(&raw(1, bins, seq, natural)).layout, layout);
        let (key, got) = bench.from(other, &raw(1, 64, seq, centred)).remove(0);
        assert_eq!(key, NodeKey::Udp { addr: other, id: 1 });
        let Got::Frame(frame) = got else { panic!("{got:?}") };
        assert_eq!(frame.layout, Layout::Centred64);
    }
    // An IPv4 sender on an IPv6 socket is the same node.
    let mapped: IpAddr = "::ffff:192.168.1.20".parse().unwrap();
    assert_eq!(bench.from(mapped, &raw(1, 64, 999, natural))[0].0, NodeKey::Udp { addr: FROM, id: 1 });
}

#[test]
fn copies_are_refused_and_restart_wrap_and_reordering_are_not() {
    let mut bench = Bench::new();
    let mut send = |seq: u32| bench.one(&raw(1, 64, seq, natural));
    let good = |got: Got| matches!(got, Got::Frame(_));
    assert!(good(send(1000)));
    assert_eq!(send(1000), Got::Reject(Reject::Duplicate));
    assert!(good(send(1002)) && good(send(1001)));
    assert_eq!(send(1001), Got::Reject(Reject::Duplicate));
    assert!(good(send(2002)), "a gap of a thousand");
    assert!(good(send(0)), "restart");
    assert!(good(send(u32::MAX - 1_000_000)) && good(send(u32::MAX)) && good(send(0)), "wrap");
}

#[test]
fn a_magic_number_inside_the_payload_is_payload() {
    let mut bytes = raw(1, 64, 1, natural);
    bytes[40..44].copy_from_slice(&hex("01 00 11 C5"));
    assert_eq!(Bench::new().frame(&bytes).values[20..24], [1, 0, 17, -59]);
}

#[test]
fn nodes_beyond_the_limit_are_refused_until_there_is_room() {
    let settings = DecoderSettings { max_nodes: 2, ..DecoderSettings::default() };
    let mut bench = Bench { decoder: Decoder::new(settings), now: 0 };
    bench.frame(&raw(1, 64, 1, natural));
    bench.frame(&raw(2, 64, 1, natural));
    assert_eq!(bench.one(&raw(3, 64, 1, natural)), Got::Reject(Reject::TooManyNodes));
    bench.frame(&raw(2, 64, 2, natural));
    bench.now += 599_000_000;
    bench.frame(&raw(2, 64, 3, natural));
    bench.now += 5_000_000;
    bench.frame(&raw(3, 64, 1, natural));
}

#[test]
fn board_time_follows_from_sync_packets_where_the_pace_is_even() {
    let mut bench = Bench::new();
    let sync = |seq: u32, us: u64| {
        let mut bytes = hex(SYNC);
        bytes[8..16].copy_from_slice(&us.to_le_bytes());
        bytes[24..28].copy_from_slice(&seq.to_le_bytes());
        bytes
    };
    let mut last = None;
    for seq in 1..=120 {
        last = bench.frame(&raw(3, 64, seq, natural)).device_us;
        if seq % 20 == 0 {
            bench.one(&sync(seq, 5_000_000 + u64::from(seq) * 20_000));
        }
    }
    assert_eq!(last, Some(5_000_000 + 120 * 20_000));
    let frame = bench.frame(&raw(3, 64, 123, natural));
    assert_eq!((frame.device_us, frame.device_us_bits), (Some(5_000_000 + 123 * 20_000), 64));
    // Another node knows nothing of it.
    assert_eq!(bench.frame(&raw(4, 64, 103, natural)).device_us, None);
}

fn espectre_v2(header: usize, chip: u8, seq: u8, value: impl Fn(usize) -> [i8; 2]) -> Vec<u8> {
    let mut bytes = match header {
        7 => vec![0x53, 0x43, chip, 1, seq, 64, 0],
        6 => vec![0x53, 0x43, chip, seq, 64, 0],
        _ => vec![0x53, 0x43, 64, seq],
    };
    bytes.extend(pairs(64, value));
    bytes
}

#[test]
fn espectre_v2_headers_by_exact_length() {
    for (header, size, chip) in [(7, 135, Some(Chip::Esp32S3)), (6, 134, Some(Chip::Esp32S3)), (4, 132, None)] {
        let bytes = espectre_v2(header, 3, 200, natural);
        assert_eq!(bytes.len(), size);
        let frame = Bench::new().frame(&bytes);
        assert_eq!((frame.format, frame.chip), (WireFormat::EspectreV2, chip));
        assert_eq!((frame.seq, frame.seq_bits), (Some(200), 8));
        assert_eq!(frame.layout, if chip.is_some() { Layout::HtLtf64 } else { Layout::Natural64 });
        assert_eq!(frame.values[2..4], [2, -2]);
        assert_eq!((frame.rssi_dbm, frame.device_us), (None, None));
    }
    let frame = Bench::new().frame(&espectre_v2(7, 5, 0, centred));
    assert_eq!((frame.chip, frame.layout), (Some(Chip::Esp32C5), Layout::Centred64));
    let mut long = espectre_v2(7, 3, 0, natural);
    long.push(0);
    long.push(0);
    assert_eq!(Bench::new().one(&long), Got::Reject(Reject::BadLength));
    assert_eq!(Bench::new().one(&[0x53, 0x43]), Got::Reject(Reject::TooShort));
}

fn espectre_v3(version: u8, seq: u32, flags: u8) -> Vec<u8> {
    let mut bytes = vec![0x53, 0x43, version, 64, 6, flags];
    bytes.extend(seq.to_le_bytes());
    bytes.extend(64u16.to_le_bytes());
    bytes.extend(128u16.to_le_bytes());
    bytes.extend(0x1122_3344_5566u64.to_le_bytes());
    bytes.extend(7_000_000_000u64.to_le_bytes());
    bytes.extend(123_456u32.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    bytes.extend([6, -61i8 as u8, -94i8 as u8]);
    bytes.resize(64, 0);
    bytes.extend(pairs(64, centred));
    bytes
}

#[test]
fn espectre_v3_records_one_or_several() {
    let bytes = [espectre_v3(7, 10, 2), espectre_v3(8, 11, 1)].concat();
    let got = Bench::new().all(&bytes);
    let [Got::Frame(a), Got::Frame(b)] = &got[..] else { panic!("{got:?}") };
    assert_eq!((a.format, a.chip, a.layout), (WireFormat::EspectreV3, Some(Chip::Esp32C6), Layout::Centred64));
    assert_eq!((a.device_us, a.device_us_bits, a.first_word_invalid), (Some(123_456), 32, false));
    assert_eq!((b.device_us, b.device_us_bits, b.first_word_invalid), (Some(7_000_000_000), 64, true));
    assert_eq!((a.seq, b.seq), (Some(10), Some(11)));
    assert_eq!((a.channel, a.rssi_dbm, a.noise_dbm), (Some(6), Some(-61), Some(-94)));
    assert_eq!(a.values[8..12], [9, -5, 9, -6]);

    let cut = Bench::new().all(&bytes[..bytes.len() - 1]);
    assert!(matches!(&cut[..], [Got::Frame(_), Got::Reject(Reject::BadLength)]), "{cut:?}");
    let mut mismatch = espectre_v3(7, 1, 0);
    mismatch[10] = 63;
    assert_eq!(Bench::new().one(&mismatch), Got::Reject(Reject::LengthMismatch));
    assert_eq!(Bench::new().one(&bytes[..63]), Got::Reject(Reject::TooShort));
}

mod never_panics {
    use proptest::prelude::*;

    use super::*;

    fn seeds() -> Vec<Vec<u8>> {
        vec![
            raw(3, 64, 1, natural),
            raw(3, 256, 1, natural),
            hex(VITALS),
            hex(FUSED),
            hex(WASM),
            hex(STATE),
            hex(SYNC),
            espectre_v2(7, 3, 0, natural),
            [espectre_v3(7, 10, 2), espectre_v3(8, 11, 1)].concat(),
            hex("00 81 11 C5 01 06 00 00 01 00 00 00 00 00 00 00 00 00 00 00"),
            hex("05 00 11 C5 03 06 80 00 04 00 01 02 03 04"),
        ]
    }

    proptest! {
        #[test]
        fn random_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
            Bench::new().all(&bytes);
        }

        #[test]
        fn mutated_packets(
            pick in any::<proptest::sample::Index>(),
            changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6),
            cut in any::<proptest::sample::Index>(),
            keep in any::<bool>(),
        ) {
            let seeds = seeds();
            let mut bytes = pick.get(&seeds).clone();
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            if !keep {
                bytes.truncate(cut.index(bytes.len() + 1));
            }
            let mut bench = Bench::new();
            bench.all(&bytes);
            bench.all(&bytes);
        }

        /// Whatever is sent in a good frame comes out as sent.
        #[test]
        fn values_come_out_as_sent(
            values in proptest::collection::vec(any::<i8>(), 114),
            seq in any::<u32>(),
            node in any::<u8>(),
        ) {
            prop_assume!(values[4..].iter().any(|&v| v != 0));
            prop_assume!(values.iter().any(|&v| v != 127 && v != -128));
            let frame = Bench::new().frame(&raw(node, 57, seq, |bin| [values[2 * bin], values[2 * bin + 1]]));
            prop_assert_eq!(frame.seq, Some(seq));
            prop_assert_eq!(frame.values, values.iter().map(|&v| i16::from(v)).collect::<Vec<_>>());
        }
    }
}
