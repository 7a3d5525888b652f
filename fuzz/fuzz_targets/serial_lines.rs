//! Any bytes as a serial stream, under every hint, whole and in pieces.

#![no_main]

use aetherd::frame::{Decoder, DecoderSettings, Item, LineFramer, LineHint, line_wall_time};
use aetherd::types::SensingTime;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for hint in [LineHint::Auto, LineHint::Albany, LineHint::Ialr] {
        let mut decoder = Decoder::new(DecoderSettings::default());
        let mut framer = LineFramer::new();
        let mut on_line = |line: &[u8]| {
            let mut items = 0;
            decoder.line(line, 0, SensingTime(0), hint, &mut |_, item| {
                items += 1;
                if let Item::Frame(frame) = item {
                    assert!(frame.bin_count() > 0 && frame.bin_count() <= frame.layout.len());
                }
            });
            assert!(items > 0);
            line_wall_time(line, hint);
        };
        let size = data.first().map_or(1, |&byte| usize::from(byte) + 1);
        for chunk in data.chunks(size) {
            framer.push(chunk, &mut on_line);
        }
        framer.finish(&mut on_line);
    }
});
