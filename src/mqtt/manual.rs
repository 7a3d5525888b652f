//! Discovery by hand and a test of the connection, for the command line. Each is one short connection of its own, with
//! another client id than the daemon's, so that a running daemon is not kicked out.

use std::path::Path;
use std::time::Duration;

use super::client::{Client, ClientEvent, Message};
use super::discovery::{self, Announcement};
use super::inventory::Inventory;
use super::settings::{Settings, SettingsError};
use super::snapshot::Snapshot;

/// How long one message may take.
const ACK_LIMIT: Duration = Duration::from_secs(10);

/// Why discovery could not be published or cleared.
#[derive(Debug, thiserror::Error)]
pub enum ManualError {
    /// The settings contradict themselves.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// No connection; the text says what to check.
    #[error("{0}")]
    Connection(String),
    /// The broker did not take a message.
    #[error("the broker did not acknowledge `{0}`: check its log and its access list")]
    NotAcknowledged(String),
    /// The inventory cannot be written.
    #[error("cannot write the inventory: make the state directory writable")]
    Inventory(#[source] std::io::Error),
}

/// Connects with the given settings and disconnects again.
///
/// # Errors
/// What stands in the way, as a sentence with the cure.
pub async fn probe(settings: &Settings) -> Result<(), ManualError> {
    connect(settings).await?.disconnect(Duration::from_secs(1)).await;
    Ok(())
}

/// Publishes the discovery of everything in the snapshot, removes what the inventory holds beyond it, and writes the
/// inventory. Returns the number of messages.
///
/// # Errors
/// If there is no connection or the broker refuses a message.
pub async fn publish_discovery(
    settings: &Settings,
    state_dir: &Path,
    snapshot: &Snapshot,
) -> Result<usize, ManualError> {
    let topics = settings.check()?;
    let wanted = discovery::documents(&topics, snapshot, &settings.configuration_url);
    send_plan(settings, state_dir, &wanted).await
}

/// Removes everything we announced, by the inventory and by `snapshot`, and empties the retained state topics of it.
/// Returns the number of messages.
///
/// # Errors
/// If there is no connection or the broker refuses a message.
pub async fn clear_discovery(settings: &Settings, state_dir: &Path, snapshot: &Snapshot) -> Result<usize, ManualError> {
    let topics = settings.check()?;
    let mut inventory = Inventory::open(state_dir);
    let mut client = connect(settings).await?;
    let mut sent = 0;
    let configured = discovery::documents(&topics, snapshot, &settings.configuration_url);
    // First what only the inventory knows, then everything; documents of the first plan need not be sent.
    for wanted in [&configured[..], &[]] {
        let plan = inventory.plan(wanted, false, 0, 0);
        for message in plan.messages.iter().filter(|m| m.payload.is_empty()) {
            send(&mut client, &message.topic, &message.payload).await?;
            sent += 1;
        }
        inventory.commit(plan);
    }
    inventory.save().map_err(ManualError::Inventory)?;
    // Home Assistant must have dropped the entities before their topics are emptied, else it logs an error for each.
    tokio::time::sleep(Duration::from_millis(settings.clear_delay_ms)).await;
    for topic in inventory.to_clear() {
        send(&mut client, &topic, "").await?;
        inventory.cleared(&topic);
        sent += 1;
    }
    inventory.save().map_err(ManualError::Inventory)?;
    client.disconnect(Duration::from_secs(1)).await;
    Ok(sent)
}

async fn send_plan(settings: &Settings, state_dir: &Path, wanted: &[Announcement]) -> Result<usize, ManualError> {
    let mut inventory = Inventory::open(state_dir);
    let mut client = connect(settings).await?;
    let now_s = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_secs());
    let plan = inventory.plan(wanted, true, now_s, u64::from(settings.forget_node_days) * 86_400);
    for message in &plan.messages {
        send(&mut client, &message.topic, &message.payload).await?;
    }
    let sent = plan.messages.len();
    inventory.commit(plan);
    inventory.save().map_err(ManualError::Inventory)?;
    client.disconnect(Duration::from_secs(1)).await;
    Ok(sent)
}

async fn connect(settings: &Settings) -> Result<Client, ManualError> {
    let topics = settings.check()?;
    let id = format!("{}_cli_{}", topics.client_id(), std::process::id());
    Client::connect(settings, &id, None).await.map_err(|failure| ManualError::Connection(failure.text))
}

async fn send(client: &mut Client, topic: &str, payload: &str) -> Result<(), ManualError> {
    let message = Message { topic: topic.to_owned(), payload: payload.to_owned(), acknowledged: true, retain: true };
    let receipt = client.publish(&message).map_err(|failure| ManualError::Connection(failure.text))?;
    let refused = || ManualError::NotAcknowledged(topic.to_owned());
    tokio::select! {
        good = receipt.acknowledged() => if good { Ok(()) } else { Err(refused()) },
        event = client.next() => match event {
            ClientEvent::Closed(failure) => Err(ManualError::Connection(failure.text)),
            ClientEvent::Received(_) => Err(refused()),
        },
        () = tokio::time::sleep(ACK_LIMIT) => Err(refused()),
    }
}
