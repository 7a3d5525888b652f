//! JSON bodies of states, events and health. What is unknown is `null`, never left out: Home Assistant keeps the old
//! value and logs a warning for a missing key.

use serde_json::{Value, json};

use super::{NodeView, Snapshot, TrackView, ZoneView};
use crate::event::Event;

/// `ON`, `OFF`, or null.
fn on_off(value: Option<bool>) -> Value {
    match value {
        Some(true) => json!("ON"),
        Some(false) => json!("OFF"),
        None => Value::Null,
    }
}

/// A number rounded to `digits` decimals; null where it is unknown or not a number.
fn rounded(value: Option<f32>, digits: i32) -> Value {
    let factor = 10f64.powi(digits);
    // Through f64, so that 0.1 is printed as 0.1.
    match value {
        Some(v) if v.is_finite() => json!((f64::from(v) * factor).round() / factor),
        _ => Value::Null,
    }
}

/// `online` or `offline`.
pub fn availability(available: bool) -> &'static str {
    if available { "online" } else { "offline" }
}

/// `zone/<zone>/state`. A zone that is not available has no verdict to show, its last one is not repeated.
pub fn zone_state(zone: &ZoneView) -> Value {
    let state = &zone.state;
    json!({
        "occupied": on_off(state.occupied),
        "motion": on_off(state.moving),
        "why": state.why,
        "people": state.people.map(|c| c.people),
        "people_at_least": state.people.map(|c| c.at_least),
        "score": rounded(state.score, 2),
        "quality": rounded(Some(state.quality), 2),
        "since": zone.since,
        "source": state.source,
    })
}

/// `zone/<zone>/event`. The first key is what Home Assistant's event entity asks for, the others become attributes.
pub fn event(event: &Event) -> Value {
    json!({
        "event_type": event.kind.name(),
        "event_id": event.id,
        "at": event.at,
        "why": event.cause.why,
        "link": event.cause.link,
        "score": rounded(event.cause.score, 2),
        "source": event.source,
    })
}

/// `node/<node>/state`.
pub fn node_state(node: &NodeView, snapshot: &Snapshot) -> Value {
    let rejects: serde_json::Map<String, Value> =
        node.rejects.iter().map(|(reason, count)| (reason.clone(), json!(count))).collect();
    json!({
        "rate_hz": rounded(Some(node.rate_hz), 1),
        "loss": rounded(node.loss, 3),
        "rssi_dbm": rounded(node.rssi_dbm, 0),
        "noise_dbm": rounded(node.noise_dbm, 0),
        "channel": node.channel,
        "frames": node.frames,
        "rejected": node.rejects.iter().map(|(_, count)| count).sum::<u64>(),
        "rejects": rejects,
        "last_seen": node.last_seen,
        "source": snapshot.source,
    })
}

/// `tracks`: whoever is followed now, with a position where the links can tell one.
pub fn tracks(snapshot: &Snapshot) -> Value {
    let metres = |v: f64| rounded(Some(v as f32), 2);
    let track = |t: &TrackView| {
        json!({
            "id": t.id,
            "zone": t.zone,
            "state": t.state,
            "age_s": rounded(Some(t.age_s), 1),
            "position_m": t.placement.map(|p| p.position_m.map(metres)),
            "velocity_m_s": t.placement.map(|p| p.velocity_m_s.map(metres)),
            "sigma_m": t.placement.map(|p| metres(p.sigma_m)),
        })
    };
    json!({ "tracks": snapshot.tracks.iter().map(track).collect::<Vec<_>>(), "source": snapshot.source })
}

/// `health`.
pub fn health(snapshot: &Snapshot) -> Value {
    json!({
        "version": snapshot.version,
        "started": snapshot.started,
        "uptime_s": snapshot.uptime_s,
        "memory_bytes": snapshot.memory_bytes,
        "frames_dropped": snapshot.frames_dropped,
        "unknown_input": snapshot.strangers.iter().map(|(_, n)| n).sum::<u64>(),
        "events_waiting": snapshot.events_waiting,
        "kernel": snapshot.head.as_ref().map(|h| &h.kernel),
        "head_weights": snapshot.head.as_ref().map(|h| &h.weights),
        "head_trained": snapshot.head.as_ref().map(|h| h.trained),
        "cache_bytes": snapshot.head.as_ref().map(|h| h.active_bytes + h.lost_bytes),
        "tokens": snapshot.head.as_ref().map(|h| h.tokens),
        "faults": snapshot.faults,
        "source": snapshot.source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Why, ZoneState};
    use crate::types::{Provenance, SensingTime};

    #[test]
    fn unknown_is_null_and_simulated_says_so() {
        let mut zone = ZoneView {
            name: "Bedroom".into(),
            area: None,
            state: ZoneState {
                zone: "bed".into(),
                occupied: None,
                moving: None,
                why: None,
                people: None,
                score: None,
                quality: f32::NAN,
                available: true,
                since: None,
                source: Provenance::Simulated,
            },
            since: None,
            hold_s: 30.0,
            sensitivity: 1.0,
        };
        assert_eq!(
            zone_state(&zone),
            json!({"occupied": null, "motion": null, "why": null, "people": null,
                   "people_at_least": null, "score": null, "quality": null, "since": null,
                   "source": "simulated"})
        );
        zone.state.occupied = Some(true);
        zone.state.moving = Some(false);
        zone.state.why = Some(Why::Motion);
        zone.state.score = Some(0.1);
        zone.state.since = Some(SensingTime(1));
        let value = zone_state(&zone);
        assert_eq!((&value["occupied"], &value["motion"]), (&json!("ON"), &json!("OFF")));
        assert_eq!(value["score"].to_string(), "0.1");
        assert_eq!(value["why"], "motion");
    }
}
