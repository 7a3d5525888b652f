//! Any text as a configuration file, and as a manifest: findings or settings, never a panic; and what loads, loads again.

#![no_main]

use aetherd::config::{Layer, Settings, merge};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Layer::from_text::<Settings>("fuzz.toml", text.to_owned()) {
        Ok(layer) => {
            let settings: Settings = merge(&[layer.clone()]).expect("a layer that was accepted alone");
            for path in [&["mqtt", "host"][..], &["zone", "0", "name"], &["frames", "udp", "listen"]] {
                if let Some(line) = layer.line_of(path) {
                    assert!(line <= 1 + text.matches('\n').count());
                }
            }
            assert!(!settings.zones().is_empty());
        }
        Err(finding) => {
            assert!(finding.line.is_none_or(|l| l <= 1 + text.matches('\n').count()), "{finding}");
            assert!(!finding.cure.is_empty());
        }
    }
    // A flag's value is any text too.
    if let Some((key, value)) = text.split_once('=') {
        drop(Layer::from_assignment::<Settings>("--set", key.trim(), value));
    }
});
