//! A flood of junk beside two live boards: memory stays, no live frame that the kernel delivered is lost, counts are right.
//!
//! `FLOOD_SECONDS` and `FLOOD_PER_SECOND` scale it; the figure of the project is 60 and 50000.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod mqtt_support;

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use aetherd::frame::{CsiFrame, WireFormat};
use aetherd::simulate::encode;
use aetherd::types::{NodeKey, SensingTime};
use mqtt_support::{eventually, free_port};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn from_env(key: &str, default: u64) -> u64 {
    std::env::var(key).ok().and_then(|t| t.parse().ok()).unwrap_or(default)
}

fn metrics(port: u16) -> Option<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

/// Sum of the samples whose name and labels contain all of `parts`.
fn sum(text: &str, parts: &[&str]) -> u64 {
    let matching = text.lines().filter(|l| !l.starts_with('#') && parts.iter().all(|p| l.contains(p)));
    matching.map(|l| l.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64).sum()
}

/// Datagrams that the kernel dropped at the socket: the last column of /proc/net/udp.
fn kernel_drops(port: u16) -> u64 {
    let table = std::fs::read_to_string("/proc/net/udp").unwrap();
    let hex = format!(":{port:04X}");
    let row = table.lines().find(|l| l.split_whitespace().nth(1).is_some_and(|a| a.ends_with(&hex))).unwrap();
    row.split_whitespace().last().unwrap().parse().unwrap()
}

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn board_frame(seq: u32, rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut frame = CsiFrame::empty(NodeKey::Udp { addr: [127, 0, 0, 1].into(), id: 1 });
    frame.reset(frame.node, WireFormat::Adr018, SensingTime(0));
    frame.seq = Some(seq);
    frame.rssi_dbm = Some(-50);
    frame.noise_dbm = Some(-95);
    frame.freq_mhz = Some(2437);
    // FFT order: bins 27 to 37 and 0 are guards.
    frame.values.extend((0..64).flat_map(|bin| {
        let guard = bin == 0 || (27..=37).contains(&bin);
        let mut value = || if guard { 0 } else { rng.random_range(-60..60i16) };
        [value(), value()]
    }));
    let mut bytes = Vec::new();
    encode(&frame, &mut bytes).unwrap();
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_boards_survive_a_flood() {
    let seconds = from_env("FLOOD_SECONDS", 3);
    let per_second = from_env("FLOOD_PER_SECOND", 20_000);
    let (udp, web) = (free_port(), free_port());
    let dir = tempfile::tempdir().unwrap();
    let set = |text: String| ["--set".to_owned(), text];
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_aetherd"))
        .arg("run")
        .args(set(format!("frames.udp.listen=[\"127.0.0.1:{udp}\"]")))
        .args(set(format!("web.listen=127.0.0.1:{web}")))
        .args(set("mqtt.enabled=false".to_owned()))
        .args(set(format!("state_dir={}", dir.path().display())))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the daemon listens", || metrics(web).is_some()).await;

    let stop = AtomicBool::new(false);
    let (junk, live) = (AtomicU64::new(0), [AtomicU64::new(0), AtomicU64::new(0)]);
    let mut growth = 0i64;
    std::thread::scope(|scope| {
        for (i, count) in live.iter().enumerate() {
            let stop = &stop;
            scope.spawn(move || {
                // Two addresses of the loopback range, one and the same node id.
                let socket = UdpSocket::bind(format!("127.0.0.{}:0", 2 + i)).unwrap();
                let mut rng = ChaCha8Rng::seed_from_u64(i as u64);
                let (start, mut seq) = (Instant::now(), 0u32);
                while !stop.load(Ordering::Relaxed) {
                    socket.send_to(&board_frame(seq, &mut rng), ("127.0.0.1", udp)).unwrap();
                    seq += 1;
                    count.fetch_add(1, Ordering::Relaxed);
                    let due = start + Duration::from_millis(10) * seq;
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                }
            });
        }
        scope.spawn(|| {
            let mut rng = ChaCha8Rng::seed_from_u64(9);
            // New sources all the time: nothing may be kept for each.
            let sockets: Vec<UdpSocket> =
                (0..200).map(|i| UdpSocket::bind(format!("127.1.{}.{}:0", i / 100, 1 + i % 100)).unwrap()).collect();
            let mut bytes = [0u8; 300];
            let start = Instant::now();
            let mut sent = 0u64;
            while !stop.load(Ordering::Relaxed) {
                for _ in 0..per_second / 200 {
                    rng.fill(&mut bytes[..]);
                    if sent.is_multiple_of(3) {
                        // A known magic number with a length that it never has.
                        bytes[..4].copy_from_slice(&[1, 0, 0x11, 0xc5]);
                    }
                    let length = rng.random_range(0..300);
                    let socket = &sockets[rng.random_range(0..sockets.len())];
                    if socket.send_to(&bytes[..length], ("127.0.0.1", udp)).is_ok() {
                        junk.fetch_add(1, Ordering::Relaxed);
                    }
                    sent += 1;
                }
                let due = start + Duration::from_millis(5) * u32::try_from(sent / (per_second / 200)).unwrap();
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
        });
        // The first second makes buffers and threads.
        std::thread::sleep(Duration::from_secs(1));
        let before = resident_kib(daemon.id());
        std::thread::sleep(Duration::from_secs(seconds));
        growth = resident_kib(daemon.id()) as i64 - before as i64;
        stop.store(true, Ordering::Relaxed);
    });
    let drops = kernel_drops(udp);
    let (junk, a, b) = (junk.into_inner(), live[0].load(Ordering::Relaxed), live[1].load(Ordering::Relaxed));
    let sent = junk + a + b;
    let seen = |text: &str| {
        let frames = sum(text, &["aetherd_frames_received_total"]);
        (frames, sum(text, &["aetherd_frames_dropped_total", "node=\"unknown\""]))
    };
    let mut text = String::new();
    eventually("everything delivered is counted", || {
        text = metrics(web).unwrap_or_default();
        let (frames, refused) = seen(&text);
        frames + refused + drops >= sent
    })
    .await;
    let (frames, refused) = seen(&text);
    eprintln!(
        "flood: {junk} junk datagrams in {} s ({:.0}/s) beside {} of two boards; kernel dropped {drops}; frames {frames}, refused {refused}; \
         resident memory {growth:+} KiB",
        seconds + 1,
        junk as f64 / (seconds + 1) as f64,
        a + b
    );
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert_eq!(frames + refused + drops, sent, "each datagram is a frame, a counted reject, or dropped by the kernel");
    // Junk is a hundred times the live frames; where the kernel dropped (a slow machine), its drops fall on both alike.
    let missing = (a + b).saturating_sub(frames);
    let share = drops as f64 / sent as f64;
    assert!(
        frames <= a + b && missing as f64 <= (a + b) as f64 * share * 3.0,
        "{missing} live frames missing, {share:.4} dropped"
    );
    assert_eq!(sum(&text, &["aetherd_queue_dropped_total"]), 0, "the queue to the sensing thread never filled");
    assert!(growth < 4096, "resident memory grew by {growth} KiB");
}
