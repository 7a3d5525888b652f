//! The counters in Prometheus' exposition format, made from a snapshot at the time of the scrape, so that counting
//! costs the sensing path nothing. Labels are bounded: nodes, zones and fixed reasons, never a track or an event.

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, LabelSetEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::mqtt::Snapshot;
use crate::track::Lifecycle;

/// Counters that are not part of the published state.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counters {
    /// The broker is connected.
    pub mqtt_connected: bool,
    /// Connections made since start.
    pub mqtt_connections: u64,
    /// Messages published since start.
    pub mqtt_published: u64,
    /// Events journalled since start, by kind.
    pub events: Vec<(String, u64)>,
    /// Depth of the queues, by name.
    pub queues: Vec<(String, u64)>,
    /// How far the sensing thread lags behind the frames, seconds.
    pub sensing_lag_s: f64,
}

/// Values of one metric with their labels, all of one type.
#[derive(Debug)]
struct Values {
    kind: MetricType,
    rows: Vec<(Labels, f64)>,
}

#[derive(Debug, Clone, Default)]
struct Labels(Vec<(&'static str, String)>);

impl EncodeLabelSet for Labels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), std::fmt::Error> {
        use prometheus_client::encoding::EncodeLabel;
        for (name, value) in &self.0 {
            (*name, value.as_str()).encode(encoder.encode_label())?;
        }
        Ok(())
    }
}

impl EncodeMetric for Values {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let write = |mut row: MetricEncoder<'_>, value: &f64| match self.kind {
            MetricType::Counter => row.encode_counter::<Labels, f64, f64>(value, None),
            _ => row.encode_gauge(value),
        };
        if let [(Labels(none), value)] = self.rows.as_slice()
            && none.is_empty()
        {
            // Without labels, no empty braces.
            return write(encoder, value);
        }
        for (labels, value) in &self.rows {
            write(encoder.encode_family(labels)?, value)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        self.kind
    }
}

/// The exposition text of one moment.
pub fn render(snapshot: &Snapshot, counters: &Counters) -> String {
    let mut registry = Registry::with_prefix("aetherd");
    let mut add = |name: &str, help: &str, kind: MetricType, rows: Vec<(Labels, f64)>| {
        if !rows.is_empty() {
            registry.register(name, help, Values { kind, rows });
        }
    };
    let one = |v: f64| vec![(Labels::default(), v)];
    let node = |n: &crate::mqtt::NodeView| ("node", n.id.clone());
    let per_node = |get: &dyn Fn(&crate::mqtt::NodeView) -> Option<f64>| -> Vec<(Labels, f64)> {
        snapshot.nodes.iter().filter_map(|n| get(n).map(|v| (Labels(vec![node(n)]), v))).collect()
    };
    use MetricType::{Counter, Gauge};

    add("frames_received", "Frames accepted", Counter, per_node(&|n| Some(n.frames as f64)));
    let rejects = snapshot.nodes.iter().flat_map(|n| {
        n.rejects.iter().map(move |(reason, count)| (Labels(vec![node(n), ("reason", reason.clone())]), *count as f64))
    });
    let mut dropped: Vec<_> = rejects.collect();
    let stranger =
        |(what, n): &(String, u64)| (Labels(vec![("node", "unknown".to_owned()), ("reason", what.clone())]), *n as f64);
    dropped.extend(snapshot.strangers.iter().map(stranger));
    add("frames_dropped", "Input refused, or frames dropped by a full queue", Counter, dropped);
    let kinds = snapshot.others.iter().map(|(k, n)| (Labels(vec![("kind", k.clone())]), *n as f64)).collect();
    add("other_input", "Recognised packets and lines without raw CSI", Counter, kinds);
    add(
        "queue_dropped",
        "Frames dropped by the full queue, of all boards",
        Counter,
        one(snapshot.frames_dropped as f64),
    );
    add("frame_rate_hz", "Frames per second, last ten seconds", Gauge, per_node(&|n| Some(f64::from(n.rate_hz))));
    add("node_available", "1 while the board was heard lately", Gauge, per_node(&|n| Some(n.available.into())));
    add("node_rssi_dbm", "Received signal strength", Gauge, per_node(&|n| n.rssi_dbm.map(f64::from)));
    add("node_loss_ratio", "Share of frames lost by sequence number", Gauge, per_node(&|n| n.loss.map(f64::from)));

    let zone = |z: &crate::mqtt::ZoneView| ("zone", z.state.zone.clone());
    let per_zone = |get: &dyn Fn(&crate::mqtt::ZoneView) -> Option<f64>| -> Vec<(Labels, f64)> {
        snapshot.zones.iter().filter_map(|z| get(z).map(|v| (Labels(vec![zone(z)]), v))).collect()
    };
    let number = |b: Option<bool>| b.map(f64::from);
    add("zone_occupied", "1 occupied, 0 empty, absent while unknown", Gauge, per_zone(&|z| number(z.state.occupied)));
    add("zone_moving", "1 moving, 0 quiet, absent while unknown", Gauge, per_zone(&|z| number(z.state.moving)));
    add("zone_score", "Motion score, 1 = threshold", Gauge, per_zone(&|z| z.state.score.map(f64::from)));

    let states = [("tentative", Lifecycle::Tentative), ("active", Lifecycle::Active), ("lost", Lifecycle::Lost)];
    let followed = |state| snapshot.tracks.iter().filter(|t| t.state == state).count() as f64;
    let rows = states.map(|(name, state)| (Labels(vec![("status", name.to_owned())]), followed(state)));
    add("tracks", "People that are followed", Gauge, rows.to_vec());
    let [no_place, not_begun] = snapshot.tracks_refused;
    add(
        "tracks_without_place",
        "Tracks that found no place for a cache (track.max_tracks)",
        Counter,
        one(no_place as f64),
    );
    add("tracks_not_begun", "People not followed: twice track.max_tracks were", Counter, one(not_begun as f64));
    if let Some(head) = &snapshot.head {
        let kinds = [("active", head.active_bytes), ("lost", head.lost_bytes), ("spare", head.spare_bytes)];
        let rows = kinds.map(|(kind, bytes)| (Labels(vec![("kind", kind.to_owned())]), bytes as f64));
        add("kv_cache_bytes", "Key/value caches, by the state of their tracks", Gauge, rows.to_vec());
        add("kv_cache_budget_bytes", "Limit for all key/value caches", Gauge, one(head.budget_bytes as f64));
        add("kv_cache_evicted", "Caches of lost tracks given up for the budget", Counter, one(head.evicted as f64));
        add("kv_cache_refused", "Tracks that got no cache", Counter, one(head.refused as f64));
        add("tokens_failed", "Tokens the temporal head refused", Counter, one(head.failed as f64));
        add("tokens", "Tokens streamed through the temporal head", Counter, one(head.tokens as f64));
    }

    let kinds = counters.events.iter().map(|(k, n)| (Labels(vec![("kind", k.clone())]), *n as f64)).collect();
    add("events", "Events journalled", Counter, kinds);
    add("events_waiting", "Journalled events that the broker has not acknowledged", Gauge, {
        one(snapshot.events_waiting as f64)
    });
    add("mqtt_connected", "1 while the broker is connected", Gauge, one(counters.mqtt_connected.into()));
    add("mqtt_connections", "Connections made", Counter, one(counters.mqtt_connections as f64));
    add("mqtt_published", "Messages published", Counter, one(counters.mqtt_published as f64));
    let depths = counters.queues.iter().map(|(q, n)| (Labels(vec![("queue", q.clone())]), *n as f64)).collect();
    add("queue_depth", "Entries in a queue", Gauge, depths);
    let lag = vec![(Labels(vec![("stage", "sensing".to_owned())]), counters.sensing_lag_s)];
    add("stage_lag_seconds", "Age of the frame that a stage works on", Gauge, lag);
    add("resident_memory_bytes", "Resident memory", Gauge, one(snapshot.memory_bytes as f64));
    add("uptime_seconds", "Seconds since start", Gauge, one(snapshot.uptime_s as f64));
    add("build_info", "Version", Gauge, vec![(Labels(vec![("version", snapshot.version.clone())]), 1.0)]);

    let mut text = String::new();
    encode(&mut text, &registry).expect("writing to a String cannot fail");
    text
}
