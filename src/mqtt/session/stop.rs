//! The end of a connection that we want ourselves.

use std::time::Duration;

use tokio::time::Instant;

use super::{ClientEvent, End, Session, retained};

/// How long a clean stop waits for the broker.
const STOP_LIMIT: Duration = Duration::from_secs(2);

impl Session<'_> {
    /// Publishes `offline` itself, since the broker sends no will after a clean disconnect. If the broker does not take
    /// it, the socket is closed without a disconnect, and the will does it.
    pub(super) async fn stop(mut self) -> End {
        let message = retained(self.worker.topics.status(), "offline".into());
        if let Ok(receipt) = self.client.publish(&message) {
            let limit = Instant::now() + STOP_LIMIT;
            let client = &mut self.client;
            let offline = async {
                let receipt = receipt.acknowledged();
                tokio::pin!(receipt);
                loop {
                    tokio::select! {
                        good = &mut receipt => return good,
                        event = client.next() => if let ClientEvent::Closed(_) = event { return false },
                    }
                }
            };
            let good = tokio::time::timeout_at(limit, offline).await.unwrap_or(false);
            // Events acknowledged meanwhile need not be sent again after the restart.
            while let Ok((token, good)) = self.acknowledged.try_recv() {
                self.on_acknowledged(token, good);
            }
            if good {
                self.collector.abort();
                self.client.disconnect(STOP_LIMIT).await;
            }
        }
        End::Stopped
    }
}
