//! Watching the broker from outside, as any other client would: for the live view of `aetherd demo`.

use super::client::{Client, ClientEvent};
use super::manual::ManualError;
use super::settings::Settings;

/// Subscribes to `filters` under a client id of its own and hands every message (topic, payload, retained) to
/// `on_message`, until the connection ends. Dropping the future ends it too.
///
/// # Errors
/// If there is no connection, or once it is lost.
pub async fn observe(
    settings: &Settings,
    filters: &[String],
    mut on_message: impl FnMut(&str, &[u8], bool),
) -> Result<(), ManualError> {
    let topics = settings.check()?;
    let id = format!("{}_observer_{}", topics.client_id(), std::process::id());
    let lost = |failure: super::client::Failure| ManualError::Connection(failure.text);
    let mut client = Client::connect(settings, &id, None).await.map_err(lost)?;
    client.subscribe(filters).map_err(lost)?;
    loop {
        match client.next().await {
            ClientEvent::Received(message) => on_message(&message.topic, &message.payload, message.retain),
            ClientEvent::Closed(failure) => return Err(lost(failure)),
        }
    }
}
