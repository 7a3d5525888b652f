//! Any bytes as a recording: read to the end, decoded, never a panic, memory bounded.
#![no_main]

use aetherd::frame::recording::{Format, Options, open_bytes};
use aetherd::frame::{Decoder, DecoderSettings};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // The first byte picks the format, so that each is reached; the rest is the recording.
    let Some((&pick, bytes)) = data.split_first() else { return };
    let format = match usize::from(pick) % (Format::ALL.len() + 1) {
        0 => Format::Auto,
        n => Format::ALL[n - 1],
    };
    let options = Options { rate_hz: (pick >= 0x80).then_some(100.0), ..Options::default() };
    let Ok(mut reader) = open_bytes(bytes.to_vec(), "fuzz.txt", format, &options) else { return };
    let mut decoder = Decoder::new(DecoderSettings::default());
    // A small compressed input can hold very much; enough of it is enough.
    for _ in 0..20_000 {
        match reader.next() {
            Some(Ok(unit)) => unit.decode(&mut decoder, &mut |_, _| {}),
            Some(Err(_)) | None => break,
        }
    }
});
