//! The HTTP server. Everything is answered from the last [`Snapshot`]; nothing here touches the sensing path.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::mqtt::Snapshot;
use crate::telemetry::Heartbeat;

/// Settings of the HTTP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Whether there is a server.
    pub enabled: bool,
    /// Address and port; loopback unless you know who can reach it, for there is no login.
    pub listen: SocketAddr,
}

impl Default for Settings {
    fn default() -> Self {
        Self { enabled: true, listen: SocketAddr::from(([127, 0, 0, 1], 8650)) }
    }
}

/// The server cannot start.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen for HTTP on {listen}: {source}; another program may use the port: set web.listen, or web.enabled = false"
)]
pub struct WebError {
    listen: SocketAddr,
    source: std::io::Error,
}

/// What the pages are made of.
#[derive(Clone)]
pub struct Shared {
    /// State.
    pub snapshots: watch::Receiver<Arc<Snapshot>>,
    /// Beats while the sensing thread turns.
    pub heartbeat: Heartbeat,
    /// The broker is connected, or none is configured.
    pub broker_ready: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Extra counters, already in the exposition format's terms.
    pub counters: Arc<dyn Fn() -> super::metrics::Counters + Send + Sync>,
}

/// Serves until `stop` resolves.
pub async fn serve(
    settings: Settings,
    shared: Shared,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), WebError> {
    let fail = |source| WebError { listen: settings.listen, source };
    let listener = TcpListener::bind(settings.listen).await.map_err(fail)?;
    let app = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/api/state", get(state))
        .with_state(shared);
    axum::serve(listener, app).with_graceful_shutdown(stop).await.map_err(fail)
}

/// The sensing thread has not turned for this long: the process is not healthy.
const STUCK: std::time::Duration = std::time::Duration::from_secs(5);

async fn healthz(State(shared): State<Shared>) -> impl IntoResponse {
    let age = shared.heartbeat.age();
    if age < STUCK {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("the sensing thread has not turned for {} s\n", age.as_secs()))
    }
}

async fn readyz(State(shared): State<Shared>) -> impl IntoResponse {
    let snapshot = shared.snapshots.borrow().clone();
    let frames = snapshot.nodes.iter().any(|n| n.available);
    let broker = (shared.broker_ready)();
    let code = if frames && broker { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(serde_json::json!({ "frames": frames, "broker": broker })))
}

async fn metrics(State(shared): State<Shared>) -> impl IntoResponse {
    let snapshot = shared.snapshots.borrow().clone();
    let text = super::metrics::render(&snapshot, &(shared.counters)());
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}

async fn state(State(shared): State<Shared>) -> impl IntoResponse {
    Json(shared.snapshots.borrow().clone())
}
