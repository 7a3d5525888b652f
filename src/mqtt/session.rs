//! What happens on one connection, from the broker's acceptance to its end.
//!
//! *In*: the latest snapshot, the journal, messages of the broker, acknowledgements. *Out*: messages, in the order
//! status, discovery, availability, states, events. *State*: what waits to be sent, what is unacknowledged.
//!
//! Messages are pulled, not pushed: whenever there is room in the window of unacknowledged messages, the most important
//! one that is due is taken. So a slow broker delays states, each still with its newest value, and nothing piles up.

mod received;
mod stop;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::client::{Client, ClientEvent, Failure, FailureKind, Message, Receipt, Received};
use super::commands::{Answer, RateLimit};
use super::connection::{Control, Worker};
use super::discovery;
use super::inventory::Plan;
use super::snapshot::Snapshot;
use super::states::{self, Shape};
use crate::event::Record;

/// Unacknowledged messages at most.
const WINDOW: usize = 48;
/// Unacknowledged events at most, so that events leave room for states.
const EVENT_WINDOW: usize = 16;
/// Events read from the journal at a time.
const EVENT_BATCH: usize = 64;
/// Longest sleep of the loop; what has no timer of its own is looked at this often.
const TICK: Duration = Duration::from_secs(1);
/// Discovery is planned again this often even if nothing changed, to forget nodes that are long gone.
const REPLAN: Duration = Duration::from_secs(3600);

/// What an acknowledgement is for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Plain,
    Plan,
    Event(u64),
    Clear(String),
}

/// Why a session ended.
pub(super) enum End {
    /// The daemon stops; `offline` was published.
    Stopped,
    Failed(Failure),
}

pub(super) struct Session<'a> {
    worker: &'a mut Worker,
    client: Client,
    started: Instant,
    to_acknowledge: mpsc::UnboundedSender<(Token, Receipt)>,
    acknowledged: mpsc::UnboundedReceiver<(Token, bool)>,
    collector: JoinHandle<()>,
    outstanding: usize,
    /// Last sign of life of the broker with regard to acknowledgements.
    alive_at: Instant,
    /// Status, discovery and answers, before everything else.
    first: VecDeque<(Token, Message)>,
    snapshot: Option<Arc<Snapshot>>,
    shape: Option<Shape>,
    plan: Option<(Plan, usize)>,
    plan_everything: bool,
    planned_at: Instant,
    absent: Vec<String>,
    announce_at: Option<Instant>,
    states_from: Instant,
    clear_at: Option<Instant>,
    last_sent_event: u64,
    events: VecDeque<Record>,
    events_in_flight: usize,
    event_read: Option<JoinHandle<Vec<Record>>>,
    /// Not before this time, after a read that found nothing although there should be something.
    event_read_from: Instant,
    answers: JoinSet<(String, Option<String>, Answer)>,
    rate: RateLimit,
}

impl<'a> Session<'a> {
    pub(super) fn new(worker: &'a mut Worker, client: Client) -> Self {
        let now = Instant::now();
        let (to_acknowledge, mut receipts) = mpsc::unbounded_channel::<(Token, Receipt)>();
        let (done, acknowledged) = mpsc::unbounded_channel();
        // Brokers acknowledge in order, so one after the other is no loss. Both queues are bounded by the window.
        let collector = tokio::spawn(async move {
            while let Some((token, receipt)) = receipts.recv().await {
                if done.send((token, receipt.acknowledged().await)).is_err() {
                    return;
                }
            }
        });
        worker.throttle.forget_sent();
        let clear_delay = Duration::from_millis(worker.settings.clear_delay_ms);
        let last_sent_event = worker.journal.delivered();
        Self {
            worker,
            client,
            started: now,
            to_acknowledge,
            acknowledged,
            collector,
            outstanding: 0,
            alive_at: now,
            first: VecDeque::new(),
            snapshot: None,
            shape: None,
            plan: None,
            // The broker may have lost what it retained, and the same document again does no harm.
            plan_everything: true,
            planned_at: now,
            absent: Vec::new(),
            announce_at: None,
            states_from: now,
            clear_at: Some(now + clear_delay),
            last_sent_event,
            events: VecDeque::new(),
            events_in_flight: 0,
            event_read: None,
            event_read_from: now,
            answers: JoinSet::new(),
            rate: RateLimit::new(),
        }
    }

    /// Runs until the connection ends or the daemon stops.
    pub(super) async fn run(mut self) -> End {
        let filters = self.worker.topics.subscriptions(self.worker.settings.discovery);
        if let Err(failure) = self.client.subscribe(&filters) {
            return End::Failed(failure);
        }
        self.push_status();
        self.take_snapshot();
        let mut new_events = self.worker.journal.subscribe();
        loop {
            if let Err(failure) = self.send_what_is_due() {
                return End::Failed(failure);
            }
            if let Some(failure) = self.silence() {
                return End::Failed(failure);
            }
            let wake = self.next_wake();
            tokio::select! {
                event = self.client.next() => match event {
                    ClientEvent::Received(message) => self.received(message),
                    ClientEvent::Closed(failure) => return End::Failed(failure),
                },
                Some((token, good)) = self.acknowledged.recv() => self.on_acknowledged(token, good),
                Ok(()) = self.worker.snapshots.changed() => self.take_snapshot(),
                Ok(()) = new_events.changed() => {}
                Some(records) = read_done(&mut self.event_read) => self.events_read(records),
                Some(Ok((name, id, answer))) = self.answers.join_next() => self.push_answer(&name, id.as_deref(), &answer),
                control = self.worker.control.recv() => match control {
                    Some(Control::Announce) => self.announce_at = Some(Instant::now()),
                    None => return self.stop().await,
                },
                () = stopped(&mut self.worker.shutdown) => return self.stop().await,
                () = sleep_until(wake) => {}
            }
            self.on_time();
        }
    }

    fn now_ms(&self) -> u64 {
        self.worker.epoch.elapsed().as_millis() as u64
    }

    fn push_status(&mut self) {
        let topic = self.worker.topics.status();
        self.first.push_back((Token::Plain, retained(topic, "online".into())));
    }

    fn take_snapshot(&mut self) {
        let snapshot = self.worker.snapshots.borrow_and_update().clone();
        // The value before the pipeline's first one. Announcing it would remove everything.
        if snapshot.version.is_empty() {
            return;
        }
        self.snapshot = Some(snapshot);
        self.plan_discovery();
        self.offer_states();
    }

    fn offer_states(&mut self) {
        if let Some(snapshot) = &self.snapshot {
            let worker = &mut *self.worker;
            states::offer_all(&mut worker.throttle, &worker.topics, &worker.settings, snapshot, &self.absent);
        }
    }

    /// Compares what is announced with what should be, unless that is under way.
    fn plan_discovery(&mut self) {
        let Some(snapshot) = self.snapshot.clone() else { return };
        let shape = Shape::of(&snapshot);
        let due = self.plan_everything || self.shape.as_ref() != Some(&shape) || self.planned_at.elapsed() >= REPLAN;
        if self.plan.is_some() || !due {
            return;
        }
        let settings = &self.worker.settings;
        let wanted = match settings.discovery {
            true => discovery::documents(&self.worker.topics, &snapshot, &settings.configuration_url),
            false => Vec::new(),
        };
        let now_s = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_secs());
        let forget_s = u64::from(settings.forget_node_days) * 86_400;
        let plan = self.worker.inventory.plan(&wanted, self.plan_everything, now_s, forget_s);
        self.plan_everything = false;
        self.shape = Some(shape);
        self.planned_at = Instant::now();
        self.absent.clone_from(&plan.absent);
        self.offer_states();
        for message in &plan.messages {
            self.first.push_back((Token::Plan, retained(message.topic.clone(), message.payload.clone())));
        }
        let pending = plan.messages.len();
        self.plan = Some((plan, pending));
        self.commit_if_complete();
    }

    fn commit_if_complete(&mut self) {
        if self.plan.as_ref().is_none_or(|(_, pending)| *pending > 0) {
            return;
        }
        if let Some((plan, _)) = self.plan.take()
            && !plan.is_unchanged(&self.worker.inventory)
        {
            self.worker.inventory.commit(plan);
            self.worker.save_inventory();
            self.clear_at = Some(Instant::now() + Duration::from_millis(self.worker.settings.clear_delay_ms));
        }
        // Something may have changed while the plan was on its way.
        self.plan_discovery();
    }

    fn on_acknowledged(&mut self, token: Token, good: bool) {
        self.outstanding -= 1;
        if !good {
            return;
        }
        self.alive_at = Instant::now();
        let event = matches!(token, Token::Event(_));
        self.worker.status.update(|s| {
            s.acknowledged_total += 1;
            s.events_total += u64::from(event);
            s.last_ack = Some(self.alive_at.into_std());
        });
        match token {
            Token::Plain => {}
            Token::Plan => {
                if let Some((_, pending)) = &mut self.plan {
                    *pending -= 1;
                }
                self.commit_if_complete();
            }
            Token::Event(seq) => {
                self.events_in_flight -= 1;
                self.worker.journal.mark_delivered(seq);
            }
            Token::Clear(topic) => {
                self.worker.inventory.cleared(&topic);
                if self.worker.inventory.to_clear().is_empty() {
                    self.worker.save_inventory();
                }
            }
        }
    }

    /// Fills the window of unacknowledged messages.
    fn send_what_is_due(&mut self) -> Result<(), Failure> {
        while self.outstanding < WINDOW {
            let Some((token, message)) = self.next_message() else { return Ok(()) };
            if self.outstanding == 0 {
                self.alive_at = Instant::now();
            }
            let receipt = self.client.publish(&message)?;
            self.outstanding += 1;
            self.worker.status.update(|s| s.published_total += 1);
            // The collector lives as long as this session.
            let _ = self.to_acknowledge.send((token, receipt));
        }
        Ok(())
    }

    fn next_message(&mut self) -> Option<(Token, Message)> {
        if let Some(next) = self.first.pop_front() {
            return Some(next);
        }
        if self.snapshot.is_none() || Instant::now() < self.states_from {
            return None;
        }
        let now_ms = self.now_ms();
        if let Some((topic, payload)) = self.worker.throttle.take_due(now_ms) {
            let fleeting = topic == self.worker.topics.tracks();
            let diagnostic =
                topic == self.worker.topics.health() || topic.contains("/node/") && topic.ends_with("/state");
            let acknowledged = !diagnostic && !fleeting;
            return Some((Token::Plain, Message { topic, payload, acknowledged, retain: !fleeting }));
        }
        if self.events_in_flight < EVENT_WINDOW {
            return self.next_event();
        }
        None
    }

    fn next_event(&mut self) -> Option<(Token, Message)> {
        if self.events.is_empty() && self.event_read.is_none() && Instant::now() >= self.event_read_from {
            match self.worker.journal.recent_after(self.last_sent_event, EVENT_BATCH) {
                Some(records) => self.events.extend(records),
                None => {
                    let (journal, after) = (self.worker.journal.clone(), self.last_sent_event);
                    let read = move || journal.undelivered_after(after, EVENT_BATCH);
                    self.event_read = Some(tokio::task::spawn_blocking(read));
                }
            }
        }
        let record = self.events.pop_front()?;
        self.last_sent_event = record.seq;
        self.events_in_flight += 1;
        let message = Message {
            topic: self.worker.topics.zone_event(&record.event.zone),
            payload: super::payload::event(&record.event).to_string(),
            acknowledged: true,
            retain: false,
        };
        Some((Token::Event(record.seq), message))
    }

    fn events_read(&mut self, records: Vec<Record>) {
        if records.is_empty() {
            // A segment that cannot be read just now.
            self.event_read_from = Instant::now() + TICK;
        }
        self.events.extend(records);
    }

    /// The broker holds messages without acknowledging any: the connection is dead although the socket is open.
    fn silence(&self) -> Option<Failure> {
        let limit = Duration::from_millis(self.worker.settings.ack_timeout_ms);
        (self.outstanding > 0 && self.alive_at.elapsed() >= limit).then(|| Failure {
            kind: FailureKind::Silent,
            text: format!("the broker acknowledged none of {} messages for {limit:?}", self.outstanding),
        })
    }

    /// State topics are emptied only once their devices are known to be gone.
    fn may_clear(&self) -> bool {
        self.plan.is_none() && self.snapshot.is_some()
    }

    fn next_wake(&self) -> Instant {
        let now = Instant::now();
        let mut wake = now + TICK;
        if self.outstanding > 0 {
            wake = wake.min(self.alive_at + Duration::from_millis(self.worker.settings.ack_timeout_ms));
        }
        if let Some(at) = self.announce_at {
            wake = wake.min(at);
        }
        if let Some(at) = self.clear_at
            && self.may_clear()
        {
            wake = wake.min(at);
        }
        if now < self.states_from {
            return wake.min(self.states_from);
        }
        if self.outstanding < WINDOW
            && self.snapshot.is_some()
            && let Some(due) = self.worker.throttle.next_due_ms()
        {
            wake = wake.min(now + Duration::from_millis(due.saturating_sub(self.now_ms())));
        }
        wake
    }

    fn on_time(&mut self) {
        let now = Instant::now();
        if self.announce_at.is_some_and(|at| now >= at) {
            self.announce_at = None;
            self.push_status();
            self.plan_everything = true;
            self.worker.throttle.forget_sent();
            self.states_from = now + Duration::from_millis(self.worker.settings.birth_settle_ms);
        }
        self.plan_discovery();
        if self.clear_at.is_some_and(|at| now >= at) && self.may_clear() {
            self.clear_at = None;
            for topic in self.worker.inventory.to_clear() {
                self.first.push_back((Token::Clear(topic.clone()), retained(topic, String::new())));
            }
        }
        if self.started.elapsed() >= Duration::from_millis(self.worker.settings.stable_ms) {
            self.worker.lasting();
        }
        self.worker.journal_tick();
    }
}

fn retained(topic: String, payload: String) -> Message {
    Message { topic, payload, acknowledged: true, retain: true }
}

/// The result of a journal read that is under way; never resolves if there is none.
async fn read_done(read: &mut Option<JoinHandle<Vec<Record>>>) -> Option<Vec<Record>> {
    match read {
        None => std::future::pending().await,
        Some(handle) => {
            let records = handle.await.unwrap_or_default();
            *read = None;
            Some(records)
        }
    }
}

/// Resolves when the daemon stops.
pub(super) async fn stopped(shutdown: &mut tokio::sync::watch::Receiver<bool>) {
    // A sender that is gone means the same.
    let _ = shutdown.wait_for(|stop| *stop).await;
}
