//! The text formats of the wire-format page, good and dirty, through the decoder.

#![allow(clippy::unwrap_used, missing_docs)]

use aetherd::frame::{
    Chip, CsiFrame, Decoder, DecoderSettings, Item, Layout, LineFramer, LineHint, MAX_LINE_BYTES, Other, Reject,
    SampleKind, WireFormat, line_wall_time,
};
use aetherd::types::{NodeKey, SensingTime};
use base64::Engine;

#[derive(Debug, Clone, PartialEq)]
enum Got {
    Frame(Box<CsiFrame>),
    Other(Other),
    Reject(Reject),
}

fn all_as(line: impl AsRef<[u8]>, hint: LineHint) -> Vec<Got> {
    let mut decoder = Decoder::new(DecoderSettings::default());
    let mut got = Vec::new();
    decoder.line(line.as_ref(), 4, SensingTime(77), hint, &mut |key, item| {
        assert_eq!(key, NodeKey::Serial { port: 4 });
        got.push(match item {
            Item::Frame(frame) => Got::Frame(Box::new(frame.clone())),
            Item::Other(other) => Got::Other(other),
            Item::Reject(reject) => Got::Reject(reject),
        });
    });
    assert!(!got.is_empty(), "silence is no answer");
    got
}

fn all(line: impl AsRef<[u8]>) -> Vec<Got> {
    all_as(line, LineHint::Auto)
}

fn one(line: impl AsRef<[u8]>) -> Got {
    let mut got = all(line.as_ref());
    assert_eq!(got.len(), 1, "{got:?} of {}", String::from_utf8_lossy(line.as_ref()));
    got.remove(0)
}

fn frame(line: impl AsRef<[u8]>) -> CsiFrame {
    match one(line) {
        Got::Frame(frame) => *frame,
        other => panic!("expected a frame, got {other:?}"),
    }
}

fn natural(bin: usize) -> [i16; 2] {
    match bin % 64 {
        0 => [67, 48],
        1 => [4, 0],
        29..=35 => [0, 0],
        k => [k as i16, -(k as i16) - 1],
    }
}

fn centred(bin: usize) -> [i16; 2] {
    let k = bin % 64;
    if k < 4 || k == 32 || k > 60 { [0, 0] } else { [5, -(k as i16)] }
}

fn values(bins: usize, value: impl Fn(usize) -> [i16; 2]) -> Vec<i16> {
    (0..bins).flat_map(value).collect()
}

fn joined(values: &[i16], separator: &str) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(separator)
}

fn csi_25(values: &[i16]) -> String {
    format!(
        "CSI_DATA,7,94:d9:b3:80:8c:81,-30,11,1,6,1,0,1,0,1,0,0,-93,0,13,2,2751923,0,67,0,{},1,\"[{}]\"",
        values.len(),
        joined(values, ",")
    )
}

fn csi_15(len: usize, values: &[i16]) -> String {
    format!("CSI_DATA,7,1a:00:00:00:00:00,-23,11,159,-32,4,11,372852,47,0,{len},0,\"[{}]\"", joined(values, ","))
}

fn radar(gains: &str, values: &[i16], array: &str) -> String {
    format!(
        "CSI_DATA,9,1234,55,1,1a:00:00:00:00:01,-41,11,1,7,0,1,1,0,0,0,0,-96,0,6,0,99887766,0,90,0,{gains}{},0,{array}",
        values.len()
    )
}

fn tool(len: usize, values: &[i16]) -> String {
    format!(
        "CSI_DATA,AP,3C:71:BF:6D:2A:78,-73,11,1,0,1,1,1,0,0,0,0,-93,0,1,1,80272146,0,101,0,0,80.363225,{len},[{} ]",
        joined(values, " ")
    )
}

#[test]
fn esp_csi_with_25_fields() {
    let frame = frame(csi_25(&values(64, centred)));
    assert_eq!(frame.format, WireFormat::EspCsi25);
    assert_eq!(frame.node, NodeKey::Serial { port: 4 });
    assert_eq!(frame.transmitter, Some("94:d9:b3:80:8c:81".parse().unwrap()));
    assert_eq!((frame.seq, frame.seq_bits), (Some(7), 32));
    assert_eq!((frame.rssi_dbm, frame.noise_dbm, frame.channel), (Some(-30), Some(-93), Some(13)));
    assert_eq!((frame.bandwidth_mhz, frame.device_us, frame.device_us_bits), (Some(40), Some(2_751_923), 32));
    assert!(frame.first_word_invalid);
    assert_eq!(frame.layout, Layout::Below64, "secondary 2 is below");
    assert_eq!(frame.values[8..12], [5, -4, 5, -5]);
    assert_eq!(frame.host_time, SensingTime(77));
}

/// The start of the real line of esp-csi's own page: imaginary 20, real 1 and so on.
#[test]
fn the_order_of_bins_follows_secondary_length_and_zeros() {
    let line = |secondary: u8, ht40: u8, bins: usize, value: fn(usize) -> [i16; 2]| {
        let values = values(bins, value);
        frame(format!(
            "CSI_DATA,-2,94:d9:b3:80:8c:81,-30,11,1,6,{ht40},0,1,0,1,0,0,163,0,6,{secondary},4294967295,0,67,0,{},0,\"[{}]\"",
            values.len(),
            joined(&values, ",")
        ))
    };
    for (secondary, ht40, bins, value, layout) in [
        (0, 0, 64, natural as fn(usize) -> [i16; 2], Layout::Lltf64),
        (1, 0, 64, centred, Layout::Above64),
        (2, 0, 64, centred, Layout::Below64),
        (0, 0, 128, natural, Layout::LltfHt128),
        (1, 0, 128, centred, Layout::Above128),
        (2, 1, 128, natural, Layout::HtLtf128),
        (0, 0, 192, natural, Layout::Stbc192),
        (1, 1, 192, centred, Layout::Above192),
        (2, 1, 192, centred, Layout::Below192),
        (2, 0, 190, centred, Layout::Below190),
        (1, 0, 188, centred, Layout::Above188),
        (2, 1, 306, centred, Layout::Below306),
    ] {
        let frame = line(secondary, ht40, bins, value);
        assert_eq!(frame.layout, layout);
        assert_eq!(frame.noise_dbm, Some(-93), "163 is -93");
        assert_eq!((frame.seq, frame.device_us), (Some(u32::MAX - 1), Some(u64::from(u32::MAX))));
    }
}

#[test]
fn esp_csi_with_15_fields() {
    let got = frame(csi_15(128, &values(64, centred)));
    assert_eq!((got.format, got.layout), (WireFormat::EspCsi15, Layout::Centred64));
    assert_eq!((got.noise_dbm, got.fft_gain, got.agc_gain), (Some(-97), Some(-32), Some(4)));
    assert_eq!((got.channel, got.device_us, got.first_word_invalid), (Some(11), Some(372_852), false));
    // Gain compensation makes values larger than a byte.
    let large: Vec<i16> = values(57, |bin| [bin as i16 * 30 + 1, -2000]);
    let got = frame(csi_15(114, &large));
    assert_eq!((got.layout, &got.values), (Layout::C5Ht57, &large));
    // Forced LLTF: `len` is 52 and so is the number of 12-bit values.
    let got = frame(csi_15(52, &values(26, |bin| [bin as i16 * 70, -2048])));
    assert_eq!((got.layout, got.bin_count()), (Layout::ForcedLltf26, 26));
    assert_eq!(one(csi_15(52, &values(26, |_| [4000, 1]))), Got::Reject(Reject::ValueRange));
    // The same buffer byte by byte.
    assert_eq!(
        one(csi_15(106, &values(53, |bin| [bin as i16, [0, 1, 14, 15][bin % 4]]))),
        Got::Reject(Reject::Packed12Bit)
    );
    for (bins, layout) in [
        (117, Layout::C5Ht117),
        (114, Layout::C5Stbc114),
        (234, Layout::C5Stbc234),
        (245, Layout::C5He245),
        (128, Layout::Centred128),
        (256, Layout::Centred256),
    ] {
        assert_eq!(frame(csi_15(2 * bins, &values(bins, |_| [3, 4]))).layout, layout);
    }
}

#[test]
fn esp_radar_with_30_and_28_fields_in_decimal_and_base64() {
    let sent = values(52, |bin| [bin as i16, -(bin as i16) - 1]);
    let decimal = format!("\"[{}]\"", joined(&sent, ","));
    let bytes: Vec<u8> = sent.iter().map(|&v| v as i8 as u8).collect();
    let coded = base64::engine::general_purpose::STANDARD.encode(bytes);
    for array in [&decimal, &coded] {
        let new = frame(radar("31,-7,", &sent, array));
        let old = frame(radar("", &sent, array));
        assert_eq!((new.agc_gain, new.fft_gain, old.agc_gain), (Some(31), Some(-7), None));
        for got in [new, old] {
            assert_eq!((got.format, got.layout, &got.values), (WireFormat::EspRadar, Layout::Compact52, &sent));
            assert_eq!((got.seq, got.channel, got.device_us), (Some(9), Some(6), Some(99_887_766)));
            assert_eq!((got.rssi_dbm, got.noise_dbm, got.first_word_invalid), (Some(-41), Some(-96), false));
        }
    }
    frame(format!("csi> {}", radar("31,-7,", &sent, &coded)));
    assert_eq!(one(radar("", &sent, &coded[..coded.len() - 3])), Got::Reject(Reject::BadBase64));
    assert_eq!(one(radar("", &sent, &coded[..coded.len() - 4])), Got::Reject(Reject::LengthMismatch));
    assert_eq!(one(radar("", &sent, &coded.replace('A', "*"))), Got::Reject(Reject::BadBase64));
}

#[test]
fn csi_tool_with_26_and_27_fields() {
    let sent = values(64, centred);
    let got = frame(tool(384, &sent));
    assert_eq!((got.format, got.layout, got.first_word_invalid), (WireFormat::CsiTool, Layout::Above64, true));
    assert_eq!((got.seq, got.device_us, got.channel), (None, Some(80_272_146), Some(1)));
    assert_eq!(got.transmitter, Some("3c:71:bf:6d:2a:78".parse().unwrap()));
    assert_eq!(got.values, sent);
    let line = format!("{},1607774756.96", tool(128, &sent));
    assert_eq!(frame(&line).values, sent);
    assert_eq!(line_wall_time(line.as_bytes(), LineHint::Auto), Some(SensingTime(1_607_774_756_960_000)));
    assert_eq!(line_wall_time(tool(128, &sent).as_bytes(), LineHint::Auto), None);
    assert_eq!(frame(tool(384, &values(192, centred))).layout, Layout::Above192);
    assert_eq!(one(tool(128, &sent[..127])), Got::Reject(Reject::LengthMismatch));
}

#[test]
fn esp_csi_rs_array_lists() {
    let sent = values(64, natural);
    let classic = format!("[5,-40,11,-95,6,123456,80,0,0,0,0,0,1,7,0,1,1,0,0,0,80,128,[{}]]", joined(&sent, ","));
    let got = frame(&classic);
    assert_eq!((got.format, got.layout, got.chip), (WireFormat::EspCsiRs, Layout::Natural64, None));
    assert_eq!((got.seq, got.rssi_dbm, got.noise_dbm), (Some(5), Some(-40), Some(-95)));
    assert_eq!((got.channel, got.device_us, got.transmitter), (Some(6), Some(123_456), None));
    assert!(got.first_word_invalid, "bin 0 is not zero");
    let sent = values(64, centred);
    let c6 = format!("[5,-40,11,-95,6,123456,80,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,80,128,[{}]]", joined(&sent, ", "));
    let got = frame(&c6);
    assert_eq!((got.layout, got.chip, got.values), (Layout::Centred64, Some(Chip::Esp32C6), sent));
    assert_eq!(one(&classic[..classic.len() - 9]), Got::Reject(Reject::Truncated));
    assert_eq!(one(classic.replacen(",128,[", ",130,[", 1)), Got::Reject(Reject::LengthMismatch));
    assert_eq!(one(classic.replacen("[5,", "[5,5,", 1)), Got::Reject(Reject::FieldCount));
    assert_eq!(one("[wifi] connected, [ok]"), Got::Other(Other::ConsoleText));
}

#[test]
fn csi_raw() {
    let sent: Vec<u8> = values(64, centred).iter().map(|&v| v as i8 as u8).collect();
    let hex: String = sent.iter().map(|b| format!("{b:02x}")).collect();
    let got = frame(format!("CSIRAW 4535 87596 -40 128 {hex}"));
    assert_eq!((got.format, got.layout, got.seq), (WireFormat::CsiRaw, Layout::Centred64, Some(4535)));
    assert_eq!((got.rssi_dbm, got.device_us), (Some(-40), Some(87_596_000)));
    assert_eq!(got.values[8..12], [5, -4, 5, -5]);
    for (line, reject) in [
        (format!("CSIRAW 1 2 -40 128 {}", &hex[..200]), Reject::Truncated),
        (format!("CSIRAW 1 2 -40 128 {hex}00"), Reject::LengthMismatch),
        (format!("CSIRAW 1 2 -40 128 {}zz", &hex[..254]), Reject::BadHex),
        ("CSIRAW 1 2 -40".to_owned(), Reject::Truncated),
        (format!("CSIRAW 1 2 -40 x {hex}"), Reject::BadNumber),
        (format!("CSIRAW 1 2 -40 128 {}", "00".repeat(128)), Reject::AllZero),
    ] {
        assert_eq!(one(line), Got::Reject(reject));
    }
}

#[test]
fn radar_results_headers_and_console_text_are_counted() {
    for (line, other) in [
        ("RADAR_DADA,1,2,0.1,0.2,0.3,1,0.4,0.5,0.6,0", Other::RadarResult),
        ("RADAR_DADA,0,0,0,0.3,0,0,0.6,0", Other::RadarResult),
        ("DEVICE_INFO,1,2,3,4,5,6,7,8,9,10,11", Other::DeviceInfo),
        ("type,id,mac,rssi,rate,sig_mode,mcs", Other::Header),
        ("type,role,mac,rssi,real_timestamp,len,CSI_DATA,timestamp", Other::Header),
        ("I (331) csi: type,sequence,timestamp,waveform_wander", Other::Header),
        ("I (331) wifi:wifi driver task: 3ffc1e4c, prio:23", Other::ConsoleText),
        ("================ CSI RECV ================", Other::ConsoleText),
        ("\x1b[0;32mI (87896) csi_recv: CSI serial: cb=4566 rx=4566\x1b[0m", Other::ConsoleText),
        ("rst:0x1 (POWERON_RESET),boot:0x13 (SPI_FAST_FLASH_BOOT)", Other::ConsoleText),
        ("csi> ", Other::Blank),
        ("", Other::Blank),
        ("\x1b[0m", Other::Blank),
    ] {
        assert_eq!(one(line), Got::Other(other), "{line:?}");
    }
    assert_eq!(one(b"\xff\xfe\x80ets Jun  8 2016"), Got::Other(Other::ConsoleText));
    assert_eq!(
        all("I (4242) app: RADAR_DADA,1,2,0.1,0.2,0,0.4,0.5,0"),
        [Got::Other(Other::ConsoleText), Got::Other(Other::RadarResult)]
    );
    assert_eq!(one("RADAR_DADA,1,2,3"), Got::Reject(Reject::FieldCount));
}

#[test]
fn damaged_lines_are_refused_by_reason() {
    let good = csi_25(&values(64, centred));
    let half = &good[..good.len() / 2];
    let shortened = |text: &str, with: &str| good.replacen(text, with, 1);
    for (name, line, reject) in [
        ("half an array", half.to_owned(), Reject::Truncated),
        ("cut in the fields", good[..60].to_owned(), Reject::Truncated),
        ("no prefix", good[100..].to_owned(), Reject::Truncated),
        ("log text in the array", shortened(",5,-20,", ",5,I (12) wifi: gain,-20,"), Reject::Interleaved),
        ("log text, cut", half.to_owned() + "W (31) q: full", Reject::Interleaved),
        ("log text in the fields", shortened("11,1,6", "11,I (12) wifi: x1,6"), Reject::Interleaved),
        ("a value lost", shortened(",5,-20,", ",5,"), Reject::LengthMismatch),
        ("a comma lost", shortened("5,-20", "5-20"), Reject::BadNumber),
        ("an empty value", shortened(",5,-20", ",,-20"), Reject::BadNumber),
        ("a letter in a number", shortened(",-30,", ",-3O,"), Reject::BadNumber),
        ("no rssi", shortened(",-30,", ",-300,"), Reject::BadNumber),
        ("a broken address", shortened("94:d9", "94d9"), Reject::BadMac),
        ("a field too many", shortened(",-30,", ",-30,0,"), Reject::FieldCount),
        ("41 fields", shortened(",-93,", &format!(",-93{}", ",1".repeat(16) + ",")), Reject::FieldCount),
        ("larger than a byte", shortened(",5,-20,", ",5,-200,"), Reject::ValueRange),
        ("zeros", csi_25(&[0; 128]), Reject::AllZero),
        ("62 bins", csi_25(&values(62, centred)), Reject::UnknownLayout),
        ("too long", "1".repeat(MAX_LINE_BYTES + 1), Reject::LineTooLong),
    ] {
        assert_eq!(one(&line), Got::Reject(reject), "{name}: {line}");
    }
}

#[test]
fn what_is_whole_in_a_glued_line_is_taken() {
    let first = csi_25(&values(64, centred));
    let second = first.replacen(",2751923,", ",2761923,", 1);
    let is_frame = |got: &Got| matches!(got, Got::Frame(_));
    for (line, want) in [
        (format!("{first}{second}"), [None, None]),
        (format!("{}{second}", &first[..300]), [Some(Reject::Truncated), None]),
        (format!("{}{second}", &first[..50]), [Some(Reject::Truncated), None]),
        (format!("{first}{}", &second[..300]), [None, Some(Reject::Truncated)]),
    ] {
        let got = all(&line);
        assert_eq!(got.len(), 2, "{line}");
        for (got, want) in got.iter().zip(want) {
            match want {
                None => assert!(is_frame(got), "{got:?} of {line}"),
                Some(reject) => assert_eq!(*got, Got::Reject(reject), "{line}"),
            }
        }
    }
    let before = all(format!("I (12) wifi: x {first}"));
    assert!(before[0] == Got::Other(Other::ConsoleText) && is_frame(&before[1]), "{before:?}");
    let behind = all(format!("{first}I (12) wifi: x"));
    assert!(is_frame(&behind[0]) && behind[1] == Got::Other(Other::ConsoleText), "{behind:?}");
    assert!(is_frame(&one(format!("\x1b[0;32m{first}\x1b[0m\r"))));
    assert!(is_frame(&one(format!("\0\0csi> csi> {first}"))));
}

#[test]
fn a_frame_printed_twice_is_a_copy_and_another_station_is_another_link() {
    let mut decoder = Decoder::new(DecoderSettings::default());
    let line = csi_25(&values(64, centred));
    let mut feed = |line: &str| {
        let mut got = None;
        decoder.line(line.as_bytes(), 0, SensingTime(0), LineHint::Auto, &mut |_, item| {
            got = Some(match item {
                Item::Frame(frame) => Ok(frame.link()),
                Item::Reject(reject) => Err(reject),
                Item::Other(other) => panic!("{other:?}"),
            });
        });
        got.unwrap()
    };
    let a = feed(&line).unwrap();
    assert_eq!(feed(&line), Err(Reject::Duplicate));
    let b = feed(&line.replacen("8c:81", "8c:82", 1)).unwrap();
    assert_ne!(a, b);
    assert_eq!(a.layout, b.layout);
}

#[test]
fn rows_of_amplitudes() {
    let amplitudes: Vec<i16> = (0..128).map(|bin| if bin % 64 == 0 { 0 } else { 16 + bin % 9 }).collect();
    let row = format!("20260726_153123_c36ca3,1785076283622490,1112010514,0,0,1,-50,128,{}", joined(&amplitudes, ","));
    let got = all_as(&row, LineHint::Ialr);
    let [Got::Frame(got)] = &got[..] else { panic!("{got:?}") };
    assert_eq!((got.kind, got.layout, &got.values), (SampleKind::Amplitude, Layout::LltfHt128, &amplitudes));
    assert_eq!((got.rssi_dbm, got.device_us, got.bin_count()), (Some(-50), Some(1_112_010_514), 128));
    assert_eq!(line_wall_time(row.as_bytes(), LineHint::Ialr), Some(SensingTime(1_785_076_283_622_490)));
    for (line, want) in [
        (row.rsplit_once(',').unwrap().0.to_owned(), Got::Reject(Reject::LengthMismatch)),
        (row.replacen(",16,", ",-16,", 1), Got::Reject(Reject::ValueRange)),
        (row[..40].to_owned(), Got::Reject(Reject::FieldCount)),
        ("session_id,host_unix_us,timestamp_us,label".to_owned(), Got::Other(Other::Header)),
    ] {
        assert_eq!(all_as(&line, LineHint::Ialr), [want], "{line}");
    }
    // Without the name of the format it is numbers of no known kind, and said to be.
    assert!(matches!(&all(&row)[..], [Got::Reject(_)]));
}

mod never_panics {
    use proptest::prelude::*;

    use super::*;

    fn seeds() -> Vec<String> {
        let sent = values(64, natural);
        vec![
            csi_25(&sent),
            csi_15(128, &sent),
            tool(384, &sent),
            radar("1,2,", &sent, &format!("\"[{}]\"", joined(&sent, ","))),
            radar("", &sent, "AAECAwQFBgcICQ=="),
            format!("[5,-40,11,-95,6,123456,80,0,0,0,0,0,1,7,0,1,1,0,0,0,80,128,[{}]]", joined(&sent, ",")),
            format!("CSIRAW 4535 87596 -40 4 {}", "0a0b0c0d"),
            format!("1721500000123,{}", joined(&sent, ",")),
            "RADAR_DADA,1,2,0.1,0.2,0.3,1,0.4,0.5,0.6,0".to_owned(),
            format!("s,1785076283622490,1112010514,0,0,1,-50,128,{}", joined(&sent, ",")),
        ]
    }

    const HINTS: [LineHint; 3] = [LineHint::Auto, LineHint::Albany, LineHint::Ialr];

    proptest! {
        #[test]
        fn random_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            for hint in HINTS {
                all_as(&bytes, hint);
                line_wall_time(&bytes, hint);
            }
        }

        #[test]
        fn mutated_and_glued_lines(
            picks in proptest::collection::vec(any::<proptest::sample::Index>(), 1..4),
            changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6),
            cuts in proptest::collection::vec((any::<proptest::sample::Index>(), 0usize..40), 0..3),
        ) {
            let seeds = seeds();
            let mut line: Vec<u8> = picks.iter().flat_map(|pick| pick.get(&seeds).bytes()).collect();
            for (at, value) in changes {
                let at = at.index(line.len());
                line[at] = value;
            }
            for (at, length) in cuts {
                let at = at.index(line.len());
                line.drain(at..(at + length).min(line.len() - 1).max(at));
            }
            for hint in HINTS {
                all_as(&line, hint);
                line_wall_time(&line, hint);
            }
        }

        /// How the bytes come in does not matter.
        #[test]
        fn chunks_do_not_matter(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(0u8), any::<u8>()], 0..400),
            size in 1usize..50,
        ) {
            let cut = |chunks: &mut dyn Iterator<Item = &[u8]>| {
                let mut framer = LineFramer::new();
                let mut lines = Vec::new();
                for chunk in chunks {
                    framer.push(chunk, &mut |line| lines.push(line.to_vec()));
                }
                framer.finish(&mut |line| lines.push(line.to_vec()));
                lines
            };
            prop_assert_eq!(cut(&mut std::iter::once(&bytes[..])), cut(&mut bytes.chunks(size)));
        }

        /// Every format gives back the values that were written.
        #[test]
        fn values_come_out_as_written(sent in proptest::collection::vec(-128i16..=127, 114)) {
            prop_assume!(sent[4..].iter().any(|&v| v != 0));
            prop_assume!(sent.iter().any(|&v| v != 127 && v != -128));
            prop_assert_eq!(&frame(csi_15(114, &sent)).values, &sent);
            prop_assert_eq!(&frame(csi_25(&sent)).values, &sent);
            prop_assert_eq!(&frame(tool(114, &sent)).values, &sent);
        }
    }
}
