//! Messages from the broker -> requests, and the answers to them.
//!
//! `cmd/<name>` takes `{"id":"…","args":{}}` and is answered on `response/<name>` with
//! `{"id":"…","ok":true,"data":{},"error":null}`; `zone/<zone>/<setting>/set` takes a number and is answered on
//! `response/set_<setting>`. A message with the retain flag is ignored: it is a command of the past.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use super::topics::{Incoming, Topics};
use crate::event::{HOLD_RANGE_S, Request, SENSITIVITY_RANGE};

/// Longest id of a command, bytes.
const MAX_ID: usize = 128;
/// Longest body of a command, bytes.
const MAX_BODY: usize = 16 << 10;

/// The outcome of a request: data for the sender, or one sentence on what is wrong.
pub type Answer = Result<Value, String>;

/// A request with the way back for its outcome. Dropping `answer` unused tells the sender that nobody answered.
#[derive(Debug)]
pub struct Command {
    /// What is asked.
    pub request: Request,
    /// Where the outcome goes.
    pub answer: oneshot::Sender<Answer>,
}

/// What a message means.
#[derive(Debug, PartialEq)]
pub(super) enum Parsed {
    /// Home Assistant has started.
    Birth,
    /// Nothing to do; the reason if it is worth a log line.
    Ignored(Option<&'static str>),
    /// A request for the pipeline or, if [`Request::Announce`], for the connection itself.
    Request { name: String, id: Option<String>, request: Request },
    /// An error to answer with.
    Refused { name: String, id: Option<String>, error: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    args: Map<String, Value>,
}

/// Reads one message; `zones` are the ids that exist.
pub(super) fn parse(topics: &Topics, topic: &str, payload: &[u8], retain: bool, zones: &[&str]) -> Parsed {
    match topics.classify(topic) {
        // Retained by some set-ups; then it says nothing about now.
        Incoming::HomeAssistant if payload == b"online" && !retain => Parsed::Birth,
        Incoming::HomeAssistant => Parsed::Ignored(None),
        Incoming::Unknown => Parsed::Ignored(Some("a topic we did not ask for")),
        _ if retain => Parsed::Ignored(Some("a retained command: publish commands without the retain flag")),
        Incoming::Command(name) => command(name, payload, zones),
        Incoming::ZoneSetting { zone, setting } => {
            let name = format!("set_{setting}");
            let number = std::str::from_utf8(payload).ok().and_then(|text| text.trim().parse().ok());
            let result = match number {
                Some(value) => set(setting, zone, value, zones),
                None => Err("expected a number as the whole payload".to_owned()),
            };
            finish(name, None, result)
        }
    }
}

fn command(name: &str, payload: &[u8], zones: &[&str]) -> Parsed {
    let refused = |error: &str| Parsed::Refused { name: name.to_owned(), id: None, error: error.to_owned() };
    if payload.len() > MAX_BODY {
        return refused("the payload is longer than 16 KiB");
    }
    let body = if payload.trim_ascii().is_empty() {
        Body { id: None, args: Map::new() }
    } else {
        match serde_json::from_slice::<Body>(payload) {
            Ok(body) => body,
            Err(e) => return refused(&format!("expected {{\"id\":\"…\",\"args\":{{}}}}: {e}")),
        }
    };
    if body.id.as_ref().is_some_and(|id| id.len() > MAX_ID) {
        return refused("the id is longer than 128 bytes");
    }
    let result = match name {
        "reload" => no_args(&body.args).map(|()| Request::Reload),
        "announce" => no_args(&body.args).map(|()| Request::Announce),
        "set_hold" => zone_args(&body.args, "seconds").and_then(|(zone, v)| set("hold", zone, v, zones)),
        "set_sensitivity" => zone_args(&body.args, "value").and_then(|(zone, v)| set("sensitivity", zone, v, zones)),
        _ => Err(format!("unknown command `{name}`: known are announce, reload, set_hold, set_sensitivity")),
    };
    finish(name.to_owned(), body.id, result)
}

fn finish(name: String, id: Option<String>, result: Result<Request, String>) -> Parsed {
    match result {
        Ok(request) => Parsed::Request { name, id, request },
        Err(error) => Parsed::Refused { name, id, error },
    }
}

fn no_args(args: &Map<String, Value>) -> Result<(), String> {
    match args.keys().next() {
        None => Ok(()),
        Some(key) => Err(format!("unknown argument `{key}`: this command takes none")),
    }
}

/// The arguments `zone` and `number`, and nothing else.
fn zone_args<'a>(args: &'a Map<String, Value>, number: &str) -> Result<(&'a str, f32), String> {
    if let Some(key) = args.keys().find(|key| *key != "zone" && *key != number) {
        return Err(format!("unknown argument `{key}`: expected zone and {number}"));
    }
    let zone = args.get("zone").and_then(Value::as_str).ok_or("expected the argument zone, a zone id")?;
    let value = args.get(number).and_then(Value::as_f64);
    Ok((zone, value.ok_or_else(|| format!("expected the argument {number}, a number"))? as f32))
}

fn set(setting: &str, zone: &str, value: f32, zones: &[&str]) -> Result<Request, String> {
    let (low, high) = match setting {
        "hold" => HOLD_RANGE_S,
        "sensitivity" => SENSITIVITY_RANGE,
        _ => return Err(format!("unknown setting `{setting}`: known are hold and sensitivity")),
    };
    if !zones.contains(&zone) {
        return Err(format!("unknown zone `{zone}`: known are {}", zones.join(", ")));
    }
    // A NaN lies in no range.
    if !(low..=high).contains(&value) {
        return Err(format!("{setting} must be between {low} and {high}, got {value}"));
    }
    let zone = zone.to_owned();
    Ok(match setting {
        "hold" => Request::SetHold { zone, seconds: value },
        _ => Request::SetSensitivity { zone, value },
    })
}

/// The body of an answer.
pub(super) fn response(id: Option<&str>, answer: &Answer) -> String {
    let (data, error) = match answer {
        Ok(data) => (data.clone(), Value::Null),
        Err(error) => (json!({}), json!(error)),
    };
    json!({"id": id, "ok": answer.is_ok(), "data": data, "error": error}).to_string()
}

/// Lets bursts of commands through and holds back floods: a bucket of tokens that fills with time.
#[derive(Debug)]
pub(super) struct RateLimit {
    tokens: f64,
    at_ms: u64,
}

impl RateLimit {
    const BURST: f64 = 20.0;
    const PER_SECOND: f64 = 4.0;

    pub(super) fn new() -> Self {
        Self { tokens: Self::BURST, at_ms: 0 }
    }

    /// Whether one more command may pass at this time.
    pub(super) fn pass(&mut self, now_ms: u64) -> bool {
        let passed = now_ms.saturating_sub(self.at_ms) as f64 / 1e3;
        self.tokens = (self.tokens + passed * Self::PER_SECOND).min(Self::BURST);
        self.at_ms = now_ms;
        let pass = self.tokens >= 1.0;
        if pass {
            self.tokens -= 1.0;
        }
        pass
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(topic: &str, payload: &str, retain: bool) -> Parsed {
        let topics = Topics::new("aetherd", "a", "homeassistant").unwrap();
        parse(&topics, topic, payload.as_bytes(), retain, &["bed", "hall"])
    }

    #[test]
    fn good_commands() {
        assert_eq!(
            read("aetherd/a/cmd/reload", r#"{"id":"7"}"#, false),
            Parsed::Request { name: "reload".into(), id: Some("7".into()), request: Request::Reload }
        );
        assert_eq!(
            read("aetherd/a/zone/bed/hold/set", "45", false),
            Parsed::Request {
                name: "set_hold".into(),
                id: None,
                request: Request::SetHold { zone: "bed".into(), seconds: 45.0 }
            }
        );
        let Parsed::Request { request, .. } =
            read("aetherd/a/cmd/set_sensitivity", r#"{"args":{"zone":"hall","value":1.5}}"#, false)
        else {
            panic!("refused")
        };
        assert_eq!(request, Request::SetSensitivity { zone: "hall".into(), value: 1.5 });
        assert_eq!(read("homeassistant/status", "online", false), Parsed::Birth);
    }

    #[test]
    fn bad_ones_are_answered_with_what_is_wrong() {
        for (topic, payload, part) in [
            ("aetherd/a/cmd/reload", "{", "expected"),
            ("aetherd/a/cmd/reload", r#"{"ids":"7"}"#, "ids"),
            ("aetherd/a/cmd/reload", r#"{"args":{"x":1}}"#, "`x`"),
            ("aetherd/a/cmd/reboot", "", "unknown command"),
            ("aetherd/a/cmd/set_hold", r#"{"args":{"zone":"bed"}}"#, "seconds"),
            ("aetherd/a/zone/attic/hold/set", "45", "bed, hall"),
            ("aetherd/a/zone/bed/hold/set", "NaN", "between"),
            ("aetherd/a/zone/bed/hold/set", "0", "between"),
            ("aetherd/a/zone/bed/hold/set", "ON", "number"),
            ("aetherd/a/zone/bed/colour/set", "1", "unknown setting"),
        ] {
            let Parsed::Refused { error, .. } = read(topic, payload, false) else { panic!("{topic} {payload} passed") };
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn retained_ones_are_ignored() {
        assert!(matches!(read("aetherd/a/cmd/reload", "", true), Parsed::Ignored(Some(_))));
        assert!(matches!(read("aetherd/a/zone/bed/hold/set", "45", true), Parsed::Ignored(Some(_))));
        assert_eq!(read("homeassistant/status", "online", true), Parsed::Ignored(None));
    }

    #[test]
    fn answers_have_one_form() {
        let value: Value = serde_json::from_str(&response(Some("7"), &Err("no".into()))).unwrap();
        assert_eq!(value, json!({"id": "7", "ok": false, "data": {}, "error": "no"}));
    }

    #[test]
    fn a_flood_is_held_back_and_a_burst_is_not() {
        let mut limit = RateLimit::new();
        assert_eq!((0..100).filter(|_| limit.pass(1000)).count(), 20);
        assert_eq!((0..100).filter(|_| limit.pass(2000)).count(), 4);
    }
}
