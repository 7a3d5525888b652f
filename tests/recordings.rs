//! The public recordings of the data folder are read, decoded, imported and read again; and captures are compared with
//! what tshark makes of them.
//!
//! The folder is `AETHERD_DATA` or `../shared/data`; where it is absent the tests say `skipped`, or fail with
//! `AETHERD_REQUIRE_DATA=1`.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use aetherd::frame::recording::{self, Format, Options, Reader, RecordingError, RecordingMeta, Unit, Writer};
use aetherd::frame::{CsiFrame, Decoder, DecoderSettings, Item, LineHint, Payload};
use aetherd::simulate::{Scenario, Simulator};
use aetherd::types::Provenance;

fn data() -> Option<PathBuf> {
    let path = std::env::var_os("AETHERD_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data"), PathBuf::from);
    if path.is_dir() {
        return Some(path);
    }
    assert!(std::env::var_os("AETHERD_REQUIRE_DATA").is_none_or(|v| v != "1"), "no recordings at {}", path.display());
    eprintln!("skipped: no recordings at {}", path.display());
    None
}

fn tshark_is_there() -> bool {
    let there = Command::new("tshark").arg("--version").output().is_ok_and(|o| o.status.success());
    if !there {
        eprintln!("skipped: tshark is not installed");
    }
    there
}

#[derive(Default)]
struct Decoded {
    frames: u64,
    rejects: BTreeMap<&'static str, u64>,
    other: BTreeMap<&'static str, u64>,
    seconds: f64,
    all: Vec<CsiFrame>,
}

fn decode(reader: &mut Reader, keep: bool) -> Decoded {
    let mut decoder = Decoder::new(DecoderSettings::default());
    let mut out = Decoded::default();
    let (mut first, mut last) = (None, i64::MIN);
    while let Some(unit) = reader.next() {
        let unit = unit.unwrap();
        let at = unit.at().0;
        first.get_or_insert(at);
        assert!(at >= last, "time goes back from {last} to {at}");
        last = at;
        unit.decode(&mut decoder, &mut |_, item| match item {
            Item::Frame(frame) => {
                out.frames += 1;
                if keep {
                    out.all.push(frame.clone());
                }
            }
            Item::Other(other) => *out.other.entry(other.name()).or_default() += 1,
            Item::Reject(reject) => *out.rejects.entry(reject.name()).or_default() += 1,
        });
    }
    assert_eq!(reader.damage(), None);
    out.seconds = (last - first.unwrap_or(last)) as f64 / 1e6;
    out
}

fn open(path: &Path) -> Reader {
    recording::open(path, Format::Auto, &Options::default()).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Path, format, frames, rejects, other, seconds from first to last: as the folders' own pages say, or counted by hand.
type Expected = (&'static str, Format, u64, &'static [(&'static str, u64)], &'static [(&'static str, u64)], f64);

const HEADER: &[(&str, u64)] = &[("header", 1)];

const EXPECTED: &[Expected] = &[
    (
        "format-samples/csikit_example_100hz_pitraffic.csv.bz2",
        Format::CsiTool,
        833,
        &[("length_mismatch", 1)],
        HEADER,
        13.1,
    ),
    ("format-samples/csikit_example_fast2_100hz_pitraffic.csv.bz2", Format::CsiTool, 1599, &[], HEADER, 15.9),
    ("format-samples/csikit_example_fast_100hz_pitraffic.csv.bz2", Format::CsiTool, 1089, &[], HEADER, 10.9),
    ("format-samples/giovanihoff_espcsi.csv.bz2", Format::EspCsi, 1010, &[], HEADER, 16.1),
    ("hhjh-esp32s3-fall/still.txt.bz2", Format::CsiRaw, 6020, &[], &[("console_text", 60)], 60.2),
    ("hhjh-esp32s3-fall/motion.txt.bz2", Format::CsiRaw, 6112, &[], &[("console_text", 61)], 61.1),
    ("hhjh-esp32s3-fall/fall_01.txt.bz2", Format::CsiRaw, 1528, &[], &[("console_text", 15)], 15.3),
    ("ialr-esp32s3-motion/part_1.csv.bz2", Format::Ialr, 1276, &[], HEADER, 154.2),
    ("ialr-esp32s3-motion/part_2.csv.bz2", Format::Ialr, 2656, &[], HEADER, 339.4),
    ("ialr-esp32s3-motion/part_3.csv.bz2", Format::Ialr, 2802, &[], HEADER, 326.4),
    ("ialr-esp32s3-motion/part_4.csv.bz2", Format::Ialr, 2648, &[], HEADER, 295.6),
    ("ialr-esp32s3-motion/part_5.csv.bz2", Format::Ialr, 2637, &[], HEADER, 302.1),
    ("ialr-esp32s3-motion/part_6.csv.bz2", Format::Ialr, 2605, &[], HEADER, 271.8),
    ("ialr-esp32s3-motion/part_7.csv.bz2", Format::Ialr, 2608, &[], HEADER, 299.5),
    ("ialr-esp32s3-motion/room2_part_1.csv.bz2", Format::Ialr, 5019, &[], HEADER, 717.8),
    ("jasmin-esp32-weaklink/bjk_walk.csv.bz2", Format::CsiTool, 7404, &[], &[], 125.0),
    ("jasmin-esp32-weaklink/dks_walk.csv.bz2", Format::CsiTool, 8526, &[], &[], 154.4),
    ("pulse-esp32-bedroom/breathing/resp_6rpm.csv.bz2", Format::CsiTool, 7222, &[], &[], 60.0),
    ("pulse-esp32-bedroom/breathing/resp_vacio.csv.bz2", Format::CsiTool, 5659, &[], &[], 52.7),
    ("pulse-esp32-bedroom/presence/mov_01.csv.bz2", Format::CsiTool, 6477, &[], &[], 60.0),
    ("pulse-esp32-bedroom/presence/vacio_04.csv.bz2", Format::CsiTool, 6060, &[], &[], 60.0),
    ("wisensing-esp32-crossing/person_200cm_1.csv.bz2", Format::CsiTool, 7888, &[], &[], 145.8),
    (
        "ruview-2node/pretrain-1775182186.csi.jsonl.bz2",
        Format::RuviewJsonl,
        5309,
        &[],
        &[("ruview_compressed", 2), ("ruview_features", 236), ("ruview_vitals", 236)],
        120.0,
    ),
    ("espectre/test/test_c3_64sc_20260329_130804.npz", Format::EspectreNpz, 6068, &[], &[], 59.98),
    ("espectre/movement/movement_esp32_64sc_20260214_183141.npz", Format::EspectreNpz, 1103, &[], &[], 15.04),
    ("espectre/baseline/baseline_c6_64sc_20260310_230414.npz", Format::EspectreNpz, 1351, &[], &[], 9.99),
];

#[test]
fn each_form_gives_what_its_page_says() {
    let Some(data) = data() else { return };
    for (file, format, frames, rejects, other, seconds) in EXPECTED {
        let mut reader = open(&data.join(file));
        assert_eq!(reader.format(), *format, "{file}");
        let got = decode(&mut reader, false);
        assert_eq!(got.frames, *frames, "{file}: {:?} {:?}", got.rejects, got.other);
        assert_eq!(got.rejects, rejects.iter().copied().collect(), "{file}");
        assert_eq!(got.other, other.iter().copied().collect(), "{file}");
        assert!((got.seconds - seconds).abs() < 0.06, "{file}: {} s", got.seconds);
        assert_eq!(reader.provenance(), Provenance::Recorded);
    }
}

#[test]
fn members_of_an_archive_are_recordings_of_their_own() {
    let Some(data) = data() else { return };
    let archive = data.join("albany-esp32-har/s01.tar.bz2");
    let path = PathBuf::from(format!("{}#BR/15BPM/s1/csi_data_1720469042.txt", archive.display()));
    let mut reader = open(&path);
    assert_eq!((reader.format(), reader.member()), (Format::Albany, Some("BR/15BPM/s1/csi_data_1720469042.txt")));
    assert!(reader.wall_clock());
    let got = decode(&mut reader, false);
    assert!(got.rejects.is_empty() && got.frames == 8_890, "{} {:?}", got.frames, got.rejects);
    assert!((179.0..181.0).contains(&got.seconds), "{} s", got.seconds);
    // Without a name: all of them, one segment each.
    let mut reader = open(&archive);
    let mut segments = 1;
    let mut units = 0u32;
    while let Some(unit) = reader.next() {
        unit.unwrap();
        units += 1;
        segments = reader.segment() + 1;
    }
    assert_eq!((units, segments), (99_495, 77));
}

#[test]
fn smoothed_amplitudes_are_refused_with_the_reason() {
    let Some(data) = data() else { return };
    let path = data.join("geotec-esp32s2-har/labelled_D1-D3.tar.xz");
    let e = recording::open(&path, Format::Auto, &Options::default()).unwrap_err();
    assert!(matches!(e, RecordingError::NotFrames { .. }), "{e}");
}

#[test]
fn an_import_decodes_like_its_source() {
    let Some(data) = data() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (i, (file, ..)) in EXPECTED.iter().enumerate().filter(|(i, _)| i % 4 == 0 || *i == 22 || *i == 9) {
        let path = data.join(file);
        let target = folder.path().join(format!("{i}.pcapng{}", if i % 8 == 0 { ".zst" } else { "" }));
        let mut reader = open(&path);
        let mut writer = Writer::create(&target, RecordingMeta::of_import(&reader)).unwrap();
        let summary = recording::import(&mut reader, &mut writer).unwrap();
        writer.finish().unwrap();
        let source = decode(&mut open(&path), true);
        let mut imported = open(&target);
        assert_eq!(imported.format(), Format::Pcapng);
        assert_eq!(imported.meta().unwrap().imported_from.as_deref(), Some(open(&path).format().name()));
        let copy = decode(&mut imported, true);
        assert!(source.all == copy.all, "{file}: frames differ");
        assert_eq!(source.rejects, copy.rejects, "{file}");
        if summary.without_bytes == 0 {
            assert_eq!(source.other, copy.other, "{file}");
        }
    }
}

/// A recording of the simulator: three nodes, datagrams of two formats and lines.
fn simulated(path: &Path) -> Vec<Vec<u8>> {
    let mut scenario = Scenario::preset("house").unwrap();
    scenario.duration_s = 20.0;
    scenario.people.clear();
    let mut simulator = Simulator::new(scenario, 7).unwrap();
    let mut writer = Writer::create(path, RecordingMeta::new(simulator.provenance())).unwrap();
    let mut payloads = Vec::new();
    while let Some(captured) = simulator.next() {
        writer.write(&captured, LineHint::Auto).unwrap();
        match captured.payload {
            Payload::Datagram(bytes) | Payload::Line(bytes) => payloads.push(bytes.to_vec()),
        }
    }
    writer.finish().unwrap();
    payloads
}

#[test]
fn tshark_reads_our_recordings_as_we_do() {
    if !tshark_is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("simulated.pcapng");
    let payloads = simulated(&path);
    let run = |filter: &str, fields: &[&str]| {
        let mut command = Command::new("tshark");
        // Checksums checked, and no dissector may take the payloads for something else.
        command.args(["-n", "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "-r"]).arg(&path);
        command.args(["-Y", filter, "-T", "fields"]);
        fields.iter().for_each(|f| _ = command.args(["-e", f]));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let hex = |bytes: &[u8]| bytes.iter().fold(String::new(), |mut s, b| (write!(s, "{b:02x}"), s).1);
    let ours: Vec<String> = payloads.iter().filter(|p| !p.starts_with(b"CSI")).map(|p| hex(p)).collect();
    let theirs: Vec<String> =
        run("udp", &["udp.payload"]).lines().map(|l| l.replace(':', "").to_ascii_lowercase()).collect();
    assert!(ours.len() > 1000);
    assert!(ours == theirs, "{} datagrams, tshark sees {}", ours.len(), theirs.len());
    let bad = run("ip.checksum.status == \"Bad\" or udp.checksum.status == \"Bad\"", &["frame.number"]);
    assert_eq!(bad, "");
    let good = run("udp.checksum.status == \"Good\"", &["frame.number"]);
    assert_eq!(good.lines().count(), ours.len());
    // The lines are there under their own interface and link type.
    let lines = run("not ip", &["frame.interface_name", "frame.len"]);
    let expected: Vec<String> =
        payloads.iter().filter(|p| p.starts_with(b"CSI")).map(|p| format!("serial0\t{}", p.len())).collect();
    assert!(lines.lines().eq(expected.iter().map(String::as_str)));
}

#[test]
fn captures_that_other_tools_wrote_are_read() {
    if !tshark_is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // A pcap file holds one link type only, so datagrams alone.
    let ours = folder.path().join("simulated.pcapng");
    let mut simulator = Simulator::new(Scenario::preset("empty").unwrap(), 7).unwrap();
    let mut writer = Writer::create(&ours, RecordingMeta::new(simulator.provenance())).unwrap();
    let mut payloads = Vec::new();
    for _ in 0..2000 {
        let captured = simulator.next().unwrap();
        writer.write(&captured, LineHint::Auto).unwrap();
        let (Payload::Datagram(bytes) | Payload::Line(bytes)) = captured.payload;
        payloads.push((captured.at, bytes.to_vec()));
    }
    writer.finish().unwrap();
    for kind in ["pcap", "nsecpcap", "pcapng"] {
        let theirs = folder.path().join(format!("theirs.{kind}"));
        let output =
            Command::new("tshark").arg("-r").arg(&ours).args(["-F", kind, "-w"]).arg(&theirs).output().unwrap();
        assert!(output.status.success(), "{kind}: {}", String::from_utf8_lossy(&output.stderr));
        let mut reader = open(&theirs);
        let mut found = Vec::new();
        while let Some(unit) = reader.next() {
            let Unit::Captured(captured, _) = unit.unwrap() else { panic!("no bytes") };
            let Payload::Datagram(bytes) = captured.payload else { panic!("no datagram") };
            found.push((captured.at, bytes.to_vec()));
        }
        assert!(found == payloads, "{kind}: {} of {}", found.len(), payloads.len());
    }
}
