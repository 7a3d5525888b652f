//! What a replay prints: events, changes of zones and tracks; or everything, as JSON lines.

use serde::Serialize;

use super::output::Lines;
use crate::event::{Draft, Event, EventDraft, Why, event_id};
use crate::pipeline::{TickView, rfc3339};
use crate::signal::{NoVerdict, Verdict};
use crate::track::{Lifecycle, Placement, PoseTrack, TrackId};
use crate::types::{Provenance, SensingTime};

/// Writes what the stages say, as text or as JSON lines.
pub(super) struct Printer {
    out: Lines,
    json: bool,
    events: u64,
    /// What was last said of every track.
    tracks: Vec<(TrackId, Lifecycle)>,
}

#[derive(Serialize)]
struct Line<T: Serialize> {
    t: String,
    t_s: f64,
    kind: &'static str,
    #[serde(flatten)]
    body: T,
}

#[derive(Serialize)]
struct ZoneLine<'a> {
    zone: &'a str,
    occupied: Option<bool>,
    moving: Option<bool>,
    why: Option<Why>,
    people: Option<u16>,
    people_at_least: Option<bool>,
    score: Option<f32>,
    quality: f32,
    source: Provenance,
}

#[derive(Serialize)]
struct TrackLine<'a> {
    track: TrackId,
    zone: &'a str,
    state: Lifecycle,
    placement: Option<Placement>,
    tokens: u64,
    cache_bytes: u64,
    cache: Option<&'a str>,
}

#[derive(Serialize)]
struct LinkLine {
    node: String,
    transmitter: Option<crate::types::MacAddr>,
    layout: &'static str,
    moving: Option<bool>,
    no_verdict: Option<NoVerdict>,
    score: Option<f32>,
    rate_hz: f32,
    coverage: f32,
    rssi_dbm: Option<f32>,
}

impl Printer {
    /// To standard output.
    pub(super) fn new(json: bool) -> Self {
        Self { out: Lines::stdout(), json, events: 0, tracks: Vec::new() }
    }

    /// Writes out what is buffered.
    pub(super) fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }

    /// What one tick has to say; `start` is the recording's first frame.
    pub(super) fn tick(&mut self, tick: &TickView<'_>, start: SensingTime) -> std::io::Result<()> {
        let t_s = tick.at.secs_since(start);
        for draft in tick.events {
            self.events += 1;
            let event = event_of(draft, self.events);
            self.event(&event, t_s)?;
        }
        if self.json {
            return self.all(tick, t_s);
        }
        if tick.changed {
            self.changes(tick, t_s)?;
        }
        self.tracks(tick, t_s)
    }

    /// A line for every track that came, changed or went.
    fn tracks(&mut self, tick: &TickView<'_>, t_s: f64) -> std::io::Result<()> {
        let now = tick.tracker.tracks();
        for (id, _) in &self.tracks {
            if !now.iter().any(|t| t.id == *id) {
                self.out.text(&format!("{t_s:9.2} s  track {:<10} ended", id.0))?;
            }
        }
        for track in now {
            if self.tracks.contains(&(track.id, track.lifecycle)) {
                continue;
            }
            let line = track_line(tick, track);
            let place = line.placement.map_or(String::new(), |p| {
                format!(" at {:.1}, {:.1} m (+-{:.1})", p.position_m[0], p.position_m[1], p.sigma_m)
            });
            let cache = line.cache.map_or(String::new(), |policy| {
                format!(", {} tokens, cache {} B ({policy})", line.tokens, line.cache_bytes)
            });
            let state = format!("{:?}", track.lifecycle).to_lowercase();
            self.out.text(&format!("{t_s:9.2} s  track {:<10} {state:<9} {}{place}{cache}", track.id.0, line.zone))?;
        }
        self.tracks.clear();
        self.tracks.extend(now.iter().map(|t| (t.id, t.lifecycle)));
        Ok(())
    }

    fn event(&mut self, event: &Event, t_s: f64) -> std::io::Result<()> {
        if self.json {
            // Its `kind` says that this is an event; what happened is in `event`.
            let mut body = serde_json::to_value(event).map_err(std::io::Error::from)?;
            if let Some(map) = body.as_object_mut() {
                let what = map.remove("kind").unwrap_or_default();
                map.insert("event".to_owned(), what);
            }
            return self.out.json(&Line { t: event.at.clone(), t_s, kind: "event", body });
        }
        let score = event.cause.score.map_or(String::new(), |s| format!(", score {s:.2}"));
        self.out.text(&format!(
            "{t_s:9.2} s  {:<16} {:<14} ({}{score})",
            event.zone,
            event.kind.name(),
            event.cause.why
        ))
    }

    fn changes(&mut self, tick: &TickView<'_>, t_s: f64) -> std::io::Result<()> {
        for z in tick.zones.states() {
            let word = |b: Option<bool>, yes: &'static str, no: &'static str| match b {
                Some(true) => yes,
                Some(false) => no,
                None => "unknown",
            };
            let people = z.people.map_or(String::new(), |c| {
                format!(", people {}{}", if c.at_least { "at least " } else { "" }, c.people)
            });
            self.out.text(&format!(
                "{t_s:9.2} s  {:<16} {:<9} {:<8} score {}{people}",
                z.zone,
                word(z.occupied, "occupied", "empty"),
                word(z.moving, "moving", "quiet"),
                z.score.map_or("-".to_owned(), |s| format!("{s:.2}"))
            ))?;
        }
        Ok(())
    }

    fn all(&mut self, tick: &TickView<'_>, t_s: f64) -> std::io::Result<()> {
        let t = rfc3339(tick.at, 0);
        for z in tick.zones.states() {
            let body = ZoneLine {
                zone: &z.zone,
                occupied: z.occupied,
                moving: z.moving,
                why: z.why,
                people: z.people.map(|c| c.people),
                people_at_least: z.people.map(|c| c.at_least),
                score: z.score,
                quality: z.quality,
                source: z.source,
            };
            self.out.json(&Line { t: t.clone(), t_s, kind: "zone", body })?;
        }
        let whole_second = (t_s / SECOND).fract() * SECOND < crate::signal::TICK_MICROS as f64 / 1e6;
        if whole_second {
            for track in tick.tracker.tracks() {
                self.out.json(&Line { t: t.clone(), t_s, kind: "track", body: track_line(tick, track) })?;
            }
            for l in tick.links {
                let (moving, no_verdict) = match l.verdict {
                    Verdict::Moving => (Some(true), None),
                    Verdict::Still => (Some(false), None),
                    Verdict::None(why) => (None, Some(why)),
                };
                let body = LinkLine {
                    node: l.link.node.to_string(),
                    transmitter: l.link.transmitter,
                    layout: l.link.layout.name(),
                    moving,
                    no_verdict,
                    score: l.score,
                    rate_hz: l.rate_hz,
                    coverage: l.coverage,
                    rssi_dbm: l.rssi_dbm,
                };
                self.out.json(&Line { t: t.clone(), t_s, kind: "link", body })?;
            }
        }
        Ok(())
    }
}

fn track_line<'a>(tick: &'a TickView<'_>, track: &PoseTrack) -> TrackLine<'a> {
    let cached = tick.head.and_then(|h| h.cached(track.id));
    let zone = tick.zones.states().nth(usize::from(track.zone)).map_or("", |z| z.zone.as_str());
    TrackLine {
        track: track.id,
        zone,
        state: track.lifecycle,
        placement: track.placement,
        tokens: cached.map_or(0, |c| c.tokens),
        cache_bytes: cached.map_or(0, |c| c.bytes),
        cache: cached.and(tick.head).map(|h| h.info().policy.as_str()),
    }
}

/// Links and tracks are written once in this many seconds, zones at every tick.
const SECOND: f64 = 1.0;

/// The event that the journal would make of a draft, with a sequence number of this replay.
fn event_of(draft: &Draft, seq: u64) -> Event {
    let draft = EventDraft {
        zone: draft.zone.clone(),
        kind: draft.kind,
        time: draft.at,
        at: rfc3339(draft.at, 0),
        cause: draft.cause.clone(),
        source: draft.source,
    };
    Event {
        id: event_id(seq, draft.time),
        zone: draft.zone,
        kind: draft.kind,
        at: draft.at,
        cause: draft.cause,
        source: draft.source,
    }
}
