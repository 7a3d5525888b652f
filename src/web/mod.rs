//! Read-only HTTP on loopback: is it alive, is it ready, its counters and its state as JSON.

mod metrics;
mod server;

pub use metrics::{Counters, render};
pub use server::{Settings, Shared, WebError, serve};
