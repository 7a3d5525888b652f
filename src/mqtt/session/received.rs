//! Messages of the broker: birth messages, commands, and the answers to them.

use std::time::Duration;

use rand::Rng;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Message, Received, Session, Token};
use crate::event::Request;
use crate::mqtt::commands::{self, Answer, Command, Parsed};

/// Commands that wait for their answer at most.
const MAX_PENDING_ANSWERS: usize = 16;
/// How long a command waits for its answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

impl Session<'_> {
    pub(super) fn received(&mut self, message: Received) {
        let snapshot = self.snapshot.clone().unwrap_or_default();
        let zones: Vec<&str> = snapshot.zones.iter().map(|z| z.state.zone.as_str()).collect();
        let parsed = commands::parse(&self.worker.topics, &message.topic, &message.payload, message.retain, &zones);
        if let Parsed::Request { .. } | Parsed::Refused { .. } = parsed
            && !self.rate.pass(self.now_ms())
        {
            tracing::warn!(topic = message.topic, "command dropped: too many commands");
            self.worker.status.update(|s| s.commands_refused_total += 1);
            return;
        }
        match parsed {
            Parsed::Birth => {
                let delay = match self.worker.settings.birth_delay_max_ms {
                    0 => 0,
                    max => self.worker.rng.random_range(0..=max),
                };
                tracing::info!(delay_ms = delay, "home assistant has started, announcing everything again");
                self.announce_at = Some(Instant::now() + Duration::from_millis(delay));
                self.worker.status.update(|s| s.home_assistant_seen = true);
            }
            Parsed::Ignored(None) => {}
            Parsed::Ignored(Some(reason)) => {
                tracing::warn!(topic = message.topic, reason, "message ignored");
                self.worker.status.update(|s| s.commands_refused_total += 1);
            }
            Parsed::Refused { name, id, error } => {
                tracing::warn!(command = name, error, "command refused");
                self.worker.status.update(|s| s.commands_refused_total += 1);
                self.push_answer(&name, id.as_deref(), &Err(error));
            }
            Parsed::Request { name, id, request } => {
                self.worker.status.update(|s| s.commands_total += 1);
                self.forward(name, id, request);
            }
        }
    }

    fn forward(&mut self, name: String, id: Option<String>, request: Request) {
        if request == Request::Announce {
            self.announce_at = Some(Instant::now());
            return self.push_answer(&name, id.as_deref(), &Ok(serde_json::json!({})));
        }
        let (answer, outcome) = oneshot::channel();
        let busy = self.answers.len() >= MAX_PENDING_ANSWERS;
        if busy || self.worker.requests.try_send(Command { request, answer }).is_err() {
            return self.push_answer(&name, id.as_deref(), &Err("the daemon is busy, try again".into()));
        }
        self.answers.spawn(async move {
            let answer = match tokio::time::timeout(ANSWER_LIMIT, outcome).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err("the daemon could not carry this out".into()),
                Err(_) => Err("no answer within 10 seconds".into()),
            };
            (name, id, answer)
        });
    }

    pub(super) fn push_answer(&mut self, name: &str, id: Option<&str>, answer: &Answer) {
        let message = Message {
            topic: self.worker.topics.response(name),
            payload: commands::response(id, answer),
            acknowledged: true,
            retain: false,
        };
        self.first.push_back((Token::Plain, message));
    }
}
