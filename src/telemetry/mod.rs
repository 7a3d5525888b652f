//! The daemon about itself: log set-up, the service manager's notifications, memory.

mod logging;
mod notify;

pub use logging::{LogFormat, LogLevel, Settings, init, set_level};
pub use notify::{Heartbeat, ServiceManager};

/// Resident memory of this process in bytes, from `/proc/self/statm`; 0 where the system does not say.
pub fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|s| s.split_whitespace().nth(1).and_then(|p| p.parse::<u64>().ok()))
        .unwrap_or(0);
    // Every system that aetherd is built for by default has pages of 4 KiB; 16 KiB kernels (Pi 5) say so in smaps.
    pages * page_bytes()
}

fn page_bytes() -> u64 {
    use std::sync::OnceLock;
    static PAGE: OnceLock<u64> = OnceLock::new();
    *PAGE.get_or_init(|| {
        std::fs::read_to_string("/proc/self/smaps")
            .ok()
            .and_then(|s| {
                let line = s.lines().find(|l| l.starts_with("KernelPageSize:"))?;
                line.split_whitespace().nth(1)?.parse::<u64>().ok()
            })
            .map_or(4096, |kib| kib * 1024)
    })
}
