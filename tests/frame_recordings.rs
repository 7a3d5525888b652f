//! Real recordings through the decoders, with the counts that an independent reader of the files gives.

#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use aetherd::frame::{Decoder, DecoderSettings, Item, Layout, LineFramer, LineHint, SampleKind, line_wall_time};
use aetherd::types::SensingTime;

/// The folder of recordings; `None` (said on stderr) where there is none and none is required.
#[allow(clippy::print_stderr)]
fn data() -> Option<PathBuf> {
    let folder = std::env::var_os("AETHERD_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data"), PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    assert!(std::env::var_os("AETHERD_REQUIRE_DATA").is_none_or(|v| v != "1"), "no recordings in {}", folder.display());
    eprintln!("skipped: no recordings in {} (set AETHERD_DATA)", folder.display());
    None
}

fn unpack(path: &Path) -> Vec<u8> {
    let file = std::fs::File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut bytes = Vec::new();
    bzip2::read::MultiBzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    bytes
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    frames: usize,
    layouts: BTreeMap<String, usize>,
    others: BTreeMap<&'static str, usize>,
    rejects: BTreeMap<&'static str, usize>,
}

fn count(bytes: &[u8], hint: LineHint) -> Counts {
    let mut decoder = Decoder::new(DecoderSettings::default());
    let mut framer = LineFramer::new();
    let mut counts = Counts::default();
    let mut number = 0;
    let mut on_line = |line: &[u8]| {
        number += 1;
        decoder.line(line, 0, SensingTime(number * 10_000), hint, &mut |_, item| match item {
            Item::Frame(frame) => {
                counts.frames += 1;
                *counts.layouts.entry(frame.layout.to_string()).or_default() += 1;
                assert!(frame.bin_count() <= frame.layout.len());
                assert_eq!(frame.kind == SampleKind::Amplitude, hint == LineHint::Ialr);
            }
            Item::Other(other) => *counts.others.entry(other.name()).or_default() += 1,
            Item::Reject(reject) => *counts.rejects.entry(reject.name()).or_default() += 1,
        });
    };
    framer.push(bytes, &mut on_line);
    framer.finish(&mut on_line);
    counts
}

/// One file: frames, layouts, others and rejects, all of them.
fn check(
    path: &Path,
    hint: LineHint,
    frames: usize,
    layouts: &[(&str, usize)],
    others: &[(&'static str, usize)],
    rejects: &[(&'static str, usize)],
) {
    let got = count(&unpack(path), hint);
    let want = Counts {
        frames,
        layouts: layouts.iter().map(|&(name, n)| (name.to_owned(), n)).collect(),
        others: others.iter().copied().collect(),
        rejects: rejects.iter().copied().collect(),
    };
    assert_eq!(got, want, "{}", path.display());
}

#[test]
fn format_samples() {
    let Some(data) = data() else { return };
    let header = [("header", 1)];
    let check = |name: &str, frames, layouts: &[(&str, usize)], rejects: &[(&'static str, usize)]| {
        check(&data.join("format-samples").join(name), LineHint::Auto, frames, layouts, &header, rejects);
    };
    // One row of 127 values.
    check("csikit_example_100hz_pitraffic.csv.bz2", 833, &[("lltf-64", 833)], &[("length_mismatch", 1)]);
    check("csikit_example_fast_100hz_pitraffic.csv.bz2", 1089, &[("lltf-64", 1089)], &[]);
    check("csikit_example_fast2_100hz_pitraffic.csv.bz2", 1599, &[("lltf-64", 1599)], &[]);
    // Rows repeated with the same radio time and the same values.
    check("csikit_example_data.csv.bz2", 33, &[("lltf-64", 33)], &[("duplicate", 27)]);
    let mixed = [("above-64", 199), ("above-ht40-192", 2395)];
    check("rikesh_mixed_len.csv.bz2", 2594, &mixed, &[("duplicate", 570)]);
    check("giovanihoff_espcsi.csv.bz2", 1010, &[("lltf-64", 1010)], &[]);
}

#[test]
fn csi_tool_files_lose_nothing() {
    let Some(data) = data() else { return };
    let pulse = data.join("pulse-esp32-bedroom");
    for (name, frames) in [
        ("presence/mov_01", 6477),
        ("presence/mov_02", 6548),
        ("presence/mov_03", 6460),
        ("presence/mov_04", 6438),
        ("presence/vacio_01", 6662),
        ("presence/vacio_02", 6380),
        ("presence/vacio_03", 6411),
        ("presence/vacio_04", 6060),
        ("breathing/resp_12rpm", 6592),
        ("breathing/resp_6rpm", 7222),
        ("breathing/resp_puerta_6rpm", 6209),
        ("breathing/resp_puertaabierta_6rpm", 7137),
        ("breathing/resp_vacio", 5659),
    ] {
        let path = pulse.join(format!("{name}.csv.bz2"));
        check(&path, LineHint::Auto, frames, &[("above-64", frames)], &[], &[]);
    }
    let wisensing = data.join("wisensing-esp32-crossing/person_200cm_1.csv.bz2");
    check(&wisensing, LineHint::Auto, 7888, &[("above-64", 7888)], &[], &[]);
    let jasmin = data.join("jasmin-esp32-weaklink");
    check(&jasmin.join("bjk_walk.csv.bz2"), LineHint::Auto, 7404, &[("above-64", 7404)], &[], &[]);
    check(&jasmin.join("eks_walk.csv.bz2"), LineHint::Auto, 8041, &[("above-64", 8041)], &[], &[]);
    // The first frame of this one is another station's, on another channel width.
    check(&jasmin.join("dks_walk.csv.bz2"), LineHint::Auto, 8526, &[("above-64", 8525), ("lltf-64", 1)], &[], &[]);
    check(&jasmin.join("fks_walk.csv.bz2"), LineHint::Auto, 8230, &[("above-64", 8230)], &[("header", 1)], &[]);
}

#[test]
fn csi_raw_files_with_log_lines_between() {
    let Some(data) = data() else { return };
    for (name, frames, log_lines) in [
        ("fall_01", 1528, 15),
        ("fall_02", 1552, 16),
        ("fall_03", 1616, 16),
        ("fall_04", 1630, 17),
        ("fall_05", 1624, 16),
        ("fall_06", 1634, 17),
        ("fall_07", 1671, 17),
        ("fall_08", 1616, 16),
        ("motion", 6112, 61),
        ("still", 6020, 60),
    ] {
        let path = data.join("hhjh-esp32s3-fall").join(format!("{name}.txt.bz2"));
        let log = [("console_text", log_lines)];
        check(&path, LineHint::Auto, frames, &[("natural-64", frames)], &log, &[]);
    }
}

#[test]
fn amplitude_rows() {
    let Some(data) = data() else { return };
    for (name, rows) in [
        ("part_1", 1276),
        ("part_2", 2656),
        ("part_3", 2802),
        ("part_4", 2648),
        ("part_5", 2637),
        ("part_6", 2605),
        ("part_7", 2608),
        ("room2_part_1", 5019),
    ] {
        let path = data.join("ialr-esp32s3-motion").join(format!("{name}.csv.bz2"));
        check(&path, LineHint::Ialr, rows, &[("lltf-ht-128", rows)], &[("header", 1)], &[]);
    }
}

/// One person's 77 files: every line is good, and the tens put right by an independent count.
#[test]
fn albany_lines() {
    let Some(data) = data() else { return };
    let packed = unpack(&data.join("albany-esp32-har/s01.tar.bz2"));
    let mut archive = tar::Archive::new(&packed[..]);
    let mut decoder = Decoder::new(DecoderSettings::default());
    let (mut files, mut frames, mut whole, mut bins, mut sum) = (0, 0, 0, 0, 0);
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        if !entry.header().entry_type().is_file() {
            continue;
        }
        files += 1;
        let mut text = Vec::new();
        entry.read_to_end(&mut text).unwrap();
        for line in text.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
            let at = line_wall_time(line, LineHint::Albany).expect("every line has its time");
            decoder.line(line, 0, at, LineHint::Albany, &mut |_, item| {
                let Item::Frame(frame) = item else { panic!("{item:?} of {}", String::from_utf8_lossy(line)) };
                frames += 1;
                whole += usize::from(frame.bin_count() == 64);
                bins += frame.bin_count();
                sum += frame.values.iter().map(|&v| i64::from(v)).sum::<i64>();
                assert_eq!((frame.layout, frame.first_word_invalid), (Layout::Lltf64, true));
            });
        }
    }
    assert_eq!((files, frames), (77, 99_495));
    // By an independent script that replaces the bytes 13,10 by 10.
    assert_eq!((whole, bins, sum), (30_286, 6_221_788, -5_566_623));
}

/// The two-node take as datagrams again: each node's raw frames, all accepted, widths as the recorder says.
#[test]
fn two_nodes_with_mixed_widths() {
    let Some(data) = data() else { return };
    let text = unpack(&data.join("ruview-2node/pretrain-1775182186.csi.jsonl.bz2"));
    let mut decoder = Decoder::new(DecoderSettings::default());
    let mut layouts = BTreeMap::<(u64, String), usize>::new();
    for (seq, line) in text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).enumerate() {
        let row: serde_json::Value = serde_json::from_slice(line).unwrap();
        let Some(hex) = row["iq_hex"].as_str() else { continue };
        let payload: Vec<u8> =
            (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect();
        let node = row["node_id"].as_u64().unwrap();
        let mut datagram = 0xC511_0001u32.to_le_bytes().to_vec();
        datagram.extend([node as u8, 1]);
        datagram.extend((payload.len() as u16 / 2).to_le_bytes());
        datagram.extend(2437u32.to_le_bytes());
        datagram.extend((seq as u32).to_le_bytes());
        datagram.extend([0xC8, 0xA1, 0, 0]);
        datagram.extend(&payload);
        assert_eq!(datagram.len() as u64, row["size"].as_u64().unwrap());
        let at = SensingTime::from_secs_f64(row["timestamp"].as_f64().unwrap());
        decoder.datagram(&datagram, [192, 0, 2, 1].into(), at, &mut |_, item| {
            let Item::Frame(frame) = item else { panic!("{item:?}") };
            assert!(!frame.first_word_invalid);
            *layouts.entry((node, frame.layout.to_string())).or_default() += 1;
        });
    }
    let want = [
        (1, "lltf-ht-128", 503),
        (1, "natural-64", 2133),
        (1, "stbc-192", 23),
        (2, "lltf-ht-128", 631),
        (2, "natural-64", 1994),
        (2, "stbc-192", 25),
    ];
    assert_eq!(layouts, want.iter().map(|&(node, name, n)| ((node, name.to_owned()), n)).collect());
}
