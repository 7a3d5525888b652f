//! Decoding speed: text in bytes per second, ADR-018 datagrams in frames per second. One core.

#![allow(missing_docs, clippy::unwrap_used)]

use std::fmt::Write;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

use aetherd::frame::{Decoder, DecoderSettings, Item, LineFramer, LineHint};
use aetherd::types::SensingTime;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// A value like a radio's, and zero where the guard bins are.
fn value(i: usize, frame: usize) -> i32 {
    let bin = i / 2 % 64;
    if bin == 0 || (29..36).contains(&bin) { 0 } else { ((i * 7 + frame * 3) % 50) as i32 - 25 }
}

fn csi_25(frame: usize) -> String {
    let mut line = format!(
        "CSI_DATA,{frame},94:d9:b3:80:8c:81,-30,11,1,6,0,0,1,0,1,0,0,-93,0,13,0,{},0,67,0,128,0,\"[",
        frame * 10_000
    );
    (0..128).for_each(|i| write!(line, "{}{}", if i == 0 { "" } else { "," }, value(i, frame)).unwrap());
    line + "]\"\n"
}

fn csi_tool(frame: usize) -> String {
    let mut line = format!(
        "CSI_DATA,AP,3C:71:BF:6D:2A:78,-73,11,1,0,0,1,1,0,0,0,0,-93,0,1,0,{},0,101,0,0,80.363225,384,[",
        frame * 10_000
    );
    (0..128).for_each(|i| write!(line, "{} ", value(i, frame)).unwrap());
    line + "]\n"
}

fn adr018(seq: u32, bins: u16) -> Vec<u8> {
    let mut bytes = 0xC511_0001u32.to_le_bytes().to_vec();
    bytes.extend([1, 1]);
    bytes.extend(bins.to_le_bytes());
    bytes.extend(2437u32.to_le_bytes());
    bytes.extend(seq.to_le_bytes());
    bytes.extend([0xC8, 0xA1, 0, 0]);
    bytes.extend((0..2 * usize::from(bins)).map(|i| value(i, seq as usize) as u8));
    bytes
}

fn text(c: &mut Criterion) {
    let mut group = c.benchmark_group("text");
    for (name, line) in [("esp-csi25", csi_25 as fn(usize) -> String), ("csi-tool", csi_tool)] {
        let stream: String = (1..2000).map(line).collect();
        group.throughput(Throughput::Bytes(stream.len() as u64));
        group.bench_function(name, |b| {
            let mut decoder = Decoder::new(DecoderSettings::default());
            let mut framer = LineFramer::new();
            b.iter(|| {
                let mut frames = 0;
                for chunk in stream.as_bytes().chunks(4096) {
                    framer.push(chunk, &mut |line| {
                        decoder.line(line, 0, SensingTime(0), LineHint::Auto, &mut |_, item| {
                            frames += usize::from(matches!(black_box(item), Item::Frame(_)));
                        });
                    });
                }
                assert_eq!(frames, 1999);
            });
        });
    }
}

fn datagrams(c: &mut Criterion) {
    let mut group = c.benchmark_group("adr018");
    let from = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    for bins in [64, 128, 192] {
        let packets: Vec<Vec<u8>> = (0..1000).map(|seq| adr018(seq, bins)).collect();
        group.throughput(Throughput::Elements(packets.len() as u64));
        group.bench_function(format!("{bins}-bins"), |b| {
            let mut decoder = Decoder::new(DecoderSettings::default());
            b.iter(|| {
                let mut frames = 0;
                for packet in &packets {
                    decoder.datagram(packet, from, SensingTime(0), &mut |_, item| {
                        frames += usize::from(matches!(black_box(item), Item::Frame(_)));
                    });
                }
                assert_eq!(frames, 1000);
            });
        });
    }
}

criterion_group!(benches, text, datagrams);
criterion_main!(benches);
