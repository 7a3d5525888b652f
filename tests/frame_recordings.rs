//! Real recordings through the decoders, with the counts that an independent reader of the files gives.

#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use aetherd::frame::{Decoder, DecoderSettings, Item, Layout, LineFramer, LineHint, SampleKind};
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

fn map<'a>(pairs: &[(&'a str, usize)]) -> BTreeMap<&'a str, usize> {
    pairs.iter().copied().collect()
}

#[test]
fn all() {
    let Some(folder) = data() else { return };
    for pattern in [
        "format-samples",
        "pulse-esp32-bedroom/presence",
        "pulse-esp32-bedroom/breathing",
        "jasmin-esp32-weaklink",
        "wisensing-esp32-crossing",
        "hhjh-esp32s3-fall",
    ] {
        let mut paths: Vec<_> = std::fs::read_dir(folder.join(pattern))
            .unwrap()
            .map(|e| e.unwrap().path())
            .filter(|p| p.extension().is_some_and(|e| e == "bz2"))
            .collect();
        paths.sort();
        for p in paths {
            let t = std::time::Instant::now();
            println!("{} {:?} {:?}", p.display(), count(&unpack(&p), LineHint::Auto), t.elapsed());
        }
    }
    for p in std::fs::read_dir(folder.join("ialr-esp32s3-motion"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "bz2"))
    {
        println!("{} {:?}", p.display(), count(&unpack(&p), LineHint::Ialr));
    }
}
