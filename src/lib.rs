//! aetherd: Wi-Fi CSI sensing for small Linux machines.
//!
//! # Layout, in the order the data flows
//!
//! | module | takes in -> gives out |
//! |---|---|
//! | [`frame`] | bytes of a board or a recording -> [`frame::CsiFrame`] |
//! | [`signal`] | frames -> [`signal::LinkFeatures`], four times a second and link |
//! | [`track`] | link features -> [`track::PoseTrack`]: who is where |
//! | [`head`] | tokens of a track -> embedding and class logits, one key/value cache per track |
//! | [`event`] | link features -> [`event::ZoneState`], [`event::Event`], the journal on disk |
//! | [`mqtt`] | states and events -> broker; broker -> [`event::Request`] |
//!
//! Beside the stream: [`config`] (settings), [`telemetry`] (log, counters, health), [`web`] (read-only HTTP),
//! [`simulate`] (a physical model as a *source* of wire frames), [`evaluate`] (accuracy on labelled recordings),
//! [`kernel`] (attention in plain and vector code),
//! [`pipeline`] (wires the stages to threads and queues) and [`cli`] (one file per subcommand).
//!
//! A stage imports only stages before it; `tests/layering.rs` holds the table.

pub mod cli;
pub mod config;
pub mod evaluate;
pub mod event;
pub mod frame;
pub mod head;
pub mod kernel;
pub mod mqtt;
pub mod pipeline;
pub mod signal;
pub mod simulate;
pub mod telemetry;
pub mod track;
pub mod types;
pub mod web;
