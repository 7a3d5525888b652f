//! What the types cannot check: ranges, references between sections, names that collide.

use super::finding::Severity;
use super::settings::{Settings, VERSION};
use crate::event::{HOLD_RANGE_S, SENSITIVITY_RANGE, slug};
use crate::head::{self, WeightBlob};
use crate::kernel::{Kernel, KernelKind};

/// Places of boards and transmitters, metres from the origin of the plan.
const FARTHEST_M: f64 = 1000.0;

/// One thing wrong with the meaning of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    /// Path of the key, list items by index.
    pub(super) path: Vec<String>,
    pub(super) severity: Severity,
    pub(super) what: String,
    pub(super) cure: String,
}

struct Problems(Vec<Problem>);

impl Problems {
    fn add(&mut self, severity: Severity, path: &str, what: impl Into<String>, cure: impl Into<String>) {
        let path = path.split('.').map(str::to_owned).collect();
        self.0.push(Problem { path, severity, what: what.into(), cure: cure.into() });
    }

    fn range(&mut self, path: &str, value: f32, (low, high): (f32, f32)) {
        if !(low..=high).contains(&value) {
            self.add(
                Severity::Error,
                path,
                format!("expected {low} to {high}, got {value}"),
                "choose a value in that range",
            );
        }
    }
}

/// Everything wrong with the meaning of `settings`.
pub(super) fn check(settings: &Settings) -> Vec<Problem> {
    let mut problems = Problems(Vec::new());
    let p = &mut problems;
    if settings.version != VERSION {
        p.add(
            Severity::Error,
            "version",
            format!("expected version {VERSION}, got {}", settings.version),
            "this program reads version 1; see the upgrade notes in CHANGELOG.md",
        );
    }
    occupancy(settings, p);
    signal(settings, p);
    track(settings, p);
    head(settings, p);
    zones(settings, p);
    nodes(settings, p);
    places(settings, p);
    sources(settings, p);
    if settings.mqtt.enabled
        && let Err(error) = settings.mqtt.check()
    {
        let (what, cure) = split_cure(&error.to_string());
        p.add(Severity::Error, "mqtt", what, cure);
    }
    if settings.web.enabled && !settings.web.listen.ip().is_loopback() {
        p.add(
            Severity::Warning,
            "web.listen",
            format!("{} is not loopback, and there is no login", settings.web.listen),
            "make sure that only people who may see when somebody is at home can reach it",
        );
    }
    problems.0
}

/// Messages of the modules are "what: cure".
fn split_cure(message: &str) -> (String, String) {
    match message.split_once(": ") {
        Some((what, cure)) => (what.to_owned(), cure.to_owned()),
        None => (message.to_owned(), "see the comments in config/aetherd.toml".to_owned()),
    }
}

fn occupancy(settings: &Settings, p: &mut Problems) {
    let o = &settings.occupancy;
    p.range("occupancy.hold_s", o.hold_s, HOLD_RANGE_S);
    p.range("occupancy.dwell_s", o.dwell_s, (0.0, 7200.0));
    p.range("occupancy.dwell_min_motion_s", o.dwell_min_motion_s, (0.0, 3600.0));
    p.range("occupancy.still_after_s", o.still_after_s, (1.0, 600.0));
    p.range("occupancy.unavailable_after_s", o.unavailable_after_s, (10.0, 3600.0));
}

fn signal(settings: &Settings, p: &mut Problems) {
    p.range("signal.sensitivity", settings.signal.sensitivity, (0.1, 10.0));
    p.range("signal.release_s", settings.signal.release_s, (0.25, 30.0));
}

fn track(settings: &Settings, p: &mut Problems) {
    let t = &settings.track;
    for (key, value, range) in [
        ("confirm_after_s", t.confirm_after_s, (0.25, 60.0)),
        ("doubt_ends_after_s", t.doubt_ends_after_s, (0.25, 60.0)),
        ("lost_after_s", t.lost_after_s, (0.25, 600.0)),
        ("terminate_after_s", t.terminate_after_s, (t.lost_after_s.max(0.25), 86_400.0)),
        ("outage_freeze_s", t.outage_freeze_s, (0.0, 3600.0)),
        ("merge_after_s", t.merge_after_s, (0.25, 600.0)),
        ("merge_distance_m", t.merge_distance_m, (0.1, 5.0)),
        ("max_tracks", t.max_tracks.into(), (1.0, 256.0)),
        ("acceleration", t.acceleration, (0.05, 10.0)),
        ("detection_sigma_m", t.detection_sigma_m, (0.05, 5.0)),
        ("age_factor", t.age_factor, (0.0, 1.0)),
        ("gate_probability", t.gate_probability, (0.5, 0.9999)),
        ("position_weight", t.position_weight, (0.0, 1.0)),
        ("embedding_weight", t.embedding_weight, (0.0, 1.0)),
        ("embedding_distance", t.embedding_distance, (0.0, 2.0)),
        ("grid_step_m", t.grid_step_m, (0.1, 1.0)),
        ("ellipse_excess_m", t.ellipse_excess_m, (0.05, 5.0)),
        ("echo_per_m2", t.echo_per_m2, (0.0, 10.0)),
        ("regularisation", t.regularisation, (0.001, 100.0)),
        ("correlation_m", t.correlation_m, (0.1, 5.0)),
        ("resolution_m", t.resolution_m, (0.3, 5.0)),
        ("misfit_ratio", t.misfit_ratio, (0.1, 1.0)),
        ("least_share", t.least_share, (0.0, 1.0)),
        ("max_detections", t.max_detections.into(), (1.0, 8.0)),
    ] {
        p.range(&format!("track.{key}"), value as f32, (range.0 as f32, range.1 as f32));
    }
}

fn head(settings: &Settings, p: &mut Problems) {
    let h = &settings.head;
    p.range("head.window_tokens", h.window_tokens as f32, (0.0, 4096.0));
    p.range("head.block_tokens", h.block_tokens as f32, (1.0, 4096.0));
    p.range("head.cache_budget_mib", h.cache_budget_mib as f32, (0.0, 65_536.0));
    let two_tier = matches!(h.storage, head::Storage::Q8 | head::Storage::Q4);
    if h.memory == head::Memory::Compatible {
        let least = h.block_tokens.max(h.window_tokens + 2) as f32;
        p.range("head.cache_tokens", h.cache_tokens as f32, (least, 1_048_576.0));
        if two_tier {
            p.range("head.tail_tokens", h.tail_tokens as f32, (1.0, h.cache_tokens.saturating_sub(1) as f32));
        }
    }
    let mut wrong = |key: &str, what: String, cure: &str| p.add(Severity::Error, key, what, cure);
    if h.kernel != "auto"
        && let Err(error) = h.kernel.parse::<KernelKind>().and_then(|kind| Kernel::select(Some(kind)).map(drop))
    {
        wrong("head.kernel", error.to_string(), "use \"auto\", or a kernel of this processor");
    }
    if two_tier && h.memory == head::Memory::Pyramid {
        wrong(
            "head.storage",
            "8 and 4 bits are for the compatible memory; a pyramid keeps few tokens one by one".to_owned(),
            "use \"f32\" or \"f16\", or memory = \"compatible\"",
        );
    }
    if two_tier && h.forgetting == head::Forgetting::HeavyHitters {
        wrong(
            "head.storage",
            "heavy_hitters keeps its tokens in f32 or f16".to_owned(),
            "use one of these, or forgetting = \"slide\"",
        );
    }
    if let Some(path) = &h.weights
        && let Err(error) = WeightBlob::open(path)
    {
        let (what, cure) = split_cure(&error.to_string());
        p.add(Severity::Warning, "head.weights", format!("{}: {what}", path.display()), cure);
    }
}

fn zones(settings: &Settings, p: &mut Problems) {
    let known: Vec<(String, &str)> = settings.node.iter().map(|n| (n.effective_id(), n.name.as_str())).collect();
    for (i, zone) in settings.zone.iter().enumerate() {
        let at = format!("zone.{i}");
        if zone.name.trim().is_empty() {
            p.add(Severity::Error, &at, "a zone without a name", "give it one: name = \"Living room\"");
        }
        topic_safe(p, &format!("{at}.id"), zone.id.as_deref());
        if let Some(j) = settings.zone[..i].iter().position(|z| z.effective_id() == zone.effective_id()) {
            p.add(
                Severity::Error,
                &format!("{at}.name"),
                format!("zones {} and {} both have the id `{}`", j + 1, i + 1, zone.effective_id()),
                "give one of them another name or an `id` of its own",
            );
        }
        for node in &zone.nodes {
            // A board that is not listed is known by the id that its address makes; those cannot be checked here.
            let listed = known.iter().any(|(id, name)| id == node || name == node);
            let by_address = node.contains("_node_") || settings.serial_ports().iter().any(|s| slug(s).ends_with(node));
            if !listed && !by_address {
                let names = known.iter().map(|(_, n)| *n).collect::<Vec<_>>().join(", ");
                p.add(
                    Severity::Error,
                    &format!("{at}.nodes"),
                    format!("no board is called `{node}`"),
                    if names.is_empty() {
                        "add a [[node]] with that name, or leave `nodes` out to use every board".to_owned()
                    } else {
                        format!("known boards: {names}")
                    },
                );
            }
        }
        if let Some(hold) = zone.hold_s {
            p.range(&format!("{at}.hold_s"), hold, HOLD_RANGE_S);
        }
        if let Some(dwell) = zone.dwell_s {
            p.range(&format!("{at}.dwell_s"), dwell, (0.0, 7200.0));
        }
        if let Some(sensitivity) = zone.sensitivity {
            p.range(&format!("{at}.sensitivity"), sensitivity, SENSITIVITY_RANGE);
        }
    }
}

fn nodes(settings: &Settings, p: &mut Problems) {
    for (i, node) in settings.node.iter().enumerate() {
        let at = format!("node.{i}");
        if node.name.trim().is_empty() {
            p.add(Severity::Error, &at, "a board without a name", "give it one: name = \"Kitchen\"");
        }
        topic_safe(p, &format!("{at}.id"), node.id.as_deref());
        if node.address.is_none() && node.node_id.is_none() && node.port.is_none() {
            p.add(
                Severity::Error,
                &at,
                format!("nothing says which board `{}` is", node.name),
                "give `address` (and `node_id` if several boards share it), or `port` for one on a serial port",
            );
        }
        if let Some(port) = &node.port
            && !settings.serial_ports().contains(port)
        {
            p.add(
                Severity::Error,
                &format!("{at}.port"),
                format!("`{port}` is not among the serial sources"),
                "add it as [[frames.serial]], or write it exactly as there",
            );
        }
        if let Some(j) = settings.node[..i].iter().position(|n| n.effective_id() == node.effective_id()) {
            p.add(
                Severity::Error,
                &format!("{at}.name"),
                format!("boards {} and {} both have the id `{}`", j + 1, i + 1, node.effective_id()),
                "give one of them another name or an `id` of its own",
            );
        }
    }
}

fn places(settings: &Settings, p: &mut Problems) {
    let boards = settings.node.iter().enumerate().map(|(i, n)| (format!("node.{i}.position_m"), n.position_m));
    let senders = settings
        .transmitter
        .iter()
        .enumerate()
        .map(|(i, t)| (format!("transmitter.{i}.position_m"), Some(t.position_m)));
    for (path, place) in boards.chain(senders) {
        if place.is_some_and(|xy| xy.iter().any(|v| !v.is_finite() || v.abs() > FARTHEST_M)) {
            p.add(
                Severity::Error,
                &path,
                format!("expected two numbers within {FARTHEST_M} m of the origin"),
                "measure x and y in metres from a corner of your home",
            );
        }
    }
    for (i, sender) in settings.transmitter.iter().enumerate() {
        if settings.transmitter[..i].iter().any(|t| t.mac == sender.mac) {
            p.add(
                Severity::Error,
                &format!("transmitter.{i}.mac"),
                "two transmitters with the same address",
                "give each the address that its frames carry; only one may be without",
            );
        }
    }
}

fn sources(settings: &Settings, p: &mut Problems) {
    let f = &settings.frames;
    if f.udp.listen.is_empty() && f.serial.is_empty() {
        p.add(
            Severity::Error,
            "frames",
            "no source of frames",
            "give frames.udp.listen an address, or add a [[frames.serial]] port (`aetherd ports` lists them)",
        );
    }
    for (i, serial) in f.serial.iter().enumerate() {
        let at = format!("frames.serial.{i}");
        let port = serial.port.display().to_string();
        if port.is_empty() {
            p.add(Severity::Error, &at, "a serial source without a port", "`aetherd ports` prints the lines to paste");
        }
        let name = port.rsplit('/').next().unwrap_or_default();
        if name.starts_with("ttyUSB") || name.starts_with("ttyACM") {
            p.add(
                Severity::Warning,
                &format!("{at}.port"),
                format!("{port} changes its number when something else is plugged in"),
                "use the name under /dev/serial/by-id that `aetherd ports` prints",
            );
        }
        if settings.frames.serial[..i].iter().any(|s| s.port == serial.port) {
            p.add(Severity::Error, &format!("{at}.port"), format!("{port} is given twice"), "remove one");
        }
    }
}

fn topic_safe(p: &mut Problems, path: &str, id: Option<&str>) {
    let Some(id) = id else { return };
    if id.is_empty() || !id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') {
        p.add(
            Severity::Error,
            path,
            format!("`{id}` cannot stand in a topic"),
            "use letters, digits, `_` and `-` only; put the pretty name into `name`",
        );
    }
}
