//! How often a state is sent. A value is delayed, never dropped: the newest one always goes out in the end.
//!
//! *In*: the latest value per topic, as often as it is computed. *Out*: what is due now, availability before states.
//! *State*: per topic the last value sent and the newest one not sent. Times are milliseconds of any clock that does not jump.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// How a topic is sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rule {
    /// Shortest interval between two messages that differ in their slow part only, milliseconds.
    pub min_interval_ms: u64,
    /// Change of a slow number that is worth a message after `min_interval_ms`.
    pub dead_band: f64,
    /// A smaller change is sent after this time at the latest, milliseconds.
    pub max_delay_ms: u64,
}

impl Rule {
    /// Every change at once.
    pub const ON_CHANGE: Self = Self { min_interval_ms: 0, dead_band: 0.0, max_delay_ms: 0 };
}

/// The latest value for a topic.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// The message.
    pub body: String,
    /// What must never wait, as text; a change of it sends the message at once.
    pub urgent: String,
    /// The numbers that may wait.
    pub slow: Vec<Option<f64>>,
    /// How the topic is sent.
    pub rule: Rule,
}

impl Offer {
    /// A value whose every change goes out at once.
    pub fn on_change(body: impl Into<String>) -> Self {
        let body = body.into();
        Self { urgent: body.clone(), body, slow: Vec::new(), rule: Rule::ON_CHANGE }
    }
}

#[derive(Debug)]
struct Slot {
    sent: Option<(Offer, u64)>,
    newest: Offer,
}

impl Slot {
    /// When the newest value is due; `None` if it was sent.
    fn due_ms(&self) -> Option<u64> {
        let Some((sent, at)) = &self.sent else { return Some(0) };
        if sent.body == self.newest.body {
            return None;
        }
        if sent.urgent != self.newest.urgent {
            return Some(0);
        }
        let rule = self.newest.rule;
        let changed = sent.slow.len() != self.newest.slow.len()
            || sent.slow.iter().zip(&self.newest.slow).any(|(a, b)| match (a, b) {
                (Some(a), Some(b)) => (a - b).abs() >= rule.dead_band,
                (a, b) => a.is_some() != b.is_some(),
            });
        Some(at + if changed { rule.min_interval_ms } else { rule.max_delay_ms.max(rule.min_interval_ms) })
    }
}

/// The latest value of every state topic, and which are due.
#[derive(Debug, Default)]
pub struct Throttle {
    slots: BTreeMap<Key, Slot>,
}

/// Availability sorts first.
type Key = (bool, String);

fn key(topic: &str) -> Key {
    (!topic.ends_with("/availability"), topic.to_owned())
}

impl Throttle {
    /// The value of `topic` is now `offer`.
    pub fn offer(&mut self, topic: &str, offer: Offer) {
        match self.slots.entry(key(topic)) {
            Entry::Occupied(mut slot) => slot.get_mut().newest = offer,
            Entry::Vacant(empty) => {
                empty.insert(Slot { sent: None, newest: offer });
            }
        }
    }

    /// The next message that is due, as (topic, body); it counts as sent.
    pub fn take_due(&mut self, now_ms: u64) -> Option<(String, String)> {
        let due = |slot: &Slot| slot.due_ms().is_some_and(|at| at <= now_ms);
        let ((_, topic), slot) = self.slots.iter_mut().find(|(_, slot)| due(slot))?;
        slot.sent = Some((slot.newest.clone(), now_ms));
        Some((topic.clone(), slot.newest.body.clone()))
    }

    /// When the next message is due; `None` if nothing waits.
    pub fn next_due_ms(&self) -> Option<u64> {
        self.slots.values().filter_map(Slot::due_ms).min()
    }

    /// Nothing counts as sent any more: everything goes out again.
    pub fn forget_sent(&mut self) {
        for slot in self.slots.values_mut() {
            slot.sent = None;
        }
    }

    /// The topic does not exist any more.
    pub fn remove(&mut self, topic: &str) {
        self.slots.remove(&key(topic));
    }

    /// Topics that hold a value.
    pub fn topics(&self) -> impl Iterator<Item = &str> {
        self.slots.keys().map(|(_, topic)| topic.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Rule = Rule { min_interval_ms: 10_000, dead_band: 0.1, max_delay_ms: 60_000 };

    fn zone(occupied: &str, score: f64) -> Offer {
        let body = format!("{occupied} {score}");
        Offer { body, urgent: occupied.into(), slow: vec![Some(score)], rule: RULE }
    }

    fn bodies(t: &mut Throttle, now_ms: u64) -> Vec<String> {
        std::iter::from_fn(|| t.take_due(now_ms)).map(|(_, body)| body).collect()
    }

    #[test]
    fn a_binary_change_is_never_delayed_and_no_change_is_never_sent() {
        let mut t = Throttle::default();
        t.offer("z", zone("OFF", 0.0));
        assert_eq!(bodies(&mut t, 5), ["OFF 0"]);
        t.offer("z", zone("OFF", 0.0));
        assert_eq!(t.next_due_ms(), None);
        t.offer("z", zone("ON", 0.0));
        assert_eq!(bodies(&mut t, 6), ["ON 0"]);
    }

    #[test]
    fn the_newest_score_is_delayed_not_dropped() {
        let mut t = Throttle::default();
        t.offer("z", zone("ON", 1.0));
        assert_eq!(bodies(&mut t, 0), ["ON 1"]);
        for (i, score) in [1.5, 2.0, 1.7].into_iter().enumerate() {
            t.offer("z", zone("ON", score));
            assert!(bodies(&mut t, 100 * i as u64).is_empty());
        }
        assert_eq!(t.next_due_ms(), Some(10_000));
        assert!(bodies(&mut t, 9_999).is_empty());
        assert_eq!(bodies(&mut t, 10_000), ["ON 1.7"]);
        // Within the dead band: later, but it comes.
        t.offer("z", zone("ON", 1.75));
        assert!(bodies(&mut t, 30_000).is_empty());
        assert_eq!(bodies(&mut t, 70_000), ["ON 1.75"]);
    }

    #[test]
    fn after_a_new_connection_everything_is_sent_again() {
        let mut t = Throttle::default();
        t.offer("a/state", Offer::on_change("1"));
        t.offer("b/availability", Offer::on_change("online"));
        assert_eq!(bodies(&mut t, 0), ["online", "1"]);
        assert!(bodies(&mut t, 1).is_empty());
        t.forget_sent();
        assert_eq!(bodies(&mut t, 1), ["online", "1"]);
    }

    #[test]
    fn unknown_and_known_differ_by_more_than_any_dead_band() {
        let mut t = Throttle::default();
        t.offer("z", zone("ON", 1.0));
        t.take_due(0);
        t.offer("z", Offer { slow: vec![None], body: "ON null".into(), ..zone("ON", 0.0) });
        assert_eq!(bodies(&mut t, 10_000), ["ON null"]);
    }
}
