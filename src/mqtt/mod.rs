//! States and events -> broker; broker -> [`Request`](crate::event::Request).
//!
//! The rest of the program hands over a [`Snapshot`] (latest value wins) and the event journal (nothing is lost).
//!
//! | file | what |
//! |---|---|
//! | [`topics`] | every topic name |
//! | [`payload`], [`discovery`] | the bodies, as functions of a snapshot |
//! | [`throttle`] | how often a state is sent |
//! | [`inventory`] | what was announced, so that it can be removed |
//! | [`commands`] | messages from the broker, and answers |
//! | `client` | the client library, replaceable |
//! | `session`, `connection` | one connection; keeping one |
//! | `manual`, `observe` | discovery by hand and a live view, for the command line |

mod backoff;
mod client;
pub mod commands;
mod connection;
pub mod discovery;
#[cfg(feature = "embedded-broker")]
pub mod embedded;
pub mod inventory;
mod manual;
mod observe;
pub mod payload;
mod session;
mod settings;
mod snapshot;
mod states;
mod status;
pub mod throttle;
mod tls;
pub mod topics;

pub use commands::{Answer, Command};
pub use connection::{MqttHandle, spawn};
pub use manual::{ManualError, clear_discovery, probe, publish_discovery};
pub use observe::observe;
pub use settings::{PASSWORD_CREDENTIAL, Secret, Settings, SettingsError};
pub use snapshot::{HeadView, NodeView, Snapshot, TrackView, ZoneView};
pub use status::MqttStatus;
