//! All links: who lives, who is reported, who gives way.

use super::features::{LinkChange, LinkFeatures};
use super::link::Link;
use super::settings::Settings;
use crate::frame::CsiFrame;
use crate::types::{NodeKey, SensingTime};

/// Most links at a time. A link takes some 300 kB with 56 bins.
const MOST_LINKS: usize = 64;
/// A link is listed from its second frame of a usual pace on: single frames of passing stations are not links.
const LISTED_FRAMES: u64 = 5;
/// Silent for longer, a link is no longer listed, seconds.
const LISTED_SILENT_S: f64 = 60.0;
/// Silent for longer, its memory of its quiet level is given up too, seconds.
const REMEMBERED_SILENT_S: f64 = 3600.0;
/// Frames that make a link established: newcomers do not push it out while it is heard.
const ESTABLISHED_FRAMES: u64 = 50;
const HEARD_S: f64 = 60.0;
/// Most nodes with a sensitivity of their own.
const MOST_NODES: usize = 256;

/// The signal stage.
#[derive(Debug)]
pub struct Signal {
    settings: Settings,
    /// In the order of their keys' first frames.
    links: Vec<Link>,
    sensitivities: Vec<(NodeKey, f32)>,
}

impl Signal {
    /// No link known.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings: Settings {
                sensitivity: finite_between(settings.sensitivity, 0.1, 10.0),
                release_s: finite_between(settings.release_s, 0.25, 30.0),
            },
            links: Vec::with_capacity(MOST_LINKS),
            sensitivities: Vec::with_capacity(16),
        }
    }

    /// Sets the factor on the scores of a node's links (1 = as they are), within 0.1 to 10.
    pub fn set_sensitivity(&mut self, node: NodeKey, factor: f32) {
        let factor = finite_between(factor, 0.1, 10.0);
        if let Some(known) = self.sensitivities.iter_mut().find(|s| s.0 == node) {
            known.1 = factor;
        } else if self.sensitivities.len() < MOST_NODES {
            self.sensitivities.push((node, factor));
        }
    }

    /// Takes one frame, in order of arrival.
    pub fn push(&mut self, frame: &CsiFrame) {
        let key = frame.link();
        let index = self.links.iter().position(|l| l.key == key).or_else(|| self.admit(frame));
        if let Some(index) = index {
            self.links[index].push(frame);
        }
    }

    /// Says what every link looks like at `now`; appends to `out`. Ticks are [`TICK_MICROS`](super::TICK_MICROS) apart.
    pub fn tick(&mut self, now: SensingTime, out: &mut Vec<LinkFeatures>) {
        self.links.retain(|l| l.silent_s(now) <= REMEMBERED_SILENT_S);
        for link in &mut self.links {
            let own = self.sensitivities.iter().find(|s| s.0 == link.key.node).map_or(1.0, |s| s.1);
            let features = link.tick(now, f64::from(own * self.settings.sensitivity));
            if link.frames >= LISTED_FRAMES && link.silent_s(now) <= LISTED_SILENT_S {
                out.push(features);
            }
        }
    }

    /// What the profiles of these links did at the fused frame `now`, one entry for each of `links`; replaces `out`.
    pub fn changes(&self, now: SensingTime, links: &[LinkFeatures], out: &mut Vec<Option<LinkChange>>) {
        out.clear();
        out.extend(links.iter().map(|f| self.links.iter().find(|l| l.key == f.link).and_then(|l| l.change(now))));
    }

    /// A place for a new link; where all are taken, that of the link heard least lately, but of an established one
    /// only if it is silent.
    fn admit(&mut self, frame: &CsiFrame) -> Option<usize> {
        if self.links.len() == MOST_LINKS {
            let now = frame.host_time;
            let gives_way = |l: &Link| l.frames < ESTABLISHED_FRAMES || l.silent_s(now) > HEARD_S;
            let candidates = self.links.iter().enumerate().filter(|(_, l)| gives_way(l));
            let (oldest, _) = candidates.min_by_key(|(_, l)| (l.frames >= ESTABLISHED_FRAMES, l.last_heard))?;
            self.links.remove(oldest);
        }
        self.links.push(Link::new(frame, f64::from(self.settings.release_s)));
        Some(self.links.len() - 1)
    }
}

fn finite_between(value: f32, least: f32, most: f32) -> f32 {
    if value.is_finite() { value.clamp(least, most) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Layout;
    use crate::types::MacAddr;

    fn frame(mac: u16, micros: i64) -> CsiFrame {
        let mut frame = CsiFrame::empty(NodeKey::Serial { port: 0 });
        let [a, b] = mac.to_be_bytes();
        frame.transmitter = Some(MacAddr([2, 0, 0, 0, a, b]));
        frame.host_time = SensingTime(micros);
        frame.layout = Layout::Natural64;
        frame.values.extend((0..128).map(|i| (i * 7 + micros % 5) as i16));
        frame
    }

    #[test]
    fn passing_stations_do_not_push_real_links_out_and_are_not_listed() {
        let mut signal = Signal::new(Settings::default());
        let mut out = Vec::new();
        for i in 0..2000u16 {
            let now = i64::from(i) * 10_000;
            for real in 0..3 {
                signal.push(&frame(real, now));
            }
            signal.push(&frame(1000 + i, now));
        }
        signal.tick(SensingTime(20_000_000), &mut out);
        assert_eq!(out.len(), 3);
        assert!(signal.links.len() <= MOST_LINKS);
    }

    #[test]
    fn a_silent_link_is_listed_for_a_minute_and_remembered_for_an_hour() {
        let mut signal = Signal::new(Settings::default());
        for i in 0..100 {
            signal.push(&frame(1, i * 10_000));
        }
        for (after_s, listed, kept) in [(30, 1, 1), (120, 0, 1), (4000, 0, 0)] {
            let mut out = Vec::new();
            signal.tick(SensingTime(1_000_000 * after_s), &mut out);
            assert_eq!((out.len(), signal.links.len()), (listed, kept), "{after_s}");
        }
    }
}
