//! Any bytes as datagrams. The first byte of each piece says how long it is, so that one input is a series of packets and
//! the memory of the decoder is exercised too.

#![no_main]

use std::net::{IpAddr, Ipv4Addr};

use aetherd::frame::{Decoder, DecoderSettings, FrameStats, Item};
use aetherd::types::SensingTime;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut decoder = Decoder::new(DecoderSettings { max_nodes: 4, ..DecoderSettings::default() });
    let mut stats = FrameStats::new(4);
    let mut rest = data;
    let mut at = 0;
    while let Some((&length, tail)) = rest.split_first() {
        // Steps of eight reach the longest packet.
        let (packet, after) = tail.split_at(tail.len().min(usize::from(length) * 8));
        rest = after;
        at += 20_000;
        for bytes in [packet, tail] {
            let mut items = 0;
            let from = IpAddr::V4(Ipv4Addr::new(192, 0, 2, length % 3));
            decoder.datagram(bytes, from, SensingTime(at), &mut |key, item| {
                items += 1;
                stats.observe(key, SensingTime(at), &item);
                if let Item::Frame(frame) = item {
                    assert_eq!(frame.node, key);
                    assert_eq!(frame.bin_count(), frame.layout.len());
                }
            });
            assert!(items > 0);
        }
        if length == 0 && at > 20_000 * 64 {
            break;
        }
    }
    assert!(stats.nodes().count() <= 4);
});
