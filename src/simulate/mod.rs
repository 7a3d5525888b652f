//! A small physical model of Wi-Fi in rooms, as a *source* of wire frames for demos, load and tests.
//!
//! *In*: a [`Scenario`] and a seed. *Out*: datagrams and lines in the very formats that boards send, with times and with
//! the ground truth. *State*: random streams, clocks and sequence numbers per node. Everything is determined by scenario
//! and seed. Units: metres, seconds, hertz.
//!
//! The channel is a sum of paths (direct, six wall images, a random diffuse tail, and the bodies of people as moving
//! scatterers seen directly and by the wall images), each with the phase of its length at each subcarrier frequency. The
//! receiver adds noise, a random phase and slope per packet, gain steps and 8-bit rounding. It is a model to exercise the
//! pipeline, not a claim about any real room; whatever comes of it carries [`crate::types::Provenance::Simulated`].

mod channel;
mod encode;
mod person;
mod presets;
mod radio;
mod scenario;
mod simulator;
#[cfg(test)]
mod tests;

pub use encode::{EncodeError, encode};
pub use presets::PRESETS;
pub use scenario::{
    Doing, Label, NodeFormat, NodeSetup, PersonSetup, Phase, RadioSetup, Room, Scenario, ScenarioError,
    TransmitterSetup, TruthSpan,
};
pub use simulator::Simulator;
